"""The free memory of a process, under the limits of control groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fsdpo_data.core.memory_limit import available_memory

MACHINE = 64 * 2**30


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=MACHINE))


def write_group(folder: Path, limit: str, used: int, cached: int = 0, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    is_new = version == 2
    (folder / ("memory.max" if is_new else "memory.limit_in_bytes")).write_text(f"{limit}\n")
    (folder / ("memory.current" if is_new else "memory.usage_in_bytes")).write_text(f"{used}\n")
    prefix = "" if is_new else "total_"
    (folder / "memory.stat").write_text(f"anon 1\n{prefix}inactive_file {cached}\n")


def write_groups(root: Path, lines: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    return root


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == MACHINE
    root = write_groups(tmp_path, "0::/job\n")
    write_group(root / "sys/fs/cgroup/job", "max", 100)
    assert available_memory(root) == MACHINE


def test_the_tightest_group_counts_without_its_cached_files(tmp_path: Path) -> None:
    root = write_groups(tmp_path, "1:name=systemd:/x\n0::/slurm/job/step\n")
    write_group(root / "sys/fs/cgroup/slurm/job/step", "max", 100)
    write_group(root / "sys/fs/cgroup/slurm/job", "8000", 3000, 500)
    write_group(root / "sys/fs/cgroup/slurm", "9000", 3000)
    assert available_memory(root) == 8000 - 3000 + 500


def test_a_container_sees_its_group_as_the_mount(tmp_path: Path) -> None:
    root = write_groups(tmp_path, "0::/../../pod/container\n")
    write_group(root / "sys/fs/cgroup", "5000", 1000)
    assert available_memory(root) == 4000


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    root = write_groups(tmp_path, "7:cpu:/a\n4:memory:/docker/id\n")
    write_group(root / "sys/fs/cgroup/memory", str(2**63 - 4096), 100, version=1)
    write_group(root / "sys/fs/cgroup/memory/docker/id", "7000", 2000, 1000, version=1)
    assert available_memory(root) == 6000
