"""Answers in words: names, sentences, choices, and fixed phrases with a value, such as "none"."""

import re
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.languages import words_with_meaning
from fsdpo_data.answers.lexicon.units import are_opposites
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.lexicon.words import ORDINALS
from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import Value

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_WRAPPER = _PATTERNS["wrapper"]
_BRACES = str.maketrans("{}$", "   ")
_WRAPPER_OR_BRACE = re.compile(rf"(?P<wrapper>{_WRAPPER.pattern})(?P<opened>\s*\{{)?|\\?[{{}}]")
_SPACING = re.compile(r"(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_PLAIN = re.compile(r"\\?[A-Za-z]+|\d+(?:\.\d+)?|[^\sA-Za-z\d]")
_IGNORED = frozenset("'\"().,;:{}$!?*`[]")
_FILLERS = word_set("the a an is are was were it they their its both there on due will be")

#: The answer "does not exist".
UNDEFINED = tree.Words(("undefined",))
#: The answer "cannot be determined", which differs from every other value.
UNDETERMINED = tree.Sym("undetermined")
_ZERO = tree.Num(Fraction(0))
_INFINITY = tree.Const("inf")
#: Values of fixed phrases, by the name of the phrase list in the TOML file.
_PHRASE_VALUES: dict[str, Value] = {
    "empty": tree.ValueList("{}", ()), "undefined": UNDEFINED,
    "infinity": _INFINITY, "negative_infinity": tree.negate(_INFINITY),
    "yes": tree.Words(("yes",)), "no": tree.Words(("no",)),
    "true": tree.Words(("true",)), "false": tree.Words(("false",)),
}  # fmt: skip
#: Sets of numbers, by kind and sign.
_NUMBER_SETS: dict[tuple[str, str], Value] = {
    ("real", ""): tree.Sym("RR"), ("x", ""): tree.Sym("RR"),
    ("real", "positive"): tree.ValueList("()", (_ZERO, _INFINITY)),
    ("real", "negative"): tree.ValueList("()", (tree.negate(_INFINITY), _ZERO)),
    ("real", "nonnegative"): tree.ValueList("[)", (_ZERO, _INFINITY)),
    ("integer", ""): tree.Sym("ZZ"), ("integer", "positive"): tree.Sym("NN+"),
    ("natural", ""): tree.Sym("NN"),
}  # fmt: skip
#: Patterns of comparisons and powers in words, each with its sign. Backslashes of signs are escaped
#: for ``re.sub``.
_RELATION_WORDS = [
    (re.compile(words), f" {sign} ".replace("\\", r"\\"))
    for words, sign in (
        *((rf"\b(?:is|are|must be) (?:strictly )?{adjective}\b", sign)
          for adjective, sign in _TABLE["signs_of_numbers"].items()),
        (r"\bto the power(?: of)?\b", "^"),
        (r"\ball (?:real )?(?:numbers|values|x|reals)(?: of x| x)?(?= (?:that are )?(?:strictly )?"
         r"(?:greater|larger|bigger|less|smaller|more) than\b)", "x"),
        *((rf"\b(?:(?:is|are|must be|has to be) )?(?:strictly )?(?:{words})\b", sign)
          for words, sign in _TABLE["relations"].items()),
    )
]  # fmt: skip


def replace_relation_words(text: str) -> str:
    """Replace comparisons and powers in words by signs: "x is greater than 2" becomes ``x > 2``."""
    if not _PATTERNS["spelled"].search(text):
        return text
    for pattern, sign in _RELATION_WORDS:
        text = pattern.sub(sign, text)
    return text


def plain_words(text: str) -> tuple[str, ...]:
    """Return the words and signs of ``text`` in lower case and in the singular.

    Articles, punctuation and words without meaning, such as "is" and "their", are left out. "same"
    becomes "equal". "Neither ... nor ..." becomes the single word "neither".
    """
    text = _SPACING.sub(" ", _WRAPPER.sub(" ", text)).replace("'re", " are").replace("'", "")
    words = [word for word in _PLAIN.findall(text) if word not in _IGNORED]
    # A capital A is a label, unless a longer word follows: "A" in "A, B", but not in "A circle".
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
    for phrase in (*_TABLE["phrases"].get(meaning, ()), *words_with_meaning(meaning))
}


