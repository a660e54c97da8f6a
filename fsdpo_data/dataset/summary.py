"""A manifest as rows of a table for people; what the rows say stands in ``describe.toml``."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from fsdpo_cards.render import amount, percent

from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import (
    AccuracyStats,
    PairStats,
    PassAtK,
    RewardStats,
    SpecSection,
)
from fsdpo_data.models.prompts import CHAT_TEMPLATES, TEMPLATES


class _SummaryFormatter(Formatter):
    """Fills a row in: ``!p`` writes a share as per cent, ``!c`` counts by name."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion == "p" and isinstance(value, AccuracyStats | PassAtK):
            return percent(value.value, value.ci95)
        if conversion == "p":
            return percent(value)
        return _counts(value) if conversion == "c" else super().convert_field(value, conversion)


def summary_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (name, value) rows: what was made, how good it is, what it cost."""
    facts = vars(manifest) | _derived_entries(manifest)
    wording = _SummaryFormatter()
    return [
        (wording.vformat(name, (), facts), wording.vformat(text, (), facts))
        for part, rows in read_toml(__file__).items()
        if facts[part]
        for name, text in rows.items()
    ]


def _derived_entries(manifest: Manifest) -> dict[str, Any]:
    """Return what the rows say that no field of the manifest does."""
    statistics, labels = manifest.statistics, manifest.labels
    solutions = max(1, manifest.rows.solutions)
    positive = labels.get("positive", 0)
    rate, tokens = statistics.tokens_per_second, manifest.cost.tokens
    facts = {
        "template": _describe_prompt(manifest.spec),
        "positive": _share(positive, positive + labels.get("negative", 0)),
        "truncated": statistics.truncated / solutions,
        "unique": statistics.unique_solutions / solutions,
        "tokens": amount(tokens),
        "consensus": manifest.judge and manifest.judge.kept is not None,
        "rate": f"  ({rate:,.0f} tokens/s)" if rate else "",
        "step_pairs": manifest.pairs and manifest.pairs.resampled,
        "whole_pairs": manifest.pairs and not manifest.pairs.resampled,
    }
    if manifest.rollouts:
        facts["label_disagreements"] = _share(
            manifest.rollouts.label_disagreements, manifest.rollouts.steps
        )
    if manifest.rewards:
        facts |= _ranking_entries(manifest.rewards)
    if manifest.pairs:
        facts |= _pair_entries(manifest.pairs)
    if manifest.contamination:
        facts["benchmarks"] = ", ".join(each.name for each in manifest.contamination.benchmarks)
    return facts


def _describe_prompt(spec: SpecSection) -> str:
    """Return how the model was asked: the template, and what it puts around the question."""
    name = spec.template.name
    template = TEMPLATES.get(name)
    if template is None:  # of another release
        return name
    asked = template.text.replace("\n", "\\n")
    if name in CHAT_TEMPLATES or getattr(spec.engine, "api", "") == "chat":
        return f"{name}  ({asked}), within the model's own chat format"
    # Under the same name, somebody else may have asked in other words.
    return f"{name}  ({asked})" if spec.template.digest == template.digest else name


def _ranking_entries(rewards: RewardStats) -> dict[str, Any]:
    unscored, ranking, told = rewards.unscored, rewards.ranking_auc["mean"], ""
    if ranking.value is not None:
        interval = " [{:.3f}, {:.3f}]".format(*ranking.ci95) if ranking.ci95 else ""
        told = (
            f"; correct over incorrect {ranking.value:.3f}{interval} "
            f"(AUC by mean reward within {ranking.problems:,} problems)"
        )
    return {"unscored": f", {unscored:,} too long to score" if unscored else "", "ranking": told}


def _pair_entries(pairs: PairStats) -> dict[str, Any]:
    if pairs.resampled:
        left_out = {
            fate: count for fate, count in pairs.solutions.items() if count and fate != "incorrect"
        }
        return {
            "left_out": _counts(left_out) or "none left out",
            "resampled_tokens": amount(pairs.resampled.tokens),
        }
    unit = "tokens" if "chosen_tokens" in pairs.length else "characters"
    return {
        "unit": unit,
        **{f"{side}_size": pairs.length[f"{side}_{unit}"] for side in ("chosen", "rejected")},
        **{
            side: (pairs.length[f"chosen_{side}"] or 0) / pairs.pairs
            for side in ("longer", "shorter")
        },
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def dataset_warnings(manifest: Manifest) -> list[str]:
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
