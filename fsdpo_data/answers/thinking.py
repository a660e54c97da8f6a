"""The thinking at the start of a solution, found by the markers in ``thinking.toml``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsdpo_data.answers.tables import read_module_table


class ThinkingSpan(NamedTuple):
    """The thinking at the start of a solution."""

    #: Length in characters, including markers and the white space after them. 0 if the text
    #: contains no thinking, also if the server returned the thinking in a separate field.
    end: int
    closed: bool | None  #: Whether the thinking ended; None without thinking.
    start: int = 0  #: Position after the start marker, in characters; 0 without one in the text.
    markers: "ThinkingMarkers | None" = None  #: Markers of the text; None if it has no markers.


#: The span of a text without thinking.
NO_THINKING = ThinkingSpan(end=0, closed=None)


@dataclass(frozen=True, slots=True)
class ThinkingMarkers:
    """The thinking markers of a model family."""

    name: str  #: Name of the family in ``thinking.toml``.
    start: str  #: Start marker, from the model or at the end of a prompt by the chat template.
    end: str  #: End marker, between the thinking and the answer.
    answer_prefix: str = ""  #: Optional text after the end marker, before the answer.
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
        if self.requires_both and not has_start:
            return None
        has_end = self.end in text
        if not has_end and (self.requires_both or not has_start):
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


def _make_markers(name: str, *, tokens: Sequence[str] = (), **fields: Any) -> ThinkingMarkers:
    """Return the markers in a row of the file."""
    return ThinkingMarkers(name, tokens=tuple(tokens), **fields)


#: Thinking markers by name, in the order of the file.
THINKING_MARKERS: Mapping[str, ThinkingMarkers] = {
    name: _make_markers(name, **fields) for name, fields in read_module_table(__file__).items()
}
#: The markers that are tags, such as ``<think>``. Texts contain them also without a prompt.
_TAGS = tuple(markers for markers in THINKING_MARKERS.values() if markers.end.startswith("</"))
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


def has_unclosed_tag(text: str) -> bool:
    """Whether a text opens thinking by a tag that it never closes, at any position."""
    return any(tag.start in text and tag.end not in text for tag in _TAGS)


def without_tagged_thinking(text: str) -> str:
    """Return the text after the last tag that closes thinking, or the text if none follows."""
    ends = [text.rfind(tag.end) + len(tag.end) for tag in _TAGS if tag.end in text]
    answer_text = text[max(ends, default=0) :]
    return answer_text if answer_text.strip() else text
