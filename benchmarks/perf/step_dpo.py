"""Preference training against TRL's DPOTrainer: pairs per second, peak memory, and what helps.

    pip install -c constraints.txt -e '.[train]' trl==1.16.0
    python benchmarks/perf/step_dpo.py [--vocabulary 32000] [--layers 6] [--steps 2] [--threads 2]

Every way takes optimizer steps on the same 64 pairs (4 prompts, 4 × 4 solutions each, prompts of
about 120 and responses of about 250 tokens), with the same random Qwen2 in float32 and AdamW, each
in a process of its own:

- `ours`: what `fsdpo-train dpo` runs, `--batch` prompts at a time, each with its 16 pairs;
- one part of it left out at a time: prompts computed for every solution, every pair computed apart
  from the others, the vocabulary head over all tokens at once, the reference computed in the step;
- `trl`: DPOTrainer with its reference computed beforehand, gradient checkpointing off, which is
  faster, and `--trl-batch` pairs at a time (its gradients add up to those of the 64).

Seconds are those of a whole optimizer step, the first of which is not counted. Memory is the peak
of the process less what it held before training: weights and libraries. What counts are ratios; the
loss of the last step must be the same for all.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from step_dpo_inputs import PROMPTS, TOP, make_model, make_pairs

PAIRS = PROMPTS * TOP * TOP
#: High enough for the loss of the last step to show whether all have taken the same steps.
LR = 1e-4
WAYS = (
    "ours",
    "no prompt sharing",
    "no unique solutions",
    "no chunked head",
    "no cached reference",
    "trl",
)
#: Computing the reference log-probabilities, which every way but two reads.
REFERENCE = "reference"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"vocabulary": 32_000, "layers": 6, "width": 256, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=2, help="steps timed, after one that is not")
    parser.add_argument("--batch", type=int, default=1, help="prompts of one pass of ours")
    parser.add_argument("--trl-batch", type=int, default=16, help="pairs of one pass of TRL")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measured(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "policy", options)
        make_pairs(Path(folder) / "pairs.jsonl")
        # Freed memory stays with a process, so the reference is computed in one of its own.
        alone(REFERENCE, options.threads, "--folder", folder)
        ways = ((way, alone(way, options.threads, "--folder", folder)) for way in options.ways)
        report(ways)


def alone(way: str, threads: int, *more: str) -> dict[str, float]:
    """Run this script for one way in a process of its own, whose peak no other has touched."""
    own = [sys.executable, *sys.argv, "--run", way, *more]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    ran = subprocess.run(own, env=env, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{way} failed:\n{ran.stderr[-3000:]}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Train with one way; return seconds and the loss of a step, and memory in MB."""
    make = make_trl if options.run == "trl" else make_ours
    trainer = make(options)
    if options.run == REFERENCE:
        return {}
    start = resident("VmRSS")
    found = timed(trainer)
    return {**found, "mb": found["mb"] - start}


def timed(trainer: Any) -> dict[str, float]:
    """Train; return seconds and the loss of a step, and the peak of memory in MB."""
    from transformers import TrainerCallback

    clock: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

    trainer.add_callback(Clock())
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    trainer.train()
    loss = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry][-1]
    seconds = statistics.median(after - before for before, after in pairwise(clock))
    return {"seconds": seconds, "mb": resident("VmHWM"), "loss": loss}


