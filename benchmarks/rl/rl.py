"""Reinforcement learning with TRL's GRPOTrainer on embedded problems: outcome and step rewards.

    python benchmarks/rl/rl.py --out runs/rl

The command trains a process reward model with `fsdpo-data` and `fsdpo-train`. It then trains the
embedded model with the rewards of each arm and each seed, and measures the policies on held-out
problems:

- outcome: `rewards.outcome()`;
- process: `rewards.outcome()` + 0.5 × `rewards.process(PRM)`, the smallest step reward;
- step-advantages: `StepGRPOTrainer`, with advantages of tokens from step rewards.

The arms of a seed share the start, the prompts in their order, the optimizer steps and the held-out
problems. Finished parts in `--out` are not computed again, and a stopped training continues from
its last checkpoint. `--publish` writes the table to `benchmarks/measured/rl.txt`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from experiment import (
    ARMS,
    START,
    Experiment,
    Measurement,
    PrmQuality,
    make_prm,
    measure_prm,
    run_policy,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = """examples:
  python benchmarks/rl/rl.py --out runs/rl
  python benchmarks/rl/rl.py --out runs/rl --seeds 0 1 2 --jobs 2
  python benchmarks/rl/rl.py --out runs/rl-small --steps 4 --seeds 0 --prm-problems 20 \\
      --test-problems 10 --test-samples 2
  python benchmarks/rl/rl.py --out runs/rl-outcome --arms outcome --lr 3e-4
"""

#: Measurements by arm, one per training seed.
Results = dict[str, list[Measurement]]


def main() -> None:
    """Run the experiment; finished parts are not computed again."""
    options = read_options()
    # Each command and training uses one thread; `--jobs` determines the number of busy cores.
    os.environ["OMP_NUM_THREADS"] = "1"
    experiment = Experiment(
        out=options.out,
        steps=options.steps,
        prompts=options.prompts,
        lr=options.lr,
        prm_problems=options.prm_problems,
        test_problems=options.test_problems,
        test_samples=options.test_samples,
        log_every=options.log_every,
    )
    check_settings(experiment)
    make_prm(experiment)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        quality = pool.submit(measure_prm, experiment)
        arms = [START, *options.arms]
        # Seed by seed, so that a stopped experiment has complete seeds.
        runs = [(arm, seed) for seed in options.seeds for arm in arms]
        measurements = list(pool.map(partial(_run, experiment), runs))
        table = format_table(experiment, quality.result(), _by_arm(runs, measurements))
    print(table, end="")
    if options.publish:
        command = f"$ python benchmarks/rl/rl.py --out {options.out}\n"
        (ROOT / "benchmarks/measured/rl.txt").write_text(command + table, encoding="utf-8")


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="directory of all files")
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=list(ARMS), help="ways to reward"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="training seeds")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps of each training")
    parser.add_argument(
        "--prompts", type=int, default=1, help="prompts per optimizer step, with 8 completions each"
    )
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of all arms")
    parser.add_argument(
        "--prm-problems", type=int, default=300, help="problems that train the reward model"
    )
    parser.add_argument("--test-problems", type=int, default=150, help="held-out problems per seed")
    parser.add_argument("--test-samples", type=int, default=4, help="samples per held-out problem")
    parser.add_argument(
        "--log-every", type=int, default=25, help="steps between progress lines and checkpoints"
    )
    parser.add_argument("--jobs", type=int, default=2, help="trainings at the same time")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/measured/rl.txt")
    return parser.parse_args(arguments)


def check_settings(experiment: Experiment) -> None:
    """Stop if the directory belongs to an experiment of another size, and claim an empty one."""
    settings = {
        name: value for name, value in vars(experiment).items() if name not in ("out", "log_every")
    }
    file = experiment.out / "settings.json"
    if not file.exists():
        experiment.out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    old_settings = json.loads(file.read_text(encoding="utf-8"))
    if old_settings != settings:
        changed = sorted(name for name in settings if settings[name] != old_settings.get(name))
        sys.exit(
            f"{experiment.out} was started with other options; these differ: {', '.join(changed)}. "
            "Repeat the options of the first run, or choose another --out."
        )


def format_table(experiment: Experiment, quality: PrmQuality, results: Results) -> str:
    """Return the tables of the experiment: values and paired differences with 95 % intervals."""
    sys.path.insert(0, str(ROOT / "benchmarks/study"))
    from measure import estimate

    n_seeds = len(results[START])
    low, high = quality.ci95
    lines = [
        f"step rewards of the PRM: AUC {quality.auc:.3f} [{low:.3f}, {high:.3f}] "
        f"on {quality.steps:,} held-out steps",
        f"trainings: {n_seeds} per arm, {experiment.steps} steps of {experiment.prompts} prompts, "
        f"learning rate {experiment.lr:g}",
        f"held-out problems: {n_seeds} x {experiment.test_problems}, "
        f"{experiment.test_samples} samples each",
    ]
    for metric, title in (("correct", "correct"), ("right", "without a wrong step")):
        values = {
            arm: 100 * np.array([getattr(run, metric) for run in runs])
            for arm, runs in results.items()
        }
        lines += ["", f"{title + ', %':<24}{'':>20}{'gain':>22}{'over outcome':>22}"]
        for arm, value_SP in values.items():
            cells = [_format_estimate(estimate(value_SP)), "", ""]
            if arm != START:
                cells[1] = _format_estimate(estimate(value_SP - values[START]), signed=True)
            if arm not in (START, "outcome") and "outcome" in values:
                cells[2] = _format_estimate(estimate(value_SP - values["outcome"]), signed=True)
            line = f"{arm:<24}{cells[0]:>20}{cells[1]:>22}{cells[2]:>22}"
            lines.append(line.rstrip())
    lines += ["", "correct by seed, %"]
    for arm, runs in results.items():
        by_seed = "  ".join(f"{100 * np.mean(run.correct):5.1f}" for run in runs)
        lines.append(f"{arm:<24}{by_seed}")
    return "\n".join(lines) + "\n"


def _format_estimate(result: Any, *, signed: bool = False) -> str:
    """Return a value with its interval, such as ``+3.1 [+1.0, +5.2]``."""
    sign = "+" if signed else ""
    return f"{result.value:{sign}.1f} [{result.low:{sign}.1f}, {result.high:{sign}.1f}]"


def _run(experiment: Experiment, run: tuple[str, int]) -> Measurement:
    """Train and measure an arm with a seed, in a process of the pool."""
    arm, seed = run
    return run_policy(experiment, arm, seed)


def _by_arm(runs: Sequence[tuple[str, int]], measurements: Sequence[Measurement]) -> Results:
    """Return the measurements of each arm, in the order of the seeds."""
    results: Results = {}
    for (arm, _), measurement in zip(runs, measurements, strict=True):
        results.setdefault(arm, []).append(measurement)
    return results


if __name__ == "__main__":
    main()
