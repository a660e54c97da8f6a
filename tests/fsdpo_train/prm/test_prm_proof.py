"""DeepSpeed trains a PRM over two processes to the losses of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model, save_random_prm
from training import python

STEPS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("proof")
    # The start has a score head, because each process would initialise a new head differently.
    save_random_prm(folder / "start", save_random_model(folder / "policy"))
    write_rows(folder / "rows.jsonl", stepwise_rows(problems=48))
    return folder


def command(folder: Path, out: Path, *options: str) -> list[str]:
    positional = [folder / "rows.jsonl", "--model", folder / "start", "--out", out]
    fixed = ["--lr", "1e-3", "--max-steps", STEPS, "--log-every", 1, "--grad-accum", 1]
    fixed += ["--held-out", "0.1", "--no-group-by-length"]
    return ["-m", "fsdpo_train", "prm", *map(str, [*positional, *fixed]), *options]


def losses(out: Path) -> list[float]:
    state = json.loads((out / f"checkpoints/checkpoint-{STEPS}/trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.mark.deepspeed
@pytest.mark.parametrize("preset", ["zero2", pytest.param("zero3", marks=pytest.mark.short_proof)])
def test_two_processes_train_to_the_losses_of_one_process(folder: Path, preset: str) -> None:
    import transformers

    saving = ["--save-every", str(STEPS)]
    single = folder / f"one-{preset}"
    python(*command(folder, single, "--batch-size", "8", *saving))
    distributed = folder / preset
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    python(
        *torchrun,
        *command(folder, distributed, "--batch-size", "4", "--deepspeed", preset, *saving),
    )
    # The order of float32 sums differs, but twelve steps of Adam keep the difference small.
    assert losses(distributed) == pytest.approx(losses(single), abs=2e-4)
    expected, weights = (
        transformers.AutoModelForTokenClassification.from_pretrained(folder).state_dict()
        for folder in (single, distributed)
    )
    worst = max((expected[name] - weights[name]).abs().max().item() for name in expected)
    assert expected.keys() == weights.keys() and worst < 1e-3
