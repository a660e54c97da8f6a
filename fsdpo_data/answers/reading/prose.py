"""Words as answers: names, sentences, phrases that mean a set."""

from __future__ import annotations

import re
from fractions import Fraction

from fsdpo_data.answers.lexicon.vocabulary import names
from fsdpo_data.answers.tree import (
    Add,
    Builder,
    Const,
    Items,
    Member,
    Mul,
    Num,
    Sym,
    Text,
    Value,
    negate,
)

_WRAPPER = re.compile(
    r"\\(?:text|mbox|hbox|mathrm|textbf|textit|textrm|textsf|mathbf|boldsymbol|emph|left|right"
    r"|displaystyle|boxed|fbox|operatorname)(?![A-Za-z])"
)
_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_PLAIN = re.compile(r"\\?[A-Za-z]+|\d+(?:\.\d+)?|[^\sA-Za-z\d]")
_IGNORED = frozenset("'\"().,;:{}$!?*`[]")
_FILLERS = names("the a an is are was were it they their its both there on due")

_EMPTY = Items("{}", ())
_REALS = Sym("RR")
UNDEFINED = Text(("undefined",))
_ZERO, _INF = Num(Fraction(0)), Const("inf")
_POSITIVE, _NONNEGATIVE = Items("()", (_ZERO, _INF)), Items("[)", (_ZERO, _INF))
_NEGATIVE = Items("()", (negate(_INF), _ZERO))
_PHRASES: dict[str, Value] = {
    "all real numbers": _REALS, "all real number": _REALS, "all reals": _REALS,
    "all real x": _REALS, "real numbers": _REALS, "all x": _REALS, "any real number": _REALS,
    "all real values": _REALS, "set of all real numbers": _REALS, "all real values of x": _REALS,
    "x all real numbers": _REALS, "x any real number": _REALS,
    "no solution": _EMPTY, "no solutions": _EMPTY, "no real solution": _EMPTY,
    "no real solutions": _EMPTY, "empty set": _EMPTY, "no such x": _EMPTY,
    "none exist": _EMPTY, "none": _EMPTY, "no solution exists": _EMPTY, "no roots": _EMPTY,
    "no real roots": _EMPTY, "has no solution": _EMPTY, "no real solution exists": _EMPTY,
    "has no real solution": _EMPTY,
    "all positive real numbers": _POSITIVE, "positive real numbers": _POSITIVE,
    "all positive reals": _POSITIVE, "positive reals": _POSITIVE,
    "all negative real numbers": _NEGATIVE, "negative real numbers": _NEGATIVE,
    "all nonnegative real numbers": _NONNEGATIVE, "nonnegative real numbers": _NONNEGATIVE,
    "all non-negative real numbers": _NONNEGATIVE, "nonnegative reals": _NONNEGATIVE,
    "all integers": Sym("ZZ"), "integers": Sym("ZZ"), "any integer": Sym("ZZ"),
    "all positive integers": Sym("NN+"), "positive integers": Sym("NN+"),
    "set of all integers": Sym("ZZ"), "all natural numbers": Sym("NN"),
    "natural numbers": Sym("NN"),
    "does not exist": UNDEFINED, "dne": UNDEFINED, "not exist": UNDEFINED,
    "undefined": UNDEFINED, "not defined": UNDEFINED,
    "infinity": Const("inf"), "positive infinity": Const("inf"),
    "yes": Text(("yes",)), "no": Text(("no",)),
}  # fmt: skip
_EXCEPT = re.compile(
    r"all real (?:numbers|values)(?: of)?(?: x)?(?:,)? (?:except(?: for)?|other than|excluding"
    r"|but|not equal to|besides)(?: x ?=)? (?P<rest>.+)"
)
_SAME = {"equal": "equal", "same": "equal", "theyre": "", "its": ""}
_RELATION_WORDS = (
    (re.compile(r"\b(?:is |are )?(?:strictly )?(?:greater|more|larger|bigger) than or equal to\b"),
     " \\ge "),
    (re.compile(r"\b(?:is |are )?(?:strictly )?(?:less|smaller|fewer) than or equal to\b"),
     " \\le "),
    (re.compile(r"\b(?:is |are )?(?:strictly )?(?:greater|larger|bigger) than\b"), " > "),
    (re.compile(r"\b(?:is |are )?(?:strictly )?(?:less|smaller) than\b"), " < "),
    (re.compile(r"\b(?:is |are )?not equal to\b"), " \\ne "),
    (re.compile(r"\b(?:is |are )?equal to\b|\bequals\b"), " = "),
    (re.compile(r"\b(?:is |are )?at least\b(?= \S+$)"), " \\ge "),
    (re.compile(r"\b(?:is |are )?at most\b(?= \S+$)"), " \\le "),
)  # fmt: skip


