"""A manifest as rows of a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from fsdpo_cards.render import percent

from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import Contamination, PairCounts, Rewards, Rollouts, Spent, Statistics


def summary_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (name, value) rows: what was made, how good it is, what it cost."""
    rows, statistics, spec = manifest.rows, manifest.statistics, manifest.spec
    accuracy, passed, m = statistics.accuracy, statistics.pass_at_m, spec.sampling.n
    solutions = max(1, rows.solutions)
    table = [
        ("model", f"{spec.model.name} ({spec.engine.name})"),
        ("problems", f"{rows.problems:,}"),
        ("solutions", f"{rows.solutions:,}  ({m} per problem)"),
        (
            "accuracy",
            f"{percent(accuracy.value, accuracy.ci95)}  ({accuracy.correct:,} of {accuracy.n:,})",
        ),
        (
            f"pass@{m}",
            f"{percent(passed.value, passed.ci95)}  ({passed.solved:,} of {passed.n:,})",
        ),
        ("mixed problems", f"{statistics.mixed_problems:,}  (right and wrong samples: pairs)"),
        ("outcomes", _counts(manifest.outcomes)),
        ("step labels", _labels(manifest.labels)),
        (
            "truncated",
            f"{statistics.truncated:,}  ({percent(statistics.truncated / solutions)})",
        ),
        (
            "unique",
            f"{statistics.unique_solutions:,}  "
            f"({percent(statistics.unique_solutions / solutions)})",
        ),
        ("tokens", f"{manifest.cost.tokens:,}{_rate(statistics)}"),
    ]
    if manifest.quarantined:
        table.append(("quarantined", _counts(manifest.quarantined)))
    if manifest.rollouts:
        table.append(("rollouts", _rollouts(manifest.rollouts)))
    if manifest.rewards:
        table.append(("step rewards", _rewards(manifest.rewards)))
    if manifest.pairs:
        table += _pair_rows(manifest.pairs)
    if manifest.contamination:
        table.append(("in benchmarks", _contamination(manifest.contamination)))
    return table


def warnings(manifest: Manifest) -> list[str]:
    """Return what looks wrong with a dataset, a sentence each."""
    rows, statistics, labels = manifest.rows, manifest.statistics, manifest.labels
    positive = labels.get("positive", 0)
    labelled = positive + labels.get("negative", 0)
    interval = manifest.rewards.ranking_auc["mean"].ci95 if manifest.rewards else None
    cut, unsolved = statistics.truncated, statistics.accuracy.n and not statistics.accuracy.correct
    signs = (
        (cut > rows.solutions / 5, "over a fifth of the solutions ran into the token limit"),
        (unsolved, "no solution is correct: look at some, and at the prompt template"),
        (not statistics.mixed_problems, "no problem has right and wrong solutions to pair"),
        (labelled and positive < labelled / 20, "under 5 % of the step labels are positive"),
        (interval and interval[0] <= 0.5, "rewards rank right over wrong no better than chance"),
    )
    return [sign for shows, sign in signs if shows]


def _rollouts(rollouts: Rollouts) -> str:
    share = percent(rollouts.disagree / rollouts.steps if rollouts.steps else None)
    return (
        f"{rollouts.n} per step, {rollouts.steps:,} steps; {share} round to the other label "
        "than the outcome's"
    )


def _rewards(rewards: Rewards) -> str:
    text = f"{rewards.scored:,} solutions"
    if rewards.unscored:
        text += f", {rewards.unscored:,} too long to score"
    ranking = rewards.ranking_auc["mean"]
    if ranking.value is not None:
        low, high = ranking.ci95 or (float("nan"),) * 2
        text += (
            f"; correct over incorrect {ranking.value:.3f} [{low:.3f}, {high:.3f}] "
            f"(AUC by mean reward within {ranking.problems:,} problems)"
        )
    return text


def _contamination(found: Contamination) -> str:
    names = ", ".join(each.name for each in found.benchmarks)
    return f"{found.contaminated:,} of {found.problems:,} problems overlap with {names}"


def _step_pair_rows(pairs: PairCounts, spent: Spent) -> list[tuple[str, str]]:
    wrong, length = pairs.solutions, pairs.length
    left_out = {name: count for name, count in wrong.items() if count and name != "incorrect"}
    return [
        ("pairs", f"{pairs.pairs:,} of {pairs.problems['used']:,} problems"),
        (
            "incorrect",
            f"{wrong['incorrect']:,} solutions; of them {_counts(left_out) or 'none left out'}",
        ),
        (
            "resampled",
            f"{spent.n} continuations of {spent.beginnings:,} beginnings, {spent.tokens:,} tokens",
        ),
        (
            "first error",
            f"step {pairs.first_error:.2f} on average; {length['chosen_characters']:.1f} "
            f"characters against {length['rejected_characters']:.1f} (rejected)",
        ),
    ]


def _pair_rows(pairs: PairCounts) -> list[tuple[str, str]]:
    if pairs.resampled:
        return _step_pair_rows(pairs, pairs.resampled)
    problems, margin, length = pairs.problems, pairs.margin or {}, pairs.length
    count = pairs.pairs
    sides = " against ".join(
        f"{length[f'{side}_tokens']:,.1f} tokens in {length[f'{side}_steps']:.1f} steps"
        for side in ("chosen", "rejected")
    )
    return [
        (
            "pairs",
            f"{count:,} of {problems['used']:,} problems  "
            f"({problems['too_easy']:,} too easy, {problems['too_hard']:,} too hard)",
        ),
        (
            "margins",
            f"mean {margin['mean']:.3f}, median {margin['median']:.3f}, "
            f"{margin['min']:.3f} to {margin['max']:.3f}; {margin['negative']:,} below zero",
        ),
        ("chosen lengths", f"{sides} (rejected)"),
        (
            "chosen longer",
            f"{percent((length['chosen_longer'] or 0) / count)}, "
            f"shorter {percent((length['chosen_shorter'] or 0) / count)}  (of {count:,} pairs)",
        ),
    ]


def _labels(labels: Mapping[str, int]) -> str:
    labelled = labels.get("positive", 0) + labels.get("negative", 0)
    share = percent(labels.get("positive", 0) / labelled if labelled else None)
    return f"{labels['steps']:,} steps, {share} positive"


def _rate(statistics: Statistics) -> str:
    rate = statistics.tokens_per_second
    return f"  ({rate:,.0f} tokens/s)" if rate else ""


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
