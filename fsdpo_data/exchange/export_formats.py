"""Export formats: how a pair or a solution becomes a row of another tool's format."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, Self

from fsdpo_data.core.entities import GRADED_OUTCOMES, OUTCOMES, UNGRADED
from fsdpo_data.core.placeholders import fill_placeholders
from fsdpo_data.pairs.statistics import find_first_difference
from fsdpo_data.steps.first_error import find_first_wrong
from fsdpo_data.steps.rewards import aggregate

#: A row of a file, by column name.
Row = dict[str, Any]

_STEP_MARKER = re.compile(r"Step \d+:")
MATH_SHEPHERD_TAG = "ки"  #: The step tag that Math-Shepherd writes after each step.


class NotExportableError(ValueError):
    """A row that a format cannot express; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format that ``export`` writes.

    The attributes are the keys of a table ``export`` in ``formats.toml``.
    """

    config: Literal["pairs", "solutions"]  #: The config whose rows are exported.
    file_name: str  #: Output file: a ``.json`` file is one list, a ``.jsonl`` file has JSON lines.
    used_with: str  #: Tools that read the file, with their flags.
    drops: str  #: Data that the format cannot store, so that an import does not restore them.
    #: Converts a row of :func:`~fsdpo_data.exchange.export.read_rows`. Returns the exported row, or
    #: further values for the placeholders of ``row``.
    converter: Callable[[Row], Row] | None = None
    #: The exported row, with a placeholder ``{column}`` for each value. Empty if ``converter``
    #: returns the exported row.
    row: Mapping[str, Any] = field(default_factory=dict)
    has_unique_rows: bool = False  #: Whether equal rows of a problem are exported once.
    needs_labels: bool = False  #: Whether only solutions with step labels are exported.
    #: Whether only solutions that ended are exported, and no imported pairs, which end with a step.
    #: Trainers of the format put an end-of-sequence token after each solution.
    needs_end: bool = False
    #: Whether `fsdpo-train sft` reads the rows, which do not name the template of their prompts.
    is_for_sft: bool = False
    outcomes: Sequence[str] = OUTCOMES  #: Outcomes of the exported solutions.
    #: Content of further files, as JSON values by file name.
    extra_files: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, fields: Mapping[str, Any]) -> Self:
        """Make a format from its table, which may name a function of this module."""
        converter = fields.get("converter")
        return cls(**{**fields, "converter": globals()[converter] if converter else None})

    @property
    def trains_policy(self) -> bool:
        """Whether a policy learns the texts of the rows, and not only their labels."""
        return self.config == "pairs" or self.needs_end

    def accepts(self, row: Row) -> bool:
        """Check whether the format selects a row of the config."""
        return self.config == "pairs" or row["outcome"] in self.outcomes

    def convert(self, row: Row) -> Row:
        """Return the exported row.

        Raises:
            NotExportableError: If the format cannot express the row.
        """
        if self.needs_labels and not row["labels"]:
            raise NotExportableError("the solution has no step labels")
        if self.needs_end and self.config == "solutions":
            _check_end(row)
        converted = self.converter(row) if self.converter else {}
        if not self.row:
            return converted
        if self.config == "solutions":
            text = "".join(row["completions"])
            row = {**row, "text": text, "correct": _is_correct(row)}
        exported: Row = fill_placeholders(self.row, {**row, **converted})
        return exported


def _check_end(row: Row) -> None:
    """Raise a NotExportableError if a solution has no end that a model may learn."""
    if row["finish_reason"] != "stop":
        raise NotExportableError(
            "the solution is truncated, so a trainer would teach the model to stop there"
        )
    if row["thinking_closed"] is False:
        raise NotExportableError(
            "the solution stops inside its thinking, so a trainer would teach the model to stop "
            "there"
        )


def _is_correct(row: Row) -> bool | None:
    """Return whether the answer of a solution is correct; None if nothing decided this.

    For imported step labels, which nothing graded, this is the verdict in their file.
    """
    if row["outcome"] == UNGRADED:
        is_correct: bool | None = row["imported_correct"]
        return is_correct
    return row["outcome"] == "correct" if row["outcome"] in GRADED_OUTCOMES else None


def compute_openrlhf_margin(row: Row) -> Row:
    """Compute the reward margin of a pair, which OpenRLHF's reward trainer can use."""
    for side in ("chosen", "rejected"):
        if not row[f"{side}_rewards"]:
            raise NotExportableError(
                f"the {side} solution has no step rewards, so there is no margin"
            )
    chosen_reward, rejected_reward = (
        aggregate(row[name], row["aggregate"]) for name in ("chosen_rewards", "rejected_rewards")
    )
    return {"margin": chosen_reward - rejected_reward}


