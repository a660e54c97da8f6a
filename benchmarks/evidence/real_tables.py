"""The tables of `make real`, from the CSV files with one row per problem."""

import csv
import math
import random
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from fsdpo_bench.prm.processbench import (
    LabelledRewards,
    f1_interval,
)
from fsdpo_bench.recipes.run_stages import DONE, read_measurements
from real_results import (
    AVERAGE,
    BEST,
    CHOICES_FILE,
    GREEDY,
    MOST_LIKELY,
    POLICIES_FILE,
    PROCESSBENCH_FILE,
    RANKING_AUC,
    STAGES_FILE,
    START,
    VOTE,
    WEIGHTED_VOTE,
    read_rows,
)

from fsdpo_data.core.statistics import mean_difference, mean_rate
from fsdpo_data.steps.first_error import (
    best_threshold,
    f1_of_hits,
    find_hits,
    threshold_candidates,
)

PRM_TITLES = {
    "outcome": "cross-entropy on outcomes",
    "rollouts": "cross-entropy on Monte-Carlo labels",
    "pqm": "PQM on Monte-Carlo labels",
    "implicit": "implicit loss on outcomes",
}
POLICY_TITLES = {
    START: "the model before training",
    "dpo": "DPO",
    "dpo-k": "DPO divided by K",
    "step-dpo": "Step-DPO",
    "full-step": "Full-Step-DPO, γ 0.5",
    "full-step-4": "Full-Step-DPO, γ 4",
    "shuffled": "Full-Step-DPO, γ 0.5, shuffled rewards",
}
#: Paired comparisons of policies: a policy, and the policy that it is compared with.
COMPARISONS = (
    ("full-step", "dpo"),
    ("full-step", "shuffled"),
    ("full-step-4", "dpo"),
    ("dpo-k", "dpo"),
    ("step-dpo", "dpo"),
    ("dpo", START),
    ("full-step", START),
)

#: Standard errors of a difference that a test at 5 % finds with a probability of 80 %.
DETECTABLE_ERRORS = 1.96 + 0.84

N_RANDOM = 10  #: Seeds of random rewards.

#: One value per problem, by problem id.
Values = Mapping[str, float]
Row = Mapping[str, str]  #: A row of a CSV file, by column.


def render_tables(results: Path, n_samples: int) -> str:
    """Return all tables whose numbers exist.

    Args:
        results: Folder of the numbers.
        n_samples: Number of samples of each test problem, among which reward models choose.
    """
    tables = (prm_table(results, n_samples), policy_table(results), stage_table(results))
    return "\n\n".join(table for table in tables if table)


