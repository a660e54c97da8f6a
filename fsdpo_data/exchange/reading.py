"""The loop that reads the rows of files in the formats of other tools."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, read_records
from fsdpo_data.exchange.formats import ExchangeFormat
from fsdpo_data.exchange.response_formats import DocumentKey, Fields, RecordedResponse

#: Returns the format of a row, or raises an UnusableRowError.
FormatOfRow = Callable[[Fields], ExchangeFormat]


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row of a file, with its responses or with the reason why it cannot be used."""

    record: SourceRow  #: The row.
    #: The responses; empty for an unusable row, and for a row that repeats a document.
    responses: Sequence[RecordedResponse] = ()
    row_format: ExchangeFormat | None = None  #: The format of the row; None if it is unknown.
    document: DocumentKey | None = None  #: The document that other rows may repeat.
    error: str = ""  #: Reason why the row cannot be used; empty for a usable row.


def read_rows(
    records: Iterable[SourceRow], format_of_row: FormatOfRow, seen_documents: dict[str, str]
) -> Iterator[ReadRow]:
    """Read rows, usable or not.

    lm-evaluation-harness writes every document once per filter, with the same responses. Only rows
    with the filter of the first usable row count: another such row is another run.

    Args:
        records: The rows.
        format_of_row: Returns the format of a row.
        seen_documents: The filter that counts, by document and responses. The caller adds the
            document of each row whose responses it uses.
    """
    for record in records:
        try:
            if record.error:
                raise UnusableRowError(record.error)
            row_format = format_of_row(record.fields)
            document = row_format.document_key(record.fields)
            if document is not None and _is_repeated(document, seen_documents):
                yield ReadRow(record)
                continue
            responses = row_format.read_responses(record)
        except UnusableRowError as error:
            yield ReadRow(record, error=str(error))
            continue
        yield ReadRow(record, responses, row_format, document)


def _is_repeated(key: DocumentKey, seen_documents: Mapping[str, str]) -> bool:
    """Return whether a row has only another reading of responses that an earlier row has."""
    if key.responses not in seen_documents:
        return False
    return not key.reading or key.reading != seen_documents[key.responses]


def read_usable_rows(
    file: Path, format_of_row: FormatOfRow, expectation: str = ""
) -> Iterator[ReadRow]:
    """Read the rows of a file in which every row must be usable.

    Args:
        file: The file.
        format_of_row: Returns the format of a row.
        expectation: A sentence with the expected rows, for the error message.

    Raises:
        InputError: if a row or one of its responses cannot be used.
    """
    seen_documents: dict[str, str] = {}
    for row in read_rows(read_records(file), format_of_row, seen_documents):
        location = f"{file}, row {row.record.row_number}"
        if row.error:
            raise InputError(f"{location}: {row.error}. {expectation}".rstrip())
        for response in row.responses:
            if response.error:
                raise InputError(f"{location}, {response.series}: {response.error}.")
        if row.document is not None:
            seen_documents.setdefault(*row.document)
        yield row
