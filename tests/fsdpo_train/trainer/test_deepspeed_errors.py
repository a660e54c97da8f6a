"""Errors of DeepSpeed and of its configuration name the option, in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prm_data import stepwise_rows, write_rows

pytest.importorskip("torch")
import fsdpo_train
from fsdpo_data.core.errors import InputError, StoreError, UnavailableError
from fsdpo_train.trainer import arguments
from fsdpo_train.trainer.deepspeed import deepspeed_config, deepspeed_errors


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": [', "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[1]", "contains a list"),
    ],
)
def test_a_damaged_configuration_file_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_bytes(content)
    with pytest.raises(
        InputError, match=f"deepspeed = '{file}': the file {reason}.*Expected zero2"
    ):
        deepspeed_config(str(file))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_and_a_device_are_no_configuration(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"is a pipe or a device.*Expected zero2"):
        deepspeed_config(str(file))


def test_errors_of_deepspeed_are_one_sentence() -> None:
    text = "1 validation error for DeepSpeedZeroConfig\nstage\n  Input should be 0 to 3"
    message = r"deepspeed = 'ds.json': DeepSpeed does not start: ValueError, 1 validation error"
    with pytest.raises(InputError, match=message) as caught, deepspeed_errors("ds.json"):
        raise ValueError(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError), deepspeed_errors("ds.json"):
        raise StoreError("a full disk")
    with pytest.raises(ValueError, match="validation"), deepspeed_errors(None):
        raise ValueError(text)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "find_spec", lambda package: None)
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    config = fsdpo_train.PrmConfig(data=data, out=tmp_path / "out", model="tiny", deepspeed="zero2")
    message = r"deepspeed = 'zero2': the package deepspeed is missing\. Install it: "
    with pytest.raises(UnavailableError, match=message):
        fsdpo_train.train_prm(config)
