"""Announced answers: "The answer is …", "#### …", "Answer: …", "A: …"."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fsdpo_data.answers.extraction.boxes import MAX_ANSWER_CHARS
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.extraction.retractions import is_hypothetical
from fsdpo_data.answers.extraction.values import ends_with_bound
from fsdpo_data.answers.lexicon.languages import (
    ASCII_LABEL_ENDINGS,
    LABEL_ENDINGS,
    answer_label_pattern,
)
from fsdpo_data.answers.parsing.clean import drop_bold_marks
from fsdpo_data.answers.parsing.read import read_answer
from fsdpo_data.answers.tree import Words

_PATTERNS = load_phrases("announced")

#: Maximum markers to check, from the end. The limit bounds the cost of a text full of markers.
_MAX_MARKERS = 8
#: A longer line is a sentence of the reasoning, unless it is the last line.
_MAX_ANSWER_WORDS = 8

#: Text after a choice that precedes its marker: "Hence option (B) is correct".
_CHOICE_VERDICTS = (
    " is correct",
    " is the correct",
    " is right",
    " is the right",
    " is the answer",
)
#: Possible last characters of a text that ends with a choice: a letter, or the last character of
#: a Chinese phrase such as "是正确的".
_CHOICE_END_CHARS = frozenset("ABCDEFGHIJK项确的意求件")
#: Substrings of all English markers. Searching them is fast; patterns then check each occurrence.
_ENGLISH_TRIGGERS = ("A:", "####", "nswer", "NSWER")
_CHOICE_TRIGGERS = ("ption is", "hoice is", *_CHOICE_VERDICTS)
#: Labels of other languages, such as "Respuesta:".
_FOREIGN_LABEL = re.compile(answer_label_pattern() + _PATTERNS["clause_after_label"].pattern)
#: Characters before a trigger that decide whether it belongs to a marker.
_CONTEXT_CHARS = 24
_CLAUSE_CHARS = 200  #: Characters before a marker that may contain a condition ("if …").
_FIRST_DIGIT = re.compile(r"\d")
SENTENCE_END = _PATTERNS["sentence_end"]
_DISPLAY_DELIMITERS = (("\\[", "\\]"), ("$$", "$$"), ("\\(", "\\)"))


class AnnouncedAnswer(NamedTuple):
    """An answer that follows a marker such as "The answer is"."""

    answer: str  #: The text of the answer.
    rule: str  #: The extraction rule of the marker, e.g. ``answer-is``.
    #: The offset in the text after which a retraction of the answer is searched.
    end: int = 0
    start: int = 0  #: The offset of the marker in the text.


def last_announced(text: str) -> AnnouncedAnswer | None:
    """Return the last announced answer of ``text``."""
    may_end_with_choice = text[-8:].rstrip(" .。．!！$*)")[-1:] in _CHOICE_END_CHARS
    if may_end_with_choice:
        choice = _PATTERNS["final_choice"].search(text, max(len(text) - 60, 0))
        if choice:
            return AnnouncedAnswer(choice.group(1), "choice", choice.start(), choice.start())
    announced = _find_announced(text, _ENGLISH_TRIGGERS)
    # A later label of another language replaces the answer after an English marker.
    start = announced.end if announced else 0
    return _find_foreign_label(text, start) or announced


def _find_foreign_label(text: str, start: int) -> AnnouncedAnswer | None:
    """Return the last answer that follows a label of another language than English.

    ``start`` is the offset from which labels are searched.
    """
    label_ends = sorted(set(_iterate_label_ends(text, start)), reverse=True)
    answers = (_read_answer(text, "label", end) for end in label_ends[:_MAX_MARKERS])
    return next((answer for answer in answers if answer is not None), None)


def _iterate_label_ends(text: str, start: int) -> Iterator[int]:
    """Yield the end of each foreign label.

    A search for the words of all labels is faster than a search for their pattern.
    """
    for ending, first_letters in ASCII_LABEL_ENDINGS if text.isascii() else LABEL_ENDINGS:
        position = text.find(ending, start)
        while position >= 0:
            label = _FOREIGN_LABEL.match(text, max(position - first_letters, 0))
            if label:
                yield label.end()
            position = text.find(ending, position + 1)


def _find_announced(text: str, triggers: tuple[str, ...]) -> AnnouncedAnswer | None:
    """Return the last answer that follows, or for a choice precedes, one of the triggers.

    "Twice the answer is 24" and "the answer is even" announce it only if nothing else does.
    """
    weak_announcement = None
    for position, trigger in _iterate_triggers(text, triggers):
        announced = None
        if trigger in _CHOICE_VERDICTS:
            start = max(position - _CONTEXT_CHARS, 0)
            choice = _PATTERNS["choice"].search(text, start, position)
            if choice:
                announced = AnnouncedAnswer(choice.group(1), "choice", position, position)
        else:
            marker = _parse_marker(text, position, trigger)
            if marker:
                rule, end = marker
                answer = _read_answer(text, rule, end)
                announced = answer and answer._replace(start=position)
        if announced is None:
            continue
        if not _is_about_answer(text, announced):
            weak_announcement = weak_announcement or announced
            continue
        return announced
    return weak_announcement


def _is_about_answer(text: str, announced: AnnouncedAnswer) -> bool:
    """Whether an announcement states the answer, and nothing else about it."""
    if announced.rule != "answer-is":
        return True
    clause = text[max(announced.start - _CLAUSE_CHARS, 0) : announced.start]
    return not _PATTERNS["other_subject"].search(clause) and is_value(announced.answer)


def is_value(answer: str) -> bool:
    """Whether the text after "the answer is" is a value: not "divisible by 3", "less than 20"."""
    number = _FIRST_DIGIT.search(answer)
    if number is None or not _PATTERNS["word"].search(answer):
        return True
    is_bound = ends_with_bound(answer[: number.start()])
    return not is_bound and not isinstance(read_answer(answer).value, Words)


def _iterate_triggers(text: str, triggers: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the position and the name of the last triggers in a text, the last one first."""
    previous_trigger = ""
    end = len(text)
    for _ in range(_MAX_MARKERS):
        position, trigger = _find_last_trigger(triggers, text, end, previous_trigger)
        text_after = text[max(position, 0) :]
        if "orrect" in text_after or "right" in text_after or "is the answer" in text_after:
            choice = _find_last_trigger(_CHOICE_TRIGGERS, text, end, previous_trigger)
            position, trigger = max((position, trigger), choice)
        if position < 0:
            return
        yield position, trigger
        previous_trigger = trigger
        end = position