def convert_to_math_shepherd(row: Row) -> Row:
    """Convert a solution to a row of Math-Shepherd.

    The row has two aligned texts. Each step ends with the step tag in ``input``, and with ``+`` or
    ``-`` in ``label``.
    """
    if any(MATH_SHEPHERD_TAG in text for text in (row["question"], *row["completions"])):
        raise NotExportableError(f"the text contains {MATH_SHEPHERD_TAG}, the format's step tag")
    numbered_steps = [
        (step if step.startswith(f"Step {number}:") else f"Step {number}: {step}", label)
        for number, (step, label) in enumerate(_labelled_steps(row), start=1)
    ]
    (first_step, _), *_ = numbered_steps
    if (row["question"] + first_step).count("Step 1:") > 1:
        raise NotExportableError(
            'the question or the text of the first step contains "Step 1:", which marks the first '
            "step"
        )
    tagged_text = "\n".join(f"{step} {MATH_SHEPHERD_TAG}" for step, _ in numbered_steps)
    signed_text = "\n".join(f"{step} {'+' if label else '-'}" for step, label in numbered_steps)
    question = row["question"] + " "
    return {"input": question + tagged_text, "label": question + signed_text, "task": row["source"]}


def compute_prm800k_values(row: Row) -> Row:
    """Compute PRM800K's rated steps (one completion each) and finish reason.

    A rating is 1 or -1 by the label, or the rating of an import, which may be 0 (neutral).
    """
    steps = _labelled_steps(row)
    ratings = row["imported_ratings"] or [1 if is_right else -1 for _, is_right in steps]
    rated_steps = [
        {
            "completions": [{"text": step, "rating": rating, "flagged": False}],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for (step, _), rating in zip(steps, ratings, strict=True)
    ]
    if not all(is_right for _, is_right in steps):
        finish_reason = "found_error"
    else:
        finish_reason = "solution" if row["finish_reason"] == "stop" else "give_up"
    # ``unknown`` fills the null fields of the row in ``formats.toml``.
    return {"rated_steps": rated_steps, "rating_finish_reason": finish_reason, "unknown": None}


def compute_processbench_values(row: Row) -> Row:
    """Compute ProcessBench's steps and the index of the first wrong step, or -1."""
    steps = _labelled_steps(row)
    first_error = find_first_wrong(not is_right for _, is_right in steps)
    return {"steps": [step for step, _ in steps], "first_error": first_error}


def _labelled_steps(row: Row) -> list[tuple[str, bool]]:
    """Return each step, without surrounding white space, and whether its label means right."""
    steps = [step.strip() for step in row["completions"]]
    return list(zip(steps, row["labels"], strict=True))


def convert_to_step_dpo(row: Row) -> Row:
    """Convert a pair to a row of Math-Step-DPO-10K: the shared steps, then one step per side.

    As in the published file, the shared text ends with the marker of the step that differs. The
    full texts start after the shared text.
    """
    shared_steps, chosen, rejected = find_first_difference(row)
    if not chosen or not rejected:
        raise NotExportableError(
            "the shorter solution is a prefix of the other, apart from white space, so no step "
            "differs"
        )
    match = _STEP_MARKER.match(chosen)
    marker = match[0] if match and rejected.startswith(match[0]) else ""
    shared_text = "".join(row["chosen_steps"][:shared_steps]) + marker
    # The shared steps may have other white space on the rejected side.
    rejected_start = len("".join(row["rejected_steps"][:shared_steps]) + marker)
    return {
        "dataset": row["source"],
        "prompt": row["question"],
        "initial_reason_steps": shared_text,
        "chosen": chosen[len(marker) :].rstrip(),
        "rejected": rejected[len(marker) :].rstrip(),
        "full_chosen": row["chosen"][len(shared_text) :],
        "full_rejected": row["rejected"][rejected_start:],
        "answer": row["gold"],
    }


def unique_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield each row once.

    Rows with the same prompt must be adjacent, so only one problem is in memory at a time.
    """
    for _, problem_rows in groupby(rows, itemgetter("prompt")):
        yield from {tuple(row.values()): row for row in problem_rows}.values()
