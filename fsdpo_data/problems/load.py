"""Where problems come from: the embedded world, files, and datasets on the Hub, by name."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.identity import SourceRef, canonical_json, digest, file_sha256
from fsdpo_data.core.row_files import (
    DATA_SUFFIXES,
    SourceRow,
    data_files,
    read_records,
    split_in_path,
)
from fsdpo_data.hub.client import is_path
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION
from fsdpo_data.problems.hub_datasets import DATASETS, HubDataset, HubSource, load_hub
from fsdpo_data.problems.row_formats import (
    PROBLEM_FORMATS,
    UnusableRowError,
    is_gsm8k,
    read_problem,
)

#: The rows of a file or a config: where they are for messages, their source, and themselves.
SourceRows = tuple[str, str, list[SourceRow]]

EMBEDDED_COUNT = 200  #: Problems the embedded world makes when nobody says how many.


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A row that was set aside."""

    source: str  #: File or dataset it is in.
    row: int  #: Line number in JSON lines, else the row's number; both from 1.
    reason: str  #: Why.
    raw: str  #: The row as text, shortened.


@dataclass(slots=True)
class ProblemSet:
    """Problems ready to be sampled, with an account of every row that is not among them."""

    problems: list[Problem] = field(default_factory=list)  #: In the sources' order; no id twice.
    source_refs: list[SourceRef] = field(default_factory=list)  #: One per source, to find it again.
    quarantined: list[QuarantinedRow] = field(default_factory=list)  #: The rows set aside.
    warnings: list[str] = field(default_factory=list)  #: What a reader of the results should know.


