r"""Measure how often full rollouts violate the assumption of the search for the first error.

    fsdpo-data build --limit 150 --samples 8 --out runs/base
    fsdpo-data label runs/base --rollouts 8 --out runs/n8
    fsdpo-data label runs/base --rollouts 2 --engine replay \
      --replay runs/n8/rollouts/completions.jsonl --out runs/n2
    python benchmarks/labels/measure_first_error_search.py runs/n8 runs/n2

The search of `fsdpo-data label --search first-error` assumes that a solution never recovers: after
the first prefix without a correct continuation, no longer prefix has one. The datasets need
Monte-Carlo labels of every step. The script counts the solutions that break the assumption. It also
runs the search on the recorded counts, and compares the first error with the first failed prefix.
Intervals have problems as independent units.

`--processbench` takes a folder with the JSON files of ProcessBench. The script then counts the
solutions in which people found an error although the final answer is correct. The search finds no
error there.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.statistics import mean_interval
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.stages.first_error import find_first_error


@dataclass(frozen=True)
class ContinuedSolution:
    """A solution with Monte-Carlo labels of every step."""

    problem: str  #: Id of the problem.
    is_wrong: bool  #: Whether the final answer is wrong.
    correct: Sequence[int]  #: Correct continuations of each prefix, without the finished solution.

    @property
    def first_failure(self) -> int:
        """Index of the first step without a correct continuation; the last step if none."""
        return next((i for i, n in enumerate(self.correct) if not n), len(self.correct))

    @property
    def recovers(self) -> bool:
        """Whether a prefix after the first failed one has a correct continuation."""
        return any(self.correct[self.first_failure :]) or (
            not self.is_wrong and self.first_failure < len(self.correct)
        )

    def search(self) -> tuple[int, int]:
        """Return the first error of the binary search, and the number of prefixes that it read."""
        lengths: list[int] = []

        def is_right(length: int) -> bool:
            lengths.append(length)
            return self.correct[length - 1] > 0

        first_error = find_first_error(len(self.correct) + 1, is_right).first_error
        assert first_error is not None
        return first_error, len(lengths)


def read_solutions(data: Path) -> list[ContinuedSolution]:
    """Read the graded solutions of a dataset that have rollouts."""
    manifest = read_manifest(data)
    if manifest.rollouts is None or manifest.spec.labels_are_searched:
        sys.exit(f"{data} has no Monte-Carlo labels of every step: fsdpo-data label --rollouts 8")
    rows = scan_rows("solutions", manifest.config_paths(data, "solutions"))
    columns = collect_rows(rows.select("problem_id", "outcome", "rollouts").drop_nulls())
    return [
        ContinuedSolution(
            row["problem_id"],
            row["outcome"] in MODEL_FAILURES,
            [counts["n_correct"] for counts in row["rollouts"][:-1]],
        )
        for row in columns.iter_rows(named=True)
        if row["rollouts"]
    ]


def print_fraction(
    name: str, solutions: Sequence[ContinuedSolution], hits: Callable[[ContinuedSolution], bool]
) -> None:
    """Print a fraction of solutions with its interval and its denominator."""
    groups: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for solution in solutions:
        groups[solution.problem][0] += hits(solution)
        groups[solution.problem][1] += 1
    total = sum(hit for hit, _ in groups.values())
    low, high = mean_interval([(hit, count) for hit, count in groups.values()]) or (0.0, 1.0)
    percent = 100 * total / max(1, len(solutions))
    print(
        f"{name:<62}{percent:5.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        f"  ({total:,} of {len(solutions):,})"
    )


def print_processbench(folder: Path) -> None:
    """Print the solutions with an error and a correct answer in each file of ProcessBench."""
    solutions = []
    for file in sorted(folder.glob("*.json")):
        rows = json.loads(file.read_text(encoding="utf-8"))
        solutions += [
            ContinuedSolution(row["problem"], not row["final_answer_correct"], [])
            for row in rows
            if row["label"] != -1
        ]
    print_fraction(
        "ProcessBench: solutions with an error whose answer is correct",
        solutions,
        lambda item: not item.is_wrong,
    )


def print_dataset(data: Path) -> None:
    """Print the counts of one dataset."""
    solutions = read_solutions(data)
    continued = [solution for solution in solutions if solution.correct]
    wrong = [solution for solution in continued if solution.is_wrong]
    right = [solution for solution in continued if not solution.is_wrong]
    manifest = read_manifest(data)
    assert manifest.rollouts is not None
    print(f"continuations per prefix                                      {manifest.rollouts.n:5}")
    print_fraction(
        "wrong solutions that recover after a failed prefix", wrong, lambda item: item.recovers
    )
    print_fraction("correct solutions with a failed prefix", right, lambda item: item.recovers)
    print_fraction(
        "wrong solutions where the search finds the first failure",
        wrong,
        lambda item: item.search()[0] == item.first_failure,
    )
    prefixes = sum(len(item.correct) for item in continued)
    searched = sum(item.search()[1] for item in wrong)
    print(f"prefixes of all steps, solution by solution                   {prefixes:5,}")
    print(f"prefixes of the search, solution by solution                  {searched:5,}")


def main() -> None:
    """Print the counts of each dataset, and of ProcessBench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+", help="dataset with labels of every step")
    parser.add_argument("--processbench", type=Path, help="folder with files of ProcessBench")
    options = parser.parse_args()
    for data in options.data:
        print_dataset(data)
    if options.processbench:
        print_processbench(options.processbench)


if __name__ == "__main__":
    main()