def _find_last_trigger(
    triggers: tuple[str, ...], text: str, end: int, previous_trigger: str
) -> tuple[int, str]:
    """Return position and name of the last trigger that begins before ``end``, or (-1, "").

    ``previous_trigger`` is the trigger at ``end``, which must not be found again.
    """
    last_position = -1
    last_trigger = ""
    for trigger in triggers:
        stop = end if trigger == previous_trigger else end + len(trigger) - 1
        # Only a later position than the last one can be the result.
        position = text.rfind(trigger, last_position + 1, stop)
        if position >= 0:
            last_position = position
            last_trigger = trigger
    return last_position, last_trigger


def _parse_marker(text: str, position: int, trigger: str) -> tuple[str, int] | None:
    """Return rule and end of the marker at a trigger, or None if the text is not a marker."""
    text_before = text[max(position - _CONTEXT_CHARS, 0) : position]
    if trigger == "####":
        is_longer = "#" in (text_before[-1:], text[position + 4 : position + 5])
        return None if is_longer else ("hash", position + 4)
    if trigger == "A:":
        line_start = text_before[text_before.rfind("\n") + 1 :]
        has_line_start = "\n" in text_before or len(text_before) < _CONTEXT_CHARS
        starts_line = not line_start.strip(" \t*") and has_line_start
        if not starts_line or _PATTERNS["second_name"].search(text, position):
            return None
        return "label", position + 2
    if trigger in ("ption is", "hoice is"):
        previous_words = text_before[:-1].rstrip().lower()
        is_verdict = previous_words.endswith(("correct", "right"))
        return ("choice", position + 8) if is_verdict else None
    return _parse_answer_marker(text, position, text_before)


