"""Step-annotated rows of other people: a problem, its steps, and a label for each of them.

What is imported is no sealed dataset, for nobody can say how it was sampled: it is a file of
``prompt``, ``completions`` and ``labels``, which ``fsdpo-train prm`` reads.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, nearest
from fsdpo_data.core.files import explained, whole, write_atomic
from fsdpo_data.core.rows import RAW_LIMIT, Record, read_records
from fsdpo_data.exchange.formats import TAG
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.steps.segment import auto

_FIRST_STEP = re.compile(r"\s*Step 1:")
_LAST_MARKER = re.compile(r"Step\s+\d+:\s*\Z")


class NotStepwise(ValueError):
    """A row that cannot be read; the message is the reason it is set aside."""


@dataclass(frozen=True, slots=True)
class Stepwise:
    """A solution with one label per step."""

    problem: str  #: The question; the whole prompt where ``rendered``.
    answer: str  #: Its gold answer; empty where the format does not tell.
    steps: tuple[str, ...]  #: The steps, without the space around them; with it where ``rendered``.
    labels: tuple[float, ...]  #: Whether each is right, or how sure that is, from 0 to 1.
    #: -1, 0 or 1 for each, where the format tells more than the labels do.
    ratings: tuple[int, ...] | None = None
    rendered: bool = False  #: Whether the texts are ready to be learnt from as they are.


def from_trl(fields: Mapping[str, Any]) -> Iterator[Stepwise]:
    """TRL's stepwise supervision: prompt and steps stay as they are."""
    steps, labels = fields["completions"], fields["labels"]
    if not steps or len(steps) != len(labels):
        raise NotStepwise(f"{len(steps)} completions and {len(labels)} labels")
    for label in labels:
        if not isinstance(label, bool | int | float) or not 0 <= label <= 1:
            raise NotStepwise(f"label {label!r}, expected true, false or a number in [0, 1]")
    yield Stepwise(fields["prompt"], "", tuple(steps), tuple(labels), rendered=True)


def from_math_shepherd(fields: Mapping[str, Any]) -> Iterator[Stepwise]:
    """Math-Shepherd: the sign is read where the mark stands, for signs occur in sums too."""
    *marked, rest = fields["input"].split(TAG)
    signed, place, labels = fields["label"], 0, []
    for part in marked:
        sign = signed[place + len(part) : place + len(part) + 1]
        if signed[place : place + len(part)] != part or sign not in ("+", "-"):
            raise NotStepwise("input and label are not the same text")
        labels.append(sign == "+")
        place += len(part) + 1
    if rest.strip() or signed[place:].strip():
        raise NotStepwise("there is text after the last mark")
    first = _FIRST_STEP.search(marked[0]) if marked else None
    if first is None:
        raise NotStepwise('no "Step 1:" ends the problem')
    problem, marked[0] = marked[0][: first.start()], marked[0][first.start() :]
    yield Stepwise(problem, "", tuple(step.strip() for step in marked), tuple(labels))


def from_processbench(fields: Mapping[str, Any]) -> Iterator[Stepwise]:
    """ProcessBench: of the steps after the first wrong one nothing is known, so they are cut."""
    first, steps = fields["label"], fields["steps"]
    if not steps or not -1 <= first < len(steps):
        raise NotStepwise(f"label {first} of {len(steps)} steps")
    kept = steps if first == -1 else steps[: first + 1]
    labels = tuple(k != first for k in range(len(kept)))
    yield Stepwise(fields["problem"], "", tuple(step.strip() for step in kept), labels)


def from_prm800k(fields: Mapping[str, Any]) -> Iterator[Stepwise]:
    """PRM800K: the chain that the labeller followed, and every other next step on its own.

    A rating of 0, neutral, counts as right, as in *Let's Verify Step by Step*; the ratings are kept
    beside the labels. A step that a person wrote is right. The steps before an alternative are told
    again with each, so they weigh more than it.
    """
    question = fields["question"]
    problem, answer = question["problem"], str(question.get("ground_truth_answer") or "")
    chain: list[tuple[str, int]] = []
    for step in fields["label"]["steps"]:
        others, following = _next_steps(step)
        for other in others:
            yield _rated(problem, answer, [*chain, other])
        if following is None:
            return
        chain.append(following)
    if chain:
        yield _rated(problem, answer, chain)


def _next_steps(step: Mapping[str, Any]) -> tuple[list[tuple[str, int]], tuple[str, int] | None]:
    """Return the rated alternatives of a step that were not followed, and the one that was."""
    rated = [(each["text"].strip(), each["rating"]) for each in step["completions"] or []]
    chosen, human = step["chosen_completion"], step["human_completion"]
    following = None
    if chosen is not None:
        following = rated[chosen]
        rated[chosen] = ("", None)
    elif human is not None:
        following = (human["text"].strip(), 1)
    others = [(text, rating) for text, rating in rated if rating is not None]
    return others, following if following and following[1] is not None else None


def _rated(problem: str, answer: str, chain: Sequence[tuple[str, int]]) -> Stepwise:
    steps, ratings = zip(*chain, strict=True)
    return Stepwise(problem, answer, steps, tuple(rating >= 0 for rating in ratings), ratings)


def from_step_dpo(fields: Mapping[str, Any]) -> Iterator[Stepwise]:
    """Math-Step-DPO-10K: the shared steps with the chosen one, and with the rejected one.

    Its authors had the rejected step judged to be the first wrong one, and the chosen one sampled
    in its place. What comes after in the full texts nobody judged, so it is left out.
    """
    shared = auto(fields["initial_reason_steps"])
    # As published, the shared text ends with the marker of the step that differs.
    begun = shared.pop() if _LAST_MARKER.search(fields["initial_reason_steps"]) else ""
    for side, right in (("chosen", True), ("rejected", False)):
        if not fields[side].strip():
            raise NotStepwise(f"{side} is empty")
        steps = tuple(step.strip() for step in (*shared, begun + fields[side]))
        labels = (*(True for _ in shared), right)
        yield Stepwise(fields["prompt"], str(fields["answer"]), steps, labels)


@dataclass(frozen=True, slots=True)
class Reader:
    """One format to import from."""

    read: Callable[[Mapping[str, Any]], Iterator[Stepwise]]  #: Takes a row, yields its solutions.
    loses: str  #: What of the row does not arrive.


#: By the name of the format.
READERS = {
    "trl-stepwise": Reader(from_trl, "nothing"),
    "math-shepherd": Reader(from_math_shepherd, "the task's name, the space around steps"),
    "prm800k": Reader(
        from_prm800k, "who rated and when, flags, steps without a rating, the space around steps"
    ),
    "processbench": Reader(
        from_processbench, "the steps after the first wrong one, ids, generators"
    ),
    "step-dpo-10k": Reader(
        from_step_dpo, "the steps after the first that differs, the problem's source"
    ),
}


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
    with explained(out.parent):
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
