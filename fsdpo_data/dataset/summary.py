"""Summarize a dataset as rows of a table, and list what suggests a mistake.

The registrations of the stages add the rows and the warnings of their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsdpo_cards.render import format_amount, format_percent

from fsdpo_data.core.entities import UNDECIDED_OUTCOMES
from fsdpo_data.core.statistics import Mean
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import (
    PROBLEMS_STAGE,
    SAMPLE_STAGE,
    ProblemsRecord,
    SampleRecord,
    SampleSettings,
)
from fsdpo_data.dataset.stage_registry import Row, describe_failures, known_stages, stage_rows
from fsdpo_data.dataset.statistics import DatasetStatistics, SolutionStatistics
from fsdpo_data.models.prompts import TEMPLATES


def summary_rows(statistics: DatasetStatistics) -> list[Row]:
    """Return (name, value) rows that describe the content, quality and cost of a dataset."""
    manifest = statistics.manifest
    rows = [*_sampling_rows(statistics)]
    if has_grades(manifest):
        rows += _grading_rows(statistics.solutions)
    rows.append(("outcomes", join_counts(statistics.solutions.outcomes)))
    if has_grades(manifest):
        rows.append(("step labels", _describe_labels(statistics.solutions.labels)))
    rows += _solution_rows(statistics)
    return [*rows, *stage_rows(statistics)]


def has_grades(manifest: Manifest) -> bool:
    """Whether a grader has graded the solutions, unlike those with imported labels."""
    return not manifest.is_written("imported_labels")


def _sampling_rows(statistics: DatasetStatistics) -> Iterator[Row]:
    """Yield the rows about the model, its prompt and the number of solutions."""
    sampled = statistics.manifest.get(SAMPLE_STAGE, SampleRecord).options
    rows = statistics.manifest.rows
    n = statistics.solutions.max_samples
    up_to = "" if rows.solutions == rows.problems * n else "up to "
    yield "model", f"{sampled.model.name} ({sampled.engine.name})"
    yield "template", _describe_prompt(sampled)
    yield "problems", f"{rows.problems:,}"
    yield "solutions", f"{rows.solutions:,}  ({up_to}{n} per problem)"
    if sampled.search is not None:
        search = sampled.search
        yield (
            "search",
            f"{search.sampler}, b1 {search.beam.b1}, b2 {search.beam.b2}, ranked by "
            f"{search.reward_model.prm.name}",
        )


def _describe_prompt(sampled: SampleSettings) -> str:
    """Return the name of the prompt template, with its text if this release knows it."""
    name = sampled.template.name
    if sampled.template.text is not None:
        text = sampled.template.text.replace("\n", "\\n")
        return f"{name}  ({text})"
    template = TEMPLATES.get(name)
    if template is None:  # a template of another release
        return name
    text = template.text.replace("\n", "\\n")
    # The digest of a chat template includes the tokenizer's own template, which is unknown here.
    if template.needs_chat or sampled.engine.api == "chat":
        return f"{name}  ({text}), within the model's own chat format"
    # Another release may use the same name for another text.
    return f"{name}  ({text})" if sampled.template.digest == template.digest else name


def _grading_rows(statistics: SolutionStatistics) -> Iterator[Row]:
    """Yield the rows about correct solutions."""
    correct = statistics.outcomes.get("correct", 0)
    undecided = sum(statistics.outcomes.get(outcome, 0) for outcome in UNDECIDED_OUTCOMES)
    undecided_text = f"; {undecided:,} undecided count as wrong" if undecided else ""
    without_gold = statistics.outcomes.get("gold_unparsed", 0)
    left_out_text = f"; {without_gold:,} without a gold are left out" if without_gold else ""
    yield (
        "accuracy",
        f"{format_mean(statistics.accuracy)}  ({correct:,} of {statistics.accuracy.n:,}"
        f"{undecided_text}{left_out_text})",
    )
    yield (
        f"pass@{statistics.max_samples}",
        f"{format_mean(statistics.pass_at_k)}  ({statistics.solved_problems:,} of "
        f"{statistics.pass_at_k.n:,})",
    )
    yield (
        "mixed problems",
        f"{statistics.mixed_problems:,}  (with correct and incorrect samples, which can form "
        "pairs)",
    )


def _describe_labels(labels: Mapping[str, int]) -> str:
    """Return the number of steps, and the fraction of positive labels."""
    positive = labels.get("positive", 0)
    fraction = divide(positive, positive + labels.get("negative", 0))
    return f"{labels['steps']:,} steps, {format_percent(fraction)} positive"


def _solution_rows(statistics: DatasetStatistics) -> Iterator[Row]:
    """Yield the rows about lengths, repetitions, and what is missing."""
    manifest = statistics.manifest
    solutions = statistics.solutions
    n_solutions = max(1, manifest.rows.solutions)
    n_unfinished = solutions.truncated + solutions.stopped_thoughts
    stopped_text = ""
    if solutions.stopped_thoughts:
        stopped_text = f", of which {solutions.stopped_thoughts:,} stopped inside their thinking"
    sampling_cost = manifest.get(SAMPLE_STAGE, SampleRecord).cost
    rate_text = ""
    if sampling_cost.tokens and sampling_cost.seconds:
        rate_text = f"  ({sampling_cost.tokens / sampling_cost.seconds:,.0f} tokens/s)"
    unique = statistics.distinct_solutions
    yield (
        "truncated" if has_grades(manifest) else "end early",
        f"{n_unfinished:,}  ({format_percent(n_unfinished / n_solutions)}){stopped_text}",
    )
    yield "unique", f"{unique:,}  ({format_percent(unique / n_solutions)})"
    yield "tokens", format_amount(manifest.cost.tokens) + rate_text
    if thinking := solutions.thinking:
        yield "thinking", f"{thinking['closed']:,} closed, {thinking['unclosed']:,} never ended"
    quarantined = manifest.get(PROBLEMS_STAGE, ProblemsRecord).counts.quarantined
    if quarantined:
        yield "quarantined", join_counts(quarantined)
    if manifest.failed:
        yield "failed", describe_failures(manifest.failed)


def format_mean(mean: Mean) -> str:
    """Return a mean of values in [0, 1] with its interval, in per cent."""
    return format_percent(mean.value, mean.ci95)


def divide(part: float, total: int) -> float | None:
    """Return a fraction; None if the total is 0."""
    return part / total if total else None


def join_counts(counts: Mapping[str, int]) -> str:
    """Return counts with their names, as text."""
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def dataset_warnings(statistics: DatasetStatistics) -> list[str]:
    """Return one sentence for each property of a dataset that suggests a mistake."""
    manifest = statistics.manifest
    solutions = statistics.solutions
    positive = solutions.labels.get("positive", 0)
    labelled = positive + solutions.labels.get("negative", 0)
    warnings = []
    if manifest.failed:
        warnings.append(
            f"the engine refused some items ({describe_failures(manifest.failed)}); "
            "failures.jsonl of the run has the reasons, and the same command with `resume=True` "
            "tries them again; after a merge, resume the shards and merge again"
        )
    if has_grades(manifest) and solutions.truncated > manifest.rows.solutions / 5:
        warnings.append("over a fifth of the solutions reached the token limit")
    if solutions.stopped_thoughts > manifest.rows.solutions / 5:
        warnings.append("over a fifth of the solutions stopped inside their thinking")
    if solutions.accuracy.n and not solutions.outcomes.get("correct"):
        warnings.append("no solution is correct: look at some, and at the prompt template")
    if not solutions.mixed_problems and has_grades(manifest):
        warnings.append("no problem has correct and incorrect solutions to pair")
    if labelled and positive < labelled / 20:
        warnings.append("under 5 % of the step labels are positive")
    for stage, record in known_stages(manifest):
        if stage.warn is not None:
            warnings += stage.warn(record, statistics)
    return warnings
