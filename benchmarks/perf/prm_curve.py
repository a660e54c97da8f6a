"""What a PRM learns from M samples and N rollouts, and what both cost: the paper's figure, here.

    python benchmarks/perf/prm_curve.py --out runs/curve [--problems 300] [--samples 4 8 16 32]
        [--rollouts 4 8] [--mc-samples 8] [--steps 600] [--lr 1.5e-3] [--threads 1]

Everything is done by the commands a user would run, on the embedded world with its own model. The
PRMs of all M are trained on the same samples, the first M of each problem, with outcome labels
(N = 1, which cost nothing beyond the samples); those of N > 1 on `--mc-samples` samples of each
problem, whose steps are continued N times. All are measured on the same samples of problems that
occur in no training split, beside the policy's own likelihood, which costs no training. Every
PRM is trained for the same number of steps, so that only what it is shown differs. What exists in
`--out` is not made again, so a stopped run goes on. The table is also written, as `curve.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: M, N, tokens sampled, and what `fsdpo-bench prm` says.
Row = tuple[int, int, int, dict[str, Any]]


def main() -> None:
    options = parse()
    test = sampled(options, "test", options.test_problems, options.test_samples)
    rows = [(0, 0, 0, measured(options, test, "--likelihood", "tiny"))]
    rows += by_samples(options, test)
    rows += by_rollouts(options, test)
    (options.out / "curve.json").write_text(json.dumps(rows, indent=1) + "\n")
    print_table(rows)


def parse() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--problems", type=int, default=300)
    arguments.add_argument("--samples", type=int, nargs="+", default=[4, 8, 16, 32])
    arguments.add_argument("--rollouts", type=int, nargs="*", default=[4, 8])
    arguments.add_argument("--mc-samples", type=int, default=8)
    arguments.add_argument("--test-problems", type=int, default=150)
    arguments.add_argument("--test-samples", type=int, default=16)
    arguments.add_argument("--steps", type=int, default=600)
    arguments.add_argument("--lr", type=float, default=1.5e-3)
    arguments.add_argument("--batch-size", type=int, default=32)
    arguments.add_argument("--threads", type=int, default=1)
    return arguments.parse_args()


def by_samples(options: argparse.Namespace, test: Path) -> list[Row]:
    """PRMs of outcome labels, on the first M samples of each problem."""
    most = max(options.samples)
    every = sampled(options, "train", options.problems, most)
    rows = []
    for m in options.samples:
        chosen = ("--samples", m, "--labels", "outcome")
        prm = trained(options, f"prm-m{m}-n1", every, *chosen)
        rows.append((m, 1, cost(every) * m // most, measured(options, test, "--prm", prm)))
    return rows


def by_rollouts(options: argparse.Namespace, test: Path) -> list[Row]:
    """PRMs of Monte-Carlo labels."""
    rows = []
    m = options.mc_samples
    for n in options.rollouts:
        labelled = options.out / f"m{m}-n{n}"
        if not (labelled / "manifest.json").exists():
            some = sampled(options, "train", options.problems, m)
            given = [some, "--rollouts", n, "--engine", "transformers", "--out", labelled]
            run(options, "fsdpo_data", "label", *given, *resuming(labelled))
        prm = trained(options, f"prm-m{m}-n{n}", labelled, "--labels", "rollouts")
        rows.append((m, n, cost(labelled), measured(options, test, "--prm", prm)))
    return rows


def sampled(options: argparse.Namespace, split: str, problems: int, samples: int) -> Path:
    out: Path = options.out / f"{split}-m{samples}"
    if not (out / "manifest.json").exists():
        given = ["--split", split, "--limit", problems, "--samples", samples, "--max-tokens", 256]
        given += ["--engine", "transformers", "--out", out, *resuming(out)]
        run(options, "fsdpo_data", "build", *given)
    return out


def trained(options: argparse.Namespace, name: str, data: Path, *labels: object) -> Path:
    out: Path = options.out / name
    if not (out / "README.md").exists():  # its card, which training writes last
        given = [data, "--out", out, "--max-steps", options.steps, "--lr", options.lr]
        given += ["--batch-size", options.batch_size, "--grad-accum", 1, "--adam-beta2", 0.98]
        given += ["--held-out", 0, "--log-every", 100]
        run(options, "fsdpo_train", "prm", *given, *labels, *resuming(out))
    return out


def measured(options: argparse.Namespace, test: Path, *model: object) -> dict[str, Any]:
    given = [*model, test, "--engine", "transformers", "--json"]
    report: dict[str, Any] = json.loads(run(options, "fsdpo_bench", "prm", *given))["dataset"]
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


def print_table(rows: list[Row]) -> None:
    print("| M | N | tokens sampled | ranking AUC (mean) | margin at the error | best of 8 (min) |")
    print("|---|---|---|---|---|---|")
    for m, n, tokens, found in rows:
        ranking, steps, best = found["ranking_auc"]["mean"], found["steps"], found["best_of"]["min"]
        made_of = f"{m} | {n}" if n else "likelihood | –"
        print(
            f"| {made_of} | {tokens:,} | {with_interval(ranking['value'], ranking['ci95'])} "
            f"| {with_interval(steps['margin'], steps['ci95'])} | {100 * best['8']:.1f} % |"
        )


def with_interval(value: float, interval: list[float] | None) -> str:
    low, high = interval or (float("nan"), float("nan"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
