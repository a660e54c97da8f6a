"""The tables of the curve over the solutions of a reward model, from its CSV files."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from curve_results import (
    CHOICES,
    CURVE_FILE,
    NO_SOLUTIONS,
    RATES_FILE,
    TEST,
    TRAINING,
    best_rate,
)
from real_results import POLICIES_FILE, RANKING_AUC, START, VOTE, read_rows
from real_tables import (
    POLICY_TITLES,
    Row,
    Values,
    average,
    common_problems,
    format_accuracy,
    format_ahead,
    format_auc,
    format_difference,
    format_lengths,
    format_processbench,
    format_seeds,
    markdown_table,
    mean_values,
    paired_gains,
    random_processbench,
    read_policies,
    stage_table,
)

from fsdpo_data.core.statistics import mcnemar, mean_difference
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE

MIN_STAGE_SECONDS = 60  #: Shorter stages are not in the table of the stages.
BASE_POLICY = "dpo"  #: The policy that the others are compared with, at the same learning rate.


def render_curve(results: Path, n_samples: int) -> str:
    """Return all tables whose numbers exist, and the learning rate to take for the policies.

    Args:
        results: Folder of the numbers.
        n_samples: Number of samples of each problem, among which reward models choose.
    """
    parts = (
        curve_table(results, n_samples),
        chosen_rate(results),
        policy_table(results),
        stage_table(results, MIN_STAGE_SECONDS),
    )
    return "\n\n".join(part for part in parts if part)


def curve_table(results: Path, n_samples: int) -> str:
    """Return the accuracy of the chosen pair of each reward model, by number of solutions."""
    values = read_curve(results)
    votes = values[NO_SOLUTIONS, TEST][VOTE]
    if not votes:
        return ""
    training_votes = values[NO_SOLUTIONS, TRAINING][VOTE]
    vote_cells = [f"vote of {n_samples}", format_percent(training_votes), format_accuracy(votes)]
    rows = [["–", *vote_cells, "", "", "", "", ""]]
    areas_above: Values = {}
    for solutions in sorted({key for key, _ in values} - {NO_SOLUTIONS}, key=int):
        by_choice = values[solutions, TEST]
        [choice] = [choice for choice in CHOICES if choice.name in by_choice]
        areas = by_choice[RANKING_AUC]
        rows.append(
            [
                f"{int(solutions):,}",
                f"{choice.decoder} of {n_samples} by `{choice.aggregate}`",
                format_percent(values[solutions, TRAINING][choice.name]),
                format_accuracy(by_choice[choice.name]),
                format_ahead(by_choice[choice.name], votes),
                format_wins(by_choice[choice.name], votes),
                format_auc(areas) if areas else "–",
                format_auc_gain(areas, areas_above) if areas.keys() & areas_above.keys() else "",
                format_processbench(results, solutions) or "–",
            ]
        )
        areas_above = areas
    if random_f1 := random_processbench(results):
        rows.append(["–", "random rewards", "–", "–", "–", "–", "–", "–", random_f1])
    header = [
        "solutions with an outcome",
        "choice",
        f"on {len(training_votes)} training problems (%)",
        f"on {len(votes)} test problems (%)",
        "difference to the vote (points)",
        "won : lost (exact p)",
        f"ranking AUC (`{DEFAULT_AGGREGATE}`)",
        "AUC, difference to the row above",
        "ProcessBench F1 (GSM8K)",
    ]
    return markdown_table(header, rows)


def read_curve(results: Path) -> Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]:
    """Return the value of each problem, by choice, by solutions of the model and kind of problems.

    Missing keys have empty values.
    """
    values: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for solutions, problems, choice, problem_id, value in read_rows(results / CURVE_FILE):
        values[solutions, problems][choice][problem_id] = float(value)
    return values


def format_wins(values: Values, base: Values) -> str:
    """Return how many problems a choice alone solves, how many the other one, and McNemar's p."""
    gains = [int(value - base[key]) for key, value in values.items()]
    return f"{gains.count(1)} : {gains.count(-1)} ({mcnemar(gains):.3f})"


