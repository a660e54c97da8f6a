"""Tests of atomic files: a file is complete or missing, and errors name the file."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.files import (
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


#: Holds the lock of a folder.
HOLD_LOCK = """
import sys, time
from pathlib import Path
from fsdpo_data.core.files import lock_directory
with lock_directory(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        with (
            pytest.raises(StoreError, match="another process is writing"),
            lock_directory(tmp_path),
        ):
            pass
        process.kill()
        process.wait()
    with lock_directory(tmp_path):
        pass


def test_a_start_that_fails_leaves_no_folder_without_a_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for content, stays in (("", False), ("{}\n", True)):
        with (
            contextlib.suppress(RuntimeError),
            lock_directory(out, start_files=["config.json"]),
        ):
            (out / "config.json").write_text("{}")
            (out / "judge").mkdir()
            (out / "judge" / "completions.jsonl").write_text(content)
            raise RuntimeError("no server answers")
        assert out.exists() is stays
