"""Long proofs of PRM training: DeepSpeed over processes, and a run that is really killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model, save_random_prm
from training import kill_once, python

STEPS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("proof")
    # A head that is there already: a new one would be drawn from every process's own numbers.
    save_random_prm(folder / "start", save_random_model(folder / "policy"))
    write_rows(folder / "rows.jsonl", stepwise_rows(problems=48))
    return folder


def command(folder: Path, out: Path, *options: str) -> list[str]:
    given = [folder / "rows.jsonl", "--model", folder / "start", "--out", out]
    fixed = ["--lr", "1e-3", "--max-steps", STEPS, "--log-every", 1, "--grad-accum", 1]
    fixed += ["--held-out", "0.1", "--no-group-by-length"]
    return ["-m", "fsdpo_train", "prm", *map(str, [*given, *fixed]), *options]


def losses(out: Path) -> list[float]:
    state = json.loads((out / f"checkpoints/checkpoint-{STEPS}/trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.mark.deepspeed
@pytest.mark.parametrize("preset", ["zero2", "zero3"])
def test_two_processes_train_to_the_losses_of_one(folder: Path, preset: str) -> None:
    import transformers

    saving = ["--save-every", str(STEPS)]
    one = folder / f"one-{preset}"
    python(*command(folder, one, "--batch-size", "8", *saving))
    many = folder / preset
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    python(*torchrun, *command(folder, many, "--batch-size", "4", "--deepspeed", preset, *saving))
    # Float32 sums in another order; after twelve steps of Adam they have not drifted apart.
    assert losses(many) == pytest.approx(losses(one), abs=2e-4)
    alone, together = (
        transformers.AutoModelForTokenClassification.from_pretrained(each).state_dict()
        for each in (one, many)
    )
    worst = max((alone[name] - together[name]).abs().max().item() for name in alone)
    assert alone.keys() == together.keys() and worst < 1e-3


@pytest.mark.proof
def test_killed_at_any_step_it_resumes_to_the_same_loss(folder: Path) -> None:
    every: list[Any] = ["--batch-size", "8", "--save-every", "4"]
    whole, part = folder / "whole", folder / "part"
    python(*command(folder, whole, *every))
    kill_once(command(folder, part, *every), part / "checkpoints/checkpoint-4/trainer_state.json")
    assert not (part / "model.safetensors").exists()
    told = python(*command(folder, part, *every, "--resume"))
    assert losses(part) == losses(whole)
    assert f"{STEPS} steps" in told
    ours, theirs = ((each / "model.safetensors").read_bytes() for each in (part, whole))
    assert ours == theirs
