"""The table of formats of other tools, and the recognition of a row's format.

A format is registered once, in ``formats.toml``, with all that is known about it: how its recorded
responses or its step labels are read, and how a dataset is written to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.errors import unknown_name_error
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.exchange.export_formats import ExportFormat
from fsdpo_data.exchange.response_formats import (
    DEFAULT_RESPONSE_READING,
    ResponseFormat,
    ResponseReading,
)
from fsdpo_data.exchange.step_label_formats import StepLabelFormat


@dataclass(frozen=True, slots=True)
class ExchangeFormat:
    """A format of another tool."""

    responses: ResponseFormat | None = None  #: Reads recorded responses; None if it has none.
    step_labels: StepLabelFormat | None = None  #: Reads step labels; None if it has none.
    export: ExportFormat | None = None  #: Writes datasets; None if the format is only read.


def _make_format(
    name: str,
    responses: Mapping[str, Any] | None = None,
    step_labels: Mapping[str, Any] | None = None,
    export: Mapping[str, Any] | None = None,
) -> ExchangeFormat:
    """Make a format from its table."""
    return ExchangeFormat(
        responses=None if responses is None else ResponseFormat(**responses),
        step_labels=None if step_labels is None else StepLabelFormat.from_toml(name, step_labels),
        export=None if export is None else ExportFormat.from_toml(export),
    )


#: All formats by name.
FORMATS = TomlTable(__file__, _make_format)


def response_formats(*, requires_gold: bool = False) -> dict[str, ResponseFormat]:
    """Return the formats of recorded responses by name, or only those with a gold answer."""
    return {
        name: entry.responses
        for name, entry in FORMATS.items()
        if entry.responses is not None and (entry.responses.gold or not requires_gold)
    }


def step_label_formats() -> dict[str, StepLabelFormat]:
    """Return the formats of step labels by name."""
    return {name: entry.step_labels for name, entry in FORMATS.items() if entry.step_labels}


def export_formats() -> dict[str, ExportFormat]:
    """Return the formats that ``export`` writes, by name."""
    return {name: entry.export for name, entry in FORMATS.items() if entry.export}


def get_step_label_format(name: str) -> StepLabelFormat:
    """Return a format of step labels; InputError if there is none with this name."""
    formats = step_label_formats()
    if name not in formats:
        raise unknown_name_error("source", name, formats)
    return formats[name]


def matching_formats(
    fields: Mapping[str, Any], formats: Mapping[str, ResponseFormat | StepLabelFormat]
) -> Iterator[str]:
    """Yield the names of the formats that read a row, in the order of their table."""
    return (name for name, entry in formats.items() if entry.matches(fields))


def find_response_format(
    fields: Mapping[str, Any],
    reading: ResponseReading = DEFAULT_RESPONSE_READING,
    *,
    requires_gold: bool = False,
) -> ResponseFormat | None:
    """Return the format of a row of recorded responses, or None if no format matches.

    Args:
        fields: The fields of the row.
        reading: The fields that the user names. A row without a format has the plain one then.
        requires_gold: Consider only formats with a gold answer.
    """
    formats = response_formats(requires_gold=requires_gold)
    names = {
        "question": reading.question_field,
        "gold": reading.gold_field,
        "responses": reading.response_field,
    }
    default_name = "plain" if any(names.values()) else None
    name = next(matching_formats(fields, formats), default_name)
    return formats[name].with_fields(**names) if name is not None else None


def unknown_format_message(fields: Mapping[str, Any], requires_gold: bool = False) -> str:
    """Return an error message with the fields of a row and the fields of the known formats."""
    expected = "; ".join(
        f"{entry.publisher} ({', '.join(entry.needs)})"
        for entry in response_formats(requires_gold=requires_gold).values()
    )
    return f"fields {', '.join(sorted(map(str, fields)))}. Expected one of: {expected}"
