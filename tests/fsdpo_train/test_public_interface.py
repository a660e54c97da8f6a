"""Tests of the public interface: light imports, no printing, and errors that name fields."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from preference_data import preference_rows
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model
from step_label_rows import MADE_UP
from typer.testing import CliRunner

import fsdpo_train
from fsdpo_data.core.errors import InputError, RunMismatchError, StoreError
from fsdpo_train.cli.app import app, main
from fsdpo_train.trainer.row_formats import PRM_ROWS
from fsdpo_train.trainer.row_source import check_data


def test_the_import_is_light_and_exports_every_public_name() -> None:
    code = (
        "import sys, fsdpo_train\n"
        "assert set(fsdpo_train.__all__) == set(dir(fsdpo_train))\n"
        "assert not {'torch', 'transformers', 'datasets', 'polars'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    pytest.importorskip("torch")
    for name in fsdpo_train.__all__:
        assert getattr(fsdpo_train, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'train_rlhf'"):
        fsdpo_train.train_rlhf  # noqa: B018


def test_paths_can_be_strings() -> None:
    config = fsdpo_train.PrmConfig(data="runs/a", out="runs/b")  # type: ignore[arg-type]
    assert (config.data, config.out) == ((Path("runs/a"),), Path("runs/b"))


def test_a_stage_returns_a_report_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    caplog.set_level(logging.INFO)
    config = fsdpo_train.PrmConfig(
        data=write_rows(tmp_path / "rows.jsonl", stepwise_rows()),
        out=tmp_path / "prm",
        model=str(save_random_model(tmp_path / "policy")),
        max_steps=1,
    )
    capsys.readouterr()
    report = fsdpo_train.train_prm(config)
    assert isinstance(report, fsdpo_train.PrmReport) and report.out == config.out
    assert "problems held out" in caplog.text
    assert "step 1 of 1: loss " in caplog.text
    assert capsys.readouterr() == ("", "")


def test_preference_training_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    caplog.set_level(logging.INFO)
    config = fsdpo_train.DpoConfig(
        data=write_rows(tmp_path / "pairs.jsonl", preference_rows()),
        out=tmp_path / "dpo",
        model=str(save_random_model(tmp_path / "policy")),
        max_steps=1,
    )
    capsys.readouterr()
    fsdpo_train.train_dpo(config)
    assert "reference: " in caplog.text and "step 1 of 1: loss " in caplog.text
    assert capsys.readouterr() == ("", "")


def test_the_command_line_shows_the_log_lines_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    data = write_rows(tmp_path / "pairs.jsonl", preference_rows())
    policy = save_random_model(tmp_path / "policy")
    capsys.readouterr()
    line = ["dpo", str(data), "--model", str(policy), "--max-steps", "1"]
    code, out, err = run(capsys, *line, "--out", str(tmp_path / "dpo"), main=main)
    assert code == 0, err
    assert err.count("step 1 of 1: loss ") == 1
    assert "Loading weights" not in err
    assert len(out.splitlines()) == 2 and "over the last logging window" in out


def test_sft_merges_lora_into_the_weights(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    import torch
    import transformers

    rows = [{"prompt": f"{i}\n", "completion": f"It is {i}."} for i in range(8)]
    policy = save_random_model(tmp_path / "policy")
    data = write_rows(tmp_path / "rows.jsonl", rows)
    fsdpo_train.train_sft(
        fsdpo_train.SftConfig(data=data, out=tmp_path / "out", model=str(policy), lora=4, lr=1e-2)
    )
    assert not list((tmp_path / "out").glob("adapter*"))
    policy_weights, trained_weights = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (policy, tmp_path / "out")
    )
    changed = {
        name
        for name in policy_weights
        if not torch.equal(policy_weights[name], trained_weights[name])
    }
    assert changed and all("proj" in name for name in changed)


COLUMNS_OF = {
    "sft": "prompt, completion",
    "prm": "prompt, completions, labels",
    "dpo": "prompt, chosen_steps, rejected_steps, chosen_rewards, rejected_rewards",
}
WITHOUT_TORCH = """
import sys
from fsdpo_train.cli.app import main
try:
    main()
finally:
    assert not {"torch", "transformers"} & set(sys.modules)