def load_problems(
    names: Sequence[str],
    *,
    split: str = "train",
    limit: int | None = None,
    seed: int = 0,
    datasets: Mapping[str, HubDataset] = DATASETS,
) -> ProblemSet:
    """Load the problems of every source in ``names``.

    A source is ``embedded``, a name of ``datasets``, ``org/name[@revision][:config]`` on the Hub,
    or a file, directory or glob. Which problems are among ``limit`` depends on ``seed`` and their
    content, not on their order, and the choice for 10 is part of the choice for 100.

    Raises:
        InputError: if a source does not exist, is empty, or holds nothing that is a problem.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    if not all(names) or not names:
        raise InputError(f"no source of problems given. Try embedded, or {', '.join(datasets)}.")
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit}: expected at least 1 problem.")
    loading = _ProblemLoader(split, seed, limit, datasets)
    for name in names:
        loading.add(name)
    found, every = loading.found, loading.found.problems
    if limit is not None and len(every) > limit:
        found.problems = [
            every[i] for i in draw_positions([each.id for each in every], limit, seed)
        ]
    return found


def draw_positions(ids: Sequence[str], limit: int, seed: int) -> list[int]:
    """Return the places of ``limit`` ids, in order; those of 10 are part of those of 100."""
    lots = sorted((digest("choose", seed, each), i) for i, each in enumerate(ids))
    return sorted(i for _, i in lots[:limit])


class _ProblemLoader:
    def __init__(
        self, split: str, seed: int, limit: int | None, datasets: Mapping[str, HubDataset]
    ) -> None:
        self.split, self.seed, self.limit, self.datasets = split, seed, limit, datasets
        self.found = ProblemSet()
        self._seen: dict[str, str] = {}

    def add(self, name: str) -> None:
        hub = HubSource.parse(name, self.datasets)
        if name == "embedded":
            self._add_embedded()
        elif hub is not None and (hub.short_name or not _is_path(name)):
            self._add_hub(hub)
        elif _is_path(name):
            self._add_files(name)
        else:
            known = ["embedded", *self.datasets]
            raise InputError(
                f"no source {name!r}: expected {', '.join(known)}, org/name on the Hub, or a file."
                + suggest_names(name, known, limit=2, cutoff=0.5)
            )

    def _add_embedded(self) -> None:
        made = make_problems(self.split, self.limit or EMBEDDED_COUNT, self.seed)
        for row, problem in enumerate(made, start=1):
            self._keep(problem, "embedded", SourceRow(row, problem.to_row()), problem.id)
        self.found.source_refs.append(SourceRef("embedded", str(EMBEDDED_VERSION), self.split))

    def _add_files(self, name: str) -> None:
        files = data_files(name, self.split)
        self._parse(name, self._read(files))
        # Folders are this machine's business; the revision says which file it was.
        named = Path(name).resolve().name
        self.found.source_refs.append(SourceRef(named, files_revision(files), self.split))

    def _read(self, files: Sequence[Path]) -> Iterator[SourceRows]:
        root = _common_folder(files)
        for file in files:
            stated = split_in_path(Path(file.name))
            if stated and stated != self.split:
                told = f"{file} is named after split {stated}, but was read as {self.split}."
                self.found.warnings.append(told)
            records = list(read_records(file))
            if not records:
                raise InputError(f"{file}: empty. Expected {_format_descriptions()}.")
            yield str(file), file.relative_to(root).as_posix(), records

    def _add_hub(self, source: HubSource) -> None:
        commit, configs = load_hub(source, self.split)
        parts = [(label, source.repo.name, records) for label, records in configs]
        ids = self._parse(source.name, parts, source.expected.one_per_question)
        rows = sum(len(records) for _, records in configs)
        self.found.warnings += source.check(self.split, commit, rows, problems_digest(ids))
        self.found.source_refs.append(SourceRef(source.name, commit, self.split))

    def _parse(
        self, name: str, parts: Iterable[SourceRows], one_per_question: bool = False
    ) -> list[str]:
        """Keep the problems that are new, set other rows aside; return the ids of all problems."""
        before, ids, rows = len(self.found.quarantined), [], 0
        fields: set[str] = set()
        for where, source, records in parts:
            rows += len(records)
            gsm8k = is_gsm8k(records)
            for record in records:
                fields.update(record.fields)
                try:
                    problem = read_problem(record, source, self.split, gsm8k=gsm8k)
                except UnusableRowError as reason:
                    self.found.quarantined.append(quarantine_row(where, record, str(reason)))
                    continue
                ids.append(problem.id)
                key = digest("question", problem.question) if one_per_question else problem.id
                self._keep(problem, where, record, key)
        if not rows:
            raise InputError(
                f"{name}: split {self.split} is empty. Expected {_format_descriptions()}."
            )
        if not ids:
            first = self.found.quarantined[before]
            raise InputError(
                f"{name}: none of its {rows} rows is a problem. Fields found: "
                f"{', '.join(sorted(fields)[:20]) or 'none'}. Expected {_format_descriptions()}. "
                f"First row set aside, {first.row}: {first.reason}."
            )
        return ids

    def _keep(self, problem: Problem, where: str, record: SourceRow, key: str) -> None:
        if key in self._seen:
            reason = f"duplicate: {self._seen[key]}"
            self.found.quarantined.append(quarantine_row(where, record, reason))
        else:
            self._seen[key] = f"{where} row {record.row_number}"
            self.found.problems.append(problem)


def quarantine_row(source: str, record: SourceRow, reason: str) -> QuarantinedRow:
    """Describe a row that is set aside."""
    return QuarantinedRow(
        source, record.row_number, reason, record.text.encode(errors="replace").decode()
    )


def problems_digest(ids: Sequence[str]) -> str:
    """Digest a set of problems by their ids, in whatever order they come."""
    return digest("problems", sorted(ids))


def _is_path(name: str) -> bool:
    known = Path(name).suffix.lower() in DATA_SUFFIXES
    return known or is_path(name) or any(sign in name for sign in "*?[")


def files_revision(files: Sequence[Path]) -> str:
    """Return ``sha256:…`` of a file, or of several files and their names below one folder."""
    if len(files) == 1:
        return f"sha256:{file_sha256(files[0])}"
    root = _common_folder(files)
    listed = [(str(file.relative_to(root)), file_sha256(file)) for file in files]
    return "sha256:" + hashlib.sha256(canonical_json(listed).encode()).hexdigest()


def _common_folder(files: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([file.parent for file in files]))


def _format_descriptions() -> str:
    return "one of: " + "; ".join(form.description for form in PROBLEM_FORMATS)
