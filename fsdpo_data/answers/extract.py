r"""Find the answer in a response: the last ``\boxed``, then spoken markers, then the last number.

Every scan is linear and looks at the end of the text first, so a megabyte of braces costs the
same as a page. Nothing here decides whether an answer is right.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from itertools import islice

#: Characters at the end of a response that are searched for boxes and markers. A final answer
#: further from the end than this is not a final answer.
TAIL = 20_000
#: Longest answer kept; a longer box is treated as missing.
MAX_ANSWER = 10_000

_BOX = re.compile(r"\\\\?f?box(?:ed)?(?![A-Za-z])|\\.|[{}]", re.S)
_BARE = re.compile(r"[ \t]*((?:[^$\n{}\\]|\\[^()\[\]\n]){1,200})")
_HAS_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
#: What may stand between two boxes that are one answer: "3 and 5", "$x=$ 3, or $x=$ 5".
_JOINT = re.compile(
    r"(?:[\s$,;&]|\\[()\[\],;:! ]|\\q?quad|\\text\{[\s,]*(?:and|or)?[\s,]*\}|\band\b|\bor\b"
    r"|\b[a-zA-Z](?:_\{?\w\}?)?\s*=)*"
)
_CONJUNCTION = re.compile(r"\b(?:and|or)\b|[,;&]")
#: A line that starts another problem: what follows was not asked.
_NEXT_PROBLEM = re.compile(
    r"\n[ \t]*(?:#+ *(?:Instruction|Question|Problem)"
    r"|\**(?:Question|Problem|Exercise)\b[^\n]{0,12}:"
    r"|\**Q(?:uestion)? ?\d*[:.] |<\|im_start\|>|Below is an instruction)"
)
_MARKER = re.compile(
    r"(?P<hash>####)|"
    r"(?P<final>\bfinal\s+answer\s*(?:\*\*)?\s*(?:is|was|=|:)\s*:?)|"
    r"(?P<answer>\banswers?\s+(?:to\s+[^.\n]{1,80}?\s+)?(?:is|are|was|should\s+be|must\s+be"
    r"|would\s+be|will\s+be)\b\s*:?)|"
    r"(?P<choice>\b(?:correct|right)\s+(?:option|choice)\s+is\b\s*:?)|"
    r"(?P<label>\banswers?\s*(?:\*\*)?\s*[:：])|"
    r"(?P<a>(?:^|\n)[ \t*]*A:)",
    re.I,
)
_LEAD = re.compile(
    r"(?:[\s:：>]|\*\*|(?:that|simply|just|therefore|thus|indeed|exactly|equal\s+to|given\s+by"
    r"|as\s+follows|then|actually|clearly|hence|is)\b)+",
    re.I,
)
#: Where the answer stops and its explanation starts.
_STOP = re.compile(
    r"[,;]?\s+(?:because|since|as\s+(?:we|the|it|there|required|shown)|so\s+(?:the|we|that|it)"
    r"|which|where|when|obtained|rounded|I\s+hope|hope\s+(?:this|it)|if\s+(?:we|you))\b"
    r"|,\s+(?:not|so|but\s+not)\b|\s+\((?:since|because|not|rounded)\b|\\\\\s*\n",
    re.I,
)
_SENTENCE = re.compile(
    r"(?<!\b[A-Za-z])(?<!\b(?:Mr|Ms|Dr|St|vs|ft|in|sq))(?<!\b(?:Mrs|yds))(?<!\b[ap]\.m)"
    r"[.!?][*$)\]]*(?=\s+[A-Z\\$(\[*]|\s*$)|[!?]\s"
)
_NUMBER = re.compile(
    r"(?<![\w.^_])[-−–]?\s?(?:\\?[$£€])?[-−]?"
    r"(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s?/\s?\d+(?:\.\d+)?)?(?:\\?%)?"
)
_MATHS = re.compile(r"\$\$?([^$\n]{1,400})\$\$?|\\\(([^\n]{1,400}?)\\\)|\\\[([^\]]{1,400}?)\\\]")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer of a response.

    Attributes:
        answer: The answer by the first rule that fired, or None.
        rule: That rule: ``boxed``, ``boxed-list`` (several boxes joined by "and", "or" or a
            comma), ``hash`` (``####``), ``final-answer``, ``answer-is``, ``choice``, ``label``
            ("Answer:", "A:"), ``whole`` (a response that is nothing but its answer),
            ``last-maths``, ``last-number``, ``last-sentence`` or ``none``.
        strict: The answer if the response marks it as such (every rule before ``whole``).
        boxes: Contents of all boxes of the tail, in order.
        sentence: The last sentence, for golds that are words.
    """

    answer: str | None
    rule: str
    strict: str | None = None
    boxes: tuple[str, ...] = ()
    sentence: str = ""


