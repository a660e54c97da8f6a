"""Training problems held against benchmarks: a report, and the problems that are left."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_files import SPLITS, data_files, read_records, scan_parquet
from fsdpo_data.dataset import manifest_sections
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage import DatasetDraft, Stage, derive_dataset
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.engines.options import Resume
from fsdpo_data.problems.load import files_revision, load_problems
from fsdpo_data.problems.overlap import MIN_OVERLAP, NGRAM_SIZE, LocatedQuestion, overlaps
from fsdpo_data.problems.row_formats import PROBLEM_FORMATS

#: Fields that make up a question; also those of SVAMP and AddSub as first published.
_QUESTIONS = (("Body", "Question"), ("sQuestion",), *(form.question for form in PROBLEM_FORMATS))
_ANSWERS = ("answer", "gold_answer", "ground_truth_answer", "Answer", "lSolutions", "target")


@dataclass(frozen=True, slots=True)
class BenchmarkQuestions:
    """What training problems are held against."""

    name: str
    revision: str  #: ``sha256:…`` of its files.
    questions: Sequence[LocatedQuestion]


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """What was found."""

    problems: Sequence[Problem]
    benchmarks: Sequence[BenchmarkQuestions]
    pairs: pl.DataFrame  #: Result of :func:`~.problems.overlap.overlaps`, over all benchmarks.
    ngram: int  #: Words per n-gram.
    overlap: float  #: Smallest overlap at which a pair counts.

    @property
    def clean_problems(self) -> list[Problem]:
        """Return the problems that occur in no benchmark."""
        hit = set(self.pairs["training"])
        return [problem for i, problem in enumerate(self.problems) if i not in hit]

    def counts(self) -> list[dict[str, Any]]:
        """Return of each benchmark how many questions are hit, and by how many problems."""
        told = []
        for each in self.benchmarks:
            rows = [row for row in self._rows() if row["benchmark"] == each.name]
            counts = {
                "matched_questions": len({row["row"] for row in rows}),
                "problems": len({row["problem_id"] for row in rows}),
                "exact_questions": len({row["row"] for row in rows if row["same"]}),
                "same_answer": len({row["row"] for row in rows if row["same_answer"]}),
            }
            what = {"name": each.name, "revision": each.revision, "questions": len(each.questions)}
            told.append(what | counts)
        return told

    def summary(self) -> dict[str, Any]:
        """Return what the manifest of a dataset says of its problems, as JSON values."""
        return {
            "ngram": self.ngram,
            "overlap": self.overlap,
            "problems": len(self.problems),
            "contaminated": len(self.problems) - len(self.clean_problems),
            "benchmarks": self.counts(),
        }

    def to_json_values(self) -> dict[str, Any]:
        """Return the summary, then every pair with both questions, as JSON values."""
        return {**self.summary(), "pairs": list(self._rows())}

    def _rows(self) -> Iterator[dict[str, Any]]:
        texts = [text for each in self.benchmarks for text in each.questions]
        for pair in self.pairs.iter_rows(named=True):
            problem, text = self.problems[pair["training"]], texts[pair["benchmark"]]
            yield {
                "problem_id": problem.id,
                "benchmark": text.where,
                "row": text.row,
                "same": pair["same"],
                "overlap": round(pair["share"], 4),
                "same_answer": pair["same_answer"],
                "question": problem.question,
                "benchmark_question": text.question,
            }


@dataclass(frozen=True)
class DecontaminateStage(Stage):
    """Writes into a dataset's manifest and card which of its problems occur in benchmarks."""

    spec_key = "decontaminate"

    report: OverlapReport

    def spec(self) -> Mapping[str, Any]:
        """Return what the problems were held against, and how."""
        against = [
            {"name": each.name, "revision": each.revision} for each in self.report.benchmarks
        ]
        return {"ngram": self.report.ngram, "overlap": self.report.overlap, "benchmarks": against}

    def run(self, draft: DatasetDraft) -> None:
        """Record the result; no row changes."""
        draft.manifest.contamination = manifest_sections.ContaminationStats.model_validate(
            self.report.summary()
        )


def read_sealed_problems(root: Path) -> list[Problem]:
    """Return the problems of a sealed dataset.

    Raises:
        SchemaError: if there is none in ``root``, or its problems are not what was sealed.
    """
    manifest = read_manifest(root)
    check_files(root, manifest.config_files("problems"))
    problems = scan_parquet(manifest.config_paths(root, "problems"))
    rows = problems.select("question", "answer", "source", "split").collect()
    return [Problem(*row) for row in rows.iter_rows()]


def find_overlaps(
    problems: Sequence[Problem],
    against: Sequence[str],
    *,
    ngram: int = NGRAM_SIZE,
    overlap: float = MIN_OVERLAP,
) -> OverlapReport:
    """Compare problems with the questions of benchmarks.

    ``names`` are ``FILE`` or ``NAME=FILE``, a file or directory, read whole whatever split it is
    of; ``n`` the words of a run, ``share`` the overlap from which a problem counts as contaminated.

    Raises:
        InputError: if a number makes no sense, a file has no question, or two benchmarks have one
            name.
    """
    if ngram < 2 or not 0 < overlap <= 1:
        raise InputError(f"n = {ngram}, share = {overlap}: expected 2 or more, and at most 1.")
    benchmarks = [read_benchmark(name) for name in against]
    taken = [each.name for each in benchmarks]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise InputError("two benchmarks have that name.", field="against", value=twice)
    training = [LocatedQuestion(each.source, 0, each.question, each.answer) for each in problems]
    texts = [text for each in benchmarks for text in each.questions]
    found = overlaps(training, texts, ngram=ngram, min_overlap=overlap)
    return OverlapReport(problems, benchmarks, found, ngram, overlap)


