"""Detection of thinking at the start of a solution, by the markers in ``thinking.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.steps.segment import split_steps


@dataclass(frozen=True, slots=True)
class ThinkingSpan:
    """The thinking at the start of a solution."""

    #: Length in characters, including markers and the white space after them. 0 if the text
    #: contains no thinking, also if the server returned the thinking in a separate field.
    end: int
    closed: bool | None  #: Whether the thinking ended; None without thinking.
    start: int = 0  #: Position after the start marker, in characters; 0 without one in the text.
    markers: ThinkingMarkers | None = None  #: Markers of the text; None if it has no markers.


@dataclass(frozen=True, slots=True)
class ThinkingMarkers:
    """The thinking markers of a model family."""

    name: str  #: Name of the family in ``thinking.toml``.
    start: str  #: Start marker, from the model or at the end of a prompt by the chat template.
    end: str  #: End marker, between the thinking and the answer.
    answer_prefix: str = ""  #: Optional text after the end marker, before the answer.
    #: Text that closes truncated thinking; if empty, ``end`` on a line of its own closes it.
    closing_text: str = ""
    tokens: tuple[str, ...] = ()  #: Special tokens of the tokenizer that form the markers.
    requires_both: bool = False  #: Whether a single marker has no meaning.

    def find(self, prompt_end: str, text_start: str, text: str) -> ThinkingSpan | None:
        """Find thinking that starts at the end of the prompt or at the start of the text.

        Args:
            prompt_end: Last characters of the prompt, without white space at the end.
            text_start: First characters of the text, without white space at the start.
            text: The complete text.
        """
        text_has_start = text_start.startswith(self.start)
        has_start = text_has_start or prompt_end.endswith(self.start)
        has_end = self.end in text
        is_thinking = (has_start and has_end) if self.requires_both else (has_start or has_end)
        if not is_thinking:
            return None
        answer = self._find_answer(text) if has_end else None
        return ThinkingSpan(
            end=len(text) - len(answer or ""),
            closed=answer is not None,
            start=text.find(self.start) + len(self.start) if text_has_start else 0,
            markers=self,
        )

    def _find_answer(self, text: str) -> str | None:
        """Return the text after the thinking; None if a later start marker begins thinking again.

        The last end marker with text after it counts, or the last one if no text follows. A marker
        that the thinking quotes therefore has no effect. A marker in the answer would count as the
        end. ``text`` contains at least one end marker.
        """
        marker = text.rfind(self.end)
        answer_end = len(text)
        while marker >= 0 and not text[marker + len(self.end) : answer_end].strip():
            answer_end = marker
            marker = text.rfind(self.end, 0, answer_end)
        if marker < 0:
            marker = text.rfind(self.end)
        text_after = text[marker + len(self.end) :]
        answer = text_after.lstrip().removeprefix(self.answer_prefix).lstrip()
        return None if self.start in answer else answer


#: Thinking markers by name, in the order of the file.
THINKING_MARKERS = TomlTable(
    __file__,
    lambda name, tokens=(), **fields: ThinkingMarkers(name, tokens=tuple(tokens), **fields),
)
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
    return ThinkingSpan(0, bool(text.strip()) if has_separate_reasoning else None)


def open_thinking_start(prompt: str) -> int | None:
    """Return the position after the last start marker of a prompt; None if its thinking is closed.

    The prompt may contain the first steps of a solution, so the marker may be anywhere. Markers
    that need both ends are ordinary words, and do not count.
    """
    starts = []
    for markers in THINKING_MARKERS.values():
        position = prompt.rfind(markers.start)
        if position >= 0 and not markers.requires_both and markers.end not in prompt[position:]:
            starts.append(position + len(markers.start))
    return max(starts, default=None)


def split_solution(prompt: str, text: str, segmenter: str) -> list[str]:
    """Split a solution into steps; thinking at the start becomes the first steps.

    Args:
        prompt: The prompt of the solution.
        text: The text of the solution.
        segmenter: Full name of the segmenter, e.g. ``auto@1``.
    """
    return split_steps(text, find_thinking(prompt, text).end, segmenter)
