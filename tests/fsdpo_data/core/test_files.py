"""Tests of atomic files: a file is complete or missing, and errors name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
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
