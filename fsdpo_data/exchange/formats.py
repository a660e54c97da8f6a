"""The table of formats of other tools, and the recognition of a row's format.

A format is registered once, in ``formats.toml``, with all that is known about it: what its rows
have, how they are read, and how a dataset is written to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsdpo_data.core.errors import unknown_name_error
from fsdpo_data.core.row_errors import UnusableRowError, describe_row_error
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.exchange.export_formats import ExportFormat
from fsdpo_data.exchange.response_formats import (
    DEFAULT_RESPONSE_READING,
    DocumentKey,
    Fields,
    RecordedResponse,
    ResponseFields,
    ResponseReading,
)
from fsdpo_data.exchange.step_label_formats import StepLabelFields

#: Errors of the readers of fields about a row of another format.
_FORMAT_ERRORS = (LookupError, TypeError, AttributeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFormat:
    """A format of another tool: what its rows have, and what is written to it."""

    name: str  #: Name of the format, which is the name of its table.
    responses: ResponseFields | None = None  #: Recorded responses; None if the rows have none.
    step_labels: StepLabelFields | None = None  #: Step labels; None if the rows have none.
    export: ExportFormat | None = None  #: Writes datasets; None if the format is only read.

    def matches(self, fields: Fields) -> bool:
        """Return whether a row has this format."""
        content = self.responses or self.step_labels
        return content is not None and content.matches(fields)

    def document_key(self, fields: Fields) -> DocumentKey | None:
        """Return a key of the document that rows repeat; None if rows do not repeat."""
        return None if self.responses is None else self.responses.document_key(fields)

    def read_responses(self, record: SourceRow) -> list[RecordedResponse]:
        """Return the responses of a row; with step labels, its solutions.

        Raises:
            UnusableRowError: if the row does not have the format, with the reason.
        """
        if record.error:
            raise UnusableRowError(record.error)
        content = self.responses or self.step_labels
        assert content is not None
        try:
            responses = [
                replace(response, row=record.row_number) for response in content.read(record.fields)
            ]
        except UnusableRowError:
            raise
        except _FORMAT_ERRORS as error:
            raise UnusableRowError(
                f"the row does not have the format {self._title}: {describe_row_error(error)}"
            ) from None
        if not responses and self.step_labels is not None:
            raise UnusableRowError("no step in the row has a label")
        if not responses:
            raise UnusableRowError(
                f"the row has no response; expected one in the format {self._title}"
            )
        return responses

    def as_published(self) -> "ExchangeFormat":
        """Return a format of step labels that keeps all steps, and their texts as in the row."""
        assert self.step_labels is not None
        return replace(self, step_labels=self.step_labels.as_published())

    @property
    def _title(self) -> str:
        """The name of the format in messages."""
        return self.name if self.responses is None else f"of {self.responses.publisher}"


def _make_format(
    name: str,
    responses: Mapping[str, Any] | None = None,
    step_labels: Mapping[str, Any] | None = None,
    export: Mapping[str, Any] | None = None,
) -> ExchangeFormat:
    """Make a format from its table."""
    return ExchangeFormat(
        name=name,
        responses=None if responses is None else ResponseFields(**responses),
        step_labels=None if step_labels is None else StepLabelFields.from_toml(name, **step_labels),
        export=None if export is None else ExportFormat.from_toml(export),
    )


#: All formats by name.
FORMATS = TomlTable(__file__, _make_format)


def response_formats(*, requires_gold: bool = False) -> dict[str, ExchangeFormat]:
    """Return the formats of recorded responses by name, or only those with a gold answer."""
    return {
        name: entry
        for name, entry in FORMATS.items()
        if entry.responses is not None and (entry.responses.gold or not requires_gold)
    }


def step_label_formats() -> dict[str, ExchangeFormat]:
    """Return the formats of step labels by name."""
    return {name: entry for name, entry in FORMATS.items() if entry.step_labels is not None}


def export_formats() -> dict[str, ExportFormat]:
    """Return the formats that ``export`` writes, by name."""
    return {name: entry.export for name, entry in FORMATS.items() if entry.export}


def get_step_label_format(name: str) -> ExchangeFormat:
    """Return a format of step labels; InputError if there is none with this name."""
    formats = step_label_formats()
    if name not in formats:
        raise unknown_name_error("source", name, formats)
    return formats[name]


def matching_formats(fields: Fields, formats: Mapping[str, ExchangeFormat]) -> Iterator[str]:
    """Yield the names of the formats that read a row, in the order of their table."""
    return (name for name, entry in formats.items() if entry.matches(fields))


def find_response_format(
    fields: Fields,
    reading: ResponseReading = DEFAULT_RESPONSE_READING,
    *,
    requires_gold: bool = False,
) -> ExchangeFormat:
    """Return the format of a row of recorded responses, with the fields that the user names.

    Args:
        fields: The fields of the row.
        reading: The fields that the user names. A row without a format has the plain one then.
        requires_gold: Consider only formats with a gold answer.

    Raises:
        UnusableRowError: if the row has no known format.
    """
    formats = response_formats(requires_gold=requires_gold)
    for name in matching_formats(fields, formats):
        return _with_reading(formats[name], reading)
    if reading.question_field or reading.gold_field or reading.response_field:
        return _with_reading(formats["plain"], reading)
    expected = "; ".join(
        f"{content.publisher} ({', '.join(content.needs)})"
        for content in (entry.responses for entry in formats.values())
        if content is not None
    )
    raise UnusableRowError(
        f"fields {', '.join(sorted(map(str, fields)))}. Expected one of: {expected}"
    )


def _with_reading(response_format: ExchangeFormat, reading: ResponseReading) -> ExchangeFormat:
    """Return a format with the fields that the user names."""
    assert response_format.responses is not None
    responses = response_format.responses.with_reading(reading)
    if responses is response_format.responses:
        return response_format
    return replace(response_format, responses=responses)
