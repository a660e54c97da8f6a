"""Steps and step scores of recorded responses: checks, and positions of the steps in the text.

Programs that score steps often drop numbers and blank lines between the steps. A dataset has steps
that join to the response, so each listed step is found in the response. White space before a step
belongs to the step before it. Other text that no step lists belongs to the next step.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.exchange.response_formats import RecordedResponse, ResponseFields
from fsdpo_data.steps.segment import segmenter_name, split_steps

_MAX_SCORE = 1e30  #: Datasets store scores as float32.


class UnusableResponseError(UnusableRowError):
    """One response of a row cannot be used, for example because its step scores are wrong."""


@dataclass(frozen=True, slots=True)
class ScoredSteps:
    """The steps of a response, with their scores."""

    steps: Sequence[str]  #: Steps, which join to the response.
    scores: Sequence[float] | None  #: One score per step; None without scores.


def read_steps(
    response: RecordedResponse, names: ResponseFields, segmenter: str | None
) -> ScoredSteps | None:
    """Return the checked steps of a response; None if the response has no steps and no scores.

    Args:
        response: The response, with the values of its row.
        names: The fields of the row.
        segmenter: Name of the segmenter that replaces the steps of the row; None without one.

    Raises:
        UnusableResponseError: if the steps are not in the response, or if the numbers of steps and
            scores differ. Also if a score is not a finite number.
    """
    scores = _check_scores(response.step_scores, names)
    if segmenter is not None or (response.steps is None and not names.step_separator):
        if scores is None:
            return None
        steps = _segment(response, segmenter or "auto")
        return ScoredSteps(steps, _match_scores(steps, scores))
    text = replace_surrogates(response.response)
    if response.steps is None:
        if scores is None:
            return None
        pieces = text.split(names.step_separator)
        return _join_pieces(text, pieces, scores)
    pieces = _check_steps(response.steps)
    if scores is not None:
        scores = _match_scores(pieces, scores)
    if names.chat_prompt:
        n_prompt_pieces, first_piece = _find_chat_prompt(pieces, names.chat_prompt)
        if first_piece is not None:
            pieces = [first_piece, *pieces[n_prompt_pieces + 1 :]]
            scores = scores[n_prompt_pieces:] if scores is not None else None
    return ScoredSteps(_align(text, pieces), scores)


def _segment(response: RecordedResponse, segmenter: str) -> list[str]:
    """Split a response with a segmenter."""
    text = replace_surrogates(response.response)
    thinking_chars = find_thinking(response.prompt, text).end
    return split_steps(text, thinking_chars, segmenter_name(segmenter))


def _check_scores(value: Any, names: ResponseFields) -> list[float] | None:
    """Return step scores as numbers; None if the row has none."""
    if value is None or (names.has_response_scores and isinstance(value, int | float)):
        return None
    if isinstance(value, int | float):
        raise UnusableResponseError(
            f"step scores: {value!r} is one number; expected a list of numbers for each response"
        )
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise UnusableResponseError(f"step scores: {value!r} is not a list of numbers")
    for score in value:
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or not abs(score) < _MAX_SCORE:
            raise UnusableResponseError(f"step score that is not a finite number: {score!r}")
    return [float(score) for score in value]


def _check_steps(value: Any) -> list[str]:
    """Return listed steps as texts."""
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise UnusableResponseError(f"steps: {str(value)[:80]!r} is not a list of texts")
    return [replace_surrogates(step) for step in value]


def _match_scores(steps: Sequence[str], scores: list[float]) -> list[float]:
    """Return the scores; UnusableResponseError if their number differs from the number of steps."""
    if len(scores) != len(steps):
        raise UnusableResponseError(
            f"number of step scores differs: {len(scores)} scores for {len(steps)} steps"
        )
    return scores


def _join_pieces(text: str, pieces: Sequence[str], scores: list[float]) -> ScoredSteps:
    """Return the visible pieces between separators as steps.

    Some programs score blank pieces, others do not. A blank piece is not a step, so its score is
    dropped.
    """
    visible_pieces = [piece for piece in pieces if piece.strip()]
    if len(scores) == len(pieces):
        scores = [score for piece, score in zip(pieces, scores, strict=True) if piece.strip()]
    return ScoredSteps(_align(text, visible_pieces), _match_scores(visible_pieces, scores))


def _find_chat_prompt(pieces: Sequence[str], pattern: str) -> tuple[int, str | None]:
    """Find a chat prompt in the first pieces.

    Returns:
        The number of pieces before the piece in which the prompt ends, and the text of this piece
        after the prompt. (0, None) without a prompt.
    """
    for index in range(len(pieces)):
        text = "\n".join(pieces[: index + 1])
        match = re.match(pattern, text, re.S)
        if match is not None:
            return index, text[match.end() :]
    return 0, None


def _align(text: str, pieces: Sequence[str]) -> list[str]:
    """Return the parts of a text that begin with the pieces, in order."""
    starts: list[int] = []
    end = 0
    for number, piece in enumerate(pieces, start=1):
        content = piece.strip()
        position = text.find(content, end)
        if not content or position < 0:
            raise UnusableResponseError(
                f"a step is not in the response: step {number}, {piece[:60]!r}"
            )
        gap = text[end:position]
        starts.append(end + len(gap) - len(gap.lstrip()))
        end = position + len(content)
    if not starts:
        if text.strip():
            raise UnusableResponseError("a response has no steps: expected at least one step")
        return []
    bounds = [0, *starts[1:], len(text)]
    return [text[start:stop] for start, stop in itertools.pairwise(bounds)]
