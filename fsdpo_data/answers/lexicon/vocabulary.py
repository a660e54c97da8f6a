"""Names in answers: functions, constants, Greek letters, and words of the language."""

import re
from collections.abc import Iterable

from fsdpo_data.answers.lexicon.words import SCALES, SMALL_NUMBERS, is_number_word
from fsdpo_data.answers.tables import read_module_table
from fsdpo_data.answers.tree import Const


def word_set(text: str) -> frozenset[str]:
    """Return the set of the words of a text."""
    return frozenset(text.split())


def contains_any(text: str, words: Iterable[str]) -> bool:
    """Whether a text contains one of the words, in any case; parts of words count, too."""
    lower = text.lower()
    return any([word in lower for word in words])


_TABLE = read_module_table(__file__)
#: Cyrillic, Hebrew to the scripts of India and Thailand, Japanese, Chinese, Korean.
_FOREIGN_SCRIPT = re.compile("[\u0400-\u04ff\u0590-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
TRIG_FUNCTIONS = word_set(_TABLE["trigonometric"])
#: Function names by name and alias.
FUNCTIONS: dict[str, str] = (
    {name: name for name in TRIG_FUNCTIONS | word_set(_TABLE["functions"])}
    | {prefix + name: "a" + name for name in TRIG_FUNCTIONS for prefix in ("arc", "a")}
    | {"ar" + name: "a" + name for name in TRIG_FUNCTIONS if name.endswith("h")}
    | _TABLE["aliases"]
)
CONSTANTS = {name: Const(constant) for name, constant in _TABLE["constants"].items()}
GREEK_LETTERS = word_set(_TABLE["greek"])
SYMBOLS = GREEK_LETTERS | word_set(_TABLE["symbols"])  #: LaTeX commands that are symbols.
ACCENTS = word_set(_TABLE["accents"])
FUNCTION_LETTERS = frozenset("fghFGH")  #: Letters that name functions if a bracket follows.
KEYWORDS = word_set(
    _TABLE["keywords"]
)  #: Words that join or compare. They are never products of letters.
NON_NOUNS = word_set(_TABLE["non_nouns"])  #: Words that never name counted things.
SUBSCRIPT_WORDS = word_set(_TABLE["subscripts"])  #: Words that form one subscript, such as "max".
ORDINAL_MARKS = word_set("st nd rd th")
PART_WORDS = word_set("half third quarter fourth fifth sixth eighth tenth")
#: Words before the letters of a figure: "triangle ABC".
FIGURE_WORDS = word_set("segment line point angle triangle ray")
MAX_PRODUCT_LETTERS = 3  #: Length of the longest word that is read as a product of letters.
_SHORT_WORDS = word_set("yes no odd all not the are sq cu")
#: Short words that may follow a number and are not products of letters.
SHORT_NOUNS = _SHORT_WORDS | word_set(_TABLE["nouns"])


def is_known_name(word: str) -> bool:
    """Whether ``word`` is a function, a constant, a Greek letter or a number word."""
    lower = word.lower()
    return (
        lower in FUNCTIONS
        or lower in CONSTANTS
        or lower in GREEK_LETTERS
        or word in ("sqrt", "np")  # as in Python code
        or is_number_word(word)
    )


def is_language_word(word: str) -> bool:
    """Whether ``word`` is a word of a language, not a product of letters."""
    lower = word.lower()
    if lower in SMALL_NUMBERS or lower in SCALES or lower in GREEK_LETTERS:
        return False
    if word.isupper() or (word[:-1].isupper() and word.endswith("s")):
        return False
    if lower in _SHORT_WORDS:
        return True
    return len(word) > MAX_PRODUCT_LETTERS or (
        len(word) == 3 and word[0].isupper() and word[1:].islower()
    )


def has_foreign_script(text: str) -> bool:
    """Whether a text contains a script in which the English patterns find no words."""
    return not text.isascii() and _FOREIGN_SCRIPT.search(text) is not None
