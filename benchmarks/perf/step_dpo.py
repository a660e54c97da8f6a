"""Preference training against TRL's DPOTrainer: pairs per second, peak memory, and what helps.

    pip install -c constraints.txt -e '.[train]' trl==1.16.0
    python benchmarks/perf/step_dpo.py [--vocabulary 32000] [--layers 6] [--steps 2] [--threads 2]

Every way takes optimizer steps on the same 64 pairs (4 prompts, 4 × 4 solutions each, prompts of
about 120 and responses of about 250 tokens, or `--response`), with the same random Qwen2 in float32
and AdamW, each in a process of its own:

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
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from trainers import (
    PROMPTS,
    TOP,
    compute_reference,
    every_pair_apart,
    make_model,
    make_pairs,
    resident,
    timed,
    trained,
    trl_trainer,
)

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
    sizes = {"vocabulary": 32_000, "layers": 6, "width": 256, "threads": 2, "response": 250}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=2, help="steps timed, after one that is not")
    parser.add_argument("--batch", type=int, default=1, help="prompts of one pass of ours")
    parser.add_argument("--trl-batch", type=int, default=16, help="pairs of one pass of TRL")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure_training(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "policy", options)
        make_pairs(Path(folder) / "pairs.jsonl", options.response)
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


def measure_training(options: argparse.Namespace) -> dict[str, float]:
    """Train with one way; return seconds and the loss of a step, and memory in MB."""

    def run(trainer: Any) -> dict[str, float]:
        if options.run == "no cached reference":
            compute_reference(trainer, options.folder / "policy")
        start = resident("VmRSS")
        found = {} if options.run == REFERENCE else timed(trainer)
        return found | {"mb": found.get("mb", 0) - start}

    if options.run != "trl":
        return trained(*ours(options), run)
    settings = dict(
        num_train_epochs=options.steps + 1,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=PAIRS // options.trl_batch,
        learning_rate=LR,
        lr_scheduler_type="linear",
        warmup_steps=0,
        beta=0.05,
    )
    folder = options.folder
    return run(trl_trainer("dpo", folder / "pairs.jsonl", folder / "policy", **settings))


def ours(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return what and how `fsdpo-train dpo` trains, one part of it left out."""
    from fsdpo_data.engines import logprobs
    from fsdpo_train.preference import train

    way, folder = options.run, options.folder
    if way == "no chunked head":
        logprobs.token_logprobs.__defaults__ = (2**31,)
    if way == "no unique solutions":
        given = train.reference_logprobs
        train.reference_logprobs = lambda data, *more, **options: every_pair_apart(
            data, given(data, *more, **options)
        )
    return "dpo", dict(
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
