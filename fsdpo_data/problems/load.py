"""Loading of problems from files, from datasets on the Hub, and from the embedded problems."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten

from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.identity import SourceRef, digest, file_sha256, json_sha256
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import (
    SourceRow,
    SourceRows,
    data_files,
    data_suffix,
    read_records,
    split_in_path,
)
from fsdpo_data.hub.client import is_path
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION
from fsdpo_data.problems.golds import describe_solutions
from fsdpo_data.problems.hub_datasets import DATASETS, HubDataset, HubSource, load_hub
from fsdpo_data.problems.row_formats import (
    DEFAULT_READING,
    PROBLEM_FORMATS,
    RowReading,
    is_own_row,
    mark_most_golds,
    read_problem,
)

EMBEDDED_COUNT = 200  #: Default number of embedded problems.
MAX_QUARANTINED_FRACTION = 0.05  #: More rows in quarantine cause a warning.
MAX_SHOWN_CHARS = 80  #: Maximum length of a question in a warning.


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """An input row that cannot be used."""

    source: str  #: File or dataset of the row.
    row: int  #: Line number in JSON Lines files, else the row's number; both from 1.
    reason: str  #: The reason why the row cannot be used.
    raw: str  #: The row as text, shortened.


@dataclass(slots=True)
class ProblemSet:
    """Problems that are ready for sampling, and all rows that were quarantined."""

    problems: list[Problem] = field(default_factory=list)  #: In source order, with unique ids.
    source_refs: list[SourceRef] = field(default_factory=list)  #: One reference per source.
    quarantined_rows: list[QuarantinedRow] = field(default_factory=list)  #: The quarantined rows.
    warnings: list[str] = field(default_factory=list)  #: Warnings about the sources.
    #: How many problems were drawn or generated; None for all of them.
    limit: int | None = None
    limit_seed: int = 0  #: Seed of the problems that were drawn or generated.


def load_problems(
    names: Sequence[str],
    *,
    split: str = "train",
    limit: int | None = None,
    seed: int = 0,
    reading: RowReading = DEFAULT_READING,
    datasets: Mapping[str, HubDataset] = DATASETS,
) -> ProblemSet:
    """Load the problems of all sources.

    ``limit`` selects problems by their content and ``seed``, not by their order. The selection of
    10 problems is part of the selection of 100.

    Args:
        names: The sources. A source is ``embedded``, a name in ``datasets``, a Hub dataset as
            ``org/name[@revision][:config]``, or a file, a directory or a glob pattern.
        split: The split to load.
        limit: Maximum number of problems; None for all.
        seed: Seed of the selection, and of the embedded problems.
        reading: The fields of the question and of the gold, and how to read golds.
        datasets: Hub datasets by short name.

    Raises:
        InputError: if a source does not exist, is empty, or contains no problem.
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    if not all(names) or not names:
        raise InputError(f"no source of problems given. Try embedded, or {', '.join(datasets)}.")
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit}: expected at least 1 problem.")
    loader = _ProblemLoader(split, seed, limit, reading, datasets)
    for name in names:
        loader.add_source(name)
    if not loader.has_reading:
        options_of_rows = {"a file of rows": [*RowReading.model_fields]}
        check_read_options(reading, "source", names, options_of_rows)
    problem_set = loader.problem_set
    problems = problem_set.problems
    if conflicts := describe_conflicts(problems):
        problem_set.warnings.append(conflicts)
    if limit is not None and len(problems) > limit:
        problem_ids = [problem.id for problem in problems]
        positions = draw_positions(problem_ids, limit, seed)
        problem_set.problems = [problems[position] for position in positions]
        problem_set.limit = limit
        problem_set.limit_seed = seed
    return problem_set


def describe_conflicts(problems: Sequence[Problem]) -> str:
    """Return how many questions have several gold answers, with an example; empty without any."""
    golds_by_question: dict[str, dict[str, None]] = {}
    for problem in problems:
        golds_by_question.setdefault(problem.question, {})[problem.answer] = None
    conflicts = {question: golds for question, golds in golds_by_question.items() if len(golds) > 1}
    if not conflicts:
        return ""
    question, golds = next(iter(conflicts.items()))
    n_questions = f"{len(conflicts):,} question{'s' if len(conflicts) > 1 else ''}"
    return (
        f"{n_questions} with different gold answers, each of them a problem of its own, such as "
        f"{shorten(question, MAX_SHOWN_CHARS)!r}: {', '.join(golds)}."
    )


