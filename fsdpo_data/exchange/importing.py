"""Import of published step labels into a file for ``fsdpo-train prm``.

The output is a training file, JSONL with ``prompt``, ``completions`` and ``labels``. A manifest is
next to it. :mod:`.step_label_dataset` seals the same labels as a dataset.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.identity import RELEASE, file_sha256
from fsdpo_data.core.row_errors import describe_row_error
from fsdpo_data.core.row_files import SourceRow, read_records, replace_surrogates
from fsdpo_data.exchange.step_label_readers import (
    STEP_LABEL_READERS,
    InvalidStepRowError,
    LabelledSolution,
    StepLabelReader,
)
from fsdpo_data.models.prompts import Template, get_template


@dataclass(slots=True)
class ImportResult:
    """The counts of an import, and its quarantined rows."""

    read: int = 0  #: Number of rows in the source.
    rows: int = 0  #: Number of written rows; PRM800K and Step-DPO give several per source row.
    #: Number of steps, by whether their label means right (0.5 or more).
    steps: Counter[bool] = field(default_factory=Counter)
    #: Unreadable rows: number, reason and text of each.
    quarantined: list[dict[str, Any]] = field(default_factory=list)


def import_rows(
    source: Path,
    name: str,
    out: Path,
    template: str = "problem",
    reader: StepLabelReader | None = None,
) -> ImportResult:
    """Convert the step labels in ``source`` to the new file ``out``.

    Also writes a manifest and the quarantined rows, next to ``out``.

    Args:
        source: File with rows of another format.
        name: Name of the format, from :data:`STEP_LABEL_READERS`.
        out: New ``.jsonl`` file.
        template: Template that turns problems into prompts. Formats with prompts keep theirs.
        reader: The reader of a format that has no name in that table; None for a format of it.

    Raises:
        InputError: If the format, the file or the template does not exist, if ``out`` exists, or if
            no row is readable.
        StoreError: If the disk fails.
    """
    reader = reader or step_label_reader(name)
    if out.suffix != ".jsonl" or out.exists():
        raise InputError("expected a new file ending in .jsonl.", field="out", value=out)
    prompt_template = get_template(template)
    result = ImportResult()
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(out) as file:
            for solution in read_solutions(source, name, reader, result):
                row = json.dumps(make_row(solution, prompt_template), ensure_ascii=False)
                file.write(row.encode() + b"\n")
            if not result.rows:
                raise no_rows_error(source, name, result)
            # open_atomic renames the rows last, so an interrupted import starts again.
            write_atomic(
                out.with_suffix(".manifest.json"),
                _provenance_json(source, name, reader, prompt_template, result),
            )
            if result.quarantined:
                lines = (json.dumps(row, ensure_ascii=True) + "\n" for row in result.quarantined)
                write_atomic(quarantine_path(out), "".join(lines).encode())
    return result


def step_label_reader(name: str) -> StepLabelReader:
    """Return the reader of a format; InputError if there is none with this name."""
    if name not in STEP_LABEL_READERS:
        raise unknown_name_error("source", name, STEP_LABEL_READERS)
    return STEP_LABEL_READERS[name]


def read_solutions(
    source: Path, name: str, reader: StepLabelReader, result: ImportResult
) -> Iterator[LabelledSolution]:
    """Yield the solutions of a file, and count them in ``result``.

    Args:
        source: The file.
        name: Name of the format, for the reasons of quarantined rows.
        reader: The reader of the format.
        result: Receives the counts.

    Raises:
        InputError: if the file cannot be read.
    """
    for record in read_records(source):
        result.read += 1
        for solution in _read_row(record, name, reader, result):
            result.rows += 1
            result.steps.update(label >= 0.5 for label in solution.labels)
            yield solution


def quarantine_path(out: Path) -> Path:
    """Return the path of the quarantined rows of an import to ``out``."""
    return out.with_suffix(".quarantine.jsonl")


def no_rows_error(source: Path, name: str, result: ImportResult) -> InputError:
    """Return the error for a file without a readable row."""
    message = f"{source}: none of its {result.read} rows has the format {name}."
    if result.quarantined:
        message += f" The first problem: {result.quarantined[0]['reason']}."
    return InputError(message)


def _provenance_json(
    source: Path, name: str, reader: StepLabelReader, template: Template, result: ImportResult
) -> bytes:
    """Return the manifest: the source of the rows, and the meaning of their labels."""
    manifest = {
        "made_by": RELEASE,
        "source": {"name": source.name, "revision": f"sha256:{file_sha256(source)}"},
        "format": name,
        "labels": reader.label_meaning,
        "loses": reader.drops,  # the fields of the source that are not imported
        "template": template.name,
        "rows": {
            "read": result.read,
            "written": result.rows,
            "set_aside": len(result.quarantined),
        },
        "steps": {"right": result.steps[True], "wrong": result.steps[False]},
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n"


def _read_row(
    record: SourceRow, name: str, reader: StepLabelReader, result: ImportResult
) -> list[LabelledSolution]:
    """Read the solutions of one row; quarantine a row without the format in ``result``."""
    reason = record.error
    if not reason:
        try:
            solutions = []
            for solution in reader.read(record.fields):
                _check_texts(solution)
                solutions.append(solution)
            if solutions:
                return solutions
            reason = "no step in the row has a label"
        except InvalidStepRowError as error:
            reason = str(error)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"the row does not have the format {name}: {describe_row_error(error)}"
    result.quarantined.append({"row": record.row_number, "reason": reason, "raw": record.text})
    return []


def _check_texts(solution: LabelledSolution) -> None:
    """Raise InvalidStepRowError if a text is blank, or cannot be written to a file."""
    for text in (solution.problem, solution.answer, *solution.steps):
        if not isinstance(text, str):
            raise InvalidStepRowError(f"expected a text, found {text!r}")
        if text != replace_surrogates(text):
            raise InvalidStepRowError("the text contains half a surrogate pair, which is invalid")
    if not all(text.strip() for text in (solution.problem, *solution.steps)):
        raise InvalidStepRowError("the problem or a step is blank")


def make_row(solution: LabelledSolution, template: Template) -> dict[str, Any]:
    """Return the row of a training file for one solution."""
    steps = list(solution.steps)
    row: dict[str, Any] = {
        "prompt": solution.problem,
        "completions": steps,
        "labels": list(solution.labels),
    }
    if not solution.is_rendered:
        row["prompt"] = template.render(solution.problem)
        # Newlines separate the steps, so that the joined steps are the text of the solution.
        row["completions"] = [*(step + "\n" for step in steps[:-1]), steps[-1]]
        row |= {"problem": solution.problem, "answer": solution.answer}
    if solution.ratings is not None:
        row["ratings"] = list(solution.ratings)
    return row
