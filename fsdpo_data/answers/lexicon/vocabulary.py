"""The names that answers use: functions, constants, Greek letters, words that are no letters."""

from __future__ import annotations

from fsdpo_data.answers.lexicon.words import SCALES, SMALL, is_number_word
from fsdpo_data.answers.tree import Const


def names(text: str) -> frozenset[str]:
    """Return the words of ``text``."""
    return frozenset(text.split())


TRIG = names("sin cos tan cot sec csc sinh cosh tanh coth")
#: Functions by every name they go by.
FUNCTIONS = {name: name for name in TRIG} | {
    name: name for name in names("ln log lg exp abs floor ceil max min gcd lcm sgn det cis")
}
FUNCTIONS |= {"arc" + name: "a" + name for name in TRIG}
FUNCTIONS |= {"a" + name: "a" + name for name in TRIG}
FUNCTIONS |= {"ar" + name: "a" + name for name in TRIG if name.endswith("h")}
FUNCTIONS |= {"cosec": "csc", "tg": "tan", "ctg": "cot", "arctg": "atan", "ceiling": "ceil"}
CONSTANTS = {
    "pi": Const("pi"),
    "infty": Const("inf"),
    "infinity": Const("inf"),
    "inf": Const("inf"),
    "oo": Const("inf"),
    "e": Const("e"),
    "i": Const("i"),
    "imath": Const("i"),
}
GREEK = names(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"""
)
#: Commands that stand for themselves.
SYMBOLS = GREEK | names(
    """hbar ell odot partial nabla ldots triangle dagger Re Im aleph prime jmath angle sum prod
    int lim neg basisi basisj basisk"""
)
ACCENTS = names("dot ddot hat bar tilde overline widehat widetilde check vec overrightarrow")
#: Letters that stand for functions when a bracket follows.
FUNCTION_LETTERS = frozenset("fghFGH")
#: Words that join or compare; never letters to multiply.
KEYWORDS = names(
    """and or to in is from union intersection intersect except per where if not no only by of
    over respectively between"""
)
#: Words that are one subscript.
SCRIPT_WORDS = names("max min avg rms tot ext int eff out net sys env kin pot cm")
ORDINAL_MARKS = names("st nd rd th")
PART_WORDS = names("half third quarter fourth fifth sixth eighth tenth")
#: Words before the letters that name a figure.
FIGURES = names("segment line point angle triangle ray")
_SHORT_WORDS = names("yes no odd all not the are sq cu")
#: Short words that name what was counted when they follow a number.
SHORT_NOUNS = _SHORT_WORDS | names(
    """old red tan men boy car cat dog box bus hat cup pen bag egg way pie toy kid jar can cow pig
    hen bee ant leg eye ear top map row set lap art ice gum nut fan net ray van log key fox job
    pet"""
)


def is_known(word: str) -> bool:
    """Whether ``word`` is a function, a constant, a Greek letter or a number word."""
    lower = word.lower()
    return (
        lower in FUNCTIONS
        or lower in CONSTANTS
        or lower in GREEK
        or word in ("sqrt", "np")
        or is_number_word(word)
    )


def is_texty(word: str) -> bool:
    """Whether ``word`` is a word of a language, not letters to multiply."""
    lower = word.lower()
    if lower in SMALL or lower in SCALES or lower in GREEK:
        return False
    if word.isupper() or (word[:-1].isupper() and word.endswith("s")):
        return False
    if lower in _SHORT_WORDS:
        return True
    return len(word) > 3 or (len(word) == 3 and word[0].isupper() and word[1:].islower())
