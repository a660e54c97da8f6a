"""A manifest as rows of a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsdpo_cards.render import percent


def summary_rows(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value) rows: what was made, how good it is, what it cost."""
    rows, statistics, labels = manifest["rows"], manifest["statistics"], manifest["labels"]
    spec, cost = manifest["spec"], manifest["cost"]
    accuracy, passed, m = statistics["accuracy"], statistics["pass_at_m"], spec["sampling"]["n"]
    solutions = max(1, rows["solutions"])
    table = [
        ("model", f"{spec['model']['name']} ({spec['engine']['name']})"),
        ("problems", f"{rows['problems']:,}"),
        ("solutions", f"{rows['solutions']:,}  ({m} per problem)"),
        (
            "accuracy",
            f"{percent(accuracy['value'], accuracy['ci95'])}  "
            f"({accuracy['correct']:,} of {accuracy['n']:,})",
        ),
        (
            f"pass@{m}",
            f"{percent(passed['value'], passed['ci95'])}  "
            f"({passed['solved']:,} of {passed['n']:,})",
        ),
        ("mixed problems", f"{statistics['mixed_problems']:,}  (right and wrong samples: pairs)"),
        ("outcomes", _counts(manifest["outcomes"])),
        ("step labels", _labels(labels)),
        (
            "truncated",
            f"{statistics['truncated']:,}  ({percent(statistics['truncated'] / solutions)})",
        ),
        (
            "unique",
            f"{statistics['unique_solutions']:,}  "
            f"({percent(statistics['unique_solutions'] / solutions)})",
        ),
        ("tokens", f"{cost['tokens']:,}{_rate(statistics)}"),
    ]
    if manifest["quarantined"]:
        table.append(("quarantined", _counts(manifest["quarantined"])))
    if "rollouts" in manifest:
        table.append(("rollouts", _rollouts(manifest["rollouts"])))
    if "rewards" in manifest:
        table.append(("step rewards", _rewards(manifest["rewards"])))
    if "pairs" in manifest:
        steps = manifest["spec"]["pair"].get("style") == "step-dpo"
        table += (_step_pair_rows if steps else _pair_rows)(manifest["pairs"])
    if "contamination" in manifest:
        table.append(("in benchmarks", _contamination(manifest["contamination"])))
    return table


def _rollouts(rollouts: Mapping[str, Any]) -> str:
    share = percent(rollouts["disagree"] / rollouts["steps"] if rollouts["steps"] else None)
    return (
        f"{rollouts['n']} per step, {rollouts['steps']:,} steps; {share} round to the other label "
        "than the outcome's"
    )


def _rewards(rewards: Mapping[str, Any]) -> str:
    text = f"{rewards['scored']:,} solutions"
    if rewards["unscored"]:
        text += f", {rewards['unscored']:,} too long to score"
    ranking = rewards["ranking_auc"]["mean"]
    if ranking["value"] is not None:
        low, high = ranking["ci95"] or (float("nan"),) * 2
        text += (
            f"; correct over incorrect {ranking['value']:.3f} [{low:.3f}, {high:.3f}] "
            f"(AUC by mean reward within {ranking['problems']:,} problems)"
        )
    return text


def _contamination(found: Mapping[str, Any]) -> str:
    names = ", ".join(each["name"] for each in found["benchmarks"])
    return f"{found['contaminated']:,} of {found['problems']:,} problems overlap with {names}"


def _step_pair_rows(pairs: Mapping[str, Any]) -> list[tuple[str, str]]:
    wrong, spent, length = pairs["solutions"], pairs["resampled"], pairs["length"]
    left_out = {name: count for name, count in wrong.items() if count and name != "incorrect"}
    return [
        ("pairs", f"{pairs['pairs']:,} of {pairs['problems']['used']:,} problems"),
        (
            "incorrect",
            f"{wrong['incorrect']:,} solutions; of them {_counts(left_out) or 'none left out'}",
        ),
        (
            "resampled",
            f"{spent['n']} continuations of {spent['beginnings']:,} beginnings, "
            f"{spent['tokens']:,} tokens",
        ),
        (
            "first error",
            f"step {pairs['first_error']:.2f} on average; {length['chosen_characters']:.1f} "
            f"characters against {length['rejected_characters']:.1f} (rejected)",
        ),
    ]


def _pair_rows(pairs: Mapping[str, Any]) -> list[tuple[str, str]]:
    problems, margin, length = pairs["problems"], pairs["margin"], pairs["length"]
    count = pairs["pairs"]
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
            f"{percent(length['chosen_longer'] / count)}, "
            f"shorter {percent(length['chosen_shorter'] / count)}  (of {count:,} pairs)",
        ),
    ]


def _labels(labels: Mapping[str, int]) -> str:
    labelled = labels.get("positive", 0) + labels.get("negative", 0)
    share = percent(labels.get("positive", 0) / labelled if labelled else None)
    return f"{labels['steps']:,} steps, {share} positive"


def _rate(statistics: Mapping[str, Any]) -> str:
    rate = statistics["tokens_per_second"]
    return f"  ({rate:,.0f} tokens/s)" if rate else ""


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