def phrase_value(words: tuple[str, ...]) -> Value | None:
    """Return the value of a fixed phrase such as "no solution" or "n is odd", else None."""
    if (
        words[:1]
        and words[0] in _SUBJECTS
        and (words[1:] in _VALUES_BY_WORDS or words[1:3] == ("has", "no"))
    ):
        words = words[1:]
    text = " ".join(words)
    if _PATTERNS["none_exists"].fullmatch(text):
        return _PHRASE_VALUES["empty"]
    if _PATTERNS["undetermined"].fullmatch(text):
        return UNDETERMINED
    if (number_set := _number_set(text)) is not None:
        return number_set
    multiple = _PATTERNS["multiples"].fullmatch(text) if 1 < len(words) < 8 else None
    if multiple is None:
        return _VALUES_BY_WORDS.get(words)
    size = Fraction(multiple["size"] or 2)
    head: tree.Node = tree.Mul((tree.Num(size), tree.Sym("k")))
    if multiple["parity"] == "odd":
        head = tree.Add((head, tree.Num(Fraction(1))))
    return tree.SetBuilder(head, (tree.SetMembership(tree.Sym("k"), tree.Sym("ZZ")),))


def _number_set(text: str) -> Value | None:
    """Return the set of "all real numbers" or "positive integers", None for other words."""
    match = _PATTERNS["number_set"].fullmatch(text)
    if match is None:
        return None
    sign = (match["sign"] or "").replace(" - ", "").strip()
    # "Real" and "natural" alone are adjectives, and "x" alone is a variable.
    is_adjective = match["set"] != "integer" and not (match["all"] or match["noun"] or sign)
    return None if is_adjective else _NUMBER_SETS.get((match["set"], sign))


#: Subjects of sentences such as "the limit does not exist"; the answer is the predicate alone.
_SUBJECTS = word_set("limit serie series sequence integral sum value function equation")


def reals_except(text: str) -> str | None:
    """Return the excluded part of "all real numbers except 2", or None for other texts."""
    if "all real" not in text:
        return None
    match = _PATTERNS["except"].fullmatch(unwrap_text(text))
    return match["excluded"] if match else None


#: One or more capital letters, the labels of choices or points: "A", "(B)", "A, C and D", "ABC".
_CAPITAL_LETTERS = re.compile(r"\(?[A-Z]\)?(?:(?:[\s,;&()]|and)*[A-Z]\)?)*")


def plain_text(text: str) -> str:
    """Return ``text`` without LaTeX wrappers and braces, with single spaces.

    Compare the result as words only. Without their braces, ``2^{n-1}`` and ``2^n-1`` are the same.
    """
    if "\\" in text or "~" in text:
        text = _SPACING.sub(" ", _WRAPPER.sub(" ", text))
    return " ".join(text.translate(_BRACES).split())


def unwrap_text(text: str) -> str:
    r"""Return ``text`` without LaTeX wrappers, with single spaces; formulas keep their braces.

    Only the braces of a wrapper, as in ``\text{Answer: }2^{n-1}``, are dropped with the wrapper.
    """
    if "\\" in text or "~" in text:
        text = _unwrap_groups(_SPACING.sub(" ", text))
    return " ".join(text.split())


def _unwrap_groups(text: str) -> str:
    """Return ``text`` with spaces in place of wrapper commands and their braces."""
    pieces: list[str] = []
    is_wrapper_group: list[bool] = []  # for every open brace
    position = 0
    for match in _WRAPPER_OR_BRACE.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["wrapper"]:
            pieces.append(" ")
            if match["opened"]:
                is_wrapper_group.append(True)
        elif match[0] == "}" and is_wrapper_group:
            pieces.append(" " if is_wrapper_group.pop() else "}")
        else:
            if match[0] == "{":
                is_wrapper_group.append(False)
            pieces.append(match[0])
    return "".join(pieces) + text[position:]


def same_words(gold: str, answer: str, *, either_is_text: bool) -> bool:
    """Compare two plain texts as words: choices, lists of choices, names, yes and no.

    Args:
        gold: The gold answer.
        answer: The answer of the response.
        either_is_text: Whether the value of one of the two is ``Words``, because the grammar does
            not fit. Otherwise only labels, Roman numerals and equal formulas count as words.
    """
    if len(gold) > MAX_COMPARED_CHARS or len(answer) > MAX_COMPARED_CHARS:
        return False
    choice = single_letter(gold)
    if choice and choice == chosen_letter(answer):
        return True
    if _PATTERNS["roman"].fullmatch(gold) and gold == answer.upper():
        return True
    if _CAPITAL_LETTERS.fullmatch(gold) and _CAPITAL_LETTERS.fullmatch(answer):
        if not (gold.isalpha() and answer.isalpha()):
            return bool(_letter_set(gold)) and _letter_set(gold) == _letter_set(answer)
        return gold == answer
    if not either_is_text:
        return False
    # Texts with signs of formulas, such as "=" and "^", are not only words.
    if _PATTERNS["signs"].search(gold) or _PATTERNS["signs"].search(answer):
        return False
    gold_words = plain_words(gold)
    answer_words = plain_words(answer)
    if gold_words == answer_words:
        return True
    if normalize_words(gold_words) == normalize_words(answer_words):
        return True
    if "-" in (*gold_words, *answer_words) and _compound(gold_words) == _compound(answer_words):
        return True  # "non-linear" and "nonlinear"
    truths = [_truth_value(gold), _truth_value(answer)]
    if truths[0] is not None and len(gold_words) == len(answer_words) == 1:
        return truths[0] == truths[1]
    polar = [_PATTERNS["polar"].match(text) for text in (gold, answer)]
    if polar[0] and polar[1] and 1 in (len(gold_words), len(answer_words)):
        return polar[0][1].lower() == polar[1][1].lower()
    # The last letter or number is enough: "B" is an answer for "Brand B".
    return is_name_with_suffix(gold) and gold.split()[1] == answer


