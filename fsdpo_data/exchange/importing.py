"""Step-annotated rows of other people become a file of ours.

What is imported is no sealed dataset, for nobody can say how it was sampled: it is a file of
``prompt``, ``completions`` and ``labels``, which ``fsdpo-train prm`` reads, with a manifest beside
it.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data import __version__
from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.row_files import SourceRow, read_records, replace_surrogates
from fsdpo_data.exchange.step_label_readers import (
    STEP_LABEL_READERS,
    InvalidStepRowError,
    LabelledSolution,
)
from fsdpo_data.models.prompts import Template, get_template


@dataclass(slots=True)
class ImportResult:
    """What an import wrote."""

    read: int = 0  #: Rows of the source.
    rows: int = 0  #: Rows written; a row of PRM800K or Step-DPO gives several.
    #: Steps by whether their label is for right.
    steps: Counter[bool] = field(default_factory=Counter)
    #: Rows that cannot be read, with the reason.
    set_aside: list[dict[str, Any]] = field(default_factory=list)


def import_rows(source: Path, name: str, out: Path, template: str = "problem") -> ImportResult:
    """Read ``source`` and write ``out``; beside it a manifest, and the rows that cannot be read.

    ``template`` makes prompts of problems; formats that hold prompts keep theirs.

    Raises:
        InputError: if there is no such format, file or template, ``out`` is taken, or no row can
            be read.
        StoreError: if the disk fails.
    """
    if name not in STEP_LABEL_READERS:
        raise unknown_name_error("source", name, STEP_LABEL_READERS)
    if out.suffix != ".jsonl" or out.exists():
        raise InputError("expected a new file ending in .jsonl.", field="out", value=out)
    style, found = get_template(template), ImportResult()
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(out) as file:
            for record in read_records(source):
                found.read += 1
                for solution in _solutions(record, name, found):
                    found.rows += 1
                    found.steps.update(label >= 0.5 for label in solution.labels)
                    row = json.dumps(_row(solution, style), ensure_ascii=False)
                    file.write(row.encode() + b"\n")
            if not found.rows:
                first = f" First: {found.set_aside[0]['reason']}." if found.set_aside else ""
                raise InputError(
                    f"{source}: none of its {found.read} rows is of the form {name}.{first}"
                )
            # The rows get their name last: without it, an import that was stopped begins anew.
            write_atomic(
                out.with_suffix(".manifest.json"), _provenance_json(source, name, style, found)
            )
            if found.set_aside:
                aside = (json.dumps(row, ensure_ascii=True) + "\n" for row in found.set_aside)
                write_atomic(quarantine(out), "".join(aside).encode())
    return found


def quarantine(out: Path) -> Path:
    """Return where the rows go that cannot be read."""
    return out.with_suffix(".quarantine.jsonl")


def _provenance_json(source: Path, name: str, template: Template, found: ImportResult) -> bytes:
    """Return what stands beside the rows: where they are from, and what their labels mean."""
    said = {
        "made_by": f"fsdpo {__version__}",
        "source": {"name": source.name, "revision": f"sha256:{file_sha256(source)}"},
        "format": name,
        "labels": STEP_LABEL_READERS[name].labels,
        "loses": STEP_LABEL_READERS[name].loses,
        "template": template.name,
        "rows": {"read": found.read, "written": found.rows, "set_aside": len(found.set_aside)},
        "steps": {"right": found.steps[True], "wrong": found.steps[False]},
    }
    return json.dumps(said, indent=2, ensure_ascii=False).encode() + b"\n"


def _solutions(record: SourceRow, name: str, found: ImportResult) -> list[LabelledSolution]:
    """Read one row; set it aside if it cannot be."""
    reason = record.error
    if not reason:
        try:
            if made := [_storable(each) for each in STEP_LABEL_READERS[name].read(record.fields)]:
                return made
            reason = "no step in it has a label"
        except InvalidStepRowError as error:
            reason = str(error)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"not of the form {name} ({type(error).__name__}: {error})"
    found.set_aside.append({"row": record.row_number, "reason": reason, "raw": record.text})
    return []


def _storable(solution: LabelledSolution) -> LabelledSolution:
    """Return a solution whose texts are texts that a file can hold, and say something."""
    for text in (solution.problem, solution.answer, *solution.steps):
        if not isinstance(text, str):
            raise InvalidStepRowError(f"{text!r} where text is expected")
        if text != replace_surrogates(text):
            raise InvalidStepRowError("the text holds half a surrogate pair, which is no character")
    if not all(text.strip() for text in (solution.problem, *solution.steps)):
        raise InvalidStepRowError("the problem or a step is blank")
    return solution


def _row(solution: LabelledSolution, template: Template) -> dict[str, Any]:
    steps, labels = list(solution.steps), list(solution.labels)
    row: dict[str, Any] = {"prompt": solution.problem, "completions": steps, "labels": labels}
    if not solution.is_rendered:
        row["prompt"] = template.render(solution.problem)
        row["completions"] = [*(step + "\n" for step in steps[:-1]), steps[-1]]  # joined: a text
        row |= {"problem": solution.problem, "answer": solution.answer}
    if solution.ratings is not None:
        row["ratings"] = list(solution.ratings)
    return row
