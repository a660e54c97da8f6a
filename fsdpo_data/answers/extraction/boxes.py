r"""Find ``\boxed{…}`` and ``\fbox{…}`` in a text, in one pass over its end."""

import re
from typing import NamedTuple

from fsdpo_data.answers.extraction.phrases import load_phrases

#: Characters at the end of a response that are searched. A final answer further from the end
#: than this is not a final answer.
SEARCH_WINDOW_CHARS = 20_000
_PATTERNS = load_phrases("boxes")
MAX_ANSWER_CHARS = 10_000  #: Longest answer kept; a longer box is treated as missing.

# JSON and Python read "\b" and "\f" as control characters, so texts hold "\x08oxed" too.
_TOKEN = _PATTERNS["token"]
#: Where the first box may start; braces before it are of no account.
_FIRST = re.compile(r"[\\\x08\x0c](?:f?box|oxed|framebox)")
_HAS_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\?\\(?:f?box|boxed)(?![A-Za-z])")
_IN_BRACES = re.compile(r"\{[^{}]*\}")

#: Start and end of a box, start and end of its content, whether it is without braces.
_Span = tuple[int, int, int, int, bool]


class Box(NamedTuple):
    """A closed box: where it is (start and end in the text) and what it holds."""

    start: int
    end: int
    content: str


def text_tail(text: str, size: int) -> str:
    """Return the last ``size`` characters of a text; a number cut in half there is dropped."""
    tail = text[-size:]
    return tail if len(text) <= size else tail.lstrip("0123456789.,")


def search_window(text: str) -> str:
    """Return the end of a text, or the part from its last box on if that is further away."""
    end = text if len(text) <= SEARCH_WINDOW_CHARS else text_tail(text, SEARCH_WINDOW_CHARS)
    if len(text) == len(end) or "box" in end:
        return end
    far = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    return text[far : far + SEARCH_WINDOW_CHARS] if far >= 0 else end


def find_boxes(text: str) -> list[Box]:
    """List the closed boxes at the end of ``text``; a box in a box counts once, as the outer."""
    marked = "\\" in text or "\b" in text or "\f" in text
    return _Scan(search_window(text)).closed if marked and "ox" in text else []


def last_box_content(text: str) -> str | None:
    r"""Return the content of the last closed ``\boxed`` or ``\fbox``; an empty box gives ""."""
    boxes = find_boxes(text)
    return boxes[-1].content if boxes else None


def truncated_box_content(text: str) -> str | None:
    """Return what the last box holds if the text ends, or its line does, before it is closed."""
    start = _Scan(text[-SEARCH_WINDOW_CHARS:]).unclosed if "ox" in text else None
    if start is None:
        return None
    content = text[-SEARCH_WINDOW_CHARS:][start:].split("\n", 1)[0].split("$", 1)[0].strip()
    return content or None


class _Scan:
    """One pass over the braces and boxes of a text."""

    def __init__(self, text: str) -> None:
        self._closed: list[_Span] = []
        self._text = text
        self._depth = 0
        self._open: list[tuple[int, int, int]] = []  # (depth, start, start of the content)
        self._pending: int | None = None
        first = _FIRST.search(text)
        if first is None:
            return
        start, end = first.start(), 0
        while start and text[start - 1] == "\\":
            start -= 1  # whether a backslash is escaped depends on all those before it
        for match in _TOKEN.finditer(text, start):
            if match.start() >= end:
                end = self._take(match)

    @property
    def closed(self) -> list[Box]:
        """List the boxes that were closed, in order."""
        boxes = []
        for start, end, first, last, bare in self._closed:
            content = self._text[first:last]
            content = _first_word_group(content) if bare else _unwrap(content)
            boxes.append(Box(start, end, content))
        return boxes

    @property
    def unclosed(self) -> int | None:
        """Where the content of the last box starts that was never closed."""
        return self._open[-1][2] if self._open else None

    def _take(self, match: re.Match[str]) -> int:
        """Take one token; return how far the text is used up."""
        kind = match.lastgroup
        if kind == "box":
            return self._begin(match)
        if kind == "open":
            if self._pending is not None:
                self._open.append((self._depth, self._pending, match.end()))
                self._pending = None
            self._depth += 1
        elif kind == "close":
            self._depth = max(self._depth - 1, 0)
            if self._open and self._open[-1][0] == self._depth:
                _, start, inner = self._open.pop()
                while self._closed and self._closed[-1][0] > start:
                    self._closed.pop()
                self._keep((start, match.end(), inner, match.start(), False))
        return match.end()

    def _begin(self, match: re.Match[str]) -> int:
        after = match.end()
        while after < len(self._text) and self._text[after] in " \t\n":
            after += 1
        if self._text[after : after + 1] == "{":
            self._pending = match.start()
        elif not self._open and (bare := _PATTERNS["bare"].match(self._text, match.end())):
            self._keep((match.start(), bare.end(), *bare.span(1), True))
            return bare.end()
        return match.end()

    def _keep(self, span: _Span) -> None:
        if span[3] - span[2] <= MAX_ANSWER_CHARS:
            self._closed.append(span)


def _unwrap(content: str) -> str:
    """Return a box's content without boxes in it and without braces around all of it."""
    content = content.strip()
    if not _COMMAND.search(content):
        return content
    content = _COMMAND.sub("", content).strip()
    while _IN_BRACES.fullmatch(content):
        content = content[1:-1].strip()
    return content


def _first_word_group(content: str) -> str:
    r"""Cut ``\boxed 2 is the answer`` to ``2``; keep ``\boxed 2\sqrt 3``."""
    content = content.strip()
    if _HAS_WORD.search(content):
        content = content.split(None, 1)[0]
    return content.rstrip(".,;")