def spell_relations(text: str) -> str:
    """Write "x is greater than 2" as ``x > 2``."""
    if "equal" not in text and " than " not in text and " at " not in text:
        return text
    for pattern, sign in _RELATION_WORDS:
        text = pattern.sub(sign.replace("\\", r"\\"), text)
    return text


def plain_words(text: str) -> tuple[str, ...]:
    """Return the words and signs of ``text``, lower-case, without articles and punctuation."""
    text = _SPACING.sub(" ", _WRAPPER.sub(" ", text)).replace("'re", " are").replace("'", "")
    words = [word for word in _PLAIN.findall(text) if word not in _IGNORED]
    kept = [
        word
        for word, following in zip(words, [*words[1:], ""], strict=False)
        if word.lower() not in _FILLERS or (word == "A" and len(following) < 2)
    ]
    stems = tuple(_stem(word.lower()) for word in kept or words)
    return ("neither",) if stems[:1] == ("neither",) and "nor" in stems else stems


def _stem(word: str) -> str:
    """Drop the plural of a longer word."""
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return "equal" if word == "same" else word


_BY_WORDS = {plain_words(words): value for words, value in _PHRASES.items()}


def phrase(words: tuple[str, ...]) -> Value | None:
    """Return the value of a set phrase such as "no solution" or "n is odd"."""
    if words[:1] and words[0] in _SUBJECTS:
        words = words[1:] if words[1:] in _BY_WORDS else words
    multiple = _MULTIPLES.fullmatch(" ".join(words)) if 1 < len(words) < 8 else None
    if multiple is None:
        return _BY_WORDS.get(words)
    size = Fraction(multiple["size"] or 2)
    values = Mul((Num(size), Sym("k")))
    odd = Add((values, Num(Fraction(1)))) if multiple["parity"] == "odd" else values
    return Builder(odd, (Member(Sym("k"), Sym("ZZ")),))


#: What a sentence may say something about, where only what it says is the answer.
_SUBJECTS = names("limit serie series sequence integral sum value function equation")
#: "all odd integers", "n is even", "multiples of 3"; "odd" alone is a word.
_MULTIPLES = re.compile(
    r"(?:all )?(?:[nkmx] )?(?:(?P<parity>odd|even)(?:(?: (?:integer|number|n|k|value))+(?: of n)?"
    r"|(?<=[nkmx] odd)|(?<=[nkmx] even))|(?:integer )?multiple of (?P<size>\d{1,4}))"
)


def reals_except(text: str) -> str | None:
    """Return what "all real numbers except 2" leaves out."""
    plain = " ".join(_SPACING.sub(" ", _WRAPPER.sub(" ", text)).split())
    match = _EXCEPT.fullmatch(plain.strip())
    return match["rest"] if match else None


_CHOICE = re.compile(
    r"(?:(?:the )?(?:correct )?(?:option|choice|answer|letter|part)s?(?: is)?:? ?)?"
    r"(?P<open>\()? ?(?P<letter>[A-Za-z]) ?(?P<close>\))?(?P<stop>[.:)]?)(?P<rest>.*)",
    re.S | re.I,
)
_ROMAN = re.compile("[IVX]{2,}")
_LETTERS = re.compile(r"\(?[A-Z]\)?(?:(?:[\s,;&()]|and)*[A-Z]\)?)*")


def plain_text(text: str) -> str:
    """Return ``text`` without LaTeX wrappers, in single spaces."""
    return " ".join(re.sub(r"[{}$]", " ", _SPACING.sub(" ", _WRAPPER.sub(" ", text))).split())


def same_words(left: str, right: str, *are_text: bool) -> bool:
    """Compare as words: choices, lists of choices, names.

    Args:
        left: The gold's ``plain_text``.
        right: The answer's.
        are_text: Whether each could be read as words only.
    """
    if len(left) > MAX_WORDS_LENGTH or len(right) > MAX_WORDS_LENGTH:
        return False
    choice = choice_letter(left)
    if choice and choice == _chosen(right):
        return True
    if _SPACES.sub("", left) == _SPACES.sub("", right) and "=" in left and "\\" not in left:
        return True
    if _ROMAN.fullmatch(left) and left == right.upper():
        return True
    if _LETTERS.fullmatch(left) and _LETTERS.fullmatch(right):
        if _separated(left) or _separated(right):
            return bool(_letter_set(left)) and _letter_set(left) == _letter_set(right)
        return left == right
    if not any(are_text):
        return False
    if _SIGNS.search(left) or _SIGNS.search(right):
        return False
    words, others = plain_words(left), plain_words(right)
    if words == others or settled(words) == settled(others):
        return True
    polar = [_POLAR.match(text) for text in (left, right)]
    if polar[0] and polar[1] and len(words) == 1:
        return polar[0][1].lower() == polar[1][1].lower()
    return _NAMED.fullmatch(left) is not None and left.split()[1] == right


