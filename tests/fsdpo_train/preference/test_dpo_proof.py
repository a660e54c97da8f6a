"""Slow tests of preference training: DeepSpeed, pairs from the Hub, and TRL's DPO."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hub_server import TOKEN, client_env, run_client, running_hub
from paired_data import paired_dataset
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_random_model
from training import python

pytestmark = pytest.mark.proof

STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("proof")
    save_random_model(folder / "policy")
    write_rows(folder / "pairs.jsonl", preference_rows(prompts=12))
    return folder


def command(folder: Path, data: Path | str, out: Path, *options: object) -> list[str]:
    positional = [data, "--model", folder / "policy", "--out", out]
    fixed = ["--lr", "1e-3", "--log-every", 1, "--max-steps", STEPS, "--save-every", STEPS]
    arguments = [*positional, *fixed, "--no-group-by-length", *options]
    return ["-m", "fsdpo_train", "dpo", *map(str, arguments)]


def losses(out: Path) -> list[float]:
    state = json.loads((out / f"checkpoints/checkpoint-{STEPS}/trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    ("preset", "adapters"),
    [
        pytest.param("zero2", (), marks=pytest.mark.short_proof),
        ("zero3", ()),
        ("zero2", ("--lora", 4)),
        ("zero2", ("--lora", 4, "--load-in-4bit")),
    ],
)
def test_two_processes_train_to_the_losses_of_one_process(
    folder: Path, preset: str, adapters: tuple[object, ...]
) -> None:
    import transformers

    if adapters:
        pytest.importorskip("peft")
    if "--load-in-4bit" in adapters:
        pytest.importorskip("bitsandbytes")
    name = f"{preset}{len(adapters)}"
    data = folder / "pairs.jsonl"
    single = folder / f"one-{name}"
    distributed = folder / name
    python(*command(folder, data, single, "--batch-size", 4, *adapters))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--batch-size", 2, "--deepspeed", preset, *adapters]
    options += [] if adapters else ["--gradient-checkpointing"]
    python(*torchrun, *command(folder, data, distributed, *options))
    # The order of float32 sums differs, but six steps of Adam keep the difference small.
    assert losses(distributed) == pytest.approx(losses(single), abs=2e-4)
    expected, weights = (
        transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()
        for out in (single, distributed)
    )
    worst = max((expected[name] - weights[name]).abs().max().item() for name in expected)
    assert expected.keys() == weights.keys() and worst < 1e-3


@pytest.mark.deepspeed
@pytest.mark.parametrize("preset", ["zero2", "zero3"])
def test_the_policy_starts_at_its_reference_in_bfloat16(
    folder: Path, tmp_path: Path, preset: str
) -> None:
    """DeepSpeed and the reference keep the rotary tables in float32; the prompt shows it."""
    rows = [
        {**row, "prompt": "12 apples, " * 16 + row["prompt"]} for row in preference_rows(prompts=2)
    ]
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    options = ["--deepspeed", preset, "--dtype", "bfloat16"]
    python(*torchrun, *command(folder, data, tmp_path / "out", *options))
    file = tmp_path / f"out/checkpoints/checkpoint-{STEPS}/trainer_state.json"
    first, *_ = json.loads(file.read_text())["log_history"]
    assert (first["rewards/margins"], first["kl"]) == (0, 0)


def test_published_pairs_give_the_losses_of_local_pairs(folder: Path, tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path, problems=6)
    main = "import sys\nfrom {0}.cli.app import main\nsys.argv = {1!r}\nmain()\n"
    with running_hub() as hub:
        env = client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN, PYTHONWARNINGS="default")
        push = main.format("fsdpo_data", ["fsdpo-data", "push", str(dataset), "o/r"])
        trained = []
        for data in (dataset, "o/r@v1.0.0"):
            out = tmp_path / f"out-{len(trained)}"
            arguments = command(folder, data, out, "--batch-size", 2)[2:]
            trained.append(main.format("fsdpo_train", ["fsdpo-train", *arguments]))
        for code in (push, *trained):
            ran = run_client(code, env)
            assert ran.returncode == 0, ran.stderr[-3000:]
    assert losses(tmp_path / "out-0") == losses(tmp_path / "out-1")
    local, published = ((tmp_path / f"out-{n}/README.md").read_text() for n in (0, 1))
    assert all("| prm | `made-up-prm@sha256:0` |" in card for card in (local, published))
    assert "| data | `o/r@" in published


TRL_PROGRAM = """
import json
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
rows = load_dataset("json", data_files={data!r}, split="train")
model = AutoModelForCausalLM.from_pretrained({policy!r}, dtype="float32")
settings = DPOConfig(
    output_dir={out!r}, max_steps={steps}, per_device_train_batch_size=len(rows), use_cpu=True,
    bf16=False, gradient_checkpointing=False, learning_rate=1e-3, lr_scheduler_type="linear",
    warmup_steps=1, beta=0.05, loss_type="sigmoid", logging_steps=1, save_strategy="no",
    report_to="none", precompute_ref_log_probs=True, max_length=None,
)
trainer = DPOTrainer(
    model=model, args=settings, train_dataset=rows.select_columns(["prompt", "chosen", "rejected"]),
    processing_class=AutoTokenizer.from_pretrained({policy!r}),
)
trainer.train()
print(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
"""


@pytest.mark.short_proof
@pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL (the extra dev)")
def test_dpo_loss_equals_the_sigmoid_loss_of_trl(folder: Path, tmp_path: Path) -> None:
    """Compare six steps on full batches: equal later losses need equal earlier gradients."""
    data = write_rows(tmp_path / "pairs.jsonl", preference_rows())
    ours = tmp_path / "ours"
    python(*command(folder, data, ours, "--loss", "dpo", "--batch-size", 6, "--warmup", 1))
    theirs = TRL_PROGRAM.format(
        data=str(data), policy=str(folder / "policy"), out=str(tmp_path / "theirs"), steps=STEPS
    )
    ran = subprocess.run([sys.executable, "-c", theirs], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert losses(ours) == pytest.approx(json.loads(ran.stdout.splitlines()[-1]), abs=1e-5)
    assert losses(ours)[-1] < 0.5
