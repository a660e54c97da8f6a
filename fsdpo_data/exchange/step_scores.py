"""Steps and step scores of recorded responses: checks, and positions of the steps in the text.

Programs that score steps often drop numbers and blank lines between the steps. A dataset has steps
that join to the response, so each listed step is found in the response. White space before a step
belongs to the step before it. Other text that no step lists belongs to the next step. A response
with words after its last scored step is not imported, because its end has no score.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.core.sampling import Completion
from fsdpo_data.exchange.response_formats import RecordedResponse, ResponseFields
from fsdpo_data.steps.segment import segmenter_name, split_steps

#: Text that may follow the last step: special tokens, step tokens, ends of proofs, the next turn.
_END_MARK = re.compile(
    r"<\|[^<>|]*\|>|<[^<>\s]*>|\[/?[A-Z]+\]|\\end\{\w+\*?\}|\\(?:qed|blacksquare|square)\b"
    r"|ки|\b(?:assistant|user|model)\b",
    re.IGNORECASE,
)
_MAX_SCORE = 1e30  #: Datasets store scores as float32.


class UnusableResponseError(UnusableRowError):
    """One response of a row cannot be used, for example because its step scores are wrong."""


def read_steps(
    response: RecordedResponse, names: ResponseFields, segmenter: str | None
) -> Completion:
    """Return the completion of a response with its checked steps and their rewards.

    A completion without steps and scores stays unchanged.

    Args:
        response: The response, with the values of its row.
        names: The fields of the row.
        segmenter: Name of the segmenter that replaces the steps of the row; None without one.

    Raises:
        UnusableResponseError: if the steps are not in the response, or if the numbers of steps and
            scores differ. Also if a score is not a finite number.
    """
    scores = _check_scores(response.step_scores, names)
    has_listed_steps = segmenter is None and response.steps is not None
    if scores is None and not has_listed_steps:
        return response.completion
    text = replace_surrogates(response.completion.text)
    if has_listed_steps:
        pieces = _check_steps(response.steps)
        _check_count(pieces, scores)
        pieces, scores = _drop_chat_prompt(pieces, scores, names.chat_prompt)
        steps = _align(text, pieces, is_scored=scores is not None)
    elif segmenter is None and names.step_separator:
        pieces, scores = _drop_blank_pieces(text.split(names.step_separator), scores)
        steps = _align(text, pieces, is_scored=True)
    else:
        thinking_chars = find_thinking(response.prompt, text).end
        steps = split_steps(text, thinking_chars, segmenter_name(segmenter or "auto"))
    _check_count(steps, scores)
    return replace(
        response.completion,
        step_chars=tuple(map(len, steps)),
        step_rewards=None if scores is None else tuple(scores),
    )


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


def _check_count(steps: Sequence[str], scores: Sequence[float] | None) -> None:
    """Raise an UnusableResponseError if there are scores, but not one per step."""
    if scores is not None and len(scores) != len(steps):
        raise UnusableResponseError(
            f"number of step scores differs: {len(scores)} scores for {len(steps)} steps"
        )


def _drop_blank_pieces(
    pieces: list[str], scores: list[float] | None
) -> tuple[list[str], list[float] | None]:
    """Return the visible pieces between separators, with their scores.

    Some programs score blank pieces, others do not. A blank piece is not a step, so its score is
    dropped.
    """
    if scores is not None and len(scores) == len(pieces):
        scores = [score for piece, score in zip(pieces, scores, strict=True) if piece.strip()]
    return [piece for piece in pieces if piece.strip()], scores


def _drop_chat_prompt(
    pieces: list[str], scores: list[float] | None, pattern: str
) -> tuple[list[str], list[float] | None]:
    """Return the pieces after a chat prompt, with their scores.

    The prompt may end inside a piece. The rest of that piece is then the first piece.

    Args:
        pieces: The pieces.
        scores: Their scores; None without scores.
        pattern: Pattern of the prompt; empty without one.
    """
    for index in range(len(pieces)) if pattern else ():
        text = "\n".join(pieces[: index + 1])
        match = re.match(pattern, text, re.S)
        if match is not None:
            later_scores = None if scores is None else scores[index:]
            return [text[match.end() :], *pieces[index + 1 :]], later_scores
    return pieces, scores


def _align(text: str, pieces: Sequence[str], *, is_scored: bool) -> list[str]:
    """Return the parts of a text that begin with the pieces, in order.

    Args:
        text: The text.
        pieces: The listed steps.
        is_scored: Whether the steps have scores, so that no word may follow the last one.
    """
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
    if is_scored and any(map(str.isalnum, _END_MARK.sub("", text[end:]))):
        raise UnusableResponseError(
            f"the response goes on after its last step: {text[end:].strip()[:60]!r}"
        )
    bounds = [0, *starts[1:], len(text)]
    return [text[start:stop] for start, stop in itertools.pairwise(bounds)]
