"""Run the seeds of the recipe smollm2-mwp, and compare its policies.

    python benchmarks/recipes/mwp_results.py run [--seeds 0,1,2] [--minutes 120]
    python benchmarks/recipes/mwp_results.py report

``run`` runs the recipe for each seed that the results file does not contain, and adds the seed to
the file. Seeds are independent. After ``--minutes`` a seed stops; the file gets the arms that are
measured by then. ``report`` prints the tables. The recipe calls the commands ``detectable`` and
``shuffle``.

The results file has the number of correct samples of each test problem, by seed, arm and benchmark.
Seeds that ran with an early version have no mean lengths and no weights of last steps.
"""

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, NamedTuple

import typer
from fsdpo_bench.intervals import MeanDifference, mean_difference, proportion
from fsdpo_bench.rerank.intervals import holm
from fsdpo_bench.results.outcomes import read_problem_results
from fsdpo_bench.runs.records import read_records

from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import pl, torch
from fsdpo_data.core.parquet_files import collect_rows, scan_parquet
from fsdpo_data.dataset.manifest import read_manifest

RECIPE = "smollm2-mwp"
FOLDER = Path("runs") / RECIPE  #: The value ``folder`` of the recipe.
RESULTS_FILE = Path(__file__).parents[1] / "measured" / f"{RECIPE}.json"
#: Titles of the arms, in the order of the recipe.
ARMS = {
    "sft": "SFT",
    "dpo": "DPO",
    "full-step": "Full-Step-DPO",
    "shuffled": "Full-Step-DPO, shuffled rewards",
    "dpo-k": "DPO/K",
}
GAMMA = 8.0  #: γ of Full-Step-DPO in the recipe.
#: The comparisons: an arm, and the arm that it is compared with.
COMPARISONS = (
    ("dpo", "sft"),
    ("full-step", "sft"),
    ("full-step", "dpo"),
    ("full-step", "shuffled"),
    ("full-step", "dpo-k"),
    ("dpo-k", "dpo"),
)
#: Standard errors of a difference that a test at 5 % finds with a probability of 80 %.
DETECTABLE_ERRORS = 1.96 + 0.84

#: Numbers of correct samples by benchmark, one per test problem.
Counts = dict[str, list[int]]

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


class ArmResult(NamedTuple):
    """The results of an arm with one seed."""

    samples: int  #: Samples per problem.
    correct: Counts  #: Numbers of correct samples.
    mean_tokens: float | None = None  #: Mean number of tokens of a sample.


@app.command()
def run(
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = "0,1,2",
    minutes: Annotated[float, typer.Option(help="Time limit of a seed.")] = 120,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Value of the recipe, such as problems=100.")
    ] = None,
    file: Annotated[Path, typer.Option(help="Results file.")] = RESULTS_FILE,
) -> None:
    """Run the recipe for each seed that is not in the results file, and print the tables."""
    for seed in seeds.split(","):
        if seed in read_seeds(file):
            print(f"seed {seed}: done ({file})")
            continue
        command = [sys.executable, "-m", "fsdpo_bench", "recipe", RECIPE]
        for setting in (*(settings or ()), f"seed={seed}"):
            command += ["--set", setting]
        start_seconds = time.monotonic()
        try:
            subprocess.run(command, check=True, timeout=60 * minutes)
        except subprocess.TimeoutExpired:
            print(f"seed {seed}: stopped after {minutes:g} minutes")
        collect(seed, FOLDER / seed, (time.monotonic() - start_seconds) / 60, file)
    report(file)