"""


@pytest.mark.parametrize("command", COLUMNS_OF)
def test_wrong_columns_are_named_before_torch_is_loaded(command: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"question": "2+2?", "answer": "4"}])
    options = ["--model", "tiny", "--out", str(tmp_path / "out")]
    line = [sys.executable, "-c", WITHOUT_TORCH, command, str(file), *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "AssertionError" not in done.stderr
    message = f"{file}: the columns {COLUMNS_OF[command]} are missing"
    assert message in " ".join(done.stderr.split())
    assert "The rows have question, answer." in " ".join(done.stderr.split())


RATED_STEP = {
    "completions": [{"text": "It is 4.", "rating": 1}],
    "chosen_completion": 0,
    "human_completion": None,
}
RAW_ROWS = {
    "prm800k": {"question": {"problem": "2+2?"}, "label": {"steps": [RATED_STEP]}},
    "math-shepherd": {"input": "2+2? Step 1: 4 ки", "label": "2+2? Step 1: 4 +", "task": "GSM8K"},
    **{name: row for name, row, _ in MADE_UP},
}


@pytest.mark.parametrize("name", RAW_ROWS)
def test_rows_with_step_labels_name_their_import(name: str, tmp_path: Path) -> None:
    row = RAW_ROWS[name]
    file = write_rows(tmp_path / "rows.jsonl", [row])
    command = re.escape(f"`fsdpo-data import {file} --from {name} --out DATA`")
    with pytest.raises(InputError, match=command):
        check_data([file], PRM_ROWS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "inf"], "--epochs inf: expected a finite number"),
        (["--lr", "nan"], "--lr nan: expected a finite number"),
        (["--learning-rate", "0"], "--lr 0: expected more than 0."),
        (["--adam-beta2", "2"], "--adam-beta2 2: expected at least 0 and less than 1"),
        (["--deepspeed", "zero4"], "--deepspeed zero4: expected zero2, zero3 or a DeepSpeed"),
        (["--schedule", "wavy"], "--schedule wavy: expected one of linear"),
        (["--report-to", "nobody"], "--report-to nobody: not installed here"),
        (["--max-length", "99999"], "--max-length 99999: the model reads"),
        (["--seed", "12345678901234567890123"], "expected at least 0 and at most 4294967295"),
        (["--seed", "-1"], "expected at least 0 and at most 4294967295"),
    ],
)
def test_the_command_line_names_flags(arguments: list[str], message: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    command = ["prm", str(data), "--model", "tiny", "--out", str(tmp_path / "out"), *arguments]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code != 0 and message in f"{done.output} {done.exception}"


def test_an_unusable_output_directory_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="a file is in the way"):
        fsdpo_train.train_prm(fsdpo_train.PrmConfig(data=data, out=file, model="tiny"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/sft.json").write_text(json.dumps({}))
    with pytest.raises(RunMismatchError, match=r"holds other files \(sft\.json\) and no run"):
        fsdpo_train.train_prm(
            fsdpo_train.PrmConfig(data=data, out=tmp_path / "other", model="tiny")
        )
    (tmp_path / "damaged").mkdir()
    file = tmp_path / "damaged/prm.json"
    for content in (b"{", b"[1]", b"7", b"[" * 9999, b'{"a": "\xff"}', "pipe", "device"):
        file.unlink(missing_ok=True)
        if content == "pipe":
            os.mkfifo(file)
        elif content == "device":
            file.symlink_to("/dev/zero")
        else:
            file.write_bytes(content)
        damaged = fsdpo_train.PrmConfig(
            data=data, out=tmp_path / "damaged", resume=True, model="tiny"
        )
        with pytest.raises(
            StoreError, match=r"prm\.json is not the config of a run: .* choose another `out`"
        ):
            fsdpo_train.train_prm(damaged)


def test_two_runs_cannot_train_in_one_directory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from fsdpo_train.trainer.row_formats import PRM_ROWS
    from fsdpo_train.trainer.row_source import open_data
    from fsdpo_train.trainer.run import start_run

    data = open_data([write_rows(tmp_path / "rows.jsonl", stepwise_rows())], PRM_ROWS)
    config = fsdpo_train.PrmConfig(
        data=tmp_path / "rows.jsonl", out=tmp_path / "out", model="tiny", resume=True
    )
    second = pytest.raises(StoreError, match="another process is writing to this run")
    with start_run(config, data), second, start_run(config, data):
        pass
    with start_run(config, data):
        pass


@pytest.mark.parametrize("stage", ["sft", "prm", "dpo"])
def test_one_process_with_several_gpus_is_refused(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", 2)
    rows = {
        "sft": [{"prompt": f"{i}\n", "completion": f"It is {i}."} for i in range(8)],
        "prm": stepwise_rows(),
        "dpo": preference_rows(),
    }
    data = write_rows(tmp_path / "rows.jsonl", rows[stage])
    config_class, train = {
        "sft": (fsdpo_train.SftConfig, fsdpo_train.train_sft),
        "prm": (fsdpo_train.PrmConfig, fsdpo_train.train_prm),
        "dpo": (fsdpo_train.DpoConfig, fsdpo_train.train_dpo),
    }[stage]
    config = config_class(data=data, out=tmp_path / "out", model="tiny", max_steps=1)
    with pytest.raises(InputError, match="2 GPUs but one process: start one process per GPU"):
        train(config)


def test_missing_packages_are_named(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    code = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('torch', 'transformers', 'accelerate'))\n"
        "from fsdpo_train.cli.app import main\n"
        f"sys.argv = ['fsdpo-train', 'prm', {str(data)!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: training needs torch, transformers, accelerate. Install")
    assert f"pip install -e '{Path(__file__).parents[2]}[train]'" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_version_and_short_help() -> None:
    from fsdpo_data import __version__

    assert CliRunner().invoke(app, ["--version"]).output == f"fsdpo {__version__}\n"
    assert CliRunner().invoke(app, ["dpo", "-h"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "config_name"),
    [("train_dpo", "DpoConfig"), ("train_prm", "PrmConfig"), ("train_sft", "SftConfig")],
)
def test_help_and_errors_speak_of_the_call(name: str, config_name: str) -> None:
    pytest.importorskip("torch")
    function = getattr(fsdpo_train, name)
    config_class = getattr(fsdpo_train, config_name)
    assert f"\nExample:\n    from fsdpo_train import {config_name}, {name}\n" in inspect.cleandoc(
        function.__doc__
    )
    assert "Annotated" not in str(inspect.signature(config_class))
    assert "lr: float = " in str(inspect.signature(config_class))
    with pytest.raises(InputError, match=f"{config_name}.modle = 'tiny'.*Nearest: model"):
        config_class(data="runs/a", out="runs/b", modle="tiny")
    with pytest.raises(InputError, match=f"{config_name} needs the argument `out` "):
        config_class(data="runs/a")
    with pytest.raises(InputError, match=f"{config_name}.lr = 'high': expected a number"):
        config_class(data="runs/a", out="runs/b", lr="high")
