"""Hooks of ASDiv: read its XML file, unify white space, and exclude rows with several answers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import read_file
from fsdpo_data.core.row_files import SourceRow, read_records


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Replace runs of white space by one space, because copies differ in white space.

    The 90 rows with several answers are not part of the benchmark; for them it returns None.
    """
    if ";" in str(fields.get("answer", "")):
        return None
    texts = {name: fields[name] for name in ("body", "question") if _is_text(fields.get(name))}
    return {**fields, **{name: " ".join(text.split()) for name, text in texts.items()}}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def read(file: Path) -> Iterator[SourceRow]:
    """Yield the rows of a copy in any file format, including the original XML.

    Raises:
        InputError: if the file cannot be parsed.
    """
    return _read_xml(file) if file.suffix.lower() == ".xml" else read_records(file)


def _read_xml(file: Path) -> Iterator[SourceRow]:
    """Yield the problems of the original XML file."""
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(read_file(file))
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(
            f"{file} is not the XML file of ASDiv ({error}). Download it again."
        ) from None
    for number, problem in enumerate(root.iter("Problem"), start=1):
        fields = {}
        for element in problem:
            name = element.tag.lower().replace("-", "_")
            fields[name] = (element.text or "").strip()
        yield SourceRow(number, fields)