def read_benchmark(text: str) -> BenchmarkQuestions:
    """Read the questions of ``FILE`` or ``NAME=FILE``; rows without one are passed over.

    Without a name, it is the file's; for ``test.jsonl`` and the like, that of its folder. Folders
    above are this machine's business.

    Raises:
        InputError: if there is no question at all.
    """
    name, equals, path = text.partition("=")
    unnamed = not equals or "/" in name  # a path may hold the sign too
    files = data_files(text if unnamed else path, "test")
    if unnamed:
        path, whole = text, Path(text).expanduser().resolve()
        of_folder = whole.stem in SPLITS and whole.parent != Path.home()
        name = whole.parent.name if of_folder else whole.stem
    texts = [found for file in files for found in _texts(file, name)]
    if not texts:
        raise InputError(f"{path}: no row has a question. Expected fields such as `question`.")
    return BenchmarkQuestions(name, files_revision(files), texts)


def _texts(file: Path, name: str) -> Iterator[LocatedQuestion]:
    for record in read_records(file):
        fields = record.fields
        if isinstance(fields.get("question"), dict):  # PRM800K
            fields = fields["question"]
        texts: Iterator[list[Any]] = ([fields.get(each) for each in some] for some in _QUESTIONS)
        asked = (some for some in texts if all(isinstance(each, str) for each in some))
        if question := " ".join(next(asked, [])):
            yield LocatedQuestion(name, record.row_number, question, _answer(fields))


def _answer(fields: Mapping[str, Any]) -> str:
    """Return the gold answer, out of its solution if it stands there; empty if there is none."""
    value = next((fields[key] for key in _ANSWERS if fields.get(key) not in (None, "", [])), None)
    if value is None:
        return last_box_content(str(fields.get("solution", ""))) or ""
    return str(value).rpartition("####")[2].strip()


@dataclass(frozen=True, kw_only=True)
class DecontaminateOptions(Options):
    """Find training problems that occur in benchmarks, and leave them out.

    A question is the same if only white space or case differs; else it overlaps by its common
    runs of words. Whether the gold answers agree is told beside it.

    Attributes:
        problems: Training problems, as `build --problems` takes them, or a sealed dataset.
        against: File or directory of a benchmark; may be given several times.
        report: Write every pair here, as JSON.
        write_clean: Write the problems that are left here, as JSON lines.
        out: Write the dataset here, with the result in its manifest and card.
        resume: Go on with the run in `out`.
        split: Split of the training problems.
        ngram: Words of a run.
        overlap: Share of common runs that counts.
    """

    problems: Annotated[Sequence[str], Option(positional=True)] = field(kw_only=False)
    against: Annotated[Sequence[str], Option(metavar="[NAME=]FILE")]
    report: Annotated[str | Path | None, Option(metavar="FILE")] = None
    write_clean: Annotated[str | Path | None, Option(metavar="FILE")] = None
    out: str | Path | None = None
    resume: Resume = False
    split: str = "train"
    ngram: Annotated[int, Option(min=2)] = NGRAM_SIZE
    overlap: Annotated[float, Option(exclusive_min=0, max=1)] = MIN_OVERLAP


def run_decontaminate(options: DecontaminateOptions, progress: Progress) -> OverlapReport:
    """Hold problems against benchmarks, and write what was asked for.

    Raises:
        InputError: if there are several datasets to write to one directory, or no question.
        StoreError: if the disk fails.
    """
    named = (*options.problems, *options.against)
    read = {Path(p).resolve() for each in named for p in (each, each.partition("=")[2] or each)}
    for name in ("report", "write_clean"):
        file = Path(getattr(options, name) or "").resolve()
        if file.is_file() and read & {file, *file.parents}:
            raise options.field_error(name, "it is among what is read. Choose a new file.")
    if options.out is None:
        loaded = load_problems(options.problems, split=options.split)
        training, aside = loaded.problems, loaded.quarantined
        left_out = [f"{len(aside):,} rows are left out; first, {aside[0].reason}"] if aside else []
        for warning in (*loaded.warnings, *left_out):
            logging.getLogger(__name__).warning(warning)
    elif len(options.problems) == 1:
        training = read_sealed_problems(Path(options.problems[0]))
    else:
        told = f"one sealed dataset is written there, got {len(options.problems)} sources."
        raise options.field_error("out", told)
    found = find_overlaps(training, options.against, ngram=options.ngram, overlap=options.overlap)
    if options.report is not None:
        write_text(
            Path(options.report),
            json.dumps(found.to_json_values(), indent=2, ensure_ascii=False) + "\n",
        )
    if options.write_clean is not None:
        rows = (json.dumps(each.to_row(), ensure_ascii=False) for each in found.clean_problems)
        write_text(Path(options.write_clean), "".join(row + "\n" for row in rows))
    if options.out is not None:
        stages = [DecontaminateStage(found)]
        source, out = Path(options.problems[0]), Path(options.out)
        derive_dataset(source, out, stages, resume=options.resume, progress=progress)
    return found
