"""Tests of the command line on model cards: it gives the options of the training again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from parsed_options import parse_options

torch = pytest.importorskip("torch")

from fsdpo_data.core import plugins  # noqa: E402
from fsdpo_train.cli.app import app  # noqa: E402
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig, TrainConfig  # noqa: E402
from fsdpo_train.trainer.train_command import train_command  # noqa: E402

DATA = ("org/a@1", "rows.jsonl")
#: Options of the machine and of the run, which do not change the weights.
MACHINE: dict[str, Any] = {"resume": True, "report_to": "wandb", "save_every": 3}


@pytest.mark.parametrize(
    ("config_class", "values"),
    [
        (SftConfig, {}),
        (SftConfig, {"lr": 2e-6, "epochs": 1.0, "group_by_length": False, "lora": 8}),
        (PrmConfig, {"loss": "pqm", "zeta": 2.5, "samples": 3, "seed": 7}),
        (DpoConfig, {"loss": "ipo", "beta": 0.2, "share_prompt": False, "head_chunk": 9}),
    ],
)
def test_the_command_gives_equal_options(
    config_class: type[TrainConfig], values: dict[str, Any]
) -> None:
    config = config_class(data=DATA, model="m", out=Path("folder/out"), **values)
    command = train_command(config.replace(**MACHINE), "m", DATA)
    program, stage, *words = shlex.split(command)
    assert (program, stage) == ("fsdpo-train", config.stage)
    assert words[:2] == [*DATA] and words[-2:] == ["--out", f"runs/{stage}"]
    parsed = parse_options(typer.main.get_command(app).commands[stage], words)  # type: ignore[attr-defined]
    assert parsed == config.replace(out=Path("runs", stage))
    assert not any(word.startswith(("--resume", "--report-to", "--save-every")) for word in words)


def test_the_command_has_no_local_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zero.json").write_text("{}")
    plugin_file = str(tmp_path / "my_loss.py")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, plugin_file)
    config = SftConfig(
        data=("rows.jsonl",),
        out=tmp_path / "out",
        from_config=tmp_path / "config.json",
        deepspeed=str(tmp_path / "zero.json"),
    )
    words = shlex.split(train_command(config, "", ["rows.jsonl"]))
    assert words[1:5] == ["--plugin", "my_loss.py", "sft", "rows.jsonl"]
    assert {"config.json", "zero.json"} <= {*words} and "--model" not in words
    assert not any(str(tmp_path) in word for word in words)
