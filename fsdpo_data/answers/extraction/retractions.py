"""What a response concludes: what it takes back, whether it gives up, whether it ends at all."""

import re

from fsdpo_data.answers.extraction.phrases import TRIGGER_WORDS, load_phrases
from fsdpo_data.answers.lexicon.vocabulary import contains_any

_PATTERNS = load_phrases("concluding")

_LAST = 400  #: Characters at the end in which a response may give up.
_OPEN = frozenset(",:;=+/([{<-")  #: Signs that do not end a text; words may or may not.
_SHORTEST = 8  #: Fewer characters take nothing back and suppose nothing.
#: Cyrillic, Hebrew to the scripts of India and Thailand, Japanese, Chinese, Korean.
_FOREIGN = re.compile("[\u0400-\u04ff\u0590-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def end_of_retraction(rest: str) -> int | None:
    """Return where ``rest``, the text after an answer, is done with taking it back, or None."""
    owed = len(rest) > _SHORTEST and contains_any(rest, TRIGGER_WORDS["takes_back"])
    match = _PATTERNS["takes_back"].search(rest) if owed else None
    return match.end() if match else None


def after_last_retraction(text: str) -> str:
    """Return what stands of a text: the part after the last place that takes something back."""
    owed = contains_any(text, TRIGGER_WORDS["takes_back"])
    back = list(_PATTERNS["takes_back"].finditer(text)) if owed else []
    return text[back[-1].end() :].lstrip(" ,.;:*…-—") if back else text


def replacement_answer(rest: str) -> str | None:
    """Return the sentence that names another answer in place of the one taken back."""
    found = list(_PATTERNS["instead"].finditer(rest))
    return rest[found[-1].end() :].strip(" .*:") or None if found else None


def surrender_phrase(text: str) -> str | None:
    """Return the words by which a response says at its end that it has no answer, or None."""
    owed = contains_any(text[-_LAST:], TRIGGER_WORDS["gives_up"])
    found = _PATTERNS["gives_up"].search(text[-_LAST:]) if owed else None
    return found.group() if found else None


def is_unfinished(text: str, sentence: str) -> bool:
    """Whether a text stops in the middle of its last sentence, or on one that only begins."""
    end = text[-40:].rstrip("*$ \t\n")
    owed = end[-1:].isalpha() or end[-1:] in _OPEN
    stops = owed and _PATTERNS["goes_on"].search(end) is not None
    return stops or _PATTERNS["begins"].match(sentence) is not None


def is_hypothetical(before: str, marker: str) -> bool:
    """Whether an announced answer is one of another problem, or a guess that was dropped."""
    clause = before[max(before.rfind("."), before.rfind("\n")) + 1 :]
    if len(clause) < _SHORTEST:
        return False
    if "would" in marker.lower() and _PATTERNS["supposes"].search(clause):
        return True
    return _PATTERNS["tentative"].search(clause) is not None


def has_foreign_script(text: str) -> bool:
    """Whether a sentence is in a script whose words are not seen by what looks for English ones."""
    return not text.isascii() and _FOREIGN.search(text) is not None
