"""TabMWP: one JSON object of problems by id; a question is asked about a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import Record, read_records


def read(file: Path) -> Iterator[Record]:
    """Yield the problems of its own file, or the rows of a copy.

    Raises:
        InputError: if it cannot be read.
    """
    if file.suffix != ".json":
        yield from read_records(file)
        return
    try:
        problems = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not TabMWP's JSON ({error}). Fetch it again.") from None
    for number, fields in enumerate(problems.values(), start=1):
        yield Record(number, fields)


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask about the table, in the words of Qwen2.5-Math's harness."""
    title = f'regarding "{fields["table_title"]}" ' if fields.get("table_title") else ""
    table, asked = fields.get("table", ""), fields.get("question", "")
    question = f"Read the following table {title}and answer a question:\n{table}\n{asked}"
    if fields.get("choices"):
        question += f" Please select from the following options: {fields['choices']}"
    return {**fields, "question": question}
