"""Where the thinking of a solution ends: marks of model families, which are data beside this."""

from __future__ import annotations

from dataclasses import dataclass

from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.steps.segment import split_steps


@dataclass(frozen=True, slots=True)
class ThinkingSpan:
    """The thinking at the beginning of a solution."""

    end: int  #: Characters of it, marks and the white space behind them included; 0 for none.
    closed: bool | None  #: Whether it ended; None where there is none.
    start: int = 0  #: Those before it: of an opening mark.
    markers: ThinkingMarkers | None = None  #: None where the text has none.


@dataclass(frozen=True, slots=True)
class ThinkingMarkers:
    """How a family of models marks its thinking."""

    name: str
    start: str  #: Written by the model, or by the chat template at the end of the prompt.
    end: str
    answer_prefix: str = ""  #: What may stand between the thinking and the answer.
    closing_text: str = ""  #: What ends a thought that is cut short; if empty, the mark on a line.
    tokens: tuple[str, ...] = ()  #: Special tokens that the marks are made of.
    requires_both: bool = False  #: Whether one mark says nothing without the other.

    def find(self, before: str, begin: str, text: str) -> ThinkingSpan | None:
        """Find thinking that ``before``, the end of the prompt, or ``begin``, the text's, opens."""
        begun, closed = begin.startswith(self.start), self.end in text
        opened = begun or before.endswith(self.start)
        if not (opened and closed if self.requires_both else opened or closed):
            return None
        start = text.find(self.start) + len(self.start) if begun else 0
        answer = self._answer(text) if closed else None
        return ThinkingSpan(len(text) - len(answer or ""), answer is not None, start, self)

    def _answer(self, text: str) -> str | None:
        """Return what stands behind the thinking; None if the last thought is not closed.

        Of several closing marks the last with something behind it counts, so one that the thinking
        quotes ends nothing.
        """
        at, until = text.rfind(self.end), len(text)
        while at >= 0 and not text[at + len(self.end) : until].strip():
            at, until = text.rfind(self.end, 0, at), at
        at = at if at >= 0 else text.rfind(self.end)
        answer = text[at + len(self.end) :].lstrip().removeprefix(self.answer_prefix).lstrip()
        return None if self.start in answer else answer


#: By name, in the order of the file.
THINKING_MARKERS = TomlTable(
    __file__, lambda name, tokens=(), **told: ThinkingMarkers(name, tokens=tuple(tokens), **told)
)
_MARK = 40  #: Characters that no mark is longer than.


def find_thinking(prompt: str, text: str, *, has_separate_reasoning: bool = False) -> ThinkingSpan:
    """Find the thinking of a solution.

    One that never ends is the whole text. Where a server has told it ``apart``, it is not in the
    text, and has ended if there is any.
    """
    before, begin = prompt.rstrip()[-_MARK:], text.lstrip()[:_MARK]
    for marks in THINKING_MARKERS.values():
        if found := marks.find(before, begin, text):
            return found
    return ThinkingSpan(0, bool(text.strip()) if has_separate_reasoning else None)


def split_solution(prompt: str, text: str, segmenter: str) -> list[str]:
    """Cut a solution, which may begin with thinking, by a segmenter of that full name."""
    return split_steps(text, find_thinking(prompt, text).end, segmenter)
