"""The thinking at the start of a solution, and the markers around it."""

from dataclasses import dataclass
from typing import NamedTuple


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