def resident(kind: str) -> float:
    """Return how much memory the process holds (``VmRSS``), or has held (``VmHWM``), in MB."""
    found = re.search(rf"^{kind}:\s+(\d+)", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 2**10


def make_ours(options: argparse.Namespace) -> Any:
    """Build the trainer of `fsdpo-train dpo`, one part of it left out."""
    import transformers

    from fsdpo_data.engines import logprobs
    from fsdpo_train.config import DpoConfig
    from fsdpo_train.preference import train as dpo
    from fsdpo_train.preference.data import prepare
    from fsdpo_train.preference.pairs import by_prompt, open_pairs
    from fsdpo_train.preference.reference import made_by, reference_logprobs
    from fsdpo_train.preference.reference_store import ReferenceStore
    from fsdpo_train.trainer.models import load_model

    way, folder = options.run, options.folder
    config = DpoConfig(
        data=folder / "pairs.jsonl",
        out=folder / way,
        model=str(folder / "policy"),
        loss="dpo",
        lr=LR,
        warmup=0.0,  # else the first step has no learning rate
        epochs=options.steps + 1,
        batch_size=options.batch,
        grad_accum=PROMPTS // options.batch,
        log_every=1,
        save_every=0,
        share_prompt=way not in ("no prompt sharing", "no unique solutions"),
        reference_cache=folder / "reference",
    )
    if way == "no chunked head":
        logprobs.token_logprobs.__defaults__ = (2**31,)
    transformers.set_seed(0)
    arguments = dpo._arguments(config)
    model, tokenizer = load_model(config.model, "AutoModelForCausalLM")
    maker = made_by(config, "random", tokenizer)
    prompts = by_prompt(open_pairs(config.data).rows(), loss="dpo")
    data = prepare(prompts, tokenizer, 1024, maker)
    store = ReferenceStore(config.reference_cache, maker)
    reference = reference_logprobs(data, store, config, arguments, share_prompt=config.share_prompt)
    if way == "no unique solutions":
        data, reference = every_pair_apart(data, reference)
    trainer = dpo._trainer(
        config, arguments, model, tokenizer, data, reference, config.share_prompt
    )
    if way == "no cached reference":
        compute_reference(trainer, folder / "policy")
    return trainer


def every_pair_apart(data: Any, reference: Any) -> tuple[Any, Any]:
    """Give every pair solutions of its own, as trainers that know only pairs do."""
    from fsdpo_train.preference.groups import Group

    found, values = [], []
    for group, arrays in zip(data.groups, reference, strict=True):
        order = [index for pair in group.pairs for index in pair]
        pairs = [(2 * n, 2 * n + 1) for n in range(len(group.pairs))]
        solutions = [group.solutions[i] for i in order]
        found.append(Group(solutions, [group.rewards[i] for i in order], pairs))
        values.append([arrays[i] for i in order])
    data.groups = found
    return data, values


def compute_reference(trainer: Any, policy: Path) -> None:
    """Run a second model in every step, as it is without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    from fsdpo_data.engines.logprobs import model_inputs, return_logprobs
    from fsdpo_train.preference.groups import to_table

    second = return_logprobs(
        AutoModelForCausalLM.from_pretrained(policy, trust_remote_code=False).eval()
    )
    given = trainer.compute_loss

    def compute_loss(model: Any, inputs: dict[str, Any], *more: Any, **options: Any) -> Any:
        with torch.no_grad():
            logp_N = second(**model_inputs(inputs))
        table = to_table(logp_N, inputs["cell_N"], inputs["step_ST"].shape)
        return given(model, {**inputs, "reference_ST": table}, *more, **options)

    trainer.compute_loss = compute_loss


def make_trl(options: argparse.Namespace) -> Any:
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    folder = options.folder
    rows = load_dataset("json", data_files=str(folder / "pairs.jsonl"), split="train")
    settings = DPOConfig(
        output_dir=str(folder / "trl"),
        num_train_epochs=options.steps + 1,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=PAIRS // options.trl_batch,
        learning_rate=LR,
        lr_scheduler_type="linear",
        warmup_steps=0,
        beta=0.05,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        precompute_ref_log_probs=True,
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    )
    return DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(
            folder / "policy", dtype="float32", trust_remote_code=False
        ),
        args=settings,
        train_dataset=rows.select_columns(["prompt", "chosen", "rejected"]),
        processing_class=AutoTokenizer.from_pretrained(folder / "policy", trust_remote_code=False),
    )


def report(found: Iterable[tuple[str, dict[str, float]]]) -> None:
    """Print a line for each way as it comes; ratios are to the first."""
    print(f"{'way':<20} {'pairs/s':>8} {'time':>7} {'memory':>10} {'':>6}  loss", flush=True)
    first: dict[str, float] = {}
    for way, each in found:
        first = first or each
        time_ratio, memory_ratio = (each[name] / first[name] for name in ("seconds", "mb"))
        print(
            f"{way:<20} {PAIRS / each['seconds']:8.2f} {time_ratio:6.2f}x "
            f"{each['mb']:7.0f} MB {memory_ratio:5.2f}x  {each['loss']:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