def prm_table(results: Path, n_samples: int) -> str:
    """Return the accuracy of each choice among the samples, and the measures of reward models."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for choice, problem_id, value in read_rows(results / CHOICES_FILE):
        values[choice][problem_id] = float(value)
    if VOTE not in values:
        return ""
    titles = {
        GREEDY: "one greedy solution",
        AVERAGE: "an average sample",
        VOTE: f"vote of {n_samples}",
        MOST_LIKELY: f"most likely of {n_samples}",
    }
    rows = [
        [title, format_accuracy(values[name]), format_ahead(values[name], values[VOTE]), "", ""]
        for name, title in titles.items()
        if name in values
    ]
    for prm, title in PRM_TITLES.items():
        for choice, choice_title in ((BEST, "best"), (WEIGHTED_VOTE, "weighted vote")):
            name = f"{prm}: {choice}"
            processbench = format_processbench(results, prm) if choice == BEST else ""
            row = [f"{choice_title} of {n_samples}: {title}", "–", "–", "–", processbench]
            if name in values:
                areas = values[f"{prm}: {RANKING_AUC}"] if choice == BEST else {}
                row[1] = format_accuracy(values[name])
                row[2] = format_ahead(values[name], values[VOTE])
                row[3] = format_auc(areas) if areas else ""
            if name in values or processbench:
                rows.append(row)
    if random_f1 := random_processbench(results):
        rows.append(["random rewards", "–", "–", "–", random_f1])
    header = [
        f"choice ({len(values[VOTE])} problems)",
        "accuracy (%)",
        "difference to the vote (points)",
        "ranking AUC",
        "ProcessBench F1 (GSM8K)",
    ]
    return markdown_table(header, rows)


def policy_table(results: Path) -> str:
    """Return the results of each policy, and the paired comparisons."""
    by_policy = read_policies(results / POLICIES_FILE)
    trained = [policy for policy in by_policy if policy != START]
    if not trained:
        return ""
    common_ids = common_problems(by_policy)
    n_samples = int(by_policy[trained[0]][0][0]["samples"])
    rows = []
    for policy, title in POLICY_TITLES.items():
        if policy not in by_policy:
            continue
        seeds = [
            [row for row in rows if row["problem_id"] in common_ids] for rows in by_policy[policy]
        ]
        rows.append(
            [
                title,
                str(len(seeds)),
                format_greedy(seeds),
                format_accuracy(mean_values(seeds, average)),
                format_accuracy(mean_values(seeds, lambda row: float(row["vote"]))),
                *format_lengths(seeds),
            ]
        )
    header = [
        f"policy ({len(common_ids)} problems)",
        "seeds",
        "greedy (%)",
        f"avg@{n_samples} (%)",
        f"vote of {n_samples} (%)",
        "tokens per sample",
        "cut off (%)",
    ]
    comparisons = [pair for pair in COMPARISONS if by_policy.keys() >= {*pair}]
    has_seeds = any(len(by_policy[policy]) > 1 for policy, _ in comparisons)
    comparison_rows = [
        compare(by_policy, policy, baseline, common_ids, has_seeds)
        for policy, baseline in comparisons
    ]
    comparison_header = [
        f"avg@{n_samples} of",
        "against",
        "difference (points)",
        *(("by seed", "95 % over seeds") if has_seeds else ()),
        "detectable",
    ]
    tables = (markdown_table(header, rows), markdown_table(comparison_header, comparison_rows))
    return "\n\n".join(tables)


def read_policies(file: Path) -> dict[str, list[list[Row]]]:
    """Return the rows of each policy and seed in a file; nothing if the file does not exist."""
    by_policy: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                by_policy[row["policy"]][row["seed"]].append(row)
    return {policy: list(seeds.values()) for policy, seeds in by_policy.items()}


def common_problems(by_policy: Mapping[str, Sequence[Sequence[Row]]]) -> set[str]:
    """Return the ids of the problems that all policies have."""
    ids = [{row["problem_id"] for row in rows} for seeds in by_policy.values() for rows in seeds]
    return set.intersection(*ids) if ids else set()


def format_lengths(seeds: Sequence[Sequence[Row]]) -> tuple[str, str]:
    """Return the mean number of tokens per sample, and the cut-off samples in percent."""
    rows = [row for rows in seeds for row in rows]
    n_samples = sum(int(row["samples"]) for row in rows)
    tokens = sum(int(row["tokens"]) for row in rows) / n_samples
    cut_off = sum(int(row["cut_off"]) for row in rows) / n_samples
    return f"{tokens:.0f}", f"{100 * cut_off:.1f}"


def format_greedy(seeds: Sequence[Sequence[Row]]) -> str:
    """Return the accuracy of greedy solutions; a dash without them."""
    if any(row["greedy"] == "" for rows in seeds for row in rows):
        return "–"
    return format_accuracy(mean_values(seeds, lambda row: float(row["greedy"])))


def average(row: Row) -> float:
    """Return the fraction of correct samples of a problem."""
    return int(row["correct"]) / int(row["samples"])


def mean_values(seeds: Sequence[Sequence[Row]], value: Callable[[Row], float]) -> dict[str, float]:
    """Return a value of each problem, as mean over seeds."""
    values: dict[str, list[float]] = defaultdict(list)
    for rows in seeds:
        for row in rows:
            values[row["problem_id"]].append(value(row))
    return {problem_id: fmean(numbers) for problem_id, numbers in values.items()}


def compare(
    by_policy: Mapping[str, Sequence[Sequence[Row]]],
    policy: str,
    baseline: str,
    ids: Container[str],
    has_seeds: bool,
) -> list[str]:
    """Return the cells of a paired comparison of avg@k: the mean over seeds.

    With several seeds, the cells of each seed and of the interval over seeds are next. The
    interval after the mean is over problems, for these seeds. The detectable difference is the one
    that a test at 5 % finds with a probability of 80 %.
    """
    gains_by_seed = [*paired_gains(by_policy[policy], by_policy[baseline], ids).values()]
    gains = [fmean(seed[key] for seed in gains_by_seed) for key in gains_by_seed[0]]
    seed_means = [fmean(seed.values()) for seed in gains_by_seed]
    error = stdev(gains) / math.sqrt(len(gains))
    return [
        POLICY_TITLES[policy],
        POLICY_TITLES[baseline],
        format_difference(gains),
        *(format_seeds(seed_means) if has_seeds else ()),
        f"{100 * DETECTABLE_ERRORS * error:.1f}",
    ]


def paired_gains(
    seeds: Sequence[Sequence[Row]], base_seeds: Sequence[Sequence[Row]], ids: Container[str]
) -> dict[str, dict[str, float]]:
    """Return the differences of avg@k by problem id, for each seed that both policies have.

    Args:
        seeds: The rows of each seed of a policy.
        base_seeds: The rows of the policy that it is compared with. The policy before training has
            one seed, which is compared with all seeds.
        ids: The problems.

    Raises:
        ValueError: if the policies have no common seed.
    """
    base_rows = {rows[0]["seed"]: rows for rows in base_seeds}
    if base_seeds[0][0]["policy"] == START:
        base_rows = {rows[0]["seed"]: base_seeds[0] for rows in seeds}
    gains_by_seed = {}
    for rows in seeds:
        seed = rows[0]["seed"]
        if seed not in base_rows:
            continue
        base_values = mean_values([base_rows[seed]], average)
        values = mean_values([rows], average)
        gains_by_seed[seed] = {
            key: value - base_values[key] for key, value in values.items() if key in ids
        }
    if not gains_by_seed:
        raise ValueError(
            f"{seeds[0][0]['policy']} and {base_seeds[0][0]['policy']} have no common seed"
        )
    return gains_by_seed


def format_seeds(means: Sequence[float]) -> tuple[str, str]:
    """Return the mean of each seed, and Student's 95 % interval over seeds; – for one seed."""
    by_seed = ", ".join(f"{100 * mean:+.1f}" for mean in means)
    if len(means) < 2:
        return by_seed, "–"
    low, high = mean_difference(means).ci95
    return by_seed, f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def format_difference(gains: Sequence[float]) -> str:
    """Return the mean of differences with its interval over problems, in points."""
    difference = mean_difference(gains)
    low, high = difference.ci95
    return f"{100 * difference.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def format_ahead(values: Values, base: Values) -> str:
    """Return how far a choice is ahead of another one, in points; nothing for the same one."""
    if values is base:
        return ""
    return format_difference([value - base[key] for key, value in values.items()])


