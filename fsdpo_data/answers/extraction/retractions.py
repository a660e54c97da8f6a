"""Retractions, surrenders and unfinished texts: does a response keep its answer?"""

import re
from collections.abc import Iterator

from fsdpo_data.answers.extraction.phrases import TRIGGER_WORDS, load_phrases
from fsdpo_data.answers.lexicon.vocabulary import contains_any
from fsdpo_data.answers.parsing.prose import unwrap_text

_PATTERNS = load_phrases("retractions")

_SURRENDER_CHARS = 400  #: Characters at the end of a response that may contain a surrender.
_UNFINISHED_CHARS = frozenset(",:;=+/([{<-")  #: Characters that cannot end a finished text.
_END_CHARS = 40  #: Characters at the end that may show that a text is not finished.
_SENTENCE_CHARS = 400  #: Characters before a retraction that are searched for its sentence.
_SENTENCE_END = re.compile(r"[.?!](?=[\s$])|\n")
_MIN_CHARS = 8  #: A shorter text cannot contain a retraction or a condition.


def end_of_retraction(text_after: str) -> int | None:
    """Return the end of the first retraction in the text after an answer, or None."""
    if len(text_after) <= _MIN_CHARS or not contains_any(text_after, TRIGGER_WORDS["retraction"]):
        return None
    return next((retraction.end() for retraction in _find_retractions(text_after)), None)


def retracted_statement(text_after: str) -> str:
    """Return the part before "that is wrong" of the first sentence with a retraction.

    The result is "" for other retractions, and after a word such as "Wait".
    """
    retraction = next(_find_retractions(text_after), None)
    if retraction is None or retraction.lastgroup != "statement":
        return ""
    sentence = _SENTENCE_END.split(text_after[: retraction.start()])[-1]
    return "" if _PATTERNS["second_thought"].search(sentence) else sentence


def after_last_retraction(text: str) -> str:
    """Return the part of a text after its last retraction, or the text if it retracts nothing."""
    if not contains_any(text, TRIGGER_WORDS["retraction"]):
        return text
    retractions = list(_find_retractions(text))
    return text[retractions[-1].end() :].lstrip(" ,.;:*…-—") if retractions else text


def _find_retractions(text: str) -> Iterator[re.Match[str]]:
    """Yield the retractions that are not about another value: "For n = 1 this is not true"."""
    for retraction in _PATTERNS["retraction"].finditer(text):
        if not _is_about_other_value(retraction):
            yield retraction


def _is_about_other_value(retraction: re.Match[str]) -> bool:
    about = retraction.lastgroup
    if about is None:
        return False
    end = retraction.start()
    text_before = retraction.string[max(end - _SENTENCE_CHARS, 0) : end]
    *earlier_sentences, sentence = _SENTENCE_END.split(text_before)
    if about == "reason" and any(map(str.strip, earlier_sentences)):
        return False  # "This is too large because I double counted"
    return (
        _PATTERNS[f"other_{about}"].search(sentence) is not None
        and not _PATTERNS["second_thought"].search(sentence)
        and not _PATTERNS["new_value"].search(retraction.string, retraction.end())
    )


def drop_retracted_part(answer: str) -> str:
    """Return the part of a marked answer after its last retraction, or the answer unchanged."""
    has_words = len(answer) >= _MIN_CHARS and " " in answer
    if not has_words or not contains_any(answer, TRIGGER_WORDS["retraction"]):
        return answer
    plain = unwrap_text(answer)
    part = after_last_retraction(plain)
    if part == plain:
        return answer
    return part if any(map(str.isalnum, part)) else ""


def replacement_answer(text: str) -> str | None:
    """Return the text after the last phrase such as "It should be", which replaces an answer.

    The result is None without such a phrase, or without text after it.
    """
    matches = list(_PATTERNS["replacement"].finditer(text))
    return text[matches[-1].end() :].strip(" .*:") or None if matches else None


def surrender_phrase(text: str) -> str | None:
    """Return the words at the end of a response that admit it has no answer, or None."""
    tail = text[-_SURRENDER_CHARS:]
    is_possible = contains_any(tail, TRIGGER_WORDS["surrender"])
    surrender = _PATTERNS["surrender"].search(tail) if is_possible else None
    return surrender.group() if surrender else None


def is_unfinished(text: str, sentence: str) -> bool:
    """Whether a text stops inside a sentence, or its last sentence only opens the reasoning.

    Args:
        text: The text.
        sentence: Its last sentence. "First we consider ..." opens the reasoning.
    """
    return _stops(text) or _PATTERNS["opening"].match(sentence) is not None


def _stops(text: str) -> bool:
    """Whether a text stops at a word or a sign that something follows: "so we get"."""
    end = text[-_END_CHARS:].rstrip("*$ \t\n")
    if not (end[-1:].isalpha() or end[-1:] in _UNFINISHED_CHARS):
        return False
    unfinished = _PATTERNS["unfinished_end"].search(end)
    if unfinished is None:
        return False
    # Words in capitals are answers: the choice A, and the operation AND.
    is_in_capitals = (unfinished["words"] or "").isupper()
    start = max(len(text) - _END_CHARS, 0)
    return not (is_in_capitals or _PATTERNS["answer_at_end"].search(text, start))


def is_hypothetical(text_before: str, marker: str) -> bool:
    """Whether an announced answer depends on a condition, or is only a first guess.

    Args:
        text_before: The text before the marker.
        marker: The words that announce the answer, such as "answer would be".
    """
    clause = text_before[max(text_before.rfind("."), text_before.rfind("\n")) + 1 :]
    if len(clause) < _MIN_CHARS:
        return False
    if "would" in marker.lower() and _PATTERNS["supposition"].search(clause):
        return True
    return _PATTERNS["tentative"].search(clause) is not None