def describe_quarantine(
    quarantined: Sequence[QuarantinedRow], n_rows: int, n_partial: int = 0
) -> str:
    """Return the most frequent reason of quarantined rows, with an example; empty if few are.

    A row counts once, even if several of its responses are quarantined.

    Args:
        quarantined: The rows.
        n_rows: Number of all rows.
        n_partial: Number of quarantined rows of which other responses are used.
    """
    n_quarantined = len({(row.source, row.row) for row in quarantined})
    if n_quarantined <= MAX_QUARANTINED_FRACTION * n_rows:
        return ""
    # A colon separates the kind of a reason from its details.
    kinds = Counter(row.reason.partition(":")[0] for row in quarantined)
    kind, count = kinds.most_common(1)[0]
    example = next(row for row in quarantined if row.reason.partition(":")[0] == kind)
    partly = f", {n_partial:,} of them with some of their responses only" if n_partial else ""
    return (
        f"{n_quarantined:,} of {n_rows:,} rows are in quarantine{partly}. The most frequent reason "
        f"({count:,} times, first in row {example.row}): {example.reason}."
    )


def draw_positions(ids: Sequence[str], limit: int, seed: int) -> list[int]:
    """Return the sorted positions of ``limit`` pseudo-randomly selected ids.

    The selection of 10 ids is part of the selection of 100.
    """
    ranked = sorted((digest("choose", seed, id_), position) for position, id_ in enumerate(ids))
    return sorted(position for _, position in ranked[:limit])


