"""Words as answers: names, sentences, phrases that mean a set."""

from __future__ import annotations

import re

from fsdpo_data.answers.tree import Const, Items, Sym, Text, Value

_WRAPPER = re.compile(
    r"\\(?:text|mbox|hbox|mathrm|textbf|textit|textrm|textsf|mathbf|boldsymbol|emph|left|right"
    r"|displaystyle|boxed|fbox|operatorname)(?![A-Za-z])"
)
_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_PLAIN = re.compile(r"\\?[A-Za-z]+|\d+(?:\.\d+)?|[^\sA-Za-z\d]")
_IGNORED = frozenset("'\"().,;:{}$!?*`[]")
_FILLERS = frozenset(
    [
        "the",
        "a",
        "an",
        "is",
        "are",
        "was",
        "were",
        "it",
        "they",
        "their",
        "its",
        "both",
        "there",
        "on",
        "due",
    ]
)

_EMPTY = Items("{}", ())
_REALS = Sym("RR")
UNDEFINED = Text(("undefined",))
_PHRASES: dict[str, Value] = {
    "all real numbers": _REALS, "all real number": _REALS, "all reals": _REALS,
    "all real x": _REALS, "real numbers": _REALS, "all x": _REALS, "any real number": _REALS,
    "all real values": _REALS, "set of all real numbers": _REALS, "all real values of x": _REALS,
    "x all real numbers": _REALS, "x any real number": _REALS,
    "no solution": _EMPTY, "no solutions": _EMPTY, "no real solution": _EMPTY,
    "no real solutions": _EMPTY, "empty set": _EMPTY, "no such x": _EMPTY,
    "none exist": _EMPTY,
    "does not exist": UNDEFINED, "dne": UNDEFINED,
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
    """Return the value of a set phrase such as "no solution"."""
    return _BY_WORDS.get(words)


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
    return words == others or (_NAMED.fullmatch(left) is not None and left.split()[1] == right)


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
