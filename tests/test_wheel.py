"""The wheel and the sdist work without the checkout, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.proof


def ran(*line: object, cwd: Path, code: int = 0) -> str:
    """Run a program outside the activated environment, and return its output."""
    inherited_names = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in inherited_names if name in os.environ}
    done = subprocess.run(
        [*map(str, line)],
        cwd=cwd,
        env=environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel that uses the other packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    pip = (environment / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    ran(*pip, "--disable-pip-version-check", wheel, cwd=folder)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    for site in map(Path, sys.path):
        for entry in site.iterdir() if site.name == "site-packages" else ():
            if not (borrowed / entry.name).exists() and "fsdpo" not in entry.name:
                (borrowed / entry.name).symlink_to(entry)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return environment / "bin"


def test_it_is_the_wheel_that_runs(installed: Path, tmp_path: Path) -> None:
    packages = "fsdpo_data", "fsdpo_train", "fsdpo_bench", "fsdpo_cards"
    code = (
        f"import {', '.join(packages)}; print({', '.join(f'{name}.__file__' for name in packages)})"
    )
    paths = ran(installed / "python", "-c", code, cwd=tmp_path).split()
    assert all(Path(path).is_relative_to(installed.parent) for path in paths)
    for program in ("fsdpo-data", "fsdpo-train", "fsdpo-bench"):
        assert "Usage" in ran(installed / program, "--help", cwd=tmp_path)
    assert "--seed" in ran(installed / "fsdpo-data", "demo", "--help", cwd=tmp_path)
    planned = ran(installed / "python", "-m", "fsdpo_data", "demo", "--dry-run", cwd=tmp_path)
    assert "fsdpo-train dpo runs/fsdpo-demo/pairs" in planned and not (tmp_path / "runs").exists()


def test_the_sdist_builds_the_same_wheel(installed: Path, tmp_path: Path) -> None:
    """So an installation from the sdist is an installation of the tested wheel."""
    build = (sys.executable, "-m", "hatchling", "build")
    ran(*build, "-t", "sdist", "-d", tmp_path / "dist", cwd=ROOT)
    (sdist,) = (tmp_path / "dist").iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    ran(
        *build,
        "-t",
        "wheel",
        "-d",
        tmp_path / "wheel",
        cwd=tmp_path / sdist.name[: -len(".tar.gz")],
    )
    (rebuilt,) = (tmp_path / "wheel").iterdir()
    (original,) = installed.parents[1].glob("*.whl")
    assert rebuilt.name == original.name and checksums(rebuilt) == checksums(original)


def checksums(wheel: Path) -> dict[str, int]:
    """Return the CRC of each file of a wheel by its name."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_the_demo_runs_from_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    """The vote is ahead of an average sample, the reward model of the vote, training of both."""
    output = ran(installed / "python", "-m", "fsdpo_data", "demo", cwd=tmp_path)
    demo_folder = tmp_path / "runs/fsdpo-demo"
    assert (demo_folder / "policy/config.json").exists() and (
        demo_folder / "after/report.html"
    ).exists()
    assert "a perfect choice" in output and output.rstrip().endswith("after/report.html")
    again = ran(installed / "fsdpo-data", "demo", cwd=tmp_path)
    assert again.count(": done (") == 9
    runs = (demo_folder / "before", demo_folder / "after")
    for run in runs:
        results = json.loads((run / "results.json").read_text())
        task = results["tasks"]["embedded"]
        accuracies = {name: entry["accuracy"]["value"] for name, entry in task["decoders"].items()}
        average = task["numbers"]["avg_at_k"]["8"]["value"]
        assert average < accuracies["sc@8"]
        best = "bon@8:min" if run == runs[0] else "weighted@8:min"
        assert accuracies["sc@8"] < accuracies[best]
    compared = json.loads(ran(installed / "fsdpo-bench", "diff", *runs, "--json", cwd=tmp_path))
    lowest = {row["measure_a"]: row["difference"]["ci95"][0] for row in compared["differences"]}
    assert lowest["greedy"] > 0 and lowest["avg@8"] > 0


def test_it_says_which_extra_is_missing(installed: Path, tmp_path: Path) -> None:
    """The last one: it takes packages away from the environment that the others use."""
    borrowed = installed.parents[1] / "borrowed"
    for name in ("torch", "transformers", "vllm"):
        (borrowed / name).unlink(missing_ok=True)
    assert "pip install 'fsdpo[train]'" in ran(
        installed / "fsdpo-data", "demo", cwd=tmp_path, code=1
    )