#: Words for the truth of a statement, and their first letters.
_TRUTH_VALUES = {"yes": True, "true": True, "no": False, "false": False}
_TRUTH_LETTERS = {"Y": True, "T": True, "N": False, "F": False}


def _truth_value(text: str) -> bool | None:
    """Return the truth that "Yes", "It is true" or "T" states; None for other texts."""
    letter = _TRUTH_LETTERS.get(text.strip("(). "))
    return _TRUTH_VALUES.get(" ".join(plain_words(text))) if letter is None else letter


def truth_values(text: str) -> tuple[bool, ...]:
    """Return the values of a list of true and false, "T, F, T"; empty for other texts."""
    if not _PATTERNS["truth_values"].fullmatch(text):
        return ()
    values = map(_truth_value, _PATTERNS["truth_value"].findall(text))
    return tuple(value for value in values if value is not None)


def are_letters(text: str) -> bool:
    """Whether a text lists different letters, which may be names."""
    return bool(_letter_set(text)) and _CAPITAL_LETTERS.fullmatch(text) is not None


def _compound(words: tuple[str, ...]) -> str:
    """Return words as one text, without hyphens between letters."""
    return re.sub("(?<=[a-z]) - (?=[a-z])", "", " ".join(words))


def is_name_with_suffix(text: str) -> bool:
    """Whether a text is a name such as "Brand B" or "Vendor 2"."""
    return _PATTERNS["name_with_suffix"].fullmatch(text) is not None


#: Patterns of synonyms, each with its normal form.
_WORD_REWRITES = [
    (re.compile(rf"\b(?:{pattern})\b"), plain) for pattern, plain in _TABLE["synonyms"].items()
]
#: Ordinals of quadrants by their numbers: II, 2 and two.
_QUADRANTS = {
    number: ordinal
    for numbers in ("i ii iii iv", "1 2 3 4", "one two three four")
    for number, ordinal in zip(numbers.split(), list(ORDINALS)[1:5], strict=True)
}
_QUADRANT = re.compile(
    rf"\bquadrant ({'|'.join(_QUADRANTS)})\b|\b([1-4]) (?:st|nd|rd|th) quadrant\b"
)
#: Adjectives of shapes, with plural endings removed. Their order does not matter.
_SHAPE_ADJECTIVES = frozenset(
    ["right", "isoscele", "scalene", "acute", "obtuse", "equilateral", "angled", "regular"]
)


