"""Whether a sentence such as "So Brand B is cheaper" states a gold that is words or a date.

Only for responses that mark no answer. The sentence must begin with the gold, or end with it after
"is", "in" and the like; a sentence that denies, hedges or turns a comparison round states nothing.
"""

from __future__ import annotations

import re

from fsdpo_data.answers.lexicon.vocabulary import names
from fsdpo_data.answers.lexicon.words import find_dates
from fsdpo_data.answers.reading.answer import Answer
from fsdpo_data.answers.reading.clean import clean
from fsdpo_data.answers.reading.prose import plain_text
from fsdpo_data.answers.tree import Moment, Text

#: Longest gold, in words, that is looked for.
MAX_WORDS = 6
_WORD = re.compile(r"[A-Za-z0-9]+(?:'[a-z]+)?")
_CONNECTIVES = names("so therefore thus hence then and finally clearly consequently overall")
_ARTICLES = names("the a an")
_DOUBT = names(
    """not no nor neither or either maybe might could perhaps but cannot unless if less fewer
    lower smaller slower shorter worse whether"""
)
#: Words after which the end of a sentence is its answer.
_BEFORE = names("is are was were be been in on during called named chose picked becomes")


def states(gold: Answer, sentence: str) -> bool:
    """Whether ``sentence`` says that the answer is ``gold``."""
    value = gold.value
    if isinstance(value, Moment):
        return value.month is not None and find_dates(sentence) == [value]
    if not isinstance(value, Text):
        return False
    wanted, words = _words(gold.plain), _words(plain_text(clean(sentence)))
    while words and words[0] in _CONNECTIVES:
        words = words[1:]
    if not 0 < len(wanted) <= MAX_WORDS or not len(wanted) <= len(words):
        return False
    doubts = (set(words) & _DOUBT) - set(wanted)
    if doubts or any(word.endswith("n't") for word in words):
        return False
    if words[: len(wanted)] == wanted:
        return True
    before = words[-len(wanted) - 1 : -len(wanted)]
    return words[-len(wanted) :] == wanted and bool(set(before) & _BEFORE)


def _words(plain: str) -> list[str]:
    """Return the words of a plain text in lower case, without articles and possessive marks."""
    plain = plain.replace("hey're", "hey are")
    words = _WORD.findall(plain)
    kept = words[:1] if words and words[0].lower() not in _ARTICLES else []
    kept += [word for word in words[1:] if word not in _ARTICLES]  # but the A of "Brand A"
    return [word.lower() for word in kept]
