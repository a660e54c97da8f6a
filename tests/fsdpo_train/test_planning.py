"""Plans of trainings: nothing is run or written, and the memory is that of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from command_line import run
from hashes import hashes
from preference_data import preference_rows
from random_model import save_random_model

from fsdpo_train.cli.app import main as train
from fsdpo_train.config import DpoConfig, SftConfig, TrainConfig
from fsdpo_train.planning import plan_training

#: Largest relative error of a plan.
MAX_ERROR = 0.2


def write_rows(file: Path, rows: list[dict[str, object]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model, pairs and completions."""
    folder = tmp_path_factory.mktemp("plan")
    save_random_model(folder / "model")
    pairs = preference_rows()
    write_rows(folder / "pairs.jsonl", pairs)
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs]
    write_rows(folder / "rows.jsonl", rows)
    return folder


def test_the_command_prints_a_plan_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    digests = hashes(folder)
    line = ["dpo", "pairs.jsonl", "--model", "model", "--out", "policy"]
    code, out, err = run(capsys, *line, "--plan", "--rate", "100", main=train)
    assert code == 0, err
    assert out.startswith("replicas  1 ")
    assert "24 pairs of 24 solutions, 1 epochs" in out
    assert "100 tokens per second and replica, as given" in out
    [gpu_line] = [text for text in out.splitlines() if text.startswith("GPU")]
    assert gpu_line.endswith("not measured")
    code, out, err = run(capsys, *line, "--plan", main=train)
    assert code == 0 and "measured here on one pass" in out, err
    assert hashes(folder) == digests
    code, _, err = run(capsys, *line, "--rate", "100", main=train)
    assert code == 1 and "Add --plan" in err and hashes(folder) == digests


def test_tokens_are_those_of_the_trainer(folder: Path) -> None:
    options = {"model": str(folder / "model"), "out": folder / "out"}
    config = SftConfig(data=folder / "rows.jsonl", epochs=2, **options)
    plan = plan_training(config, tokens_per_second=1)
    from transformers import AutoTokenizer

    from fsdpo_train.sft.data import COLUMNS, encode_rows
    from fsdpo_train.trainer.row_source import open_data

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rows = encode_rows(open_data(config.data, COLUMNS), tokenizer, 256).rows
    assert plan.work.tokens_per_epoch == sum(len(row.input_ids) for row in rows)
    assert plan.hours == pytest.approx(2 * plan.work.tokens_per_epoch / 3600)


def test_batches_and_checkpoints_change_the_memory(folder: Path) -> None:
    options = {"data": folder / "pairs.jsonl", "model": str(folder / "model"), "out": folder / "o"}

    def activations(**changes: object) -> float:
        plan = plan_training(DpoConfig(**options, **changes), tokens_per_second=1)
        assert plan.cpu_memory is not None
        return plan.cpu_memory.parts["activations"]

    assert activations(batch_size=2) > 1.5 * activations(batch_size=1)
    assert activations(batch_size=1, gradient_checkpointing=True) < activations(batch_size=1)


@pytest.mark.proof
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_the_memory_is_that_of_a_run(method: str, tmp_path: Path) -> None:
    """Train a model of 135M parameters for two steps, and compare the peak of the process."""
    from trainers import make_model

    make_model(tmp_path / "model", Namespace(vocabulary=49_152, width=512, layers=22))
    text = "".join(f"Step {number}: {number} + {number} = {2 * number}.\n" for number in range(12))
    pairs = preference_rows(prompts=2, top=1)
    pairs = [row | {"prompt": text + row["prompt"]} for row in pairs]
    rows = [{"prompt": row["prompt"], "completion": row["chosen"] + text} for row in pairs]
    data = write_rows(tmp_path / "data.jsonl", pairs if method == "dpo" else rows)
    options = {"data": data, "model": str(tmp_path / "model"), "out": tmp_path / "out"}
    config_class: type[TrainConfig] = DpoConfig if method == "dpo" else SftConfig
    config = config_class(**options, batch_size=1, grad_accum=1, max_steps=2)
    planned = plan_training(config, tokens_per_second=1).cpu_memory
    assert planned is not None
    command = [sys.executable, "-m", "fsdpo_train", method, data, "--model", tmp_path / "model"]
    command += ["--out", tmp_path / "out", "--batch-size", "1", "--grad-accum", "1"]
    command += ["--max-steps", "2", "--save-every", "0"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status  # the process has ended, and Popen did not wait for it
    assert status == 0
    peak_bytes = usage.ru_maxrss * 1024
    print(f"{method}: planned {planned.total / 1e9:.2f} GB, measured {peak_bytes / 1e9:.2f} GB")
    assert planned.total == pytest.approx(peak_bytes, rel=MAX_ERROR)
