"""What a response concludes: what it takes back, whether it gives up, whether it ends at all."""

import re
from collections.abc import Iterable

from fsdpo_data.answers.finding.phrases import phrases
from fsdpo_data.answers.lexicon.vocabulary import names

_SAID = phrases("concluding")

_LAST = 400  #: Characters at the end in which a response may give up.
_TAKES_BACK = _SAID["takes_back"]
#: Of these, what takes something back holds one, and what gives up one of those; quick to find.
_ERRORS = names("right correct true wrong mis error slip forgot overlook wait scratch regard count")
_LOST = names("give not n't idea unable stuck")
_SHORTEST = 8  #: Fewer characters take nothing back and suppose nothing.
_INSTEAD = _SAID["instead"]
_GIVES_UP = _SAID["gives_up"]
#: What holds only if something does that does not: "if order mattered, it would be 20".
_SUPPOSES = re.compile(r"\b(?:if|unless|suppose|had|were|were\s+to|without)\b", re.I)
_TENTATIVE = re.compile(r"\b(?:thought|guess(?:ed)?|assumed|initially|at\s+first)\b", re.I)
_GOES_ON = _SAID["goes_on"]
_BEGINS = _SAID["begins"]
_CHINESE = re.compile("[\u4e00-\u9fff]")


def taken_back(rest: str) -> int | None:
    """Return where ``rest``, the text after an answer, is done with taking it back, or None."""
    owed = len(rest) > _SHORTEST and _holds(rest, _ERRORS)
    match = _TAKES_BACK.search(rest) if owed else None
    return match.end() if match else None


def _holds(text: str, words: Iterable[str]) -> bool:
    text = text.lower()
    return bool([word for word in words if word in text])


def standing(text: str) -> str:
    """Return what stands of a text: the part after the last place that takes something back."""
    back = list(_TAKES_BACK.finditer(text)) if _holds(text, _ERRORS) else []
    return text[back[-1].end() :].lstrip(" ,.;:*…-—") if back else text


def instead(rest: str) -> str | None:
    """Return the sentence that names another answer in place of the one taken back."""
    found = list(_INSTEAD.finditer(rest))
    return rest[found[-1].end() :].strip(" .*:") or None if found else None


def gives_up(text: str) -> bool:
    """Whether a response ends without an answer of its own."""
    return _holds(text[-_LAST:], _LOST) and _GIVES_UP.search(text[-_LAST:]) is not None


def goes_on(text: str, sentence: str) -> bool:
    """Whether a text stops in the middle of its last sentence, or on one that only begins."""
    stops = _GOES_ON.search(text[-40:].rstrip("*$ \n")) is not None
    return stops or _BEGINS.match(sentence) is not None


def is_supposed(before: str, marker: str) -> bool:
    """Whether an announced answer is one of another problem, or a guess that was dropped."""
    clause = before[max(before.rfind("."), before.rfind("\n")) + 1 :]
    if len(clause) < _SHORTEST:
        return False
    if "would" in marker.lower() and _SUPPOSES.search(clause):
        return True
    return _TENTATIVE.search(clause) is not None


def is_chinese(text: str) -> bool:
    """Whether a sentence is Chinese: its words are not seen by what looks for English ones."""
    return not text.isascii() and _CHINESE.search(text) is not None
