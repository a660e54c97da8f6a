"""Tests of atomic files: a file is complete or missing, and errors name the file."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.files import (
    LOCK_FILE,
    lock_directory,
    open_atomic,
    store_errors,
    write_atomic,
)
from fsdpo_data.dataset.schema import write_parquet


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_named_with_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    for write in (lambda file: write_atomic(file, b"x"), lambda file: write_parquet(table, file)):
        file = tmp_path / "out.parquet"
        with (
            pytest.raises(StoreError, match=f"Cannot write to {file}: the disk is full"),
            store_errors(tmp_path),
        ):
            write(file)
        assert not list(tmp_path.iterdir())


def test_what_is_interrupted_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), open_atomic(tmp_path / "a") as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


#: Holds the lock of a folder on a file system without flock.
HOLD_LOCK = """
import errno, fcntl, sys, time
from pathlib import Path
from fsdpo_data.core.files import lock_directory
def flock(file, operation):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = flock
with lock_directory(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_the_lock_of_a_killed_process_is_stale_without_flock(
    no_flock: None, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        message = "another process is writing .* If it ran on another machine and has ended, delete"
        with pytest.raises(StoreError, match=message), lock_directory(tmp_path):
            pass
        process.kill()
        process.wait()
    with lock_directory(tmp_path):
        pass


def test_a_lock_file_of_another_file_system_is_stale_without_flock(
    no_flock: None, tmp_path: Path
) -> None:
    lock_file = tmp_path / LOCK_FILE
    lock_file.touch()
    with pytest.raises(StoreError, match="another process"), lock_directory(tmp_path):
        pass
    os.utime(lock_file, (1, 1))
    with lock_directory(tmp_path):
        pass