def format_auc_gain(areas: Values, areas_above: Values) -> str:
    """Return the paired difference of the ranking AUC, with its interval over problems."""
    ids = sorted(areas.keys() & areas_above.keys())
    difference = mean_difference([areas[key] - areas_above[key] for key in ids])
    low, high = difference.ci95
    return f"{difference.value:+.3f} [{low:+.3f}, {high:+.3f}]"


def format_percent(values: Values) -> str:
    """Return a mean over problems in percent; a dash without problems."""
    return f"{100 * fmean(values.values()):.1f}" if values else "–"


def chosen_rate(results: Path) -> str:
    """Return the learning rate of DPO with the highest avg@k on training problems, as a line."""
    by_policy = read_policies(results / RATES_FILE)
    ids = common_problems(by_policy)
    n_correct = {
        rate_of(policy): sum(
            int(row["correct"]) for rows in seeds for row in rows if row["problem_id"] in ids
        )
        for policy, seeds in by_policy.items()
        if policy != START
    }
    if not n_correct:
        return ""
    rates = ", ".join(sorted(n_correct, key=float))
    return f"The learning rate with the highest avg@k, of {rates}: {best_rate(n_correct)}"


def policy_table(results: Path) -> str:
    """Return avg@k and lengths of each policy, on training and on test problems."""
    rows = []
    for file_name, problems in ((RATES_FILE, TRAINING), (POLICIES_FILE, TEST)):
        by_policy = read_policies(results / file_name)
        ids = common_problems(by_policy)
        rows += [
            policy_row(by_policy, policy, ids, problems)
            for policy in sorted(by_policy, key=policy_order)
        ]
    if not rows:
        return ""
    header = [
        "policy",
        "problems",
        "seeds",
        "avg@k (%)",
        "difference to the start (points)",
        "difference to DPO (points)",
        "tokens per sample",
        "cut off (%)",
    ]
    return markdown_table(header, rows)


def policy_row(
    by_policy: Mapping[str, Sequence[Sequence[Row]]],
    policy: str,
    ids: Collection[str],
    problems: str,
) -> list[str]:
    """Return the cells of a policy.

    Args:
        by_policy: The rows of each policy and seed.
        policy: Name of the policy.
        ids: The problems that all policies have.
        problems: Name of the kind of problems.
    """
    seeds = [[row for row in rows if row["problem_id"] in ids] for rows in by_policy[policy]]
    loss, _, rate = policy.partition("-lr")
    return [
        f"{POLICY_TITLES[loss]}, rate {rate}" if rate else POLICY_TITLES[loss],
        f"{len(ids)} {problems}",
        str(len(seeds)),
        format_accuracy(mean_values(seeds, average)),
        format_gain(by_policy, policy, START, ids),
        format_gain(by_policy, policy, f"{BASE_POLICY}-lr{rate}", ids),
        *format_lengths(seeds),
    ]


def format_gain(
    by_policy: Mapping[str, Sequence[Sequence[Row]]],
    policy: str,
    baseline: str,
    ids: Collection[str],
) -> str:
    """Return the paired difference of avg@k, and the one of each common seed, or nothing."""
    if baseline not in by_policy or policy in (baseline, START):
        return ""
    gains_by_seed = paired_gains(by_policy[policy], by_policy[baseline], ids)
    text = format_difference([fmean(gains[key] for gains in gains_by_seed.values()) for key in ids])
    if len(by_policy[policy]) > 1:
        by_seed, _ = format_seeds([fmean(gains.values()) for gains in gains_by_seed.values()])
        text += f" (seed {', '.join(gains_by_seed)}: {by_seed})"
    return text


def policy_order(policy: str) -> tuple[int, float]:
    """Return the position of a policy in the table: by its loss, then by its learning rate."""
    loss, _, rate = policy.partition("-lr")
    return [*POLICY_TITLES].index(loss), float(rate or 0)


def rate_of(policy: str) -> str:
    """Return the learning rate in the name of a policy; empty for the start."""
    return policy.partition("-lr")[2]
