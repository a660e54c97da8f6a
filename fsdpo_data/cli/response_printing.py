"""Printing of verdicts on responses, and of the accuracy of a file of responses."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from fsdpo_cards.render import format_percent

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.extraction.extract import is_marked_rule
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.exchange.outputs import GradedResponse


def print_series(series: Sequence[Mapping[str, Any]]) -> None:
    """Print the scores of recorded responses with their 95 % intervals.

    A series with undecided answers or timeouts has a second row, in which they count as correct.
    """
    rows: list[Sequence[str]] = [
        (
            "series",
            "correct",
            "responses",
            "accuracy",
            "marked",
            "exact",
            "recorded",
            "differ",
            "outcomes",
        )
    ]
    for scores in series:
        rows.append(_series_row(scores))
        if scores["upper_bound"] > scores["correct"]:
            rows.append(_upper_bound_row(scores))
    _print_rows(rows)


def _series_row(scores: Mapping[str, Any]) -> tuple[str, ...]:
    recorded = ("–", "–")
    if scores["recorded_correct"] is not None:
        recorded = (f"{scores['recorded_correct']:,}", f"{scores['disputed']:,}")
    other_outcomes = [
        f"{count:,} {outcome.replace('_', ' ')}"
        for outcome, count in scores["outcomes"].items()
        if outcome != "correct"
    ]
    accuracy = scores["correct"] / scores["n"] if scores["n"] else None
    return (
        scores["series"] or "all",
        f"{scores['correct']:,}",
        f"{scores['n']:,}",
        format_percent(accuracy, scores["ci95"]),
        f"{scores['marked_correct']:,}",
        f"{scores['exact_correct']:,}",
        *recorded,
        ", ".join(other_outcomes),
    )


def _upper_bound_row(scores: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of a series in which undecided answers and timeouts count as correct."""
    upper_bound = scores["upper_bound"]
    name = f"{scores['series'] or 'all'}, undecided as correct"
    accuracy = format_percent(upper_bound / scores["n"], scores["upper_bound_ci95"])
    return (name, f"{upper_bound:,}", "", accuracy, "", "", "", "", "")


def print_disputed(responses: Sequence[GradedResponse], count: int) -> None:
    """Print the first responses whose verdict differs from the recorded verdict."""
    for response in responses[:count]:
        recorded = response.recorded_response
        verdict = response.verdict
        series = f" {response.series}" if response.series else ""
        _print_text(
            f"row {recorded.row}{series}: gold {recorded.gold!r}, answer {verdict.answer!r}: "
            f"{verdict.status} ({verdict.rule}), recorded as "
            f"{'correct' if recorded.completion.imported_correct else 'incorrect'}"
        )
    if len(responses) > count:
        _print_text(f"{len(responses) - count} more; --show {len(responses)} shows all")


def print_verdict(gold: str, verdict: Verdict) -> None:
    """Print one verdict with its rules and the parsed forms of both answers."""
    extraction, _, comparison = verdict.rule.partition("/")
    rows = [
        ("status", verdict.status),
        ("gold", gold),
        ("answer", "none" if verdict.answer is None else verdict.answer),
        ("extracted by", extraction + ("" if is_marked_rule(extraction) else " (not marked)")),
        ("compared by", comparison or "–"),
        ("gold is read as", verdict.gold_form or "–"),
        ("answer is read as", verdict.answer_form or "–"),
    ]
    if verdict.unread:
        rows.append(("not read", verdict.unread))
    _print_rows(rows)


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells as aligned columns."""
    lines = [[strip_control_characters(" ".join(cell.split())) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _print_text(text: str) -> None:
    """Print a text of a model or a benchmark without control characters."""
    typer.echo(strip_control_characters(text))
