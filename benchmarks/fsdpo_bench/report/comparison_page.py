"""Render the comparison of two runs as a page, with the solutions of both next to each other."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from fsdpo_cards.page import render_page
from fsdpo_cards.problem_list import OUTCOME_MARKS, Mark, Marks, ProblemList

from fsdpo_bench.decode.records import ProblemRecord
from fsdpo_bench.report.problem_list import question_entry, solution_entries
from fsdpo_bench.report.render import TEMPLATES_FOLDER, run_date
from fsdpo_bench.results.compare import RunComparison
from fsdpo_bench.results.outcomes import key_records
from fsdpo_bench.runs.records import read_config, read_records

_MARKS: Marks = {
    "both right": Mark("right", "✓", "both right"),
    "only A": Mark("a", "A", "only A"),
    "only B": Mark("b", "B", "only B"),
    "both wrong": Mark("wrong", "✗", "both wrong"),
    **OUTCOME_MARKS,
}


def render_comparison(run_a: Path, run_b: Path, comparison: RunComparison) -> str:
    """Render the page; if not all problems fit, it prefers those with changed verdicts."""
    decoder_pairs = defaultdict(list)
    for delta in comparison.deltas:
        decoder_pairs[delta.task].append((delta.measure_a, delta.measure_b))
    changed = {(problem.task, problem.problem_id) for problem in comparison.changed}
    records_b = dict(key_records(read_records(run_b)))
    common_keys = [
        key
        for key, _ in key_records(read_records(run_a))
        if key in records_b and key[0] in decoder_pairs
    ]
    # A key is the task, the problem id, and the number of earlier records with this id.
    common_keys.sort(key=lambda key: key[:2] not in changed)
    problem_list = ProblemList(_MARKS, len(common_keys))
    capacity = problem_list.budget_bytes // problem_list.bytes_per_problem
    page_keys = set(common_keys[:capacity])
    for key, record_a in key_records(read_records(run_a)):
        if key in page_keys:
            _add_problem(problem_list, record_a, records_b[key], decoder_pairs[key[0]])
    models = [read_config(run).model.name for run in (run_a, run_b)]
    return render_page(
        TEMPLATES_FOLDER / "compare.html",
        problem_list.page_data,
        title=f"{models[0]} and {models[1]} · {run_date(run_b)}",
        models=models,
        runs=(run_a, run_b),
        comparison=comparison,
        problem_list=problem_list,
    )


def _add_problem(
    problem_list: ProblemList,
    record_a: ProblemRecord,
    record_b: ProblemRecord,
    decoder_pairs: Sequence[tuple[str, str]],
) -> None:
    """Add a problem with the solutions of both runs."""
    solutions_a, entries_a = solution_entries(record_a, "A: ")
    solutions_b, entries_b = solution_entries(record_b, "B: ")
    pair_entries = {}
    for decoder_a, decoder_b in decoder_pairs:
        verdict = _pair_verdict(
            record_a.decoded[decoder_a].correct, record_b.decoded[decoder_b].correct
        )
        # A vote without any answer chooses no solution.
        chosen_indices = [
            *entries_a[decoder_a]["taken"],
            *(len(solutions_a) + index for index in entries_b[decoder_b]["taken"]),
        ]
        name = decoder_a if decoder_a == decoder_b else f"{decoder_a} / {decoder_b}"
        pair_entries[name] = {"status": verdict, "taken": chosen_indices}
    problem = question_entry(problem_list, record_a) | {"decoded": pair_entries}
    problem_list.add_problem(problem, [*solutions_a, *solutions_b], pair_entries.values())


def _pair_verdict(correct_a: bool | None, correct_b: bool | None) -> str:
    """Return the status of a pair; a verdict is None if the gold answer cannot be parsed."""
    if correct_a is None or correct_b is None:
        return "gold_unparsed"
    if correct_a == correct_b:
        return "both right" if correct_a else "both wrong"
    return "only A" if correct_a else "only B"
