"""Collect the problems and solutions of datasets for the list of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_cards.problem_list import (
    DEFAULT_BUDGET_BYTES,
    OUTCOME_MARKS,
    ProblemList,
    shorten,
)
from fsdpo_cards.render import format_token_count

from fsdpo_bench.decoders.decoders import SAMPLES_PART
from fsdpo_bench.metrics.decoder_choices import DecoderChoices
from fsdpo_bench.metrics.full_solutions import read_problem_solutions
from fsdpo_bench.metrics.pools import Benchmark, Pool
from fsdpo_bench.metrics.sample_arrays import BenchmarkProblem
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX, Solution, split_verdict_by
from fsdpo_data.core.toml_tables import read_module_table

_PHRASES = read_module_table(Path(__file__).with_name("explain"))
_PROBLEMS_PER_READ = 500  #: Problems whose solutions are in memory at a time.

#: The solutions of problems by part of a pool and problem id.
PartSolutions = Mapping[str, Mapping[str, Sequence[Solution]]]


def build_problem_list(
    pool: Pool,
    decoded: Mapping[str, Mapping[str, DecoderChoices]],
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> ProblemList:
    """Build the list of a report; if not all problems fit, it has every n-th.

    Args:
        pool: The datasets.
        decoded: The choices of decoders by benchmark and result name.
        budget_bytes: Bytes of text in the list.
    """
    total = sum(len(benchmark.main.problems) for benchmark in pool.benchmarks.values())
    problem_list = ProblemList(OUTCOME_MARKS, total, budget_bytes)
    position = 0
    for name, benchmark in pool.benchmarks.items():
        n_problems = len(benchmark.main.problems)
        stride = problem_list.stride
        indices = range(-position % stride, n_problems, stride)
        position += n_problems
        entries = BenchmarkEntries(benchmark, decoded[name])
        for start in range(0, len(indices), _PROBLEMS_PER_READ):
            batch = indices[start : start + _PROBLEMS_PER_READ]
            solutions = read_part_solutions(benchmark, batch)
            for index in batch:
                solution_rows, decoder_rows = entries.problem_entries(index, solutions)
                problem = question_entry(problem_list, benchmark, index, solutions) | {
                    "decoded": decoder_rows
                }
                problem_list.add_problem(problem, solution_rows, decoder_rows.values())
    return problem_list


def read_part_solutions(benchmark: Benchmark, indices: Sequence[int]) -> PartSolutions:
    """Return the solutions of some problems of a benchmark, in each part."""
    problem_ids = {benchmark.main.problems[index].problem_id for index in indices}
    return {
        part: read_problem_solutions(samples.root, problem_ids)
        for part, samples in benchmark.parts.items()
    }


def question_entry(
    problem_list: ProblemList, benchmark: Benchmark, index: int, solutions: PartSolutions
) -> dict[str, Any]:
    """Return the entry of a problem, without its solutions."""
    benchmark_problem: BenchmarkProblem = benchmark.main.problems[index]
    first_part = next(iter(solutions.values()))
    prompt = first_part[benchmark_problem.problem_id][0].prompt
    return {
        "task": benchmark.name,
        "id": benchmark_problem.problem_id,
        "groups": dict(benchmark_problem.benchmark_row.groups),
        **problem_list.question_entry(
            benchmark_problem.problem.question, benchmark_problem.problem.answer, prompt
        ),
    }


class BenchmarkEntries:
    """Makes the entries of the solutions and of the decoders of a benchmark.

    The list shows only choices that are certain, because others are means over subsets.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        decoded: Mapping[str, DecoderChoices],
        name_prefix: str = "",
    ) -> None:
        self._benchmark = benchmark
        self._name_prefix = name_prefix
        self._choices = {
            name: (choices, indices)
            for name, choices in decoded.items()
            if (indices := choices.chosen_indices()) is not None
        }

    def problem_entries(
        self, index: int, solutions: PartSolutions
    ) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return the entries of all solutions of a problem, and of each decoder with its choice."""
        problem_id = self._benchmark.main.problems[index].problem_id
        entries: list[dict[str, Any]] = []
        first_entry: dict[str, int] = {}  # by part
        for part, samples in self._benchmark.parts.items():
            first_entry[part] = len(entries)
            for number, solution in enumerate(solutions[part][problem_id][: samples.n_samples]):
                name = f"sample {number + 1}" if part == SAMPLES_PART else part
                entries.append(_solution_entry(self._name_prefix + name, solution))
        parts_by_root = {samples.root: part for part, samples in self._benchmark.parts.items()}
        decoder_entries: dict[str, dict[str, Any]] = {}
        for name, (choices, indices) in self._choices.items():
            chosen_index = indices[index]
            if chosen_index is None:
                counts = bool(choices.samples.counts_P[index])
                outcome = "no_answer" if counts else str(choices.samples.outcome_PM[index, 0])
                decoder_entries[name] = {"status": outcome, "answer": None, "taken": []}
                continue
            answer = choices.samples.answer_PM[index, chosen_index]
            decoder_entries[name] = {
                "status": str(choices.samples.outcome_PM[index, chosen_index]),
                "answer": answer and shorten(answer),
                "taken": [first_entry[parts_by_root[choices.samples.root]] + chosen_index],
            }
        return entries, decoder_entries


def _solution_entry(name: str, solution: Solution) -> dict[str, Any]:
    return {
        "name": name,
        "steps": solution.completions,
        "rewards": solution.step_rewards,
        "answer": solution.answer,
        "status": solution.outcome,
        "why": explain_outcome(solution.outcome, solution.verdict_by),
        "tokens": format_token_count(solution.n_tokens),
        "finish": solution.finish_reason,
    }


def explain_outcome(outcome: str, verdict_by: str) -> str:
    """Explain the outcome of a solution, and name the judge that decided it."""
    phrase: str = _PHRASES["outcomes"][outcome]
    if not verdict_by.startswith(JUDGE_RULE_PREFIX):
        return phrase
    judge = split_verdict_by(verdict_by)[0].removeprefix(JUDGE_RULE_PREFIX)
    return f"A part was not read, so the judge {judge} decided. {phrase}"