def extract(response: str) -> Extraction:
    """Find the answer of ``response``; never raises, whatever the text holds."""
    text = _own_part(response)
    boxes = _boxes(text)
    if boxes:
        return _from_boxes(text, boxes)
    marked = _marked(text)
    sentence = _last_sentence(text)
    if marked is not None:
        return Extraction(*marked, strict=marked[0], sentence=sentence)
    answer, rule = _unmarked(text, sentence)
    return Extraction(answer, rule, sentence=sentence)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last closed ``\boxed`` or ``\fbox``; an empty box gives ""."""
    boxes = _boxes(text)
    return boxes[-1].content if boxes else None


@dataclass(frozen=True, slots=True)
class _Box:
    start: int
    end: int
    content: str


def _own_part(response: str) -> str:
    """Cut the tail, and whatever follows a finished answer as another problem."""
    text = response[-TAIL:]
    if "box" not in text and len(response) > TAIL:
        at = max(response.rfind("\\boxed"), response.rfind("\\fbox"))
        if at >= 0:
            return response[at : at + TAIL]
    cut = _NEXT_PROBLEM.search(text, _answered_by(text))
    return text[: cut.start()] if cut else text


def _answered_by(text: str) -> int:
    """Return where the first answer of ``text`` is complete; its end if there is none."""
    boxes = _boxes(text)
    ends = [boxes[0].end] if boxes else []
    for marker in islice(_MARKER.finditer(text), 8):
        if _announced(text[marker.end() : marker.end() + 200]):
            ends.append(marker.end())
            break
    return min(ends, default=len(text))


def _boxes(text: str) -> list[_Box]:
    """List all closed boxes in one pass; a box inside a box counts once, as the outer one."""
    if len(text) > TAIL:
        at = max(text.rfind("\\boxed", 0, len(text) - TAIL), text.rfind("\\fbox"), 0)
        near = _boxes(text[-TAIL:])
        return near or (_boxes(text[at : at + TAIL]) if at else [])
    found: list[_Box] = []
    open_boxes: list[tuple[int, int, int]] = []
    depth, bare_end = 0, 0
    pending: int | None = None
    for match in _BOX.finditer(text):
        token = match.group()
        if match.start() < bare_end:
            continue
        if "box" in token:
            after = match.end()
            brace = _skip_space(text, after)
            if brace < len(text) and text[brace] == "{":
                pending = match.start()
            elif not open_boxes and (bare := _BARE.match(text, after)):
                bare_end = bare.end()
                _keep(found, match.start(), bare_end, _first_word_group(bare.group(1)))
        elif token == "{":
            if pending is not None:
                open_boxes.append((depth, pending, match.end()))
                pending = None
            depth += 1
        elif token == "}":
            depth = max(depth - 1, 0)
            if open_boxes and open_boxes[-1][0] == depth:
                _, start, inner = open_boxes.pop()
                while found and found[-1].start > start:
                    found.pop()
                _keep(found, start, match.end(), text[inner : match.start()])
    return found


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n":
        at += 1
    return at


def _keep(found: list[_Box], start: int, end: int, content: str) -> None:
    if len(content) <= MAX_ANSWER:
        found.append(_Box(start, end, content.strip()))


def _first_word_group(content: str) -> str:
    r"""Cut ``\boxed 2 is the answer`` to ``2``; keep ``\boxed 2\sqrt 3``."""
    content = content.strip()
    if _HAS_WORD.search(content):
        content = content.split(None, 1)[0]
    return content.rstrip(".,;")


def _from_boxes(text: str, boxes: list[_Box]) -> Extraction:
    """Take the last box, or the run of boxes that ends the answer as one list."""
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box.end : run[0].start]
        if len(between) > 80 or not _JOINT.fullmatch(between) or not _CONJUNCTION.search(between):
            break
        run.insert(0, box)
    contents = tuple(box.content for box in boxes)
    if len(run) == 1:
        return Extraction(run[0].content, "boxed", run[0].content, contents)
    joined = " , ".join(box.content for box in run)
    return Extraction(joined, "boxed-list", joined, contents)


def _marked(text: str) -> tuple[str, str] | None:
    """Return what the last usable marker announces, with the marker's rule."""
    matches = list(_MARKER.finditer(text))
    for match in reversed(matches[-8:]):
        answer = _announced(text[match.end() : match.end() + MAX_ANSWER])
        if answer:
            kind = match.lastgroup or ""
            names = {"final": "final-answer", "answer": "answer-is", "a": "label"}
            return answer, names.get(kind, kind)
    return None


def _announced(rest: str) -> str:
    """Return the answer at the start of ``rest``: its first line, without what explains it."""
    lead = _LEAD.match(rest)
    start = lead.end() if lead else 0
    for opener, closer in (("\\[", "\\]"), ("$$", "$$"), ("\\(", "\\)")):
        if rest.startswith(opener, start):
            end = rest.find(closer, start + 2)
            if end > 0 and not _CONJUNCTION.match(rest[end + 2 :].lstrip()):
                return rest[start + 2 : end].strip(" \n.,")
    line = rest[start:].split("\n", 1)[0]
    stop = _STOP.search(line)
    if stop:
        line = line[: stop.start()]
    sentence = _SENTENCE.search(line)
    if sentence:
        line = line[: sentence.start()]
    return line.strip().rstrip(".").strip("* ")


def _last_sentence(text: str) -> str:
    lines = [line.strip() for line in text[-2_000:].splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[-1]
    ends = [match.end() for match in _SENTENCE.finditer(line)]
    starts = [0, *(end for end in ends if end < len(line))]
    return line[starts[-1] :].strip()


def _unmarked(text: str, sentence: str) -> tuple[str | None, str]:
    """Fall back: a response that is only its answer, the last maths, the last number."""
    stripped = text.strip()
    if not stripped:
        return None, "none"
    if len(stripped) <= 300 and "\n" not in stripped and stripped == sentence:
        return stripped, "whole"
    maths = _last(_MATHS, sentence)
    if maths is not None and not _DIGIT.search(sentence, maths.end()):
        content = next(part for part in maths.groups() if part is not None)
        return content.strip(), "last-maths"
    if _DIGIT.search(sentence):
        return sentence, "last-sentence"
    number = last_number(text[-4_000:])
    if number is not None:
        return number, "last-number"
    return (sentence, "last-sentence") if sentence else (None, "none")


def last_number(text: str) -> str | None:
    """Return the last number of ``text`` as it is written."""
    number = _last(_NUMBER, text)
    return number.group().strip() if number is not None else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