def normalize_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace synonyms in ``plain_words``: "a divergent series" and "diverges" become equal."""
    text = " ".join(words)
    for pattern, plain in _WORD_REWRITES:
        text = pattern.sub(plain, text)
    text = _QUADRANT.sub(lambda match: f"{_QUADRANTS[match[1] or match[2]]} quadrant", text)
    text = _PATTERNS["trailing_noun"].sub(
        "", _PATTERNS["opening"].sub("", text).replace(" condition ", " ")
    )
    parts = text.split(" and ")
    if len(parts) == 2 and " " not in text.replace(" and ", ""):
        parts.sort()
    normal_words = " and ".join(parts).split()
    if _SHAPE_ADJECTIVES.issuperset(normal_words):
        normal_words.sort()
    return tuple(normal_words)


#: Groups of words that exclude each other: the meanings, by their words.
_CLOSED_LISTS = [
    {
        normalize_words(plain_words(word.replace("_", " "))): meaning
        for meaning, synonyms in enumerate(words.split())
        for word in synonyms.split("=")
    }
    for words in _TABLE["closed_lists"]
]


def is_known_word(text: str) -> bool:
    """Whether a closed list has a text, or a fixed phrase has a value."""
    words = normalize_words(plain_words(text))
    return any(words in group for group in _CLOSED_LISTS) or _closed_meaning(text) is not None


def _closed_meaning(text: str) -> Value | frozenset[str] | str | None:
    """Return the value of a fixed phrase, a yes or no, or the letters of choices; else None."""
    if polar := _PATTERNS["polar"].match(text):
        return tree.Words((polar[1].lower(),))
    if (value := phrase_value(plain_words(text))) is not None:
        return value
    is_letters = _CAPITAL_LETTERS.fullmatch(text) is not None
    return (_letter_set(text) or None) if is_letters else None


def are_different_words(gold: str, answer: str) -> bool:
    """Whether two texts exclude each other: words of one closed list, opposites, a denial.

    Names such as "Brand A" and "Brand B" differ in their last letter.
    """
    gold_words, answer_words = (normalize_words(plain_words(text)) for text in (gold, answer))
    meanings = [_closed_meaning(text) for text in (gold, answer)]
    if None not in meanings and type(meanings[0]) is type(meanings[1]):
        return meanings[0] != meanings[1]
    if are_opposites(gold.lower().split(), answer.lower().split()):
        return True
    for group in _CLOSED_LISTS:
        if gold_words in group and answer_words in group:
            return group[gold_words] != group[answer_words]
    are_names = is_name_with_suffix(gold) and is_name_with_suffix(answer)
    return are_names and gold_words[:-1] == answer_words[:-1] and gold_words != answer_words


MAX_COMPARED_CHARS = 400  #: Maximum number of characters of an answer that is compared as words.


def chosen_letter(text: str) -> str:
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
    # A small letter alone is a variable or an article, not a choice.
    if letter.islower() and not is_marked and match.start("letter") == 0:
        return ""
    if _PATTERNS["denied_choice"].search(text_after) or _PATTERNS["next_label"].search(text_after):
        return ""
    return letter.upper()


def single_letter(text: str) -> str:
    """Return the letter of a choice without its value, "C" or "(C)"; "" for other texts."""
    match = _PATTERNS["letter"].fullmatch(text)
    return match[1] if match else ""


def letter_before_number(text: str) -> str:
    """Return the letter of "C (12)", which is a product for other golds than letters; else ""."""
    match = _PATTERNS["letter_before_number"].fullmatch(text)
    return match["letter"] if match else ""


def may_choose_letter(letter: str, text: str) -> bool:
    """Whether a text begins with the letter of a choice and may go on with its value: "C - 12"."""
    match = _PATTERNS["letter_before_text"].fullmatch(text)
    return match is not None and match["letter"] == letter


#: A word of letters that the grammar reads as their product: "ABC", "tan".
_WORD_OF_LETTERS = re.compile(r"[A-Z]{3,}|[a-z]*[aeiou][a-z]*|[IVXLCDM]{2,}")


def are_anagrams(gold: str, answer: str) -> bool:
    """Whether two words have the same letters in another order: "ABC" and "CBA".

    As products of letters they are equal, as words or as names of points they may differ.
    """
    if gold == answer or sorted(gold) != sorted(answer) or len(gold) < 2:
        return False
    return all(_WORD_OF_LETTERS.fullmatch(text) for text in (gold, answer))


def are_roman_numerals(gold: str, answer: str) -> bool:
    """Whether two texts can only be Roman numerals, such as "XIV"."""
    return all(_PATTERNS["roman"].fullmatch(text) for text in (gold, answer))


#: Words in front of a value that do not say which value it is.
_LABEL_WORD = re.compile(r"[a-z0-9]+")
_NAMELESS_WORDS = word_set(_TABLE["nameless"])


def name_different_values(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Whether two labels name different values: "the radius", "the diameter"."""
    gold_words, answer_words = (
        set(_LABEL_WORD.findall(" ".join(label))) - _NAMELESS_WORDS for label in (gold, answer)
    )
    if gold_words != answer_words:
        return not (gold_words <= answer_words or answer_words <= gold_words)
    gold_letters, answer_letters = (
        [word for word in _LABEL_WORD.findall(" ".join(label)) if len(word) == 1]
        for label in (gold, answer)
    )
    return gold_letters != answer_letters  # "F(x, y)" is not "F(y, x)"


def _letter_set(text: str) -> frozenset[str]:
    """Return the letters of a list of choices; the empty set for "I, II, IV"."""
    letters = [c for c in text.replace("and", "") if c.isupper()]
    runs = re.findall("[A-Z]+", text.replace("and", ""))
    is_unique = len(set(letters)) == len(letters)
    is_letter_list = is_unique and len(runs) in (1, len(letters))
    return frozenset(letters) if is_letter_list else frozenset()
