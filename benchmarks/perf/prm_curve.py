"""What a PRM learns from M samples and N rollouts, and what both cost: the paper's figure, here.

    python benchmarks/perf/prm_curve.py --out runs/curve [--problems 1200] [--samples 4 8 16 32]
        [--rollouts 4 8] [--mc-samples 8] [--epochs 3] [--lr 1.5e-3] [--threads 1]

Everything is done by the commands a user would run, on the embedded world with its own model. The
PRMs of all M are trained on the same samples, the first M of each problem, with outcome labels
(N = 1, which cost nothing beyond the samples); those of N > 1 on `--mc-samples` samples of each
problem, whose steps are continued N times. All are measured on the same samples of problems that
occur in no training split. What exists in `--out` is not made again, so a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--problems", type=int, default=1200)
    arguments.add_argument("--samples", type=int, nargs="+", default=[4, 8, 16, 32])
    arguments.add_argument("--rollouts", type=int, nargs="*", default=[4, 8])
    arguments.add_argument("--mc-samples", type=int, default=8)
    arguments.add_argument("--test-problems", type=int, default=150)
    arguments.add_argument("--test-samples", type=int, default=16)
    arguments.add_argument("--epochs", type=float, default=3)
    arguments.add_argument("--lr", type=float, default=1.5e-3)
    arguments.add_argument("--batch-size", type=int, default=32)
    arguments.add_argument("--threads", type=int, default=1)
    options = arguments.parse_args()
    test = sampled(options, "test", options.test_problems, options.test_samples)
    every = sampled(options, "train", options.problems, max(options.samples))
    rows = []
    for m in options.samples:
        prm = trained(options, f"prm-m{m}-n1", every, "--samples", m, "--labels", "outcome")
        tokens = cost(every) * m // max(options.samples)
        rows.append((m, 1, tokens, measured(options, prm, test)))
    some = (
        sampled(options, "train", options.problems, options.mc_samples)
        if options.rollouts
        else None
    )
    for n in options.rollouts:
        labelled = options.out / f"m{options.mc_samples}-n{n}"
        if not (labelled / "manifest.json").exists():
            run(
                options,
                "fsdpo_data.cli",
                "label",
                some,
                "--rollouts",
                n,
                "--out",
                labelled,
                "--engine",
                "transformers",
                *resuming(labelled),
            )
        prm = trained(options, f"prm-m{options.mc_samples}-n{n}", labelled, "--labels", "rollouts")
        rows.append((options.mc_samples, n, cost(labelled), measured(options, prm, test)))
    print_table(rows)


def sampled(options: argparse.Namespace, split: str, problems: int, samples: int) -> Path:
    out: Path = options.out / f"{split}-m{samples}"
    if not (out / "manifest.json").exists():
        run(
            options,
            "fsdpo_data.cli",
            "build",
            "--split",
            split,
            "--limit",
            problems,
            "--samples",
            samples,
            "--max-tokens",
            256,
            "--engine",
            "transformers",
            "--out",
            out,
            *resuming(out),
        )
    return out


def trained(options: argparse.Namespace, name: str, data: Path, *more: object) -> Path:
    out: Path = options.out / name
    if not (out / "model.safetensors").exists():
        run(
            options,
            "fsdpo_train.cli",
            "prm",
            "--data",
            data,
            "--out",
            out,
            "--epochs",
            options.epochs,
            "--lr",
            options.lr,
            "--batch-size",
            options.batch_size,
            "--grad-accum",
            1,
            "--adam-beta2",
            0.98,
            "--held-out",
            0,
            "--log-every",
            100,
            *resuming(out),
            *more,
        )
    return out


def measured(options: argparse.Namespace, prm: Path, test: Path) -> dict[str, Any]:
    shown = run(
        options,
        "fsdpo_bench.cli",
        "prm",
        "--prm",
        prm,
        "--dataset",
        test,
        "--engine",
        "transformers",
        "--json",
    )
    report: dict[str, Any] = json.loads(shown)["dataset"]
    return report


def resuming(out: Path) -> list[str]:
    return ["--resume"] if out.exists() else []


def cost(dataset: Path) -> int:
    tokens: int = json.loads((dataset / "manifest.json").read_text())["cost"]["tokens"]
    return tokens


def run(options: argparse.Namespace, module: str, *given: object) -> str:
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    ran = subprocess.run(
        [sys.executable, "-m", module, *map(str, given)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads},
    )
    if ran.returncode:
        sys.exit(f"{module} {' '.join(map(str, given))} failed:\n{ran.stdout}")
    return ran.stdout


def print_table(rows: list[tuple[int, int, int, dict[str, Any]]]) -> None:
    print("| M | N | tokens sampled | ranking AUC (mean) | margin at the error | best of 8 (min) |")
    print("|---|---|---|---|---|---|")
    for m, n, tokens, found in rows:
        ranking, steps, best = found["ranking_auc"]["mean"], found["steps"], found["best_of"]["min"]
        print(
            f"| {m} | {n} | {tokens:,} | {with_interval(ranking['value'], ranking['ci95'])} "
            f"| {with_interval(steps['margin'], steps['ci95'])} | {100 * best['8']:.1f} % |"
        )


def with_interval(value: float, interval: list[float] | None) -> str:
    low, high = interval or (float("nan"), float("nan"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
