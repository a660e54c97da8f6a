r"""Find ``\boxed{…}``, ``\fbox{…}`` and other boxes in a text, in one pass over its end."""

import re
from typing import NamedTuple

from fsdpo_data.answers.extraction.phrases import load_phrases

#: Characters at the end of a response that are searched. An answer further from the end is not a
#: final answer.
SEARCH_WINDOW_CHARS = 20_000
_PATTERNS = load_phrases("boxes")
MAX_ANSWER_CHARS = 10_000  #: Maximum length of an answer. A longer box is ignored.

# JSON and Python read "\b" and "\f" as control characters, so texts contain "\x08oxed" too.
_COMMAND = _PATTERNS["command"]
_TOKEN = re.compile(rf"(?s)(?P<box>{_COMMAND.pattern})|(?P<open>\{{)|(?P<close>\}})|\\.")
#: The commands of boxes that are searched in a complete text.
_SEARCHED_COMMANDS = (
    *("\\boxed", "\\fbox", "\\Boxed", "\\Aboxed", "\\framebox", "\\bbox"),
    *("\\colorbox", "\\fcolorbox", "\\ovalbox", "\\doublebox", "\\shadowbox"),
)
#: A fast search for the earliest possible start of a box. Braces before it do not matter.
_FIRST_BOX = re.compile(
    r"[\\\x08\x0c](?:f?box|A?boxed|B?oxed|(?:frame|b|f?color|oval|shadow|double)box)"
)
_MAX_CHARS_BEFORE_OX = len("\\fcolorb")  #: All commands of boxes contain "ox".
_HAS_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
_IN_BRACES = re.compile(r"\{[^{}]*\}")


class Box(NamedTuple):
    """A closed box."""

    start: int  #: The offset in the text at which the box starts.
    end: int  #: The offset in the text after the box.
    content: str  #: The text inside the box.


class _BoxSpan(NamedTuple):
    """The offsets of a closed box and of its content."""

    start: int  #: The offset of the box command.
    end: int  #: The offset after the box.
    content_start: int  #: The offset of the content.
    content_end: int  #: The offset after the content.
    has_braces: bool  #: Whether braces enclose the content.


class _OpenBox(NamedTuple):
    """A box whose closing brace has not been read yet."""

    depth: int  #: The number of braces around the box.
    start: int  #: The offset of the box command.
    content_start: int  #: The offset of the content.


def text_tail(text: str, size: int) -> str:
    """Return the last ``size`` characters, without a number that the cut splits."""
    tail = text[-size:]
    return tail if len(text) <= size else tail.lstrip("0123456789.,")


def search_window(text: str) -> str:
    """Return the end of a text, or the part from its last box if the end has no box."""
    end = text if len(text) <= SEARCH_WINDOW_CHARS else text_tail(text, SEARCH_WINDOW_CHARS)
    if len(text) == len(end) or _FIRST_BOX.search(end):
        return end
    last_box = max(map(text.rfind, _SEARCHED_COMMANDS))
    return text[last_box : last_box + SEARCH_WINDOW_CHARS] if last_box >= 0 else end


def find_boxes(text: str) -> list[Box]:
    """List the closed boxes at the end of ``text``; of nested boxes only the outer one."""
    has_command = "\\" in text or "\b" in text or "\f" in text
    return _BoxScan(search_window(text)).closed if has_command and "ox" in text else []


def last_box_content(text: str) -> str | None:
    r"""Return the content of the last closed box; an empty box gives ""."""
    boxes = find_boxes(text)
    return boxes[-1].content if boxes else None


def truncated_box_content(text: str) -> str | None:
    """Return the first line of the content of a last box that the text does not close."""
    start = _BoxScan(text[-SEARCH_WINDOW_CHARS:]).unclosed if "ox" in text else None
    if start is None:
        return None
    content = text[-SEARCH_WINDOW_CHARS:][start:].split("\n", 1)[0].split("$", 1)[0].strip()
    return content or None


def has_open_box(text: str) -> bool:
    """Whether a text has a box that it does not close."""
    return "ox" in text and _BoxScan(search_window(text)).unclosed is not None


class _BoxScan:
    """One pass over the braces and boxes of a text."""

    def __init__(self, text: str) -> None:
        self._closed: list[_BoxSpan] = []
        self._text = text
        self._depth = 0
        self._open: list[_OpenBox] = []
        self._pending: int | None = None  # start of a box whose opening brace comes next
        first_box = _FIRST_BOX.search(text, max(text.find("ox") - _MAX_CHARS_BEFORE_OX, 0))
        if first_box is None:
            return
        start = first_box.start()
        while start and text[start - 1] == "\\":
            start -= 1  # all backslashes before it decide whether the box's own is escaped
        end = 0
        for token in _TOKEN.finditer(text, start):
            if token.start() >= end:
                end = self._process_token(token)

    @property
    def closed(self) -> list[Box]:
        """The closed boxes, in order."""
        boxes = []
        for span in self._closed:
            content = self._text[span.content_start : span.content_end]
            content = _unwrap(content) if span.has_braces else _first_word_group(content)
            boxes.append(Box(span.start, span.end, content))
        return boxes

    @property
    def unclosed(self) -> int | None:
        """The offset of the content of the last unclosed box."""
        return self._open[-1].content_start if self._open else None

    def _process_token(self, token: re.Match[str]) -> int:
        """Process one token and return the offset after the processed text."""
        kind = token.lastgroup
        if kind == "box":
            return self._start_box(token)
        if kind == "open":
            if self._pending is not None:
                self._open.append(_OpenBox(self._depth, self._pending, token.end()))
                self._pending = None
            self._depth += 1
        elif kind == "close":
            self._depth = max(self._depth - 1, 0)
            if self._open and self._open[-1].depth == self._depth:
                self._close_box(token)
        return token.end()

    def _start_box(self, command: re.Match[str]) -> int:
        """Process a box command and return the offset after the processed text."""
        content_start = command.end()
        while content_start < len(self._text) and self._text[content_start] in " \t\n":
            content_start += 1
        if self._text[content_start : content_start + 1] == "{":
            self._pending = command.start()
        elif not self._open:
            content = _PATTERNS["unbraced_content"].match(self._text, command.end())
            if content:
                span = _BoxSpan(
                    start=command.start(),
                    end=content.end(),
                    content_start=content.start(1),
                    content_end=content.end(1),
                    has_braces=False,
                )
                self._add_box(span)
                return content.end()
        return command.end()

    def _close_box(self, brace: re.Match[str]) -> None:
        """Close the last open box, and drop the closed boxes inside it."""
        box = self._open.pop()
        while self._closed and self._closed[-1].start > box.start:
            self._closed.pop()
        span = _BoxSpan(
            start=box.start,
            end=brace.end(),
            content_start=box.content_start,
            content_end=brace.start(),
            has_braces=True,
        )
        self._add_box(span)

    def _add_box(self, span: _BoxSpan) -> None:
        if span.content_end - span.content_start <= MAX_ANSWER_CHARS:
            self._closed.append(span)


def _unwrap(content: str) -> str:
    """Return the content of a box without inner box commands and their braces."""
    content = content.strip()
    if not _COMMAND.search(content):
        return content
    content = _COMMAND.sub("", content).strip()
    while _IN_BRACES.fullmatch(content):
        content = content[1:-1].strip()
    return content


def _first_word_group(content: str) -> str:
    r"""Shorten ``\boxed 2 is the answer`` to ``2``, but keep ``\boxed 2\sqrt 3``."""
    content = content.strip()
    if _HAS_WORD.search(content):
        content = content.split(None, 1)[0]
    return content.rstrip(".,;")