@app.command()
def collect(
    seed: str,
    run_folder: Path,
    minutes: Annotated[float, typer.Option(help="Duration of the seed, to record.")] = 0,
    file: Annotated[Path, typer.Option(help="Results file.")] = RESULTS_FILE,
) -> None:
    """Add the arms of a seed that are measured to the results file."""
    arms = {}
    for arm in ARMS:
        arm_folder = run_folder / f"{arm}-measured"
        if (arm_folder / "results.json").exists():
            arms[arm] = read_arm(arm_folder)._asdict()
    manifest = read_manifest(run_folder / "pairs")
    pairs = read_pairs(run_folder / "pairs")
    seeds = read_seeds(file)
    seeds[seed] = {
        "minutes": round(minutes),
        "data": {
            "solutions": manifest.statistics.accuracy.n,
            "accuracy": manifest.statistics.accuracy.value,
            "mixed_problems": manifest.statistics.mixed_problems,
            "ranking_auc": manifest.rewards.ranking_auc["mean"].value,
            "ranking_auc_ci95": manifest.rewards.ranking_auc["mean"].ci95,
            "pairs": manifest.pairs.pairs,
            "steps_per_solution": steps_per_solution(pairs),
            "last_step_weights": last_step_weights(pairs),
        },
        "arms": arms,
    }
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(seeds[key])}" for key in sorted(seeds))
    write_text(file, f"{{\n{rows}\n}}\n")
    print(f"seed {seed}: {', '.join(arms)} in {file}")


@app.command()
def report(file: Path = RESULTS_FILE) -> None:
    """Print the accuracies, the paired differences and the detectable difference."""
    seeds = read_seeds(file)
    if not seeds:
        print("no seed is measured")
        return
    for seed, entry in seeds.items():
        data = entry["data"]
        low, high = data["ranking_auc_ci95"]
        print(
            f"seed {seed}: {entry['minutes']} minutes, {data['solutions']} samples, "
            f"{100 * data['accuracy']:.1f} % correct, {data['mixed_problems']} mixed problems, "
            f"ranking AUC {data['ranking_auc']:.3f} [{low:.3f}, {high:.3f}], "
            f"{data['pairs']} pairs, {data['steps_per_solution']:.1f} steps per solution"
        )
    print_detectable([read_result(entry, "sft") for entry in seeds.values()])
    print_accuracies(seeds)
    print_comparisons(seeds)
    print_lengths(seeds)


@app.command()
def detectable(run_folder: Path) -> None:
    """Print the smallest difference of two policies that the problems of a run can show."""
    print_detectable([read_arm(run_folder)])


