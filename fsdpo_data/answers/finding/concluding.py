"""What a response concludes: what it takes back, whether it gives up, whether it ends at all."""

import re

from fsdpo_data.answers.finding.phrases import HELD, phrases
from fsdpo_data.answers.lexicon.vocabulary import holds

_SAID = phrases("concluding")

_LAST = 400  #: Characters at the end in which a response may give up.
_OPEN = frozenset(",:;=+/([{<-")  #: Signs that do not end a text; words may or may not.
_SHORTEST = 8  #: Fewer characters take nothing back and suppose nothing.
#: Cyrillic, Hebrew to the scripts of India and Thailand, Japanese, Chinese, Korean.
_FOREIGN = re.compile("[\u0400-\u04ff\u0590-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def taken_back(rest: str) -> int | None:
    """Return where ``rest``, the text after an answer, is done with taking it back, or None."""
    owed = len(rest) > _SHORTEST and holds(rest, HELD["takes_back"])
    match = _SAID["takes_back"].search(rest) if owed else None
    return match.end() if match else None


def standing(text: str) -> str:
    """Return what stands of a text: the part after the last place that takes something back."""
    owed = holds(text, HELD["takes_back"])
    back = list(_SAID["takes_back"].finditer(text)) if owed else []
    return text[back[-1].end() :].lstrip(" ,.;:*…-—") if back else text


def instead(rest: str) -> str | None:
    """Return the sentence that names another answer in place of the one taken back."""
    found = list(_SAID["instead"].finditer(rest))
    return rest[found[-1].end() :].strip(" .*:") or None if found else None


def gives_up(text: str) -> str | None:
    """Return the words by which a response says at its end that it has no answer, or None."""
    owed = holds(text[-_LAST:], HELD["gives_up"])
    found = _SAID["gives_up"].search(text[-_LAST:]) if owed else None
    return found.group() if found else None


def goes_on(text: str, sentence: str) -> bool:
    """Whether a text stops in the middle of its last sentence, or on one that only begins."""
    end = text[-40:].rstrip("*$ \t\n")
    owed = end[-1:].isalpha() or end[-1:] in _OPEN
    stops = owed and _SAID["goes_on"].search(end) is not None
    return stops or _SAID["begins"].match(sentence) is not None


def is_supposed(before: str, marker: str) -> bool:
    """Whether an announced answer is one of another problem, or a guess that was dropped."""
    clause = before[max(before.rfind("."), before.rfind("\n")) + 1 :]
    if len(clause) < _SHORTEST:
        return False
    if "would" in marker.lower() and _SAID["supposes"].search(clause):
        return True
    return _SAID["tentative"].search(clause) is not None


def is_foreign(text: str) -> bool:
    """Whether a sentence is in a script whose words are not seen by what looks for English ones."""
    return not text.isascii() and _FOREIGN.search(text) is not None
