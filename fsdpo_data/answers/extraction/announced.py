"""Answers that a response announces: "The answer is …", "#### …", "Answer: …", "A: …"."""

from collections.abc import Iterator
from typing import NamedTuple

from fsdpo_data.answers.extraction.boxes import MAX_ANSWER_CHARS
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.extraction.retractions import is_hypothetical

_PATTERNS = load_phrases("spoken")

#: Markers looked at, from the end; a text of nothing but markers costs no more.
_MAX_MARKERS = 8
#: A line with more words is a sentence of the reasoning, unless it is the last one.
_ANSWER_WORDS = 8

#: What follows a choice that is named before: "Hence option (B) is correct".
_CHOSEN = (" is correct", " is the correct", " is right", " is the right", " is the answer")
_LAST_OF_CHOICE = frozenset("ABCDEFGHIJK项項确的意求件")
#: What every marker holds: quick to find, and only then looked at more closely.
_TRIGGERS = ("A:", "####", "nswer", "NSWER")
_CHOICES = ("ption is", "hoice is", *_CHOSEN)
#: What it holds; three of them are ASCII.
_ELSEWHERE = ("spuesta", "sposta", "ntwort", "答", "твет", "답", "éponse")
#: Characters before a trigger that decide what it is.
_BEFORE = 24
_CLAUSE = 200  #: Characters before it that may suppose something.
SENTENCE_END = _PATTERNS["sentence_end"]
_DISPLAYS = (("\\[", "\\]"), ("$$", "$$"), ("\\(", "\\)"))


class AnnouncedAnswer(NamedTuple):
    """An announced answer, the rule that found it, and where its marker ends in the text."""

    answer: str
    rule: str
    end: int = 0


def last_announced(text: str) -> AnnouncedAnswer | None:
    """Return the last answer that ``text`` announces."""
    letter = text[-8:].rstrip(" .。．!！$*)")[-1:] in _LAST_OF_CHOICE
    choice = _PATTERNS["ends_on_choice"].search(text, max(len(text) - 60, 0)) if letter else None
    if choice:
        return AnnouncedAnswer(choice.group(1), "choice", choice.start())
    ours = _TRIGGERS if text.isascii() else _TRIGGERS + _ELSEWHERE
    return _find_announced(text, ours) or _find_announced(text, _ELSEWHERE[:3])


def _find_announced(text: str, triggers: tuple[str, ...]) -> AnnouncedAnswer | None:
    for at, trigger in _triggers(text, triggers):
        if trigger in _CHOSEN:
            chosen = _PATTERNS["choice"].search(text[max(at - _BEFORE, 0) : at])
            found = AnnouncedAnswer(chosen.group(1), "choice", at) if chosen else None
        else:
            marker = _marker(text, at, trigger)
            found = _read(text, *marker) if marker else None
        if found is not None:
            return found
    return None