@app.command()
def shuffle(
    pairs: Path,
    out: Annotated[Path, typer.Option(help="File for the pairs.")],
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Write the pairs of a dataset with the step rewards of each solution in random order.

    A solution of several pairs has the same order in all of them.
    """
    write_shuffled_pairs(read_pairs(pairs).to_dicts(), out, seed)


def write_shuffled_pairs(rows: Sequence[dict[str, Any]], out: Path, seed: int) -> None:
    """Write pairs with shuffled rewards; see :func:`shuffle`."""
    rng = random.Random(seed)
    shuffled_rewards: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        for side in ("chosen", "rejected"):
            solution = (row["prompt"], *row[f"{side}_steps"])
            rewards = row[f"{side}_rewards"]
            if solution not in shuffled_rewards:
                shuffled_rewards[solution] = rng.sample(rewards, len(rewards))
            row[f"{side}_rewards"] = shuffled_rewards[solution]
    pl.DataFrame(rows).write_ndjson(out)
    print(f"pairs with shuffled rewards: {len(rows)}")


def read_pairs(pairs: Path) -> pl.DataFrame:
    """Return the pairs of a dataset."""
    return collect_rows(scan_parquet(read_manifest(pairs).config_paths(pairs, "pairs")))


def steps_per_solution(pairs: pl.DataFrame) -> float:
    """Return the mean number of steps of the solutions in pairs."""
    return fmean(
        len(steps) for side in ("chosen", "rejected") for steps in pairs[f"{side}_steps"].to_list()
    )


def last_step_weights(pairs: pl.DataFrame) -> dict[str, float]:
    """Return the mean K·α of the last step, by side, over solutions with more than one step.

    A weight of 1 is that of DPO/K.
    """
    from fsdpo_train.losses.preference_losses import scaled_step_weights  # imports torch

    mean_weights = {}
    for side, sign in (("chosen", 1), ("rejected", -1)):
        weights = []
        for rewards in pairs[f"{side}_rewards"].to_list():
            if len(rewards) == 1:
                continue
            reward_SK = torch.tensor([rewards])
            mask_SK = torch.ones_like(reward_SK, dtype=torch.bool)
            weight_SK = scaled_step_weights(reward_SK, mask_SK, GAMMA, sign)
            weights.append(float(weight_SK[0, -1]))
        mean_weights[side] = fmean(weights) if weights else math.nan
    return mean_weights


def read_seeds(file: Path) -> dict[str, Any]:
    """Return the entries of a results file by seed; no entries if the file does not exist."""
    return json.loads(file.read_text()) if file.exists() else {}


def read_result(entry: dict[str, Any], arm: str) -> ArmResult:
    """Return the result of an arm from the entry of a seed."""
    return ArmResult(**entry["arms"][arm])


def read_arm(run_folder: Path) -> ArmResult:
    """Return the numbers of correct samples of a run of `fsdpo-bench run`."""
    records = list(read_records(run_folder))
    by_task = read_problem_results(records)
    [samples] = {result.graded_samples for results in by_task.values() for result in results}
    correct = {
        Path(name).stem: [result.correct_samples for result in results]
        for name, results in by_task.items()
    }
    mean_tokens = fmean(sample.n_tokens for record in records for sample in record.samples)
    return ArmResult(samples, correct, round(mean_tokens, 1))


def print_detectable(results: Sequence[ArmResult]) -> None:
    """Print the detectable difference of two policies, from the samples of the SFT policy.

    Two policies of equal accuracy differ by the variance of their samples within problems. If
    samples of both policies share random numbers, the true variance is smaller.
    """
    within_variances = []
    for samples, correct, _ in results:
        fractions = [count / samples for counts in correct.values() for count in counts]
        within_variances.append(fmean(x * (1 - x) for x in fractions) * samples / (samples - 1))
    samples, correct, _ = results[0]
    n_problems = sum(map(len, correct.values()))
    difference_variance = 2 * fmean(within_variances) / samples
    for n_seeds in (1, 3):
        error = math.sqrt(difference_variance / (n_problems * n_seeds))
        print(
            f"{n_seeds} seed(s), {n_problems} problems x {samples} samples: standard error of a "
            f"paired difference {100 * error:.2f} points, detectable difference "
            f"{100 * DETECTABLE_ERRORS * error:.1f} points"
        )


def print_accuracies(seeds: dict[str, Any]) -> None:
    """Print avg@k of each arm and benchmark, the mean over seeds, with intervals over problems."""
    benchmarks = list(read_result(next(iter(seeds.values())), "sft").correct)
    print("\n| arm | seeds | " + " | ".join(benchmarks) + " | mean |")
    print("|---" * (len(benchmarks) + 3) + "|")
    for arm, title in ARMS.items():
        results = [read_result(entry, arm) for entry in seeds.values() if arm in entry["arms"]]
        if not results:
            continue
        cells = [
            format_mean(mean_fractions(results, names))
            for names in [*([name] for name in benchmarks), benchmarks]
        ]
        print(f"| {title} | {len(results)} | " + " | ".join(cells) + " |")


def format_mean(fractions: Sequence[float]) -> str:
    """Return a mean with its interval in percent."""
    mean = proportion(fractions)
    assert mean.value is not None and mean.ci95 is not None
    low, high = mean.ci95
    return f"{100 * mean.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def print_comparisons(seeds: dict[str, Any]) -> None:
    """Print the paired differences of arms in points, with intervals over problems and seeds.

    The p-values are over problems, and hold for these seeds.
    """
    rows = []
    for arm, baseline in COMPARISONS:
        entries = [entry for entry in seeds.values() if {arm, baseline} <= entry["arms"].keys()]
        if entries:
            rows.append((arm, baseline, entries, compare(entries, arm, baseline)))
    print("\n| arm | against | difference | p | p (Holm) | by seed | over seeds | by benchmark |")
    print("|---" * 8 + "|")
    holm_p_values = holm([difference.p for *_, difference in rows if difference.p is not None])
    for (arm, baseline, entries, difference), p_holm in zip(rows, holm_p_values, strict=True):
        by_seed = [compare([entry], arm, baseline).value for entry in entries]
        benchmarks = read_result(entries[0], arm).correct
        by_benchmark = [
            f"{name} {format_points(compare(entries, arm, baseline, [name]))}"
            for name in benchmarks
        ]
        print(
            f"| {ARMS[arm]} | {ARMS[baseline]} | {format_points(difference)} | {difference.p:.3f} "
            f"| {p_holm:.3f} | {', '.join(f'{100 * value:+.1f}' for value in by_seed)} "
            f"| {format_seed_interval(by_seed)} | {', '.join(by_benchmark)} |"
        )


def format_seed_interval(by_seed: Sequence[float]) -> str:
    """Return Student's 95 % interval of a mean difference over seeds in points; – for one seed."""
    from scipy.special import stdtrit

    if len(by_seed) < 2:
        return "–"
    mean = fmean(by_seed)
    error = stdev(by_seed) / math.sqrt(len(by_seed))
    half_width = float(stdtrit(len(by_seed) - 1, 0.975)) * error
    return f"[{100 * (mean - half_width):+.1f}, {100 * (mean + half_width):+.1f}]"


def print_lengths(seeds: dict[str, Any]) -> None:
    """Print the mean length of the samples of each arm, and the weights of the last steps."""
    measured_seeds = {
        seed: entry for seed, entry in seeds.items() if "last_step_weights" in entry["data"]
    }
    if not measured_seeds:
        return
    print("\n| mean tokens of a sample | " + " | ".join(f"seed {s}" for s in measured_seeds) + " |")
    print("|---" * (len(measured_seeds) + 1) + "|")
    for arm, title in ARMS.items():
        cells = [
            f"{read_result(entry, arm).mean_tokens:.1f}" if arm in entry["arms"] else "–"
            for entry in measured_seeds.values()
        ]
        print(f"| {title} | " + " | ".join(cells) + " |")
    for seed, entry in measured_seeds.items():
        weights = entry["data"]["last_step_weights"]
        print(
            f"seed {seed}: the mean K·α of the last step is {weights['chosen']:.2f} in chosen and "
            f"{weights['rejected']:.2f} in rejected solutions"
        )


def format_points(difference: MeanDifference) -> str:
    """Return a difference with its interval in points."""
    low, high = difference.ci95
    return f"{100 * difference.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def compare(
    entries: Sequence[dict[str, Any]], arm: str, baseline: str, benchmarks: Sequence[str] = ()
) -> MeanDifference:
    """Return the paired difference of two arms, the mean over seeds, with its interval.

    The interval is over the test problems, which are the same for all seeds. It therefore holds for
    these seeds, and not for others.

    Args:
        entries: Entries of seeds that have both arms.
        arm: The arm.
        baseline: The arm that it is compared with.
        benchmarks: The benchmarks; all by default.
    """
    names = benchmarks or list(read_result(entries[0], arm).correct)
    values = mean_fractions([read_result(entry, arm) for entry in entries], names)
    base_values = mean_fractions([read_result(entry, baseline) for entry in entries], names)
    return mean_difference([b - a for a, b in zip(base_values, values, strict=True)])


def mean_fractions(results: Sequence[ArmResult], benchmarks: Sequence[str]) -> list[float]:
    """Return the fraction of correct samples of each problem of benchmarks, as mean over seeds."""
    by_seed = [
        [count / samples for name in benchmarks for count in correct[name]]
        for samples, correct, _ in results
    ]
    return [fmean(fractions) for fractions in zip(*by_seed, strict=True)]


if __name__ == "__main__":
    app()