def format_accuracy(values: Values) -> str:
    """Return a mean over problems with its interval, in percent."""
    mean = mean_rate(list(values.values()))
    assert mean.value is not None and mean.ci95 is not None
    low, high = mean.ci95
    return f"{100 * mean.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def format_auc(areas: Values) -> str:
    """Return the mean of the AUC of each problem with correct and incorrect samples."""
    mean = mean_rate(list(areas.values()))
    assert mean.value is not None and mean.ci95 is not None
    low, high = mean.ci95
    return f"{mean.value:.3f} [{low:.3f}, {high:.3f}] ({len(areas)} problems)"


def random_processbench(results: Path) -> str:
    """Return the mean F1 of random rewards on ProcessBench; empty without its rows."""
    rows = read_rows(results / PROCESSBENCH_FILE)
    rows = [row for row in rows if row[0] == rows[0][0]]
    if not rows:
        return ""
    labels = [int(label) for _, _, label, _ in rows]
    scores = []
    for seed in range(N_RANDOM):
        rng = random.Random(seed)
        rewards = [[rng.random() for _ in text.split()] or None for *_, text in rows]
        scores.append(best_f1(rewards, labels))
    return f"{100 * fmean(scores):.1f} (mean of {N_RANDOM} seeds)"


def format_processbench(results: Path, prm: str) -> str:
    """Return F1 on ProcessBench by its protocol: the best threshold on these rows, all rows."""
    rows = [row for row in read_rows(results / PROCESSBENCH_FILE) if row[0] == prm]
    if not rows:
        return ""
    labels = [int(label) for _, _, label, _ in rows]
    rewards = [[float(reward) for reward in text.split()] or None for *_, text in rows]
    solutions = LabelledRewards(rewards, labels)
    f1 = f"{100 * best_f1(rewards, labels):.1f}"
    if interval := f1_interval(solutions, threshold_candidates(rewards), solutions):
        f1 += f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{f1} ({len(rows)} rows)"


def best_f1(rewards: Sequence[Sequence[float] | None], labels: Sequence[int]) -> float:
    """Return F1 on ProcessBench at the threshold with the best F1 on the same rows."""
    f1 = f1_of_hits(*find_hits(rewards, labels, best_threshold(rewards, labels)))
    assert f1 is not None, "ProcessBench has solutions with an error, and without one"
    return f1


def stage_table(results: Path, min_seconds: float = 0) -> str:
    """Return the time and memory of each complete stage.

    Args:
        results: Folder of the numbers.
        min_seconds: Shorter stages are left out.
    """
    stages = [
        row
        for row in read_measurements(results / STAGES_FILE)
        if row.status == DONE and row.seconds >= min_seconds
    ]
    if not stages:
        return ""
    cells = [
        [
            stage.purpose,
            f"{stage.seconds:.1f}",
            f"{stage.tokens / stage.seconds:.0f}" if stage.tokens else "",
            str(stage.peak_mb),
            str(stage.gpu_mb or ""),
        ]
        for stage in stages
    ]
    header = ["stage", "seconds", "sampled tokens/s", "peak memory (MB)", "peak GPU memory (MB)"]
    return markdown_table(header, cells)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
