"""Answers that a response announces: "The answer is …", "#### …", "Answer: …", "A: …"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from fsdpo_data.answers.boxes import MAX_ANSWER

#: Markers looked at, from the end; a text of nothing but markers costs no more.
_MARKERS_TRIED = 8
#: A line with more words is a sentence of the reasoning, unless it is the last one.
_ANSWER_WORDS = 8

_MARKER = re.compile(
    r"(?P<final>(?:^|\n)[ \t]*(?:#{1,6}|\*\*)[ \t]*(?:the[ \t]+)?(?:final[ \t]+)?answers?[ \t]*"
    r"[:：]?(?:\*\*)?[ \t]*[:：]?[ \t]*\n"
    r"|\bfinal\s+answer\s*(?:\*\*)?\s*(?:is|was|=|[:：])\s*[:：]?)|"
    r"(?P<hash>(?<!#)####(?!#))|"
    r"(?P<tag><answer>)|"
    r"(?P<answer>\banswers?\s+(?:to\s+[^.\n]{1,80}?\s+)?(?:is|are|was|should\s+be|must\s+be"
    r"|would\s+be|will\s+be)\b\s*[:：]?)|"
    r"(?P<choice>\b(?:correct|right)\s+(?:option|choice)\s+is\b\s*[:：]?)|"
    r"(?P<label>\banswers?[\"'\s]*(?:\*\*)?\s*[:：]|答案(?:[是为]\s*[:：]?|\s*[:：]))|"
    r"(?P<a>(?:^|\n)[ \t*]*A:)",
    re.I,
)
#: A marker holds one of these, which are quick to find. It starts and ends not far from there.
_TRIGGER = re.compile(r"nswer|NSWER|####|(?:option|choice) is|A:|答案")
_BEFORE, _AFTER = 30, 130
_RULES = {"final": "final-answer", "answer": "answer-is", "a": "label", "tag": "label"}
_LEAD = re.compile(
    r"(?:[\s:：>]|\*\*|(?:that|simply|just|therefore|thus|indeed|exactly|equal\s+to|given\s+by"
    r"|as\s+follows|then|actually|clearly|hence|is|about|approximately|roughly|around|probably"
    r"|likely)\b)+",
    re.I,
)
#: Where the answer stops and its explanation starts.
_STOP = re.compile(
    r"[,;]?\s+(?:because|since|as\s+(?:we|the|it|there|required|shown)|so\s+(?:the|we|that|it)"
    r"|which|where|when|obtained|rounded|I\s+hope|hope\s+(?:this|it)|if\s+(?:we|you))\b"
    r"|,\s+(?:not|so|but)\b|\s+\((?:since|because|not|rounded)\b|\\\\\s*\n|</answer>",
    re.I,
)
#: The end of a sentence. A thin space (``\\!``), a factorial and "Mrs. Hilt" end none.
SENTENCE_END = re.compile(
    r"(?<!\b[A-Za-z])(?<!\b(?:Mr|Ms|Dr|St|vs|ft|in|sq))(?<!\b(?:Mrs|yds))(?<!\b[ap]\.m)"
    r"(?:[.?][*$)\]]*(?=\s+[A-Z\\$(\[*]|\s*$)|\?\s|(?<!\\)!\**(?=\s+[A-Z]|\s*$))"
)
#: What takes an answer back, or offers another beside it.
_OR_ELSE = re.compile(
    r"\W*(?:or\b|alternatively\b|(?:but\s+)?(?:it|this|the\s+answer)\s+(?:could|might|may)\b)", re.I
)
_DENIED = re.compile(r"(?:not|never|unlikely|wrong)\b", re.I)
_HEADING = re.compile(r"(?:\d+\.\s|\W*(?:step|part|case)\s*\d)", re.I)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_VALUE = re.compile(r"[\d$\\]")
_QUOTED = re.compile(r"[\"'`]([^\"'`]*)[\"'`]\s*[}\]]*")
_DISPLAYS = (("\\[", "\\]"), ("$$", "$$"), ("\\(", "\\)"))
_CONJUNCTION = re.compile(r"\s*(?:and\b|or\b|[,;&])")


@dataclass(frozen=True, slots=True)
class Announced:
    """An announced answer, the rule that found it, and where its announcement begins."""

    answer: str
    rule: str
    start: int


def last_announced(text: str) -> Announced | None:
    """Return the last answer that ``text`` announces."""
    triggers = list(_TRIGGER.finditer(text))[-_MARKERS_TRIED:]
    return _first_usable(text, reversed(triggers))


def first_announced(text: str) -> Announced | None:
    """Return the first answer that ``text`` announces."""
    return _first_usable(text, islice(_TRIGGER.finditer(text), _MARKERS_TRIED))


def _first_usable(text: str, triggers: Iterable[re.Match[str]]) -> Announced | None:
    for trigger in triggers:
        near = max(trigger.start() - _BEFORE, 0), trigger.end() + _AFTER
        for marker in _MARKER.finditer(text, *near):
            if marker.start() <= trigger.start() < marker.end():
                found = _read(text, marker)
                if found is not None:
                    return found
    return None


def _read(text: str, marker: re.Match[str]) -> Announced | None:
    rest = text[marker.end() : marker.end() + MAX_ANSWER]
    answer, used = _statement(rest)
    kind = marker.lastgroup or ""
    if not answer or _DENIED.match(answer):
        return None
    goes_on = bool(rest[used:].strip())
    prose = len(_WORD.findall(answer)) > _ANSWER_WORDS or _HEADING.match(answer)
    # "#### Check of the result" is a heading; GSM8K's "#### 18" is none.
    heading = kind == "hash" and not _VALUE.search(answer)
    if goes_on and (prose or heading):
        return None
    return Announced(answer, _RULES.get(kind, kind), marker.start())


def _statement(rest: str) -> tuple[str, int]:
    """Return the answer at the start of ``rest``, and how much of ``rest`` its line takes."""
    lead = _LEAD.match(rest)
    start = lead.end() if lead else 0
    for opener, closer in _DISPLAYS:
        if rest.startswith(opener, start):
            end = rest.find(closer, start + 2)
            if end > 0 and not _CONJUNCTION.match(rest, end + 2):
                return rest[start + 2 : end].strip().rstrip(".,").strip(), end + 2
    line = _line(rest[start:])
    return _without_explanation(line), start + len(line)


def _line(text: str) -> str:
    r"""Return the first line; a line break inside braces, ``\text{a\nb}``, is none."""
    end = text.find("\n")
    for _ in range(4):
        if end < 0:
            return text
        if text.count("{", 0, end) <= text.count("}", 0, end):
            break
        end = text.find("\n", end + 1)
    return text if end < 0 else text[:end]


def _without_explanation(line: str) -> str:
    stop = _STOP.search(line)
    if stop:
        line = line[: stop.start()]
    sentence = SENTENCE_END.search(line)
    if sentence and not _OR_ELSE.match(line, sentence.end()):
        line = line[: sentence.start()]
    line = line.strip().rstrip(".").strip("* ")
    quoted = _QUOTED.fullmatch(line)
    return quoted.group(1).strip() if quoted else line
