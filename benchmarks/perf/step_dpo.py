"""Compare preference training with TRL's DPOTrainer: pairs per second and peak memory.

    pip install -c constraints.txt -e '.[train]' trl==1.16.0
    python benchmarks/perf/step_dpo.py [--vocabulary 32000] [--layers 6] [--steps 2] [--threads 2]

Every variant takes optimizer steps on the same 64 pairs, with the same random Qwen2 in float32 and
AdamW, in a process of its own. The pairs come from 4 prompts with 4 × 4 solutions each. Prompts
have about 120 tokens, and responses about 250 (see `--response`). The variants are:

- `ours`: the training of `fsdpo-train dpo`, with `--batch` prompts per micro-batch, each with its
  16 pairs;
- `no prompt sharing`: the prompt is computed for every solution;
- `no unique solutions`: every pair computes its own two solutions;
- `no chunked head`: the vocabulary head processes all tokens at once, which `ours` does where a
  quarter of the free memory suffices;
- `chunked head`: the vocabulary head processes `--head-chunk` tokens at once, as with little free
  memory;
- `no cached reference`: every step runs the reference model;
- `trl`: DPOTrainer with precomputed reference log-probabilities and without gradient checkpointing,
  which is faster. A micro-batch has `--trl-batch` pairs, and the gradients of 64 pairs accumulate.

Seconds are the time of one optimizer step; the first step is not counted. Memory is the peak of the
process minus its memory before training, which holds weights and libraries. The results are ratios
to the first variant. The loss of the last step must be the same for all variants.
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
    SOLUTIONS_PER_SIDE,
    compute_reference,
    make_model,
    make_pairs,
    resident_mb,
    run_with_trainer,
    separate_pairs,
    time_training,
    trl_trainer,
)

PAIRS = PROMPTS * SOLUTIONS_PER_SIDE * SOLUTIONS_PER_SIDE
#: A high learning rate, so that the last loss shows whether all variants took the same steps.
LR = 1e-4
VARIANTS = (
    "ours",
    "no prompt sharing",
    "no unique solutions",
    "no chunked head",
    "chunked head",
    "no cached reference",
    "trl",
)
#: Not a variant: computes the reference log-probabilities for the variants with a cached reference.
REFERENCE = "reference"


def main() -> None:
    """Measure the selected variants, each in its own process."""
    options = parse_options()
    if options.run:
        print(json.dumps(measure_training(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "policy", options)
        make_pairs(Path(folder) / "pairs.jsonl", options.response)
        # A process keeps the memory that it frees, so the reference has a process of its own.
        run_in_process(REFERENCE, options.threads, folder)
        metrics = (
            (variant, run_in_process(variant, options.threads, folder))
            for variant in options.variants
        )
        print_metrics(metrics)


def parse_options() -> argparse.Namespace:
    """Parse the command line; ``run`` and ``folder`` are set only in the variants' processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"vocabulary": 32_000, "layers": 6, "width": 256, "threads": 2, "response": 250}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=2, help="timed steps, after an untimed one")
    parser.add_argument("--batch", type=int, default=1, help="prompts per micro-batch of ours")
    parser.add_argument("--head-chunk", type=int, default=512, help="tokens of `chunked head`")
    parser.add_argument("--trl-batch", type=int, default=16, help="pairs per micro-batch of TRL")
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_in_process(variant: str, threads: int, folder: str) -> dict[str, float]:
    """Measure one variant in a process of its own, so that peaks of memory stay separate."""
    command = [sys.executable, *sys.argv, "--run", variant, "--folder", folder]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    completed = subprocess.run(command, env=env, capture_output=True, text=True)
    if completed.returncode:
        sys.exit(f"{variant} failed:\n{completed.stderr[-3000:]}")
    metrics: dict[str, float] = json.loads(completed.stdout.splitlines()[-1])
    return metrics


def measure_training(options: argparse.Namespace) -> dict[str, float]:
    """Train one variant; return the seconds and the loss of a step, and the memory in MB."""

    def measure(trainer: Any) -> dict[str, float]:
        """Time the training, unless only the reference is computed."""
        if options.run == "no cached reference":
            compute_reference(trainer, options.folder / "policy")
        mb_before = resident_mb("VmRSS")
        metrics = {} if options.run == REFERENCE else time_training(trainer)
        return metrics | {"mb": metrics.get("mb", 0) - mb_before}

    if options.run != "trl":
        return run_with_trainer("dpo", dpo_options(options), measure)
    trainer = trl_trainer(
        "dpo",
        options.folder / "pairs.jsonl",
        options.folder / "policy",
        num_train_epochs=options.steps + 1,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=PAIRS // options.trl_batch,
        learning_rate=LR,
        lr_scheduler_type="linear",
        warmup_steps=0,
        beta=0.05,
    )
    return measure(trainer)


def dpo_options(options: argparse.Namespace) -> dict[str, Any]:
    """Patch the trainer for the variant, and return its options of `fsdpo-train dpo`."""
    from fsdpo_train.preference import train

    variant = options.run
    head_chunks = {"no chunked head": 2**31, "chunked head": options.head_chunk}
    if variant == "no unique solutions":
        # The trainer calls this function before training, so it can also split the groups.
        add_reference = train.add_reference
        train.add_reference = lambda *args, **kwargs: separate_pairs(add_reference(*args, **kwargs))
    return dict(
        data=options.folder / "pairs.jsonl",
        out=options.folder / variant,
        model=str(options.folder / "policy"),
        loss="dpo",
        lr=LR,
        warmup=0.0,  # with a warmup, the first step would have a learning rate of 0
        epochs=options.steps + 1,
        batch_size=options.batch,
        grad_accum=PROMPTS // options.batch,
        log_every=1,
        save_every=0,
        share_prompt=variant not in ("no prompt sharing", "no unique solutions"),
        reference_cache=options.folder / "reference",
        head_chunk=head_chunks.get(variant),
    )


def print_metrics(results: Iterable[tuple[str, dict[str, float]]]) -> None:
    """Print a line for each variant when it is ready, with ratios to the first variant."""
    print(f"{'way':<20} {'pairs/s':>8} {'time':>7} {'memory':>10} {'':>6}  loss", flush=True)
    first: dict[str, float] = {}
    for variant, metrics in results:
        first = first or metrics
        time_ratio = metrics["seconds"] / first["seconds"]
        memory_ratio = metrics["mb"] / first["mb"]
        print(
            f"{variant:<20} {PAIRS / metrics['seconds']:8.2f} {time_ratio:6.2f}x "
            f"{metrics['mb']:7.0f} MB {memory_ratio:5.2f}x  {metrics['loss']:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
