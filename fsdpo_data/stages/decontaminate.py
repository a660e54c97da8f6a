"""Find training problems that overlap with benchmark questions.

The stage records the overlaps of a dataset. ``write_clean`` writes the problems without overlaps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import AnyRecord, Manifest, StageCounts, StageRecord, read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.dataset.stage_registry import (
    STAGES,
    Row,
    StageEntry,
)
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.engines.options import Resume
from fsdpo_data.problems.benchmark_questions import BenchmarkQuestions, read_benchmark
from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.overlap import (
    MIN_OVERLAP,
    NGRAM_SIZE,
    OVERLAP_METHOD,
    LocatedQuestion,
    find_overlapping_pairs,
)

log = logging.getLogger(__name__)


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


class EarlierOverlap(FileModel):
    """The result of an earlier comparison with other benchmarks."""

    options: OverlapSettings  #: The benchmarks and the parameters of the comparison.
    problems: int  #: Problems that were compared.
    contaminated: int  #: Problems that overlap with a benchmark.
    benchmarks: dict[str, BenchmarkCounts]  #: The counts of each benchmark, by its name.


class OverlapCounts(StageCounts):
    """The overlap of the problems with benchmarks."""

    problems: int  #: Problems that were compared.
    contaminated: int  #: Problems that overlap with a benchmark.
    benchmarks: dict[str, BenchmarkCounts]  #: The counts of each benchmark, by its name.
    #: Comparisons with benchmarks that this one does not name, in their order.
    earlier: list[EarlierOverlap] = Field(default_factory=list)

    @property
    def comparisons(self) -> Sequence[EarlierOverlap | OverlapCounts]:
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


@dataclass(frozen=True)
class DecontaminateStage(Stage):
    """Writes the overlaps of a dataset's problems with benchmarks into its manifest and card."""

    name = OVERLAP_STAGE

    report: OverlapReport  #: The overlaps of the dataset's problems.

    def options(self) -> OverlapSettings:
        """Return the benchmarks and the parameters of the comparison."""
        return self.report.settings

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Record the overlaps in the manifest; the rows do not change."""
        counts = self.report.counts()
        counts.earlier = _earlier_overlaps(draft.manifest, counts.benchmarks)
        return self.make_record(counts)


def _earlier_overlaps(manifest: Manifest, replaced: Container[str]) -> list[EarlierOverlap]:
    """Return the comparisons that a manifest states, with benchmarks that are not replaced."""
    record = manifest.find(OVERLAP_STAGE, OverlapRecord)
    if record is None:
        return []
    counts = record.counts
    latest = EarlierOverlap(
        options=record.options,
        problems=counts.problems,
        contaminated=counts.contaminated,
        benchmarks=counts.benchmarks,
    )
    return [
        overlap
        for overlap in (*counts.earlier, latest)
        if any(name not in replaced for name in overlap.benchmarks)
    ]


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


class DecontaminateOptions(Options):
    r"""Find training problems that overlap with benchmark questions.

    Questions are identical if they differ only in white space and case (and in compatibility
    forms of Unicode, such as ``x²`` for ``x2``). Otherwise the overlap is the weighted fraction of
    common n-grams. All numbers count as equal, so the same problem with other numbers is found.
    Common phrases count little, and a common formula alone is no overlap. The report also compares
    the gold answers. `--write-clean` writes the other problems. `--out` drops none: use
    `fsdpo-data select --against` to drop the overlapping problems of a dataset.

    Examples:
        fsdpo-data decontaminate gsm8k math --against bench/gsm8k.jsonl \
          --against bench/math

        fsdpo-data decontaminate train.jsonl --against bench --report r.json \
          --write-clean clean.jsonl

        fsdpo-data decontaminate runs/pairs --against gsm8k=bench/gsm8k.jsonl \
          --out runs/checked
    """

    problems: Annotated[Sequence[str], Option(positional=True)]
    """Training problems, as for `build --problems`, or a dataset."""
    against: Annotated[Sequence[str], Option(metavar="[NAME=]FILE")]
    """File or directory of a benchmark; may be given several times."""
    report: Annotated[str | Path | None, Option(metavar="FILE", in_digest=False)] = None
    """JSON file for all overlapping pairs."""
    write_clean: Annotated[str | Path | None, Option(metavar="FILE", in_digest=False)] = None
    """JSON-lines file for the problems without overlap."""
    out: Annotated[str | Path | None, Option(in_digest=False)] = None
    """Directory of a new dataset, with the overlaps in its manifest and card."""
    resume: Resume = False
    """Continue the run in `out`."""
    split: str = "train"
    """Split of the training problems."""
    ngram: Annotated[int, Field(ge=2)] = NGRAM_SIZE
    """Number of consecutive words and signs in an n-gram."""
    overlap: Annotated[float, Field(gt=0, le=1)] = MIN_OVERLAP
    """Minimum overlap of a contaminated problem."""


def run_decontaminate(options: DecontaminateOptions, progress: Progress) -> OverlapReport:
    """Compare problems with benchmarks, and write the files that the options name.

    Raises:
        InputError: if ``out`` is given for several sources, an output is also an input, or a
            benchmark has no question.
        StoreError: if the disk fails.
    """
    _check_outputs(options)
    report = _find_requested_overlaps(options)
    if options.report is not None:
        text = json.dumps(report.to_json_values(), indent=2, ensure_ascii=False)
        write_text(Path(options.report), text + "\n")
    if options.write_clean is not None:
        lines = [
            json.dumps(problem.to_row(), ensure_ascii=False) + "\n"
            for problem in report.clean_problems
        ]
        write_text(Path(options.write_clean), "".join(lines))
    if options.out is not None:
        derive_dataset(
            Path(options.problems[0]),
            Path(options.out),
            [DecontaminateStage(report)],
            resume=options.resume,
            progress=progress,
        )
    return report


def _find_requested_overlaps(options: DecontaminateOptions) -> OverlapReport:
    """Compare the training problems with the benchmarks of the options."""
    problems = _training_problems(options)
    is_dataset = options.out is not None
    with explain_damage(Path(options.problems[0])) if is_dataset else nullcontext():
        return find_overlaps(
            problems, options.against, ngram=options.ngram, overlap=options.overlap
        )


def _check_outputs(options: DecontaminateOptions) -> None:
    """Raise an InputError for an output that is also an input or another output."""
    inputs = set()
    for name in (*options.problems, *options.against):
        path = name.partition("=")[2] or name  # `NAME=FILE`, or a path that contains "="
        inputs |= {Path(name).resolve(), Path(path).resolve()}
    for option in ("report", "write_clean"):
        file = Path(getattr(options, option) or "").resolve()
        if file.is_file() and inputs & {file, *file.parents}:
            raise options.field_error(option, "the file is also an input. Choose a new file.")
    outputs = [Path(file).resolve() for file in (options.report, options.write_clean) if file]
    if len(set(outputs)) < len(outputs):
        raise options.field_error(
            "write_clean", "the file is also the `report`. Choose another file."
        )


def _training_problems(options: DecontaminateOptions) -> Sequence[Problem]:
    """Return the problems to compare; with ``out`` they come from one sealed dataset."""
    if options.out is not None:
        if len(options.problems) != 1:
            raise options.field_error(
                "out",
                f"the new dataset needs one sealed dataset as its source, got "
                f"{len(options.problems)} sources. Give one, or remove `out`.",
            )
        return read_sealed_problems(Path(options.problems[0]))
    source = load_problems(options.problems, split=options.split)
    for warning in source.warnings:
        log.warning(warning)
    if source.quarantined_rows:
        first_reason = source.quarantined_rows[0].reason
        log.warning(f"{len(source.quarantined_rows):,} rows are not used; first, {first_reason}")
    return source.problems


def _summarize(record: OverlapRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return a row of the summary for each comparison."""
    return [
        (
            "in benchmarks",
            f"{counts.contaminated:,} of {counts.problems:,} problems overlap with "
            f"{', '.join(counts.benchmarks)}",
        )
        for counts in record.counts.comparisons
    ]


STAGES.register(StageEntry(name=OVERLAP_STAGE, record=OverlapRecord, summarize=_summarize))
