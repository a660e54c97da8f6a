"""Render a comparison as a page, with the solutions of both sides next to each other."""

from collections.abc import Sequence

from fsdpo_cards.page import render_page
from fsdpo_cards.problem_list import OUTCOME_MARKS, Mark, Marks, ProblemList

from fsdpo_bench.metrics.compare import (
    BenchmarkPair,
    Comparison,
    ComparisonOptions,
    DecodedPair,
    decode_pairs,
    pair_benchmarks,
)
from fsdpo_bench.metrics.measure import measurement_settings
from fsdpo_bench.metrics.pools import Pool
from fsdpo_bench.report.problem_list import (
    BenchmarkEntries,
    question_entry,
    read_part_solutions,
)
from fsdpo_bench.report.render import TEMPLATES_FOLDER

_MARKS: Marks = {
    "both right": Mark("right", "✓", "both right"),
    "only A": Mark("a", "A", "only A"),
    "only B": Mark("b", "B", "only B"),
    "both wrong": Mark("wrong", "✗", "both wrong"),
    **OUTCOME_MARKS,
}


def render_comparison(
    pool_a: Pool, pool_b: Pool, comparison: Comparison, options: ComparisonOptions
) -> str:
    """Render the page; if not all problems fit, it prefers those with changed verdicts."""
    pairs = [pair for pair, _ in pair_benchmarks(pool_a, pool_b, options)]
    changed = {(entry.task, entry.problem_id) for entry in comparison.changed}
    positions = [
        (number, position)
        for number, pair in enumerate(pairs)
        for position in range(len(pair.index_a))
    ]
    problem_list = ProblemList(_MARKS, len(positions))
    capacity = problem_list.budget_bytes // problem_list.bytes_per_problem

    keys = [[(pair.name, problem.problem_id) for problem in pair.problems] for pair in pairs]

    def is_unchanged(position: tuple[int, int]) -> bool:
        return keys[position[0]][position[1]] not in changed

    page_keys = sorted(sorted(positions, key=is_unchanged)[:capacity])
    for number, pair in enumerate(pairs):
        shown_positions = [position for index, position in page_keys if index == number]
        decoded_pairs = decode_pairs(pool_a, pool_b, pair, options)
        _add_problems(problem_list, pair, decoded_pairs, shown_positions)
    models = [measurement_settings(pool, []).sample.model.name for pool in (pool_a, pool_b)]
    return render_page(
        TEMPLATES_FOLDER / "compare.html",
        problem_list.page_data,
        title=f"{models[0]} and {models[1]}",
        models=models,
        names=(pool_a.name, pool_b.name),
        comparison=comparison,
        problem_list=problem_list,
    )


def _add_problems(
    problem_list: ProblemList,
    pair: BenchmarkPair,
    decoded_pairs: Sequence[DecodedPair],
    positions: Sequence[int],
) -> None:
    """Add some common problems of a benchmark with the solutions of both sides."""
    certain_pairs = [
        decoded
        for decoded in decoded_pairs
        if decoded.a.chosen_indices() is not None and decoded.b.chosen_indices() is not None
    ]
    entries_a = BenchmarkEntries(
        pair.benchmark_a, {decoded.a.name: decoded.a for decoded in certain_pairs}, "A: "
    )
    entries_b = BenchmarkEntries(
        pair.benchmark_b, {decoded.b.name: decoded.b for decoded in certain_pairs}, "B: "
    )
    solutions_a = read_part_solutions(pair.benchmark_a, [pair.index_a[i] for i in positions])
    solutions_b = read_part_solutions(pair.benchmark_b, [pair.index_b[i] for i in positions])
    for position in positions:
        index_a, index_b = pair.index_a[position], pair.index_b[position]
        rows_a, choices_a = entries_a.problem_entries(index_a, solutions_a)
        rows_b, choices_b = entries_b.problem_entries(index_b, solutions_b)
        pair_entries = {}
        for decoded in certain_pairs:
            # A vote without any answer chooses no solution.
            chosen_indices = [
                *choices_a[decoded.a.name]["taken"],
                *(len(rows_a) + index for index in choices_b[decoded.b.name]["taken"]),
            ]
            status = _pair_verdict(decoded, index_a, index_b)
            pair_entries[decoded.name] = {"status": status, "taken": chosen_indices}
        problem = question_entry(problem_list, pair.benchmark_a, index_a, solutions_a)
        problem_list.add_problem(
            problem | {"decoded": pair_entries}, [*rows_a, *rows_b], pair_entries.values()
        )


def _pair_verdict(decoded: DecodedPair, index_a: int, index_b: int) -> str:
    """Return which side solves a problem."""
    if not (decoded.a.samples.counts_P[index_a] and decoded.b.samples.counts_P[index_b]):
        return "gold_unparsed"
    is_correct_a = decoded.a.correct_P[index_a] == 1
    is_correct_b = decoded.b.correct_P[index_b] == 1
    if is_correct_a == is_correct_b:
        return "both right" if is_correct_a else "both wrong"
    return "only A" if is_correct_a else "only B"
