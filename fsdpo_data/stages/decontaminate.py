"""Find training problems that overlap with benchmark questions.

The stage records the overlaps of a dataset. ``write_clean`` writes the problems without overlaps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.options import NotWith, OnlyWith, Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import AnyRecord, Manifest
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.dataset.stage_registry import (
    STAGES,
    Row,
    StageEntry,
)
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.validate import explain_damage
from fsdpo_data.engines.options import Resume
from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.overlap import (
    MIN_OVERLAP,
    NGRAM_SIZE,
)
from fsdpo_data.selection.overlaps import (
    OVERLAP_STAGE,
    EarlierOverlap,
    OverlapRecord,
    OverlapReport,
    OverlapSettings,
    find_overlaps,
    read_sealed_problems,
)

log = logging.getLogger(__name__)


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


class DecontaminateOptions(Options):
    r"""Find training problems that overlap with benchmark questions.

    Questions are identical if they differ only in white space and case (and in compatibility
    forms of Unicode, such as ``３`` for ``3``). Otherwise the overlap is the weighted fraction of
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
    resume: Annotated[Resume, OnlyWith("out")] = False
    """Continue the run in `out`."""
    split: Annotated[str, NotWith("out")] = "train"
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


STAGES.register(
    StageEntry(name=OVERLAP_STAGE, record=OverlapRecord, summarize=_summarize, card_row="")
)
