"""Summarize a manifest as rows of a table; ``summary.toml`` has the texts of the rows."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from fsdpo_cards.render import format_amount, format_percent

from fsdpo_data.core.entities import GRADER_FAILURES
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import (
    AccuracyStats,
    PairStats,
    PassAtK,
    RewardStats,
    SpecSection,
    StepWeightStats,
)
from fsdpo_data.models.prompts import TEMPLATES

#: Difference between the mean weights of the last step on both sides that is worth a warning.
MAX_WEIGHT_DIFFERENCE = 0.1
#: The items that can fail in a stage, as ``Manifest.failed`` counts them.
_FAILED_ITEMS = {
    "sample": "problems without samples",
    "label": "prompts without continuations",
    "score": "solutions without rewards",
}


class _SummaryFormatter(Formatter):
    """A formatter in which ``!p`` prints a fraction in per cent, and ``!c`` counts by name."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Convert a value as its conversion flag demands."""
        if conversion == "p" and isinstance(value, AccuracyStats | PassAtK):
            return format_percent(value.value, value.ci95)
        if conversion == "p":
            return format_percent(value)
        if conversion == "c":
            return _join_counts(value)
        return super().convert_field(value, conversion)


def summary_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (name, value) rows that describe the content, quality and cost of a dataset."""
    entries = vars(manifest) | _derived_entries(manifest)
    formatter = _SummaryFormatter()
    rows = []
    for section, texts_by_name in read_toml(__file__).items():
        if not entries[section]:
            continue
        for name, text in texts_by_name.items():
            rows.append(
                (formatter.vformat(name, (), entries), formatter.vformat(text, (), entries))
            )
    return rows


def _derived_entries(manifest: Manifest) -> dict[str, Any]:
    """Return the values in ``summary.toml`` that are not fields of the manifest."""
    statistics = manifest.statistics
    n_solutions = max(1, manifest.rows.solutions)
    n_unfinished = statistics.truncated + statistics.stopped_thoughts
    stopped_text = ""
    if statistics.stopped_thoughts:
        stopped_text = f", of which {statistics.stopped_thoughts:,} stopped inside their thinking"
    positive = manifest.labels.get("positive", 0)
    negative = manifest.labels.get("negative", 0)
    token_rate = statistics.tokens_per_second
    pairs = manifest.pairs
    has_equal_numbers = manifest.rows.solutions == manifest.rows.problems * manifest.spec.sampling.n
    undecided = sum(manifest.outcomes.get(outcome, 0) for outcome in GRADER_FAILURES)
    undecided_text = f"; {undecided:,} without a verdict are left out" if undecided else ""
    entries: dict[str, Any] = {
        "template": _describe_prompt(manifest.spec),
        "up_to": "" if has_equal_numbers else "up to ",
        "without_verdict": undecided_text,
        "search": manifest.spec.search,
        "graded": not manifest.step_labels,
        "outcome_labels": not manifest.step_labels,
        "positive": _fraction(positive, positive + negative),
        "unfinished": n_unfinished,
        "truncated": n_unfinished / n_solutions,
        "stopped_thoughts": stopped_text,
        "unique": statistics.unique_solutions / n_solutions,
        "tokens": format_amount(manifest.cost.tokens),
        "first_error": manifest.rollouts and manifest.spec.labels_are_searched,
        "full_rollouts": manifest.rollouts and not manifest.spec.labels_are_searched,
        "consensus": manifest.judge and manifest.judge.kept_solutions is not None,
        "rate": f"  ({token_rate:,.0f} tokens/s)" if token_rate else "",
        "step_pairs": pairs and pairs.first_error,
        "resampled_pairs": pairs and pairs.resampled,
        "solution_pairs": pairs and not pairs.first_error,
        "step_weights": pairs and pairs.step_weights,
    }
    if manifest.rollouts:
        entries["label_disagreements"] = _fraction(
            manifest.rollouts.label_disagreements, manifest.rollouts.steps
        )
    if manifest.rewards:
        entries |= _ranking_entries(manifest.rewards)
    if pairs:
        entries |= _pair_entries(pairs)
        if pairs.step_weights:
            entries["last_steps"] = _last_step_texts(pairs.step_weights)
    if manifest.failed:
        entries["failed_items"] = _describe_failures(manifest.failed)
    if manifest.contamination:
        names = [benchmark.name for benchmark in manifest.contamination.benchmarks]
        entries["benchmarks"] = ", ".join(names)
    return entries


def _describe_prompt(spec: SpecSection) -> str:
    """Return the name of the prompt template, with its text if this release knows it."""
    name = spec.template.name
    if spec.template.text is not None:
        text = spec.template.text.replace("\n", "\\n")
        return f"{name}  ({text})"
    template = TEMPLATES.get(name)
    if template is None:  # a template of another release
        return name
    text = template.text.replace("\n", "\\n")
    # The digest of a chat template includes the tokenizer's own template, which is unknown here.
    if template.needs_chat or getattr(spec.engine, "api", "") == "chat":
        return f"{name}  ({text}), within the model's own chat format"
    # Another release may use the same name for another text.
    return f"{name}  ({text})" if spec.template.digest == template.digest else name


def _ranking_entries(rewards: RewardStats) -> dict[str, Any]:
    """Return the texts of the row for step rewards."""
    aggregate, ranking = rewards.main_ranking
    ranking_text = ""
    if ranking.value is not None:
        interval = ""
        if ranking.ci95:
            low, high = ranking.ci95
            interval = f" [{low:.3f}, {high:.3f}]"
        ranking_text = (
            f"; correct over incorrect {ranking.value:.3f}{interval} "
            f"(AUC by {aggregate} reward within {ranking.problems:,} problems)"
        )
    unscored_text = f", {rewards.unscored:,} too long to score" if rewards.unscored else ""
    return {"unscored": unscored_text, "ranking": ranking_text}


def _pair_entries(pairs: PairStats) -> dict[str, Any]:
    """Return the values of the rows for pairs of steps, or for pairs of solutions."""
    if pairs.resampled:
        # "incorrect" is the total; the other keys count the solutions that give no pair.
        left_out = {
            reason: count
            for reason, count in pairs.solutions.items()
            if count and reason != "incorrect"
        }
        return {
            "left_out": _join_counts(left_out) or "none left out",
            "resampled_tokens": format_amount(pairs.resampled.tokens),
        }
    if pairs.first_error:
        return {}
    unit = "tokens" if "chosen_tokens" in pairs.length else "characters"
    return {
        "unit": unit,
        "chosen_size": pairs.length[f"chosen_{unit}"],
        "rejected_size": pairs.length[f"rejected_{unit}"],
        "longer": _fraction(pairs.length["chosen_longer"] or 0, pairs.pairs),
        "shorter": _fraction(pairs.length["chosen_shorter"] or 0, pairs.pairs),
    }


def _last_step_texts(statistics: StepWeightStats) -> dict[str, str]:
    """Return the mean rewards and weights of the last steps of both sides, as text."""
    return {
        f"{side}_{quantity}": ", ".join(
            f"{number:.2f}" for number in getattr(getattr(statistics, side), quantity)
        )
        for side in ("chosen", "rejected")
        for quantity in ("reward", "weight")
    }


def _fraction(part: float, total: int) -> float | None:
    return part / total if total else None


def _describe_failures(failed: Mapping[str, int]) -> str:
    """Return the number of failed items of each stage."""
    return ", ".join(
        f"{count:,} {_FAILED_ITEMS.get(stage, f'items of {stage}')}"
        for stage, count in failed.items()
    )


def _join_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def dataset_warnings(manifest: Manifest) -> list[str]:
    """Return one sentence for each property of a dataset that suggests a mistake."""
    statistics = manifest.statistics
    positive = manifest.labels.get("positive", 0)
    labelled = positive + manifest.labels.get("negative", 0)
    ranking_interval = manifest.rewards.main_ranking[1].ci95 if manifest.rewards else None
    warnings = []
    if manifest.failed:
        warnings.append(
            f"the engine refused some items ({_describe_failures(manifest.failed)}); "
            "failures.jsonl of the run has the reasons, and the same command with `resume=True` "
            "tries them again"
        )
    if statistics.truncated > manifest.rows.solutions / 5:
        warnings.append("over a fifth of the solutions reached the token limit")
    if statistics.stopped_thoughts > manifest.rows.solutions / 5:
        warnings.append("over a fifth of the solutions stopped inside their thinking")
    if statistics.accuracy.n and not statistics.accuracy.correct:
        warnings.append("no solution is correct: look at some, and at the prompt template")
    if not statistics.mixed_problems and not manifest.step_labels:
        warnings.append("no problem has correct and incorrect solutions to pair")
    if labelled and positive < labelled / 20:
        warnings.append("under 5 % of the step labels are positive")
    if ranking_interval and ranking_interval[0] <= 0.5:
        warnings.append("rewards may rank correct over incorrect solutions no better than chance")
    if manifest.pairs and manifest.pairs.step_weights:
        warnings += _step_weight_warnings(manifest.pairs.step_weights)
    return warnings


def _step_weight_warnings(statistics: StepWeightStats) -> list[str]:
    """Return a sentence if the weight of the last step depends on the side of the pair."""
    chosen = statistics.chosen.weight[0]
    rejected = statistics.rejected.weight[0]
    if abs(chosen - rejected) <= MAX_WEIGHT_DIFFERENCE:
        return []
    return [
        f"the mean weight K·α of the last step is {chosen:.2f} in chosen and {rejected:.2f} in "
        f"rejected solutions (γ {statistics.gamma:g}): the loss may teach the policy to postpone "
        "or to hurry the answer; train with a smaller γ, and look at the lengths of its solutions"
    ]
