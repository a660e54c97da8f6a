"""Words as answers: names, sentences, phrases that mean a set."""

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
UNDETERMINED = tree.Sym("undetermined")  #: What a question leaves open, a value like no other.
_ZERO, _INF = tree.Num(Fraction(0)), tree.Const("inf")
_MEANINGS: dict[str, Value] = {
    "reals": tree.Sym("RR"), "empty": tree.ValueList("{}", ()),
    "positive": tree.ValueList("()", (_ZERO, _INF)),
    "negative": tree.ValueList("()", (tree.negate(_INF), _ZERO)),
    "nonnegative": tree.ValueList("[)", (_ZERO, _INF)), "integers": tree.Sym("ZZ"),
    "positive_integers": tree.Sym("NN+"), "naturals": tree.Sym("NN"), "undefined": UNDEFINED,
    "infinity": _INF, "yes": tree.Words(("yes",)), "no": tree.Words(("no",)),
}  # fmt: skip
_RELATION_WORDS = [
    (re.compile(words), f" {sign} ".replace("\\", r"\\"))
    for words, sign in _TABLE["relations"].items()
]


def spell_relations(text: str) -> str:
    """Write "x is greater than 2" as ``x > 2``."""
    if not _PATTERNS["spelled"].search(text):
        return text
    for pattern, sign in _RELATION_WORDS:
        text = pattern.sub(sign, text)
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
    stems = tuple(
        "equal" if word == "same" else _PATTERNS["plural"].sub("", word)
        for word in map(str.lower, kept or words)
    )
    return ("neither",) if stems[:1] == ("neither",) and "nor" in stems else stems


_BY_WORDS = {
    plain_words(words): value
    for meaning, value in _MEANINGS.items()
    for words in _TABLE["phrases"][meaning]
}


def phrase_value(words: tuple[str, ...]) -> Value | None:
    """Return the value of a set phrase such as "no solution" or "n is odd"."""
    if words[:1] and words[0] in _SUBJECTS:
        words = words[1:] if words[1:] in _BY_WORDS else words
    told = " ".join(words)
    if _PATTERNS["none_exists"].fullmatch(told):
        return _MEANINGS["empty"]
    if _PATTERNS["undetermined"].fullmatch(told):
        return UNDETERMINED
    multiple = _PATTERNS["multiples"].fullmatch(told) if 1 < len(words) < 8 else None
    if multiple is None:
        return _BY_WORDS.get(words)
    size = Fraction(multiple["size"] or 2)
    values = tree.Mul((tree.Num(size), tree.Sym("k")))
    odd = tree.Add((values, tree.Num(Fraction(1)))) if multiple["parity"] == "odd" else values
    return tree.SetBuilder(odd, (tree.SetMembership(tree.Sym("k"), tree.Sym("ZZ")),))


#: What a sentence may say something about, where only what it says is the answer.
_SUBJECTS = word_set("limit serie series sequence integral sum value function equation")


def reals_except(text: str) -> str | None:
    """Return what "all real numbers except 2" leaves out."""
    if "all real" not in text:
        return None
    match = _PATTERNS["except"].fullmatch(
        " ".join(_SPACING.sub(" ", _WRAPPER.sub(" ", text)).split())
    )
    return match["rest"] if match else None


_LETTERS = re.compile(r"\(?[A-Z]\)?(?:(?:[\s,;&()]|and)*[A-Z]\)?)*")


def plain_text(text: str) -> str:
    """Return ``text`` without LaTeX wrappers, in single spaces."""
    if "\\" in text or "~" in text:
        text = _SPACING.sub(" ", _WRAPPER.sub(" ", text))
    return " ".join(text.translate(_BRACES).split())


def same_words(left: str, right: str, *are_text: bool) -> bool:
    """Compare two plain texts as words: choices, lists of choices, names.

    ``are_text`` says of each whether it could be read as words only.
    """
    if len(left) > MAX_WORDS_LENGTH or len(right) > MAX_WORDS_LENGTH:
        return False
    choice = _PATTERNS["letter"].fullmatch(left)
    if choice and choice[1] == _chosen(right):
        return True
    formula = "=" in left and "\\" not in left
    if formula and left.replace(" ", "") == right.replace(" ", ""):
        return True
    if _PATTERNS["roman"].fullmatch(left) and left == right.upper():
        return True
    if _LETTERS.fullmatch(left) and _LETTERS.fullmatch(right):
        if not (left.isalpha() and right.isalpha()):
            return bool(_letter_set(left)) and _letter_set(left) == _letter_set(right)
        return left == right
    if not any(are_text):
        return False
    if _PATTERNS["signs"].search(left) or _PATTERNS["signs"].search(right):
        return False
    words, others = plain_words(left), plain_words(right)
    if words == others or normalize_words(words) == normalize_words(others):
        return True
    polar = [_PATTERNS["polar"].match(text) for text in (left, right)]
    if polar[0] and polar[1] and len(words) == 1:
        return polar[0][1].lower() == polar[1][1].lower()
    return _PATTERNS["named"].fullmatch(left) is not None and left.split()[1] == right


#: What says the same in other words.
_WORD_REWRITES = [
    (re.compile(rf"\b(?:{pattern})\b"), plain) for pattern, plain in _TABLE["settled"].items()
]
_SHAPES = frozenset(
    ["right", "isoscele", "scalene", "acute", "obtuse", "equilateral", "angled", "regular"]
)


def normalize_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``plain_words`` in a plain form: "a divergent series" and "diverges" are one."""
    text = " ".join(words)
    for pattern, plain in _WORD_REWRITES:
        text = pattern.sub(plain, text)
    text = _PATTERNS["asked"].sub(
        "", _PATTERNS["opening"].sub("", text).replace(" condition ", " ")
    )
    parts = text.split(" and ")
    if len(parts) == 2 and " " not in text.replace(" and ", ""):
        parts.sort()
    found = " and ".join(parts).split()
    return tuple(sorted(found) if _SHAPES.issuperset(found) else found)


MAX_WORDS_LENGTH = 400  #: Longest answers compared as words.


def _chosen(text: str) -> str:
    """Return the letter that an answer chooses: "(C) 42", "option C", "c)"."""
    match = _PATTERNS["choice"].fullmatch(text)
    if match is None:
        return ""
    letter, rest = match["letter"], match["rest"].strip()
    marked = bool(match["close"] or match["stop"])
    if rest and not (marked and (rest[0] != "," and not re.match(r"(?:or|and)\b", rest))):
        return ""
    if letter.islower() and not marked and match.start("letter") == 0:
        return ""
    if _PATTERNS["beside"].search(rest):
        return ""
    return letter.upper()


def _letter_set(text: str) -> frozenset[str]:
    """Return the letters of a list of choices; nothing for "I, II, IV"."""
    letters = [c for c in text.replace("and", "") if c.isupper()]
    runs = re.findall("[A-Z]+", text.replace("and", ""))
    listed = len(set(letters)) == len(letters) and (len(runs) in (1, len(letters)))
    return frozenset(letters) if listed else frozenset()
