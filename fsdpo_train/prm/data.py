"""The data side of the PRM: labelled steps read, tokenised, split by problem and batched."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fsdpo_data.core.entities import MODEL_FAILURES
from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.config import PrmConfig
from fsdpo_train.trainer.batching import pad_rows, solution_batch
from fsdpo_train.trainer.row_source import Row, RowSource, open_source

#: Label of a step that is not there.
IGNORE_LABEL = -100.0

_COLUMNS = ("prompt", "completions", "labels")


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A solution with one label per step."""

    problem: str  #: What it solves: solutions of one problem are held out together.
    prompt: str
    steps: Sequence[str]
    labels: Sequence[float]  #: One number in [0, 1] per step.


@dataclass(slots=True)
class PrmData:
    """Rows ready to train on."""

    #: Rows of ``input_ids``, ``label_positions``, ``labels``, ``length``, ``problem``, ``group`` (the
    #: prompt), ``right``, ``n_prompt``.
    train: list[dict[str, Any]]
    held_out: list[
        dict[str, Any]
    ]  #: The same of other problems; its label_positions are the steps' ends.
    #: ``solutions``, ``problems``, ``steps``, ``positive`` (the sum of the labels), ``lost_labels``
    #: and ``lost_solutions`` (cut off at the context length, in part and whole).
    counts: Counter[str]


def open_solutions(data: Path) -> RowSource:
    """Find the solutions that ``data`` names; see :func:`.source.open_source`."""
    more = ("problem_id", "sample_index", "outcome", "rollouts")
    return open_source(data, _COLUMNS, "solutions", more)


def step_rows(source: RowSource, config: PrmConfig) -> Iterator[LabelledRow]:
    """Read the labelled solutions that ``config`` asks for.

    Raises:
        InputError: if the file cannot be read, or labels and steps disagree.
    """
    if not source.dataset:
        yield from _plain_rows(source, config)
        return
    mixed = _mixed_problems(source) if config.only_mixed else None
    for place, row in source.rows():
        labels = _labels(row, config.labels)
        left_out = config.samples and row["sample_index"] >= config.samples
        if labels is None or not row["completions"] or left_out:
            continue
        if mixed is None or row["problem_id"] in mixed:
            yield _step_row(place, {**row, "labels": labels})


def _labels(row: Row, kind: str) -> list[float] | None:
    """Return the labels of a solution of a dataset; None if it has none of the kind."""
    counts = row["rollouts"]
    shares = None if counts is None else [each["n_correct"] / each["n"] for each in counts]
    if kind == "outcome" or (kind == "auto" and shares is None):
        return row["labels"]  # type: ignore[no-any-return]
    return shares


def _mixed_problems(source: RowSource) -> set[str]:
    """Return the problems that have right and wrong solutions."""
    outcomes = [(row["problem_id"], row["outcome"]) for _, row in source.rows()]
    right = {problem for problem, outcome in outcomes if outcome == "correct"}
    return {
        problem for problem, outcome in outcomes if problem in right and outcome in MODEL_FAILURES
    }


def _plain_rows(source: RowSource, config: PrmConfig) -> Iterator[LabelledRow]:
    """Read a file of stepwise supervision; rows of one ``problem_id`` or prompt are a problem."""
    if config.samples or config.only_mixed:
        raise _unusable(
            config,
            "samples and only_mixed choose from a sealed dataset, and this is a file of labelled "
            "rows. Leave them out, and choose the rows themselves.",
        )
    place = None
    for place, row in source.rows():
        missing = [name for name in _COLUMNS if row.get(name) is None]
        if missing:
            raise InputError(f"{place}: no {' and no '.join(missing)}; it has {', '.join(row)}.")
        yield _step_row(place, {"problem_id": row["prompt"], **row})
    if place is None:
        raise _unusable(
            config,
            "no rows; expected rows of prompt, completions (a list of steps) and labels (a list of "
            "booleans or numbers).",
        )


def _unusable(config: PrmConfig, reason: str) -> InputError:
    return InputError(reason, field="data", value=str(config.data))


