"""Answers that nothing announces: the last formula or number of the last sentence that has one."""

from __future__ import annotations

import re
from itertools import pairwise

from fsdpo_data.answers.boxes import ending
from fsdpo_data.answers.spoken import SENTENCE_END

#: Characters at the end that are searched.
_NEAR = 4_000
#: Longest response that can be nothing but its answer.
_WHOLE = 300

_NUMBER = re.compile(
    r"(?<![\w.^_])[-−–]?\s?(?:\\?[$£€]\s?)?[-−]?"
    r"(?:(?:\d{1,3}(?:(?:,|\{,\}|,\\!|\\,)\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:\s?/\s?\d+(?:\.\d+)?)?(?:\\?%)?"
)
_MATHS = re.compile(r"\$\$?([^$\n]{1,400})\$\$?|\\\(([^\n]{1,400}?)\\\)|\\\[([^\]]{1,400}?)\\\]")
_LATEX = re.compile(r"\\(?![$%!,;])")
_HAS_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
_DIGIT = re.compile(r"\d")
#: What may stand between two values that are one answer: "3 and 5", "$x=$ 3, or $x=$ 5".
JOINT = re.compile(
    r"(?:[\s$,;&]|\\[()\[\],;:! ]|\\q?quad|\\text\{[\s,]*(?:and|or)?[\s,]*\}|\band\b|\bor\b"
    r"|\b[a-zA-Z](?:_\{?\w\}?)?\s*=)*"
)
CONJUNCTION = re.compile(r"\b(?:and|or)\b|[,;&]")
_OR = re.compile(r"([^\d]*?),?\s*\bor\b\s*[^\d]*")
_PERHAPS = re.compile(r"\b(?:could|might|may|maybe|perhaps|possibly)\b", re.I)
_AFTER = re.compile(r"\s*([A-Za-z]+)")
#: A bound is not a value.
_BOUND = re.compile(
    r"(?:(?:less|more|fewer|greater|larger|smaller)\s+than|at\s+(?:least|most)"
    r"|(?:\bnot|n't|\bcannot|\bnever)(?:\s+(?:be|equal))?)"
    r"(?:\s+or\s+equal)?(?:\s+to)?\s*[$\\(]*$|\b(?:between|range)\b[^.]*$",
    re.I,
)
_NUMBERED = re.compile(r"\s*(?:\**(?:step|part|case)\s*\d+\s*\**\s*[:.]|\d+[.)]\s|[-*]\s)", re.I)
#: Nothing but the announcement of an answer that never comes.
_NOTHING = re.compile(r"(?:[\W_]|\b(?:f?box(?:ed)?|so|the|final|answers?|is|are)\b)*", re.I)
_PLEASANTRY = re.compile(
    r"(?:I\s+)?hope\b|let\s+me\s+know|(?:please\s+)?feel\s+free|is\s+there\s+anything", re.I
)


def settled_value(statement: str) -> str | None:
    """Return the formula or number that a statement in words ends on.

    None for a statement without words, which is a value as it stands, and for one that offers
    several values, or only bounds one.
    """
    if not _HAS_WORD.search(statement):
        return None
    return _last_formula(statement) or settled_number(statement)


def settled_number(statement: str) -> str | None:
    """Return the number a statement ends on; None if it offers several, or only bounds it."""
    numbers = list(_NUMBER.finditer(statement))
    # A number inside LaTeX is a part of something: \frac{1}{2} does not end on 2.
    if not numbers or _LATEX.search(statement):
        return None
    last = numbers[-1]
    if _BOUND.search(statement, 0, last.start()):
        return None
    if len(numbers) > 1:
        between = statement[numbers[-2].end() : last.start()]
        if JOINT.fullmatch(between) and CONJUNCTION.search(between):
            return None
        if _PERHAPS.search(between) or _either(between, statement[last.end() :]):
            return None
    return last.group().strip()


def _either(between: str, after: str) -> bool:
    """Whether "… or …" offers two candidates; "300 minutes, or 5 hours" says one thing twice."""
    offered = _OR.fullmatch(between)
    if not offered:
        return False
    first, second = offered.group(1).split(), _AFTER.match(after)
    return not (first and second and first[0].strip(",") != second.group(1))


def last_sentence(text: str) -> str:
    """Return the last sentence that says something about the problem."""
    lines = [line.strip() for line in ending(text, _NEAR).splitlines() if line.strip()]
    for line in reversed(lines[-20:]):
        for sentence in reversed(_sentences(line)):
            if not _PLEASANTRY.match(sentence):
                return sentence
    return ""


def _sentences(line: str) -> list[str]:
    ends = [match.end() for match in SENTENCE_END.finditer(line)]
    cuts = [0, *ends, len(line)]
    parts = [line[start:end].strip() for start, end in pairwise(cuts)]
    return [part for part in parts if part]


def unmarked(text: str, sentence: str) -> tuple[str | None, str]:
    """Return the answer that a text without markers gives, and by which rule.

    Args:
        text: The response.
        sentence: Its ``last_sentence``.
    """
    stripped = text.strip()
    if _NOTHING.fullmatch(stripped):
        return None, "none"
    if len(stripped) <= _WHOLE and "\n" not in stripped and stripped == sentence:
        return stripped, "whole"
    formula = _closing_display(stripped) or _last_formula(sentence)
    if formula is not None:
        return formula, "last-maths"
    number = _last_number(text, sentence)
    if number is not None:
        return number, "last-number"
    return (sentence, "last-sentence") if sentence else (None, "none")


def _closing_display(text: str) -> str | None:
    """Return the displayed formula a text ends on."""
    text = ending(text, _NEAR).rstrip(". ")
    for opener, closer in (("\\[", "\\]"), ("$$", "$$")):
        start = text.rfind(opener, 0, len(text) - 2)
        if text.endswith(closer) and start >= 0:
            return text[start + 2 : -2].strip().rstrip(".,").strip() or None
    return None


def _last_formula(sentence: str) -> str | None:
    """Return the formula a sentence ends on, or the run of formulas that is one list."""
    found = list(_MATHS.finditer(sentence))
    if not found or _DIGIT.search(sentence, found[-1].end()):
        return None
    first = last = len(found) - 1
    while first > 0:
        between = sentence[found[first - 1].end() : found[first].start()]
        if not JOINT.fullmatch(between) or not CONJUNCTION.search(between):
            break
        first -= 1
    contents = [next(part for part in each.groups() if part) for each in found[first : last + 1]]
    return " , ".join(content.strip() for content in contents)


def _last_number(text: str, sentence: str) -> str | None:
    """Return the number the last sentence with a number ends on."""
    for line in (sentence, *reversed(ending(text, _NEAR).splitlines()[-40:])):
        number = _NUMBERED.match(line)
        said = line[number.end() :] if number else line
        if _DIGIT.search(said):
            return settled_number(said)
    return None
