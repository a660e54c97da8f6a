"""Hooks of TabMWP: read its file of problems by id, and put the table before the question."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.row_files import SourceRow, read_records


def read(file: Path) -> Iterator[SourceRow]:
    """Yield the problems of the original file (one JSON object), or the rows of a copy."""
    for record in read_records(file):
        problems = list(record.fields.values())
        if problems and all(isinstance(problem, dict) for problem in problems):
            for row_number, problem in enumerate(problems, start=record.row_number):
                yield SourceRow(row_number, problem)
        else:
            yield record


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the table before the question, in the wording of the Qwen2.5-Math evaluation."""
    title = f'regarding "{fields["table_title"]}" ' if fields.get("table_title") else ""
    table = fields.get("table", "")
    question = f"Read the following table {title}and answer a question:\n{table}\n"
    question += str(fields.get("question", ""))
    if fields.get("choices"):
        question += f" Please select from the following options: {fields['choices']}"
    return {**fields, "question": question}