def _step_row(place: str, row: Row) -> LabelledRow:
    steps, labels = row["completions"], row["labels"]
    if not (isinstance(steps, list) and isinstance(labels, list)):
        raise InputError(f"{place}: completions and labels: expected two lists.")
    if not all(isinstance(text, str) for text in (row["prompt"], *steps)):
        raise InputError(f"{place}: prompt, completions: expected a text and a list of texts.")
    if len(steps) != len(labels):
        raise InputError(
            f"{place}: {len(labels)} labels for {len(steps)} steps. Expected one label per step."
        )
    for label in labels:
        if not isinstance(label, (bool, int, float)) or not 0 <= label <= 1:
            raise InputError(
                f"{place}: label {label!r}. Expected true, false or a number in [0, 1]."
            )
    return LabelledRow(str(row["problem_id"]), row["prompt"], steps, [float(x) for x in labels])


def prepare_rows(
    rows: Iterable[LabelledRow], tokenizer: Any, max_length: int, config: PrmConfig
) -> PrmData:
    """Tokenise rows and split them by problem; InputError if nothing is left to learn from."""
    encoded, counts = _encode(rows, StepTokenizer(tokenizer), max_length)
    if not encoded:
        raise _unusable(
            config,
            f"no labelled step is left; {counts['lost_solutions']} solutions exceed {max_length} "
            "tokens in their first step. Check the labels, or raise max_length.",
        )
    problems = {row["problem"] for row in encoded}
    held = _draw_held_out_problems(problems, config.held_out, config.seed)
    counts.update(problems=len(problems), held_out_problems=len(held))
    train = [row for row in encoded if row["problem"] not in held]
    labels = [label for row in train for label in row["labels"]]
    if len({*labels}) < 2 and labels[0] in (0, 1):
        raise _unusable(
            config,
            f"all {len(labels)} step labels are {'right' if labels[0] else 'wrong'} "
            f"({labels[0]:g}), so there is nothing to tell apart; {len(held)} problems are held "
            "out. Sample problems nearer to what the model can do.",
        )
    if config.label_positions == "token":
        train = list(map(_label_every_token, train))
    return PrmData(train, [row for row in encoded if row["problem"] in held], counts)


def _label_every_token(row: dict[str, Any]) -> dict[str, Any]:
    """Give every token of a solution the label of its step."""
    ends = [row["n_prompt"], *(position + 1 for position in row["label_positions"])]
    label_positions = np.arange(ends[0], ends[-1])
    return {
        **row,
        "label_positions": label_positions,
        "labels": np.repeat(row["labels"], np.diff(ends)),
    }


def _encode(
    rows: Iterable[LabelledRow], encoder: StepTokenizer, max_length: int
) -> tuple[list[dict[str, Any]], Counter[str]]:
    found: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for row in rows:
        encoded = encoder.encode(row.prompt, row.steps, add_eos=False, max_length=max_length)
        counts["lost_labels"] += encoded.truncated_steps
        if not encoded.score_positions:
            counts["lost_solutions"] += 1
            continue
        labels = list(row.labels[: len(encoded.score_positions)])
        made = {
            "input_ids": np.array(encoded.input_ids, np.int32),
            "label_positions": encoded.score_positions,
            "labels": labels,
            "length": len(encoded.input_ids),
            "problem": row.problem,
            "group": row.prompt,
            "right": row.labels[-1] >= 0.5,
            "n_prompt": encoded.prompt_length,
        }
        found.append(made)
        counts["solutions"] += 1
        counts["steps"] += len(labels)
        counts["positive"] += math.fsum(labels)  # type: ignore[assignment]
    return found, counts


def _draw_held_out_problems(problems: set[str], share: float, seed: int) -> set[str]:
    """Draw problems by their content, at least one and never all."""
    different = sorted(problems, key=lambda each: sha256(f"{seed}/{each}".encode()).digest())
    if not share or len(different) < 2:
        return set()
    return set(different[: max(1, min(round(share * len(different)), len(different) - 1))])


def class_weights(rows: Iterable[Row]) -> tuple[float, float]:
    """Return weights of (wrong, right) steps that give both the same total, and a mean of 1."""
    labels = [label for row in rows for label in row["labels"]]
    right = math.fsum(labels)
    wrong = len(labels) - right
    return len(labels) / (2 * wrong), len(labels) / (2 * right)


def collate(rows: Sequence[Row], pad_id: int) -> dict[str, Any]:
    """Pad rows on the right: tokens to one width, steps to one number."""
    return {
        # What is before the first token that something predicts is shared.
        **solution_batch([{**row, "n_prompt": max(1, row["n_prompt"])} for row in rows], pad_id),
        "label_positions": pad_rows([row["label_positions"] for row in rows], 0),
        "labels": pad_rows([row["labels"] for row in rows], IGNORE_LABEL),
    }
