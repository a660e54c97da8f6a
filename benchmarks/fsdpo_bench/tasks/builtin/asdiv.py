"""ASDiv: its own file is XML and holds more than the benchmark; copies differ in white space."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import SourceRow, read_records


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Set runs of white space as one space; the 90 rows with several answers are no part of it."""
    if ";" in str(fields.get("answer", "")):
        return None
    texts = {key: fields[key] for key in ("body", "question") if isinstance(fields.get(key), str)}
    return {**fields, **{key: " ".join(text.split()) for key, text in texts.items()}}


def read(file: Path) -> Iterator[SourceRow]:
    """Yield the rows of any copy, the original XML included.

    Raises:
        InputError: if it is not what its name says.
    """
    return _xml(file) if file.suffix.lower() == ".xml" else read_records(file)


def _xml(file: Path) -> Iterator[SourceRow]:
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(file.read_bytes())
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(f"{file}: not ASDiv's XML ({error}). Fetch it again.") from None
    for number, problem in enumerate(root.iter("Problem"), start=1):
        parts = ((part.tag.lower().replace("-", "_"), part.text or "") for part in problem)
        yield SourceRow(number, {name: text.strip() for name, text in parts})