def _triggers(text: str, triggers: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the last of some triggers in a text, the last one first."""
    last, end = "", len(text)
    for _ in range(_MAX_MARKERS):
        at, found = _last_of(triggers, text, end, last)
        after = text[max(at, 0) :]
        if "orrect" in after or "right" in after or "is the answer" in after:
            at, found = max((at, found), _last_of(_CHOICES, text, end, last))
        if at < 0:
            return
        yield at, found
        last, end = found, at


def _last_of(triggers: tuple[str, ...], text: str, end: int, last: str) -> tuple[int, str]:
    """Return where the last trigger stands that begins before ``end``, where ``last`` begins."""
    at, found = -1, ""
    for trigger in triggers:  # each is looked for only behind those before it
        stop = end if trigger == last else end + len(trigger) - 1
        there = text.rfind(trigger, at + 1, stop)
        if there >= 0:
            at, found = there, trigger
    return at, found


def _marker(text: str, at: int, trigger: str) -> tuple[str, int] | None:
    """Return the rule of the marker at a trigger and where it ends; None if it is no marker."""
    before = text[max(at - _BEFORE, 0) : at]
    if trigger == "####":
        return None if "#" in (before[-1:], text[at + 4 : at + 5]) else ("hash", at + 4)
    if trigger == "A:":
        line = before[before.rfind("\n") + 1 :]
        starts = not line.strip(" \t*") and ("\n" in before or len(before) < _BEFORE)
        return ("label", at + 2) if starts else None
    if trigger in _ELSEWHERE:
        label = _PATTERNS["abroad"].match(text, at + (trigger == "答"))
        return ("label", label.end()) if label else None
    if trigger in ("ption is", "hoice is"):
        word = before[:-1].rstrip().lower()
        return ("choice", at + 8) if word.endswith(("correct", "right")) else None
    return _answer_marker(text, at, before)


def _answer_marker(text: str, at: int, before: str) -> tuple[str, int] | None:
    marker = _PATTERNS["answer"].match(text, at)
    if marker is None or before[-1:] not in ("a", "A") or before[-2:-1].isalnum():
        return None
    if is_hypothetical(text[max(at - _CLAUSE, 0) : at - 1], marker.group()):
        return None
    before, kind, end = before[:-1], marker.lastgroup, marker.end()
    if kind == "line":
        return ("final-answer", end) if _PATTERNS["heads_line"].search(before) else None
    if kind == "tag":
        return ("label", end) if before.endswith("<") else None
    if before.rstrip().lower().endswith("final"):
        return "final-answer", end
    if kind is None:
        return "answer-is", end
    return None if text[end - 1] == "=" else ("label", end)


def _read(text: str, rule: str, end: int) -> AnnouncedAnswer | None:
    """Read the answer after a marker; None if what follows is none."""
    plain = _PATTERNS["plain"].match(text, end)
    if plain:
        return AnnouncedAnswer(plain.group(1), rule, end)
    rest = text[end : end + MAX_ANSWER_CHARS]
    answer, used = _statement(rest)
    if not answer or _PATTERNS["denied"].match(answer):
        return None
    prose = len(_PATTERNS["word"].findall(answer)) > _ANSWER_WORDS or _PATTERNS["heading"].match(
        answer
    )
    # "#### Check of the result" is a heading; GSM8K's "#### 18" is none.
    heading = rule == "hash" and not _PATTERNS["value"].search(answer)
    if (prose or heading) and rest[used:].strip():
        return None
    return AnnouncedAnswer(answer, rule, end)


def _statement(rest: str) -> tuple[str, int]:
    """Return the answer at the start of ``rest``, and how much of ``rest`` its line takes."""
    lead = _PATTERNS["lead"].match(rest)
    start = lead.end() if lead else 0
    for opener, closer in _DISPLAYS:
        if rest.startswith(opener, start):
            end = rest.find(closer, start + 2)
            if end > 0 and not _PATTERNS["conjunction"].match(rest, end + 2):
                return rest[start + 2 : end].strip().rstrip(".,").strip(), end + 2
    line = _line(rest[start:])
    return _without_explanation(line), start + len(line)


def _line(text: str) -> str:
    r"""Return the first line; a line break inside braces, ``\text{a\nb}``, is none."""
    end = text.find("\n")
    for _ in range(4):
        if end < 0:
            return text
        if text.count("{", 0, end) <= text.count("}", 0, end) and (
            text.count("\\begin", 0, end) <= text.count("\\end", 0, end)
        ):
            break
        end = text.find("\n", end + 1)
    return text if end < 0 else text[:end]


def _without_explanation(line: str) -> str:
    stop = _PATTERNS["stop"].search(line, max(line.rfind("\\end{"), 0))
    if stop:
        line = line[: stop.start()]
        if line.count("(") + line.count("[") > line.count(")") + line.count("]"):
            line = line[: line.rfind("(")]  # "148 (149 if …)"
    sentence = SENTENCE_END.search(line)
    if sentence and not _PATTERNS["or_else"].match(line, sentence.end()):
        line = line[: sentence.start()] + "$" * ("$" in sentence.group())
    line = line.strip().rstrip(".。").lstrip("* ")
    line = line if line.endswith("^*") else line.rstrip("* ")
    if line.endswith("}") and line.count("}") > line.count("{"):  # it closes what holds the answer
        line = line[:-1].rstrip()
    quoted = _PATTERNS["quoted"].fullmatch(line)
    return quoted.group(1).strip() if quoted else line
