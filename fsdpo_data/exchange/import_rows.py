"""Other people's step labels as rows to train a reward model on.

What is imported is no sealed dataset, for nobody can say how it was sampled: it is a file of
``prompt``, ``completions`` and ``labels``, which ``fsdpo-train prm`` reads.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, nearest
from fsdpo_data.core.files import explained, whole, write_atomic
from fsdpo_data.core.rows import RAW_LIMIT, Record, read_records
from fsdpo_data.exchange.stepwise import READERS, NotStepwise, Stepwise
from fsdpo_data.models.prompts import Template, get_template


@dataclass(slots=True)
class Imported:
    """What an import wrote."""

    read: int = 0  #: Rows of the source.
    rows: int = 0  #: Rows written; a row of PRM800K or Step-DPO gives several.
    #: Steps by whether their label is for right.
    steps: Counter[bool] = field(default_factory=Counter)
    #: Rows that cannot be read, with the reason.
    set_aside: list[dict[str, Any]] = field(default_factory=list)


def import_rows(source: Path, name: str, out: Path, template: str = "problem") -> Imported:
    """Read ``source`` and write ``out``, and beside it the rows that cannot be read.

    ``template`` makes prompts of problems; formats that hold prompts keep theirs.

    Raises:
        InputError: if there is no such format, file or template, ``out`` is taken, or no row can
            be read.
        StoreError: if the disk fails.
    """
    if name not in READERS:
        raise InputError(
            f"expected one of {', '.join(READERS)}.{nearest(name, READERS)}",
            field="source",
            value=name,
        )
    if out.suffix != ".jsonl" or out.exists():
        raise InputError("expected a new file ending in .jsonl.", field="out", value=out)
    style, found = get_template(template), Imported()
    with explained(out.parent, saved=0):
        out.parent.mkdir(parents=True, exist_ok=True)
        with whole(out) as file:
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
        if found.set_aside:
            aside = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in found.set_aside)
            write_atomic(quarantine(out), aside.encode())
    return found


def quarantine(out: Path) -> Path:
    """Return where the rows go that cannot be read."""
    return out.with_suffix(".quarantine.jsonl")


def _solutions(record: Record, name: str, found: Imported) -> list[Stepwise]:
    """Read one row; set it aside if it cannot be."""
    reason = record.broken
    if not reason:
        try:
            return list(READERS[name].read(record.fields))
        except NotStepwise as error:
            reason = str(error)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"not of the form {name} ({type(error).__name__}: {error})"
    raw = record.raw or json.dumps(dict(record.fields), ensure_ascii=False, default=str)
    found.set_aside.append({"row": record.row, "reason": reason, "raw": raw[:RAW_LIMIT]})
    return []


def _row(solution: Stepwise, template: Template) -> dict[str, Any]:
    prompt, steps, more = solution.problem, list(solution.steps), {}
    if not solution.rendered:
        prompt = template.render(solution.problem)
        steps = [*(step + "\n" for step in steps[:-1]), steps[-1]]  # joined they are a text
        more = {"problem": solution.problem, "answer": solution.answer}
    row: dict[str, Any] = {"prompt": prompt, "completions": steps, "labels": list(solution.labels)}
    row |= more
    if solution.ratings is not None:
        row["ratings"] = list(solution.ratings)
    return row
