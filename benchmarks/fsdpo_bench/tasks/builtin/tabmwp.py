"""TabMWP: one JSON object of problems by id; a question is asked about a table."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.row_files import SourceRow, read_records


def read(file: Path) -> Iterator[SourceRow]:
    """Yield the problems of its own file, or the rows of a copy."""
    for record in read_records(file):
        problems = list(record.fields.values())
        if problems and all(isinstance(each, dict) for each in problems):
            yield from itertools.starmap(SourceRow, enumerate(problems, start=record.row_number))
        else:
            yield record


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask about the table, in the words of Qwen2.5-Math's harness."""
    title = f'regarding "{fields["table_title"]}" ' if fields.get("table_title") else ""
    table, asked = fields.get("table", ""), fields.get("question", "")
    question = f"Read the following table {title}and answer a question:\n{table}\n{asked}"
    if fields.get("choices"):
        question += f" Please select from the following options: {fields['choices']}"
    return {**fields, "question": question}
