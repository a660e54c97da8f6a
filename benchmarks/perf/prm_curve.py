"""What a PRM learns from M samples and N rollouts, and what both cost: the paper's figure, here.

    python benchmarks/perf/prm_curve.py --out runs/curve [--problems 300] [--samples 4 8 16 32]
        [--rollouts 4 8] [--mc-samples 8] [--losses pqm implicit] [--steps 600] [--threads 1]

Everything is done by the commands a user would run, on the embedded world with its own model. The
PRMs of all M are trained on the same samples, the first M of each problem, with outcome labels
(N = 1, which cost nothing beyond the samples); those of N > 1 on `--mc-samples` samples of each
problem, whose steps are continued N times. `--losses` are tried on the same labels: `pqm` ranks
steps, so it learns from the rollouts; `implicit` is a policy and learns from the outcomes, at
`--policy-lr`. All are measured on the same samples of problems that occur in no training split,
beside the policy's own likelihood, which costs no training. Every PRM is trained for the same
number of steps, so that only what it is shown differs. What exists in `--out` is not made again,
so a stopped run goes on. The table is also written, as `curve.json`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))
from commands import made

#: M, N, loss, tokens sampled, and what `fsdpo-bench prm` says.
Row = tuple[int, int, str, int, dict[str, Any]]
IMPLICIT = ("--reference", "tiny")  #: What an implicit reward is held against.


def main() -> None:
    options = parse()
    test = sampled(options, "test", options.test_problems, options.test_samples)
    rows = [(0, 0, "none", 0, measured(test, "--likelihood", "tiny"))]
    most = max(options.samples)
    every = sampled(options, "train", options.problems, most)
    for m in options.samples:  # outcome labels, on the first M samples of each problem
        prm = trained(options, f"prm-m{m}-n1", every, "--samples", m, "--labels", "outcome")
        rows.append((m, 1, "bce", cost(every) * m // most, measured(test, "--prm", prm)))
    m = options.mc_samples
    if "implicit" in options.losses:
        given = ("--samples", m, "--labels", "outcome", "--loss", "implicit")
        prm = trained(options, f"implicit-m{m}", every, *given, lr=options.policy_lr)
        found = measured(test, "--prm", prm, *IMPLICIT)
        rows.append((m, 1, "implicit", cost(every) * m // most, found))
    for n in options.rollouts:  # Monte-Carlo labels
        some = sampled(options, "train", options.problems, m)
        given = ("label", some, "--rollouts", n, "--engine", "transformers")
        out = options.out / f"m{m}-n{n}"
        labelled = made(out, "manifest.json", "fsdpo_data", given, options.threads)
        for loss in ("bce", *({"pqm"} & set(options.losses))):
            name = f"{loss.replace('bce', 'prm')}-m{m}-n{n}"
            prm = trained(options, name, labelled, "--labels", "rollouts", "--loss", loss)
            rows.append((m, n, loss, cost(labelled), measured(test, "--prm", prm)))
    (options.out / "curve.json").write_text(json.dumps(rows, indent=1) + "\n")
    print_table(rows)


def parse() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--samples", type=int, nargs="+", default=[4, 8, 16, 32])
    arguments.add_argument("--rollouts", type=int, nargs="*", default=[4, 8])
    arguments.add_argument("--losses", nargs="*", choices=("pqm", "implicit"), default=[])
    arguments.add_argument("--lr", type=float, default=1.5e-3)
    arguments.add_argument("--policy-lr", type=float, default=3e-4)
    numbers = {"problems": 300, "mc-samples": 8, "test-problems": 150, "test-samples": 16}
    for name, default in {**numbers, "steps": 600, "batch-size": 32, "threads": 1}.items():
        arguments.add_argument(f"--{name}", type=int, default=default)
    return arguments.parse_args()


def sampled(options: argparse.Namespace, split: str, problems: int, samples: int) -> Path:
    given = ("build", "--split", split, "--limit", problems, "--samples", samples)
    given = (*given, "--max-tokens", 256, "--engine", "transformers")
    out = options.out / f"{split}-m{samples}"
    return made(out, "manifest.json", "fsdpo_data", given, options.threads)


def trained(
    options: argparse.Namespace, name: str, data: Path, *labels: object, lr: float | None = None
) -> Path:
    given = ("prm", data, "--max-steps", options.steps, "--lr", lr or options.lr)
    given = (*given, "--batch-size", options.batch_size, "--grad-accum", 1, "--adam-beta2", 0.98)
    given = (*given, "--held-out", 0, "--log-every", 100, *labels)
    return made(options.out / name, "README.md", "fsdpo_train", given, options.threads)


def measured(test: Path, *model: object) -> dict[str, Any]:
    given = ["prm", *model, test, "--engine", "transformers", "--json"]
    line = [sys.executable, "-m", "fsdpo_bench", *map(str, given)]
    ran = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{ran.stdout}")
    report: dict[str, Any] = json.loads(ran.stdout)["dataset"]
    return report


def cost(dataset: Path) -> int:
    tokens: int = json.loads((dataset / "manifest.json").read_text())["cost"]["tokens"]
    return tokens


def print_table(rows: list[Row]) -> None:
    print(
        "| M | N | loss | tokens sampled | ranking AUC (mean) | margin at the error | best of 8 |"
    )
    print("|---|---|---|---|---|---|---|")
    for m, n, loss, tokens, found in rows:
        ranking, steps, best = found["ranking_auc"]["mean"], found["steps"], found["best_of"]["min"]
        made_of = f"{m} | {n} | {loss}" if n else "likelihood | – | –"
        print(
            f"| {made_of} | {tokens:,} | {with_interval(ranking['value'], ranking['ci95'])} "
            f"| {with_interval(steps['margin'], steps['ci95'])} | {100 * best['8']:.1f} % |"
        )


def with_interval(value: float, interval: list[float] | None) -> str:
    low, high = interval or (float("nan"), float("nan"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
