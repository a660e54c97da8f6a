"""Parser of units and counted nouns after a number."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import (
    DEGREE,
    LETTER_UNITS,
    PART_DIMS,
    SHORT_UNITS,
    UNIT_SIGNS,
    UNIT_SIGNS_AFTER_NUMBER,
    UNITS,
    counted_unit,
    find_unit,
    multiply_units,
    qualify_unit,
    unit_power,
)
from fsdpo_data.answers.lexicon.vocabulary import KEYWORDS, NON_NOUNS
from fsdpo_data.answers.lexicon.words import find_denominator, is_number_word
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.lookahead import (
    is_bracketed_unit_next,
    is_condition_next,
    is_letter_unit,
)
from fsdpo_data.answers.parsing.operands import parse_script
from fsdpo_data.answers.tree import Node

#: Maximum number of words in a counted noun ("different ways" has two), and of words after a unit.
MAX_NOUN_WORDS = 8
#: Words for squares and cubes of a unit, with the exponent.
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
#: Words that are not part of a counted noun, because they change the meaning of the number.
_EXCLUDED_WORDS = (KEYWORDS - {"in", "of", "per", "from", "over", "by"}) | NON_NOUNS
#: The same before other words: "three squared" is no count of things.
_OPERATION_WORDS = frozenset(("squared", "cubed", "factorial", "root"))


def parse_unit(cursor: TokenCursor, node: Node) -> tree.Unit | None:
    """Parse a unit or a counted noun; return None if neither follows.

    Raises:
        UnparsableAnswerError: A prime follows an expression with a variable: a derivative.
    """
    if cursor.is_product_end():
        return None
    if cursor.peek_sign() == "'" and any(isinstance(part, tree.Sym) for part in tree.walk(node)):
        raise UnparsableAnswerError("the prime of an expression is not evaluated")
    start = cursor.position
    modulus = _parse_modulus(cursor)
    if modulus is not None:
        return modulus
    if cursor.peek_sign() == "(" and is_bracketed_unit_next(cursor):
        cursor.skip()
        unit = _parse_named_unit(cursor)
        cursor.expect(")")
        return unit
    if cursor.accept("-") and cursor.peek().kind != "word":
        cursor.position = start
    unit = _parse_named_unit(cursor)
    is_article = node == tree.Sym("a") or (node == tree.Sym("A") and start == 1)
    if unit is None or (is_article and not unit.dims):
        cursor.position = start  # "a function" counts nothing
        return None
    return unit


def _parse_named_unit(cursor: TokenCursor) -> tree.Unit | None:
    """Parse a unit with the words after it, a fraction word, or a counted noun."""
    unit = _parse_unit_product(cursor)
    if unit is not None:
        return qualify_unit(unit, _take_trailing_words(cursor))
    is_plural = cursor.peek_word().endswith("s")
    if is_plural and cursor.peek(1).text == "/" and (rate := _parse_rate(cursor)) is not None:
        return rate
    denominator = find_denominator(cursor.peek_word()) if is_plural else None
    if denominator is None or not cursor.peek().space or cursor.peek(1).kind != "eof":
        return _parse_counted_noun(cursor)
    word = cursor.take().text.lower()
    return tree.Unit(word, PART_DIMS, Fraction(1, denominator))  # "5 thirds"


def _parse_rate(cursor: TokenCursor) -> tree.Unit | None:
    """Parse counted things per unit: "electrons/cm^3"."""
    start = cursor.position
    noun = cursor.take().text.lower()
    cursor.skip()
    divisor = _parse_unit_product(cursor)
    if divisor is None:
        cursor.position = start
        return None
    return qualify_unit(unit_power(divisor, -1), (noun,))


def _parse_unit_product(cursor: TokenCursor) -> tree.Unit | None:
    """Parse products and quotients of units: ``km/h``, ``N m``, "square feet per hour"."""
    is_percent = cursor.peek_word() == "per" and cursor.peek_word(1) == "cent"
    is_inverse = not is_percent and bool(cursor.accept("/") or cursor.accept_word("per"))
    if cursor.peek_word() == "a" and find_unit(cursor.peek_word(1)) is not None:
        cursor.skip()  # "$18 a day"
        is_inverse = True
    unit = _parse_unit_factor(cursor)
    if unit is None:
        return None
    unit = unit_power(unit, -1) if is_inverse else unit
    while True:
        start = cursor.position
        if cursor.accept("/") or cursor.accept_word("per", "an", "a", "each"):
            divisor = _parse_unit_factor(cursor)
            if divisor is None:
                return unit
            unit = multiply_units(unit, unit_power(divisor, -1))
            continue
        if not cursor.accept("*", "cdot", "times"):
            cursor.accept("-")
        factor = _parse_unit_factor(cursor)
        if factor is None:
            cursor.position = start
            return unit
        unit = multiply_units(unit, factor)


def _parse_unit_factor(cursor: TokenCursor) -> tree.Unit | None:
    """Parse one unit with its power: ``m^2``, "square feet", "metres squared"."""
    start = cursor.position
    power = 1
    if cursor.peek_word() in ("square", "sq", "cubic", "cu"):
        power = _POWER_WORDS[cursor.take().text.lower()]
        cursor.accept(".")
    unit = _parse_unit_word(cursor)
    if unit is None:
        cursor.position = start
        return None
    if cursor.peek_sign() == "^":
        exponent_start = cursor.position
        cursor.skip()
        exponent = parse_script(cursor)
        if not isinstance(exponent, tree.Num) or exponent.value.denominator != 1:
            cursor.position = exponent_start
            return unit
        power = int(exponent.value)
    elif cursor.peek_word() in ("squared", "cubed"):
        power = _POWER_WORDS[cursor.peek_word()]
        cursor.skip()
    cursor.accept(".")
    if power < 0 and unit == UNITS["ms"]:  # "5 ms^{-2}" is in metres per second squared
        return multiply_units(UNITS["m"], unit_power(UNITS["s"], power))
    return unit_power(unit, power) if power != 1 else unit


def _parse_unit_word(cursor: TokenCursor) -> tree.Unit | None:
    """Parse the name or sign of one unit."""
    token = cursor.peek()
    if token.kind in ("op", "cmd"):
        return _parse_unit_sign(cursor, token.text)
    if token.kind not in ("word", "let"):
        return None
    if token.text == "per" and cursor.peek_word(1) == "cent":
        cursor.skip(2)
        return UNIT_SIGNS["%"]
    two_words = f"{token.text.lower()} {cursor.peek_word(1).rstrip('s')}"
    if two_words in UNITS:
        cursor.skip(2)
        return UNITS[two_words]
    if token.text == "in":
        following = cursor.peek(1)
        # "in" is the unit inch at the end of a unit, and otherwise a preposition.
        ends_unit = following.kind == "eof" or following.text in ("^", ".", ",", ")", "*", "/")
        if ends_unit and (cursor.position or cursor.peek_sign(1) != "^"):
            cursor.skip()
            return UNITS["inch"]
        return None
    is_short = token.kind == "let" or token.text in SHORT_UNITS
    if is_short and not _accepts_letter_unit(cursor, token.text):
        return None
    unit = find_unit(token.text)
    if unit is not None:
        cursor.skip()
        if unit.dims == DEGREE.dims and cursor.peek_word() in (
            "celsius",
            "fahrenheit",
            "c",
            "f",
        ):
            word = cursor.peek_word()
            cursor.skip()
            return UNITS["celsius" if word[0] == "c" else "fahrenheit"]
    return unit


def _accepts_letter_unit(cursor: TokenCursor, letter: str) -> bool:
    """Whether the next token, a letter or a prefix with a letter, is a unit.

    It is a unit after another unit or a bracket, or if ``is_letter_unit`` says so.
    """
    token = cursor.peek()
    previous = cursor.tokens[cursor.position - 1] if cursor.position else token
    if previous.text in ("mu", "micro") and letter in UNITS:
        return True
    is_in_unit = previous.text in ("/", "per", "{", "mu", "micro") or (
        previous.kind == "word" and find_unit(previous.text) is not None
    )
    is_unit = is_in_unit or previous.text == "(" or is_letter_unit(cursor, token)
    return is_unit and (letter in LETTER_UNITS or letter in SHORT_UNITS)


def _parse_unit_sign(cursor: TokenCursor, sign: str) -> tree.Unit | None:
    r"""Parse a sign or command of a unit: degrees, percent, ``\mu`` or a fraction."""
    if sign == "circ":
        cursor.skip()
        return parse_degree_unit(cursor)
    if sign in UNIT_SIGNS_AFTER_NUMBER:
        cursor.skip()
        return UNIT_SIGNS_AFTER_NUMBER[sign]
    if sign == "frac":
        return _parse_unit_fraction(cursor)
    if sign in ("mu", "micro"):
        cursor.skip()
        unit = _parse_unit_word(cursor)
        return unit and tree.Unit("µ" + unit.label, unit.dims, unit.factor / 10**6)
    return None


def _parse_unit_fraction(cursor: TokenCursor) -> tree.Unit | None:
    r"""Parse ``\frac{km}{h}``."""
    cursor.skip()
    sides: list[tree.Unit] = []
    for power in (1, -1):
        cursor.expect("{")
        unit = _parse_unit_factor(cursor)
        if unit is None:
            return None
        sides.append(unit_power(unit, power))
        cursor.expect("}")
    return multiply_units(sides[0], sides[1])


def parse_degree_unit(cursor: TokenCursor) -> tree.Unit:
    """Parse the C or F after a degree sign; return the unit of angles if neither follows."""
    if cursor.peek().kind == "let" and cursor.peek().text in "CF":
        return UNITS["celsius" if cursor.take().text == "C" else "fahrenheit"]
    return DEGREE


def _parse_modulus(cursor: TokenCursor) -> tree.Unit | None:
    r"""Parse ``\pmod 7`` or ``(mod 7)``."""
    start = cursor.position
    has_bracket = bool(cursor.accept("("))
    if cursor.accept("pmod", "mod", "bmod") or cursor.accept_word("mod"):
        modulus = parse_script(cursor)
        if has_bracket:
            cursor.expect(")")
        if isinstance(modulus, tree.Num):
            if modulus.value <= 0:
                raise UnparsableAnswerError("the modulus is not positive")
            label = f"mod {modulus.value}"
            return tree.Unit(label, ((label, 1),))
    cursor.position = start
    return None


def _parse_counted_noun(cursor: TokenCursor) -> tree.Unit | None:
    """Parse the words of a counted noun: "different ways", "more inches"."""
    words: list[str] = []
    while len(words) <= MAX_NOUN_WORDS and _take_noun_word(cursor, words):
        pass
    if not words or len(words) > MAX_NOUN_WORDS:
        return None
    noun = words[: words.index("of")] if "of" in words else words
    for word in noun[-1:]:
        unit = find_unit(word) if len(word) > 2 else None
        if unit is not None:
            power = _POWER_WORDS.get(noun[-2], 1) if len(noun) > 1 else 1
            return qualify_unit(unit_power(unit, power) if power > 1 else unit, tuple(words))
    return counted_unit(" ".join(words))


def _take_noun_word(cursor: TokenCursor, words: list[str]) -> bool:
    """Append the next token to ``words`` if it is part of a counted noun."""
    if is_condition_next(cursor):
        return False
    token = cursor.peek()
    if token.kind == "let" and cursor.peek_sign(1) == "=":
        return False  # "8 rad/s y = 5"
    is_hyphenated = cursor.peek_sign(1) == "-" and cursor.peek(2).kind == "word"
    if token.kind == "word" or (token.kind == "let" and (words or is_hyphenated)):
        # An infinitive belongs to the noun: "ways to win".
        is_infinitive = words and token.text == "to" and cursor.peek(1).kind == "word"
        if not is_infinitive and (
            token.text.lower() in _EXCLUDED_WORDS
            or is_number_word(token.text)
            or (not words and token.text.lower() == "by")
            or (token.text.lower() in _OPERATION_WORDS and not (words and find_unit(words[-1])))
        ):
            return False
        words.append(token.text)
    elif not words or token.text not in ("-", "'", ".", "/"):
        return False
    cursor.skip()
    return True


def _take_trailing_words(cursor: TokenCursor) -> tuple[str, ...]:
    """Take the words that qualify a unit: "of paint", "tall", "per hour"."""
    # The first entry represents the unit, because signs and letters only follow another word.
    words: list[str] = ["unit"]
    while len(words) <= MAX_NOUN_WORDS and _take_noun_word(cursor, words):
        pass
    return tuple(words[1:])
