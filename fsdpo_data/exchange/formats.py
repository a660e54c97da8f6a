"""Other people's formats, row by row: what each says of a pair or a solution, and what it loses."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.core.toml_tables import TomlTable, fill_placeholders
from fsdpo_data.pairs.statistics import find_first_difference

Row = dict[str, Any]

_MARKER = re.compile(r"Step \d+:")
MATH_SHEPHERD_TAG = "ки"  #: Math-Shepherd's mark after each step.


class NotExportableError(ValueError):
    """A row that the format has no words for; the message is the reason it is left out."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format to export to."""

    config: Literal["pairs", "solutions"]  #: The config whose rows it is made of.
    file: str  #: Name of the file; ``.json`` is one list, ``.jsonl`` a row a line.
    reader: str  #: Who reads it, and how.
    loses: str  #: What does not come back.
    #: Takes a row of that config, with ``question``, ``gold``, ``source`` and ``model`` beside it,
    #: and returns the row of the format, or what of it ``row`` asks for and ours does not have.
    code: Callable[[Row], Row] | None = None
    row: Mapping[str, Any] = field(default_factory=dict)  #: The row, with ``{field}`` for values.
    labelled: bool = False  #: Whether only solutions with labels of their steps are meant.
    outcomes: Sequence[str] = OUTCOMES  #: Those of the solutions that are meant.
    #: Further files, as JSON values by name.
    extra: Mapping[str, Any] = field(default_factory=dict)

    def selects(self, row: Row) -> bool:
        """Whether a row is one of those to convert."""
        if self.config == "pairs":
            return True
        labelled = row["labels"] is not None and bool(row["completions"])
        return row["outcome"] in self.outcomes and (labelled or not self.labelled)

    def convert(self, row: Row) -> Row:
        """Return the row of the format; NotExportableError if it has no words for it."""
        made = self.code(row) if self.code else {}
        if not self.row:
            return made
        if self.config == "solutions":
            text = "".join(row["completions"])
            row = {**row, "text": text, "correct": row["outcome"] == "correct"}
        found: Row = fill_placeholders(self.row, {**row, **made})
        return found


def openrlhf(row: Row) -> Row:
    """OpenRLHF's margin, which its reward trainer can use."""
    if row["chosen_rewards"] is None:
        raise NotExportableError("the chosen side has no rewards, so there is no margin")
    means = [sum(row[side]) / len(row[side]) for side in ("chosen_rewards", "rejected_rewards")]
    return {"margin": means[0] - means[1]}


def math_shepherd(row: Row) -> Row:
    """Math-Shepherd's two aligned texts: a mark after each step, and there a sign."""
    if any(MATH_SHEPHERD_TAG in text for text in (row["question"], *row["completions"])):
        raise NotExportableError(f"the text holds {MATH_SHEPHERD_TAG}, the mark between steps")
    if "Step 1:" in row["question"]:
        raise NotExportableError("the question holds the number by which the first step is known")
    numbered = [
        (step if step.startswith(f"Step {k}:") else f"Step {k}: {step}", label)
        for k, (step, label) in enumerate(_labelled_steps(row), start=1)
    ]
    marked = "\n".join(f"{step} {MATH_SHEPHERD_TAG}" for step, _ in numbered)
    signed = "\n".join(f"{step} {'+' if label else '-'}" for step, label in numbered)
    head = row["question"] + " "
    return {"input": head + marked, "label": head + signed, "task": row["source"]}


def prm800k(row: Row) -> Row:
    """PRM800K's steps, one completion each, rated 1 or -1; and what ended the rating."""
    rated = [
        {
            "completions": [{"text": step, "rating": 1 if label else -1, "flagged": False}],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for step, label in _labelled_steps(row)
    ]
    ended = "solution" if all(row["labels"]) else "found_error"
    return {"rated": rated, "ended": ended, "unsaid": None}


def processbench(row: Row) -> Row:
    """ProcessBench's steps, and the index of the first wrong one, -1 for none."""
    first = next((k for k, label in enumerate(row["labels"]) if not label), -1)
    return {"steps": [step for step, _ in _labelled_steps(row)], "first_wrong": first}


def _labelled_steps(row: Row) -> list[tuple[str, bool]]:
    """Return (step without the space around it, label)."""
    steps = [step.strip() for step in row["completions"]]
    return list(zip(steps, row["labels"], strict=True))


def step_dpo(row: Row) -> Row:
    """Math-Step-DPO-10K's rows: shared first steps, then one step of each side.

    As published, the shared text ends with the marker of the step that differs, and the full texts
    go on from there.
    """
    shared, chosen, rejected = find_first_difference(row)
    if not chosen or not rejected:
        raise NotExportableError("one side is the beginning of the other, so no step differs")
    found = _MARKER.match(chosen)  # the "Step k:" that both begin with
    marker = found[0] if found and rejected.startswith(found[0]) else ""
    initial = "".join(row["chosen_steps"][:shared]) + marker
    return {
        "dataset": row["source"],
        "prompt": row["question"],
        "initial_reason_steps": initial,
        "chosen": chosen[len(marker) :].rstrip(),
        "rejected": rejected[len(marker) :].rstrip(),
        "full_chosen": row["chosen"][len(initial) :],
        "full_rejected": row["rejected"][len(initial) :],
        "answer": row["gold"],
    }


def unique_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield each row once; equal rows are those of one problem, which come together."""
    for _, some in groupby(rows, itemgetter("prompt")):
        yield from {tuple(row.values()): row for row in some}.values()


_CODE = {
    "openrlhf": openrlhf,
    "math-shepherd": math_shepherd,
    "prm800k": prm800k,
    "processbench": processbench,
    "step-dpo-10k": step_dpo,
}

#: By the name that ``export --to`` takes.
FORMATS = TomlTable(__file__, lambda name, **told: ExportFormat(code=_CODE.get(name), **told))