_POLAR = re.compile(
    r"(yes|no|true|false)\b(?=\s*(?:[,.;:-]|$))(?!.*(?:\d|\b(?:yes|no|but|however)\b.))", re.I
)
#: What says the same in other words: (pattern, its plain form), over words without plurals.
_SETTLED = tuple(
    (re.compile(rf"\b(?:{pattern})\b"), plain)
    for pattern, plain in (
        ("doe not converge|divergent|diverging", "diverge"),
        ("doe not diverge|convergent|converging", "converge"),
        ("infinite number of|infinite many|an infinity of|infinite", "infinitely many"),
        ("anticlockwise|anti - clockwise|counter - clockwise", "counterclockwise"),
        ("quadrant (?:i|1|one)|1 st quadrant|quadrant first", "first quadrant"),
        ("quadrant (?:ii|2|two)|2 nd quadrant", "second quadrant"),
        ("quadrant (?:iii|3|three)|3 rd quadrant", "third quadrant"),
        ("quadrant (?:iv|4|four)|4 th quadrant", "fourth quadrant"),
        ("doe not|do not|did not|cannot|can not", "not"),
        ("and also|as well as|&", "and"),
    )
)
#: Nouns that a question asks about, and its answer may leave out; only after other words.
_ASKED = re.compile(
    r"(?<=\w) (?:condition|triangle|function|solution|quadrant|serie|series|number)$"
)
_OPENING = re.compile(
    r"^(?:(?:in|on|at|by|to|always|limit|serie|series|sequence|integral|triangle) )+(?=\w)"
)
_SHAPES = frozenset(
    ["right", "isoscele", "scalene", "acute", "obtuse", "equilateral", "angled", "regular"]
)


def settled(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``plain_words`` in a plain form: "a divergent series" and "diverges" are one."""
    text = " ".join(words)
    for pattern, plain in _SETTLED:
        text = pattern.sub(plain, text)
    text = _ASKED.sub("", _OPENING.sub("", text).replace(" condition ", " "))
    parts = text.split(" and ")
    if len(parts) == 2 and " " not in text.replace(" and ", ""):
        parts.sort()
    found = " and ".join(parts).split()
    return tuple(sorted(found) if _SHAPES.issuperset(found) else found)


#: Longest answers compared as words.
MAX_WORDS_LENGTH = 400


#: Signs that plain words do not hold.
_SIGNS = re.compile(r"[\[\]<>=^_\\+*|]|\([^)]*$|^[^(]*\)")
#: A name that its last letter or number stands for: "Brand B".
_NAMED = re.compile(r"[A-Z][a-z]{2,} (?:[A-Z]|[IVX]+|\d{1,2})")


def choice_letter(text: str) -> str:
    """Return the letter if ``text`` is a choice such as "(C)"."""
    bare = text.strip("(). ")
    return bare if len(bare) == 1 and bare.isascii() and bare.isupper() else ""


def _chosen(text: str) -> str:
    """Return the letter that an answer chooses: "(C) 42", "option C", "c)"."""
    match = _CHOICE.fullmatch(text)
    if match is None:
        return ""
    letter, rest = match["letter"], match["rest"].strip()
    marked = bool(match["close"] or match["stop"])
    if rest and not (marked and (rest[0] != "," and not re.match(r"(?:or|and)\b", rest))):
        return ""
    if letter.islower() and not marked and match.start("letter") == 0:
        return ""
    if re.search(r"\([A-Z]\)|^[A-Z][.)]|\b(?:or|and) [A-Z]\b", rest):
        return ""
    return letter.upper()


def _separated(text: str) -> bool:
    return not text.isalpha()


def _letter_set(text: str) -> frozenset[str]:
    """Return the letters of a list of choices; nothing for "I, II, IV"."""
    letters = [c for c in text.replace("and", "") if c.isupper()]
    runs = re.findall("[A-Z]+", text.replace("and", ""))
    listed = len(set(letters)) == len(letters) and (len(runs) in (1, len(letters)))
    return frozenset(letters) if listed else frozenset()


_SPACES = re.compile(r"\s+")
