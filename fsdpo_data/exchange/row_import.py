"""The import of rows: opens their files, reads every row, and quarantines the unusable ones."""

import glob
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import SourceRef, canonical_json, json_sha256
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, data_files, data_suffix, read_records
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.exchange.formats import ExchangeFormat
from fsdpo_data.exchange.reading import ReadRow, read_rows
from fsdpo_data.exchange.response_formats import Fields, RecordedResponse
from fsdpo_data.exchange.step_scores import UnusableResponseError
from fsdpo_data.problems.hub_datasets import DATASETS, HubSource, load_hub
from fsdpo_data.problems.load import QuarantinedRow, files_revision, quarantine_row
from fsdpo_data.stages.import_labels import ImportCounts
from fsdpo_data.stages.sample import BuildSettings


class ImportedFile(NamedTuple):
    """A file of an import, or a config of a dataset on the Hub."""

    location: str  #: Its path or name in the list of quarantined rows.
    name: str  #: Its name without folder and suffix.
    rows: Iterable[SourceRow]  #: Its rows.


class ImportSource(NamedTuple):
    """Files, or a dataset on the Hub."""

    location: str  #: Their path, pattern or name, for messages.
    ref: SourceRef  #: Their name and revision.
    files: Sequence[ImportedFile]  #: The files in a fixed order.


def open_source(name: str | Path, split: str) -> ImportSource:
    """Open files, or a split of a dataset on the Hub.

    Args:
        name: A file, a directory, a glob pattern, or ``org/name[@revision][:config]``.
        split: The split.

    Raises:
        InputError: if a file cannot be read, or the dataset does not exist.
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    path = Path(name)
    is_local = path.exists() or bool(data_suffix(path)) or glob.has_magic(str(name))
    hub_source = None if is_local else HubSource.parse(str(name), DATASETS)
    if hub_source is not None:
        commit, configs = load_hub(hub_source, split)
        ref = SourceRef(hub_source.name, commit, split)
        rows = chain.from_iterable(config.rows for config in configs)
        return ImportSource(ref.name, ref, [ImportedFile(ref.name, ref.name, rows)])
    paths = data_files(str(name), split)
    try:
        revision = files_revision(paths)
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error}).") from None
    files = [ImportedFile(str(file), file.stem, read_records(file)) for file in paths]
    return ImportSource(str(name), SourceRef(path.name, revision, split), files)


@dataclass(slots=True)
class ImportResult:
    """The counts of an import, and its quarantined rows."""

    n_rows: int = 0  #: Number of rows in the source.
    #: Number of imported solutions; PRM800K and Step-DPO give several per row.
    n_solutions: int = 0
    #: Number of steps, by whether their label means right (0.5 or more).
    steps: Counter[bool] = field(default_factory=Counter)
    quarantined: list[QuarantinedRow] = field(default_factory=list)  #: The unusable rows.
    #: Number of quarantined rows of which other responses are imported.
    n_partly_quarantined: int = 0


class RowImport(ABC):
    """An import of rows with responses or step labels.

    Attributes:
        source_refs: The sources of the problems, if the rows themselves do not have the problems.
        stages: The stages that follow the import.
    """

    source_refs: Sequence[SourceRef] = ()
    stages: Sequence[Stage] = ()

    def __init__(self) -> None:
        """Start with no rows."""
        self.result = ImportResult()
        self._text_hash = hashlib.sha256()  # of the stored responses, in order

    def read(self, source: ImportSource) -> None:
        """Read all rows, store their responses, and quarantine what cannot be used.

        Raises:
            InputError: if a file cannot be read, or no row is usable.
        """
        for file in source.files:
            seen_documents: dict[str, str] = {}  # of the file, because another one is another run
            for row in read_rows(file.rows, self.format_of_row, seen_documents):
                self.result.n_rows += 1
                n_stored = self.result.n_solutions
                n_quarantined = len(self.result.quarantined)
                for reason in self._store_row(row, file):
                    quarantined = quarantine_row(file.location, row.record, reason)
                    self.result.quarantined.append(quarantined)
                if self.result.n_solutions == n_stored:
                    continue
                self.result.n_partly_quarantined += len(self.result.quarantined) > n_quarantined
                if row.document is not None:
                    seen_documents.setdefault(*row.document)
        if not self.result.n_solutions:
            raise self.no_rows_error(source)

    def _store_row(self, row: ReadRow, file: ImportedFile) -> Iterator[str]:
        """Store the responses of a row; yield the reasons why some of them cannot be used."""
        if row.error:
            yield row.error
        for response in row.responses:
            assert row.row_format is not None
            try:
                if self.store(response, row.row_format, file):
                    self.result.n_solutions += 1
                    text = canonical_json([response.question, response.completion.text])
                    self._text_hash.update(text.encode())
            except UnusableResponseError as reason:
                yield f"{reason} ({response.series})" if response.series else str(reason)
            except UnusableRowError as reason:
                yield str(reason)
                return

    @abstractmethod
    def format_of_row(self, fields: Fields) -> ExchangeFormat:
        """Return the format of a row; UnusableRowError if it is unknown."""

    @abstractmethod
    def store(
        self, response: RecordedResponse, row_format: ExchangeFormat, file: ImportedFile
    ) -> bool:
        """Store a response; return False if the options leave it out.

        Raises:
            UnusableResponseError: if this response cannot be used, and others of the row can.
            UnusableRowError: if no response of the row can be used.
        """

    @abstractmethod
    def no_rows_error(self, source: ImportSource) -> InputError:
        """Return the error for a source without a usable row."""

    @abstractmethod
    def make_spec(self, revision: str, n_samples: int) -> BuildSettings:
        """Return the spec of the dataset, after all rows are read.

        Args:
            revision: Digest of the files, or commit of the dataset.
            n_samples: Largest number of solutions of a problem.
        """

    def identify_texts(self, revision: str) -> str:
        """Return a digest of the files and of all imported texts, after all rows are read.

        The id of a solution contains its position among the solutions of its problem. If options
        decide which texts are imported, the digest of the files does not identify the text at a
        position.

        Args:
            revision: Digest of the files, or commit of the dataset.
        """
        return json_sha256([revision, self._text_hash.hexdigest()])

    def warnings(self) -> Iterator[str]:
        """Yield what a user may overlook in the rows."""
        yield from ()

    @property
    def label_counts(self) -> ImportCounts | None:
        """The counts of the step labels; None without step labels."""
        return None

    @property
    def quarantined(self) -> list[QuarantinedRow]:
        """All rows that cannot be used, also those of the problems."""
        return self.result.quarantined
