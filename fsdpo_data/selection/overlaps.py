"""The overlap of the problems of a dataset with benchmarks: its record, and the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.lazy import pl
from fsdpo_data.dataset.manifest import Manifest, StageCounts, StageRecord, read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.problems.benchmark_questions import BenchmarkQuestions, read_benchmark
from fsdpo_data.problems.overlap import (
    MIN_OVERLAP,
    NGRAM_SIZE,
    OVERLAP_METHOD,
    LocatedQuestion,
    find_overlapping_pairs,
)

OVERLAP_STAGE = "decontaminate"  #: Name of the stage.


class BenchmarkRef(FileModel):
    """A reference to one exact version of a benchmark."""

    name: str  #: Name of the benchmark.
    revision: str  #: Digest of its file.


class OverlapSettings(FileModel):
    """The parameters of a comparison with benchmarks."""

    ngram: int  #: Tokens per n-gram.
    #: Minimum overlap of a contaminated problem; see :mod:`fsdpo_data.problems.overlap`.
    overlap: float
    method: str  #: Definition of the overlap.
    benchmarks: list[BenchmarkRef]  #: The benchmarks.


class BenchmarkCounts(FileModel):
    """The overlap of the problems with one benchmark."""

    questions: int  #: Questions of the benchmark.
    matched_questions: int  #: Questions that a problem overlaps with.
    problems: int  #: Problems that overlap with a question.
    exact_questions: int  #: Questions that a problem is identical to.
    same_answer: int  #: Matched questions whose gold answer is that of a problem.


class OverlapResult(FileModel):
    """The result of a comparison with benchmarks."""

    problems: int  #: Problems that were compared.
    contaminated: int  #: Problems that overlap with a benchmark.
    benchmarks: dict[str, BenchmarkCounts]  #: The counts of each benchmark, by its name.


class EarlierOverlap(OverlapResult):
    """The result of an earlier comparison with other benchmarks."""

    options: OverlapSettings  #: The benchmarks and the parameters of the comparison.


class OverlapCounts(StageCounts, OverlapResult):
    """The overlap of the problems with benchmarks."""

    #: Comparisons with benchmarks that this one does not name, in their order.
    earlier: list[EarlierOverlap] = Field(default_factory=list)

    @property
    def comparisons(self) -> Sequence[OverlapResult]:
        """All comparisons, the earlier ones first."""
        return [*self.earlier, self]


#: The entry of a comparison with benchmarks.
OverlapRecord: TypeAlias = StageRecord[OverlapSettings, OverlapCounts]


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """The overlaps of training problems with benchmark questions."""

    problems: Sequence[Problem]  #: The training problems.
    benchmarks: Sequence[BenchmarkQuestions]  #: The benchmarks, in the order of the options.
    #: Overlapping pairs over all benchmarks, from
    #: :func:`~fsdpo_data.problems.overlap.find_overlapping_pairs`.
    pairs: pl.DataFrame
    ngram: int  #: Tokens per n-gram.
    overlap: float  #: Minimum overlap of a contaminated problem.

    @property
    def clean_problems(self) -> list[Problem]:
        """The problems that do not overlap with any benchmark."""
        contaminated = set(self.pairs["training"])
        return [problem for index, problem in enumerate(self.problems) if index not in contaminated]

    @property
    def settings(self) -> OverlapSettings:
        """The benchmarks and the parameters of the comparison."""
        return OverlapSettings(
            ngram=self.ngram,
            overlap=self.overlap,
            method=OVERLAP_METHOD,
            benchmarks=[
                BenchmarkRef(name=benchmark.name, revision=benchmark.revision)
                for benchmark in self.benchmarks
            ],
        )

    def counts(self) -> OverlapCounts:
        """Return the number of overlapping problems and questions."""
        return OverlapCounts(
            problems=len(self.problems),
            contaminated=len(self.problems) - len(self.clean_problems),
            benchmarks=self._benchmark_counts(),
        )

    def _benchmark_counts(self) -> dict[str, BenchmarkCounts]:
        """Return the counts of each benchmark, by its name."""
        benchmark_counts = {}
        start = 0
        for benchmark in self.benchmarks:
            end = start + len(benchmark.questions)
            pairs = self.pairs.filter(pl.col("benchmark").is_between(start, end, closed="left"))
            start = end
            identical = pairs.filter("identical")
            equally_answered = pairs.filter("same_answer")
            benchmark_counts[benchmark.name] = BenchmarkCounts(
                questions=len(benchmark.questions),
                matched_questions=pairs["benchmark"].n_unique(),
                problems=len({self.problems[index].id for index in pairs["training"]}),
                exact_questions=identical["benchmark"].n_unique(),
                same_answer=equally_answered["benchmark"].n_unique(),
            )
        return benchmark_counts

    def to_json_values(self) -> dict[str, Any]:
        """Return the settings, the counts and all pairs with both questions, as JSON values."""
        settings = self.settings
        counts = self.counts()
        return {
            **settings.to_dict(),
            **counts.to_dict(),
            "benchmarks": [
                {**benchmark.to_dict(), **counts.benchmarks[benchmark.name].to_dict()}
                for benchmark in settings.benchmarks
            ],
            "pairs": list(self._rows()),
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield the pairs as JSON values."""
        questions = _all_questions(self.benchmarks)
        for pair in self.pairs.iter_rows(named=True):
            problem = self.problems[pair["training"]]
            question = questions[pair["benchmark"]]
            yield {
                "problem_id": problem.id,
                "benchmark": question.source,
                "file": question.file,
                "row": question.row,
                "identical": pair["identical"],
                "overlap": round(pair["overlap"], 4),
                "same_answer": pair["same_answer"],
                "question": problem.question,
                "benchmark_question": question.question,
            }