class _ProblemLoader:
    """Loader that collects the problems of several sources, without duplicates."""

    def __init__(
        self,
        split: str,
        seed: int,
        limit: int | None,
        reading: RowReading,
        datasets: Mapping[str, HubDataset],
    ) -> None:
        self.split = split
        self.seed = seed
        self.limit = limit
        self.reading = reading
        self.datasets = datasets
        self.problem_set = ProblemSet()
        self.has_reading = False  #: Whether a row was read as ``reading`` says.
        self._first_location: dict[str, str] = {}

    def add_source(self, name: str) -> None:
        """Add the problems of a source; see :func:`load_problems`."""
        hub_source = HubSource.parse(name, self.datasets)
        if name == "embedded":
            self._add_embedded()
        elif hub_source is not None and (hub_source.short_name or not _is_path(name)):
            self._add_hub(hub_source)
        elif _is_path(name):
            self._add_files(name)
        else:
            known_names = ["embedded", *self.datasets]
            raise InputError(
                f"no source {name!r}: expected {', '.join(known_names)}, org/name on the Hub, or a "
                "file." + suggest_names(name, known_names, limit=2)
            )

    def _add_embedded(self) -> None:
        problems = make_problems(self.split, self.limit or EMBEDDED_COUNT, self.seed)
        for row_number, problem in enumerate(problems, start=1):
            row = SourceRow(row_number, problem.to_row())
            self._add_problem(problem, "embedded", row, problem.id)
        source_ref = SourceRef("embedded", str(EMBEDDED_VERSION), self.split)
        self.problem_set.source_refs.append(source_ref)
        self.problem_set.limit = self.limit
        self.problem_set.limit_seed = self.seed

    def _add_files(self, name: str) -> None:
        files = data_files(name, self.split)
        self._parse_rows(name, self._read_files(files))
        # Folders differ between machines; the revision identifies the content.
        source_name = Path(name).resolve().name
        source_ref = SourceRef(source_name, files_revision(files), self.split)
        self.problem_set.source_refs.append(source_ref)

    def _read_files(self, files: Sequence[Path]) -> Iterator[SourceRows]:
        root = _common_folder(files)
        for file in files:
            file_split = split_in_path(Path(file.name))
            if file_split and file_split != self.split:
                self.problem_set.warnings.append(
                    f"{file} is named after split {file_split}, but was read as {self.split}."
                )
            rows = list(read_records(file))
            if not rows:
                raise InputError(f"{file}: empty. Expected {_format_descriptions()}.")
            yield SourceRows(str(file), file.relative_to(root).as_posix(), rows)

    def _add_hub(self, source: HubSource) -> None:
        commit, configs = load_hub(source, self.split)
        ids = self._parse_rows(
            source.name, configs, one_per_question=source.expected.one_per_question
        )
        n_rows = sum(len(config.rows) for config in configs)
        self.problem_set.warnings += source.check(self.split, commit, n_rows, problems_digest(ids))
        self.problem_set.source_refs.append(SourceRef(source.name, commit, self.split))

    def _parse_rows(
        self, name: str, all_rows: Iterable[SourceRows], *, one_per_question: bool = False
    ) -> list[str]:
        """Add new problems, quarantine all other rows, and return the ids of all problems."""
        quarantined_rows = self.problem_set.quarantined_rows
        first_quarantined = len(quarantined_rows)
        ids = []
        golds = []
        n_rows = 0
        field_names: set[str] = set()
        for location, source, rows in all_rows:
            n_rows += len(rows)
            needs_mark = self.reading.gold == "auto" and mark_most_golds(rows, self.reading)
            for row in rows:
                field_names.update(row.fields)
                self.has_reading |= not is_own_row(row.fields)
                try:
                    problem = read_problem(
                        row, source, self.split, self.reading, needs_mark=needs_mark
                    )
                except UnusableRowError as reason:
                    quarantined_rows.append(quarantine_row(location, row, str(reason)))
                    continue
                ids.append(problem.id)
                golds.append(problem.answer)
                key = digest("question", problem.question) if one_per_question else problem.id
                self._add_problem(problem, location, row, key)
        if not n_rows:
            raise InputError(
                f"{name}: split {self.split} is empty. Expected {_format_descriptions()}."
            )
        if not ids:
            first_row = quarantined_rows[first_quarantined]
            raise InputError(
                f"{name}: none of its {n_rows} rows is a problem. Fields found: "
                f"{', '.join(sorted(field_names)[:20]) or 'none'}. "
                f"Expected {_format_descriptions()}. "
                f"First quarantined row, {first_row.row}: {first_row.reason}."
            )
        if warning := describe_quarantine(quarantined_rows[first_quarantined:], n_rows):
            self.problem_set.warnings.append(f"{name}: {warning}")
        if solutions := describe_solutions(golds):
            self.problem_set.warnings.append(f"{name}: {solutions}")
        return ids

    def _add_problem(self, problem: Problem, location: str, row: SourceRow, key: str) -> None:
        """Add a problem, or quarantine its row if ``key`` is not new."""
        if key in self._first_location:
            reason = f"duplicate: {self._first_location[key]}"
            self.problem_set.quarantined_rows.append(quarantine_row(location, row, reason))
        else:
            self._first_location[key] = f"{location} row {row.row_number}"
            self.problem_set.problems.append(problem)


def quarantine_row(source: str, record: SourceRow, reason: str) -> QuarantinedRow:
    """Return the quarantine entry of a row."""
    raw = record.text.encode(errors="replace").decode()
    return QuarantinedRow(source=source, row=record.row_number, reason=reason, raw=raw)


def problems_digest(ids: Sequence[str]) -> str:
    """Return the digest of a set of problems by their ids, in any order."""
    return digest("problems", sorted(ids))


def _is_path(name: str) -> bool:
    return (
        bool(data_suffix(Path(name)))
        or is_path(name)
        or any(character in name for character in "*?[")
    )


def files_revision(files: Sequence[Path]) -> str:
    """Return ``sha256:…`` of a file, or of several files and their names in their common folder."""
    if len(files) == 1:
        return f"sha256:{file_sha256(files[0])}"
    root = _common_folder(files)
    return json_sha256([(str(file.relative_to(root)), file_sha256(file)) for file in files])


def _common_folder(files: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([file.parent for file in files]))


def _format_descriptions() -> str:
    descriptions = "; ".join(problem_format.description for problem_format in PROBLEM_FORMATS)
    return f"one of: {descriptions}"