def _parse_answer_marker(text: str, position: int, text_before: str) -> tuple[str, int] | None:
    """Return rule and end of a marker with the word "answer", or None."""
    marker = _PATTERNS["answer_marker"].match(text, position)
    if marker is None or text_before[-1:] not in ("a", "A") or text_before[-2:-1].isalnum():
        return None
    clause = text[max(position - _CLAUSE_CHARS, 0) : position - 1]
    if is_hypothetical(clause, marker.group()):
        return None
    text_before = text_before[:-1]  # without the "a" of "answer"
    # ``line`` is a heading such as "Final Answer", ``tag`` an XML tag such as ``<answer>``; other
    # markers are "The answer is" (None) and labels such as "Answer:".
    kind = marker.lastgroup
    end = marker.end()
    if kind == "line":
        return ("final-answer", end) if _PATTERNS["heading_start"].search(text_before) else None
    if kind == "tag":
        return ("label", end) if text_before.endswith("<") else None
    if text_before.rstrip().lower().endswith("final"):
        return "final-answer", end
    if kind is None:
        return "answer-is", end
    return None if text[end - 1] == "=" else ("label", end)


def _read_answer(text: str, rule: str, end: int) -> AnnouncedAnswer | None:
    """Return the answer after a marker, or None if the text after it is not an answer."""
    if rule == "hash" and _PATTERNS["numbered_heading"].match(text, end):
        return None
    number = _PATTERNS["plain_number"].match(text, end)
    if number:
        return AnnouncedAnswer(number.group(1), rule, end)
    text_after = text[end : end + MAX_ANSWER_CHARS]
    answer, used_chars = _read_statement(text_after)
    if not answer or _PATTERNS["denial"].match(answer):
        return None
    is_prose = len(_PATTERNS["word"].findall(answer)) > _MAX_ANSWER_WORDS or _PATTERNS[
        "heading"
    ].match(answer)
    # "#### Check for n = 3" is a heading, but GSM8K's "#### 18" is an answer.
    is_heading = rule == "hash" and _PATTERNS["words_of_heading"].match(answer)
    if (is_prose or is_heading) and text_after[used_chars:].strip():
        return None
    return AnnouncedAnswer(answer, rule, end)


def _read_statement(text: str) -> tuple[str, int]:
    """Return the answer at the start of a text, and the number of characters of its line."""
    lead = _PATTERNS["lead"].match(text)
    start = lead.end() if lead else 0
    for opener, closer in _DISPLAY_DELIMITERS:
        if text.startswith(opener, start):
            end = text.find(closer, start + 2)
            if end > 0 and not _PATTERNS["conjunction"].match(text, end + 2):
                return _without_final_punctuation(text[start + 2 : end]), end + 2
    fence = _PATTERNS["fence"].match(text, start)
    content = _without_final_punctuation(fence["content"]) if fence else ""
    if fence and content:
        # The lines of a fence are not one formula, so several of them stay unread.
        is_one_line = _first_line(content) == content
        return content if is_one_line else fence.group(), fence.end()
    line = _first_line(text[start:])
    # The marker or the lead has the first mark of "**Answer: C** (12)".
    marked_line = "**" + line if line.count("**") % 2 else line
    return _without_explanation(drop_bold_marks(marked_line)), start + len(line)


def _without_final_punctuation(text: str) -> str:
    """Return the formula of a display without the punctuation of its sentence."""
    return text.strip().rstrip(".,").strip()


def _first_line(text: str) -> str:
    r"""Return the first line; a line break inside braces, as in ``\text{a\nb}``, does not end it.

    The same holds for a line break inside a LaTeX environment.
    """
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
    """Return the answer of a line, without the explanation and the sentences that follow."""
    explanation = _PATTERNS["explanation"].search(line, max(line.rfind("\\end{"), 0))
    if explanation:
        line = line[: explanation.start()]
        if line.count("(") + line.count("[") > line.count(")") + line.count("]"):
            line = line[: line.rfind("(")]  # "148 (149 if …)"
        if explanation[0] == "</answer>" and _PATTERNS["factorial"].search(line):
            return line.strip()
    sentence_end = SENTENCE_END.search(line)
    if sentence_end and not _PATTERNS["alternative"].match(line, sentence_end.end()):
        line = line[: sentence_end.start()].rstrip("!")
        if "$" in sentence_end.group():
            line += "$"
    line = line.strip().rstrip(".。").lstrip("* ")
    line = line if line.endswith("^*") else line.rstrip("* ")
    if line.endswith("}") and line.count("}") > line.count("{"):
        # The brace closes a group around the answer.
        line = line[:-1].rstrip()
    return line