def _all_questions(benchmarks: Sequence[BenchmarkQuestions]) -> list[LocatedQuestion]:
    """Return the questions of all benchmarks; pairs refer to their positions in this list."""
    return [question for benchmark in benchmarks for question in benchmark.questions]


def read_sealed_problems(root: Path) -> list[Problem]:
    """Return the problems of a sealed dataset, which is finished and never changes.

    Raises:
        SchemaError: if ``root`` is not a sealed dataset, or its problems were changed.
    """
    manifest = read_manifest(root)
    check_files(root, manifest.config_files("problems"))
    return [*read_problems(manifest.config_paths(root, "problems")).values()]


def find_overlaps(
    problems: Sequence[Problem],
    against: Sequence[str],
    *,
    ngram: int = NGRAM_SIZE,
    overlap: float = MIN_OVERLAP,
) -> OverlapReport:
    """Compare problems with the questions of benchmarks.

    Args:
        problems: The training problems.
        against: Benchmarks as ``FILE`` or ``NAME=FILE``. A file is read completely; of a directory
            with splits, only the test split.
        ngram: Tokens per n-gram.
        overlap: Minimum overlap of a contaminated problem, as
            :mod:`fsdpo_data.problems.overlap` defines it. Texts that differ only in white space,
            case and compatibility forms always overlap.

    Raises:
        InputError: if ``ngram`` or ``overlap`` is out of range, a file has no question, or two
            benchmarks have the same name.
    """
    if ngram < 2 or not 0 < overlap <= 1:
        raise InputError(
            f"ngram = {ngram}, overlap = {overlap}: expected 2 or more tokens, and an overlap "
            "above 0 and at most 1."
        )
    benchmarks = [read_benchmark(name) for name in against]
    _check_unique_names(benchmarks)
    training = [
        LocatedQuestion(problem.source, 0, problem.question, problem.answer) for problem in problems
    ]
    questions = _all_questions(benchmarks)
    pairs = find_overlapping_pairs(training, questions, ngram=ngram, min_overlap=overlap)
    return OverlapReport(
        problems=problems, benchmarks=benchmarks, pairs=pairs, ngram=ngram, overlap=overlap
    )


def _check_unique_names(benchmarks: Sequence[BenchmarkQuestions]) -> None:
    """Raise an InputError if two benchmarks have the same name."""
    names = [benchmark.name for benchmark in benchmarks]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(
            "two benchmarks have that name. Give one of them another name with `NAME=FILE`.",
            field="against",
            value=duplicate,
        )


def update_overlaps(manifest: Manifest, n_problems: int) -> None:
    """State the overlap of the selected problems with benchmarks, as far as it is known."""
    overlaps = manifest.find(OVERLAP_STAGE, OverlapRecord)
    if overlaps is None:
        return
    comparisons = overlaps.counts.comparisons
    if any(comparison.contaminated for comparison in comparisons):
        # The overlaps of single problems are unknown here.
        manifest.remove(OVERLAP_STAGE)
        return
    for comparison in comparisons:
        comparison.problems = n_problems
    manifest.put(overlaps)
