"""Report an audit: as JSON, as tables of the terminal, and as Markdown with examples."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsdpo_cards.render import render

from fsdpo_bench.audit.audit import Audit
from fsdpo_bench.audit.families import Disagreement
from fsdpo_bench.audit.fields import STEPS
from fsdpo_bench.audit.scores import GraderDifference, GroupScores
from fsdpo_bench.report.tables import print_table, print_text
from fsdpo_bench.results.numbers import format_points
from fsdpo_data.core.files import write_text
from fsdpo_data.core.jsonl_log import encode_line

_TEMPLATE = Path(__file__).with_name("audit.md")
_MAX_QUESTION_CHARS = 300  #: Characters of a question in an example.
_MAX_TAIL_CHARS = 300  #: Characters at the end of a response in an example.
_MAX_ANSWER_CHARS = 120  #: Characters of a gold or an answer in an example.


def audit_json(audit: Audit, examples: int) -> dict[str, Any]:
    """Return an audit as plain JSON, with up to ``examples`` disagreements per family."""
    return {
        "responses": len(audit.audited.responses),
        "without_verdict": audit.audited.without_verdict,
        "replaced_golds": audit.audited.replaced_golds,
        "disagreements": len(audit.disagreements),
        "scores": [asdict(scores) for scores in audit.scores],
        "model_pairs": len(audit.orders),
        "changed_orders": [order._asdict() for order in audit.changed_orders],
        "families": [
            {
                **family.values,
                "responses": len(family.disagreements),
                "problems": family.problems,
                "examples": [example_json(item) for item in family.examples(examples)],
            }
            for family in audit.families
        ],
    }


def example_json(item: Disagreement) -> dict[str, Any]:
    """Return a disagreement as plain JSON, with the beginning of its question."""
    response = item.response
    return {
        "group": response.group,
        "row": response.row,
        "question": _one_line(response.question)[:_MAX_QUESTION_CHARS],
        "gold": response.gold,
        "other_gold": response.other_gold,
        "other_outcome": response.other_outcome,
        "other_answer": response.other_answer,
        "outcome": response.outcome,
        "answer": response.answer,
        "rule": response.rule,
        "unread": response.unread,
        "response_tail": response.response[-_MAX_TAIL_CHARS:],
    }


def write_audit(out: Path, audit: Audit, examples: int) -> None:
    """Write ``audit.json``, ``audit.md`` and ``disagreements.jsonl``, with complete responses.

    Raises:
        StoreError: if the disk is full or missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    values = audit_json(audit, examples)
    write_text(out / "audit.json", json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    write_text(out / "audit.md", render_markdown(audit, examples))
    lines = [encode_line(_disagreement_json(item)) for item in audit.disagreements]
    write_text(out / "disagreements.jsonl", b"".join(lines).decode())


def _disagreement_json(item: Disagreement) -> dict[str, Any]:
    """Return a disagreement with its family and complete texts."""
    return {
        "step": item.step,
        "kind": item.kind,
        **asdict(item.response),
    }


def render_markdown(audit: Audit, examples: int) -> str:
    """Render ``audit.md`` with up to ``examples`` disagreements per family."""
    return render(
        _TEMPLATE,
        filters={"line": _one_line, "points": format_points, "difference": _difference_text},
        audit=audit,
        names=list(audit.families[0].values) if audit.families else [],
        steps=STEPS,
        examples=[
            (family, [_shorten(example_json(item)) for item in family.examples(examples)])
            for family in audit.families
        ],
    )


def _shorten(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example whose golds and answers fit a list."""
    names = ("gold", "other_gold", "other_answer", "answer")
    shortened = {name: _answer_text(example[name]) for name in names}
    return {**example, **shortened, "response_tail": _one_line(example["response_tail"])}


def print_audit(audit: Audit, show: int, examples: int) -> None:
    """Print the scores, the order of models, the largest families and examples.

    Args:
        audit: The audit.
        show: Number of families to print.
        examples: Number of disagreements to print per family.
    """
    columns = (
        "responses of",
        "other grader>",
        "ours>",
        "undecided as right>",
        "difference>",
        "undecided as right>",
        "undecided>",
        "disagree>",
        "responses>",
    )
    print_table(columns, map(_score_row, audit.scores))
    for note in audit_notes(audit):
        print_text(note)
    print_text("")
    names = list(audit.families[0].values) if audit.families else []
    rows = [
        (
            str(rank),
            *family.values.values(),
            f"{len(family.disagreements):,}",
            f"{family.problems:,}",
        )
        for rank, family in enumerate(audit.families[:show], start=1)
    ]
    print_table(("", *names, "responses>", "problems>"), rows)
    for rank, family in enumerate(audit.families[:show], start=1):
        for item in family.examples(examples):
            _print_example(rank, item)
    if len(audit.families) > show:
        n_families = len(audit.families)
        print_text(f"{n_families - show} more families; --show {n_families} shows all")


def audit_notes(audit: Audit) -> Iterator[str]:
    """Yield sentences about the order of models, and about responses that need attention."""
    if audit.orders:
        n_changed = len(audit.changed_orders)
        yield f"pairs of models that the graders order differently: {n_changed} of " + str(
            len(audit.orders)
        )
        for order in audit.changed_orders:
            yield f"  {order.first} and {order.second}"
    if audit.audited.replaced_golds:
        yield f"responses whose gold in the file differs: {audit.audited.replaced_golds:,}"
    if audit.audited.without_verdict:
        yield f"responses without a verdict, left out: {audit.audited.without_verdict:,}"
    not_counted = sum(scores.not_counted for scores in audit.scores)
    if not_counted:
        yield f"responses with an unreadable gold, left out: {not_counted:,}"


def _score_row(scores: GroupScores) -> Sequence[str]:
    return (
        scores.group,
        format_points(scores.other),
        format_points(scores.ours),
        format_points(scores.upper_bound),
        _difference_text(scores.difference),
        _difference_text(scores.upper_difference),
        f"{scores.undecided:,}",
        f"{scores.disputed:,}",
        f"{scores.ours.n:,}",
    )


def _difference_text(difference: GraderDifference) -> str:
    """Format a difference in percentage points with its interval."""
    low, high = difference.ci95
    return f"{100 * difference.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _print_example(rank: int, item: Disagreement) -> None:
    """Print a disagreement in two lines: its answers, and its question with the response."""
    example = _shorten(example_json(item))
    gold = repr(example["gold"])
    if item.step == "gold":
        gold += f" (file: {example['other_gold']!r})"
    print_text(
        f"\n{rank}  {example['group']} row {example['row']}: gold {gold}, other answer "
        f"{example['other_answer']!r}: {example['other_outcome']}, our answer "
        f"{example['answer']!r}: {example['outcome']} ({example['rule']})"
    )
    print_text(f"   question: {example['question']}", "dim", wrap=True)
    print_text(f"   response: … {example['response_tail']}", "dim", wrap=True)


def _answer_text(answer: str | None) -> str:
    """Return an answer on one line, or ``none``."""
    return _one_line(answer or "none")[:_MAX_ANSWER_CHARS]


def _one_line(text: str) -> str:
    return " ".join(text.split())
