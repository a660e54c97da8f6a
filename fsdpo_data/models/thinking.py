"""Detection of thinking at the start of a solution, by the markers in ``thinking.toml``.

``fsdpo_data.grade`` needs this module, so it loads no more than the grader does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fsdpo_data.answers.tables import read_toml
from fsdpo_data.answers.thinking_span import NO_THINKING, ThinkingMarkers, ThinkingSpan


def _make_markers(name: str, *, tokens: Sequence[str] = (), **fields: Any) -> ThinkingMarkers:
    """Return the markers in a row of the file."""
    return ThinkingMarkers(name, tokens=tuple(tokens), **fields)


#: Thinking markers by name, in the order of the file.
THINKING_MARKERS: Mapping[str, ThinkingMarkers] = {
    name: _make_markers(name, **fields) for name, fields in read_toml(__file__).items()
}
_MAX_MARKER_CHARS = 40  #: Upper bound of the length of a marker.


def find_thinking(prompt: str, text: str, *, has_separate_reasoning: bool = False) -> ThinkingSpan:
    """Find the thinking of a solution; thinking without an end covers the complete text.

    Args:
        prompt: The prompt, which may end with a start marker.
        text: The generated text.
        has_separate_reasoning: Whether the server returned the thinking in a separate field. The
            text then contains no thinking, and the thinking ended if the text is not blank.
    """
    prompt_end = prompt.rstrip()[-_MAX_MARKER_CHARS:]
    text_start = text.lstrip()[:_MAX_MARKER_CHARS]
    for markers in THINKING_MARKERS.values():
        if span := markers.find(prompt_end, text_start, text):
            return span
    return ThinkingSpan(0, bool(text.strip())) if has_separate_reasoning else NO_THINKING


def split_solution(prompt: str, text: str, segmenter: str) -> list[str]:
    """Split a solution into steps; thinking at the start becomes the first steps.

    Args:
        prompt: The prompt of the solution.
        text: The text of the solution.
        segmenter: Full name of the segmenter, e.g. ``auto@1``.
    """
    from fsdpo_data.steps.segment import split_steps

    return split_steps(text, find_thinking(prompt, text).end, segmenter)
