"""Two runs as a page: what differs, and every problem with both solutions side by side."""

from collections import defaultdict
from pathlib import Path

from fsdpo_cards.pages.page import render_page
from fsdpo_cards.pages.problem_list import OUTCOMES, Marks, ProblemList

from fsdpo_bench.report.problem_list import question_entry, solutions_of
from fsdpo_bench.report.render import TEMPLATES, date_of
from fsdpo_bench.results.compare import RunComparison
from fsdpo_bench.results.outcomes import Record, key_records
from fsdpo_bench.runs.records import read_config, read_records

_MARKS: Marks = {
    "both right": ("right", "✓", "both right"),
    "only A": ("a", "A", "only A"),
    "only B": ("b", "B", "only B"),
    "both wrong": ("wrong", "✗", "both wrong"),
    **OUTCOMES,
}


def render_comparison(run_a: Path, run_b: Path, compared: RunComparison) -> str:
    """Render the page; of problems that do not fit, those that changed come first."""
    decoders = defaultdict(list)
    for delta in compared.deltas:
        decoders[delta.task].append((delta.decoder_a, delta.decoder_b))
    changed = {(each.task, each.problem_id) for each in compared.changed}
    theirs = dict(key_records(read_records(run_b)))
    both = [
        key for key, _ in key_records(read_records(run_a)) if key in theirs and key[0] in decoders
    ]
    both.sort(key=lambda key: key[:2] not in changed)
    shown = ProblemList(_MARKS, len(both))
    chosen = set(both[: shown.budget // shown.room])
    for key, record in key_records(read_records(run_a)):
        if key in chosen:
            _add(shown, record, theirs[key], decoders[key[0]])
    names = [read_config(run)["model"]["name"] for run in (run_a, run_b)]
    return render_page(
        TEMPLATES / "compare.html",
        shown.data,
        title=f"{names[0]} and {names[1]} · {date_of(run_b)}",
        names=names,
        runs=(run_a, run_b),
        compared=compared,
        shown=shown,
    )


def _add(shown: ProblemList, ours: Record, theirs: Record, decoders: list[tuple[str, str]]) -> None:
    (first, decoded_a), (second, decoded_b) = solutions_of(ours, "A: "), solutions_of(theirs, "B: ")
    decoded = {}
    for a, b in decoders:
        verdict = _verdict(ours["decoded"][a]["correct"], theirs["decoded"][b]["correct"])
        [one], [other] = decoded_a[a]["taken"], decoded_b[b]["taken"]
        taken = {"status": verdict, "taken": [one, len(first) + other]}
        decoded[a if a == b else f"{a} / {b}"] = taken
    problem = question_entry(shown, ours) | {"decoded": decoded}
    shown.add(problem, [*first, *second], decoded.values())


def _verdict(a: bool | None, b: bool | None) -> str:
    if a is None or b is None:
        return "gold_unparsed"
    return f"both {'right' if a else 'wrong'}" if a == b else f"only {'A' if a else 'B'}"
