"""Answers in words: names, sentences, choices, and phrases that mean a set."""

import re
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.tree import Value
from fsdpo_data.core.toml_tables import compile_patterns, read_toml

_TABLE = read_toml(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_WRAPPER = _PATTERNS["wrapper"]
_BRACES = str.maketrans("{}$", "   ")
_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_PLAIN = re.compile(r"\\?[A-Za-z]+|\d+(?:\.\d+)?|[^\sA-Za-z\d]")
_IGNORED = frozenset("'\"().,;:{}$!?*`[]")
_FILLERS = word_set("the a an is are was were it they their its both there on due will be")

UNDEFINED = tree.Words(("undefined",))
#: The answer "cannot be determined", which differs from every other value.
UNDETERMINED = tree.Sym("undetermined")
_ZERO = tree.Num(Fraction(0))
_INFINITY = tree.Const("inf")
#: Values of set phrases, by the name of the phrase list in the TOML file.
_PHRASE_VALUES: dict[str, Value] = {
    "reals": tree.Sym("RR"), "empty": tree.ValueList("{}", ()),
    "positive": tree.ValueList("()", (_ZERO, _INFINITY)),
    "negative": tree.ValueList("()", (tree.negate(_INFINITY), _ZERO)),
    "nonnegative": tree.ValueList("[)", (_ZERO, _INFINITY)), "integers": tree.Sym("ZZ"),
    "positive_integers": tree.Sym("NN+"), "naturals": tree.Sym("NN"), "undefined": UNDEFINED,
    "infinity": _INFINITY, "yes": tree.Words(("yes",)), "no": tree.Words(("no",)),
}  # fmt: skip
#: Patterns of comparisons in words, each with its sign.
_RELATION_WORDS = [
    (re.compile(words), f" {sign} ".replace("\\", r"\\"))
    for words, sign in _TABLE["relations"].items()
]


def spell_relations(text: str) -> str:
    """Replace comparisons in words by signs: "x is greater than 2" becomes ``x > 2``."""
    if not _PATTERNS["spelled"].search(text):
        return text
    for pattern, sign in _RELATION_WORDS:
        text = pattern.sub(sign, text)
    return text


def plain_words(text: str) -> tuple[str, ...]:
    """Return the words and signs of ``text`` in lower case, without articles and punctuation."""
    text = _SPACING.sub(" ", _WRAPPER.sub(" ", text)).replace("'re", " are").replace("'", "")
    words = [word for word in _PLAIN.findall(text) if word not in _IGNORED]
    content_words = [
        word
        for word, following in zip(words, [*words[1:], ""], strict=False)
        if word.lower() not in _FILLERS or (word == "A" and len(following) < 2)
    ]
    stems = tuple(
        "equal" if word == "same" else _PATTERNS["plural"].sub("", word)
        for word in map(str.lower, content_words or words)
    )
    return ("neither",) if stems[:1] == ("neither",) and "nor" in stems else stems


_VALUES_BY_WORDS = {
    plain_words(phrase): value
    for meaning, value in _PHRASE_VALUES.items()
    for phrase in _TABLE["phrases"][meaning]
}


def phrase_value(words: tuple[str, ...]) -> Value | None:
    """Return the value of a set phrase such as "no solution" or "n is odd", else None."""
    if words[:1] and words[0] in _SUBJECTS:
        words = words[1:] if words[1:] in _VALUES_BY_WORDS else words
    text = " ".join(words)
    if _PATTERNS["none_exists"].fullmatch(text):
        return _PHRASE_VALUES["empty"]
    if _PATTERNS["undetermined"].fullmatch(text):
        return UNDETERMINED
    multiple = _PATTERNS["multiples"].fullmatch(text) if 1 < len(words) < 8 else None
    if multiple is None:
        return _VALUES_BY_WORDS.get(words)
    size = Fraction(multiple["size"] or 2)
    head: tree.Node = tree.Mul((tree.Num(size), tree.Sym("k")))
    if multiple["parity"] == "odd":
        head = tree.Add((head, tree.Num(Fraction(1))))
    return tree.SetBuilder(head, (tree.SetMembership(tree.Sym("k"), tree.Sym("ZZ")),))


#: Subjects of sentences such as "the limit does not exist"; the answer is the predicate alone.
_SUBJECTS = word_set("limit serie series sequence integral sum value function equation")


def reals_except(text: str) -> str | None:
    """Return the excluded part of "all real numbers except 2", or None for other texts."""
    if "all real" not in text:
        return None
    match = _PATTERNS["except"].fullmatch(
        " ".join(_SPACING.sub(" ", _WRAPPER.sub(" ", text)).split())
    )
    return match["excluded"] if match else None


_LETTERS = re.compile(r"\(?[A-Z]\)?(?:(?:[\s,;&()]|and)*[A-Z]\)?)*")


def plain_text(text: str) -> str:
    """Return ``text`` without LaTeX wrappers, with single spaces."""
    if "\\" in text or "~" in text:
        text = _SPACING.sub(" ", _WRAPPER.sub(" ", text))
    return " ".join(text.translate(_BRACES).split())


def same_words(left: str, right: str, *, either_is_text: bool) -> bool:
    """Compare two plain texts as words: choices, lists of choices, names.

    Args:
        left: The gold answer.
        right: The answer of the response.
        either_is_text: Whether one of the two fits no grammar, so that its value is ``Words``.
    """
    if len(left) > MAX_WORDS_LENGTH or len(right) > MAX_WORDS_LENGTH:
        return False
    choice = _PATTERNS["letter"].fullmatch(left)
    if choice and choice[1] == _chosen_letter(right):
        return True
    is_formula = "=" in left and "\\" not in left
    if is_formula and left.replace(" ", "") == right.replace(" ", ""):
        return True
    if _PATTERNS["roman"].fullmatch(left) and left == right.upper():
        return True
    if _LETTERS.fullmatch(left) and _LETTERS.fullmatch(right):
        if not (left.isalpha() and right.isalpha()):
            return bool(_letter_set(left)) and _letter_set(left) == _letter_set(right)
        return left == right
    if not either_is_text:
        return False
    if _PATTERNS["signs"].search(left) or _PATTERNS["signs"].search(right):
        return False
    left_words = plain_words(left)
    right_words = plain_words(right)
    if left_words == right_words:
        return True
    if normalize_words(left_words) == normalize_words(right_words):
        return True
    polar = [_PATTERNS["polar"].match(text) for text in (left, right)]
    if polar[0] and polar[1] and len(left_words) == 1:
        return polar[0][1].lower() == polar[1][1].lower()
    return _PATTERNS["name_with_suffix"].fullmatch(left) is not None and left.split()[1] == right


#: Patterns of synonyms, each with its normal form.
_WORD_REWRITES = [
    (re.compile(rf"\b(?:{pattern})\b"), plain) for pattern, plain in _TABLE["synonyms"].items()
]
_SHAPES = frozenset(
    ["right", "isoscele", "scalene", "acute", "obtuse", "equilateral", "angled", "regular"]
)


def normalize_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace synonyms in ``plain_words``: "a divergent series" and "diverges" become equal."""
    text = " ".join(words)
    for pattern, plain in _WORD_REWRITES:
        text = pattern.sub(plain, text)
    text = _PATTERNS["trailing_noun"].sub(
        "", _PATTERNS["opening"].sub("", text).replace(" condition ", " ")
    )
    parts = text.split(" and ")
    if len(parts) == 2 and " " not in text.replace(" and ", ""):
        parts.sort()
    normal_words = " and ".join(parts).split()
    return tuple(sorted(normal_words) if _SHAPES.issuperset(normal_words) else normal_words)


MAX_WORDS_LENGTH = 400  #: Maximum number of characters of an answer that is compared as words.


def _chosen_letter(text: str) -> str:
    """Return the letter of a choice, "(C) 42", "option C" or "c)"; "" for other texts."""
    match = _PATTERNS["choice"].fullmatch(text)
    if match is None:
        return ""
    letter = match["letter"]
    text_after = match["text_after"].strip()
    is_marked = bool(match["close"] or match["stop"])
    if text_after:
        continues_list = text_after[0] == "," or re.match(r"(?:or|and)\b", text_after)
        if not is_marked or continues_list:
            return ""
    if letter.islower() and not is_marked and match.start("letter") == 0:
        return ""
    if _PATTERNS["denied_choice"].search(text_after):
        return ""
    return letter.upper()


def _letter_set(text: str) -> frozenset[str]:
    """Return the letters of a list of choices; the empty set for "I, II, IV"."""
    letters = [c for c in text.replace("and", "") if c.isupper()]
    runs = re.findall("[A-Z]+", text.replace("and", ""))
    is_unique = len(set(letters)) == len(letters)
    is_letter_list = is_unique and len(runs) in (1, len(letters))
    return frozenset(letters) if is_letter_list else frozenset()
