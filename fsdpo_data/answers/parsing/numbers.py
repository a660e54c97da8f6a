"""Parser of numbers in digits and in words, with the text after them."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import ORDINAL_MARKS
from fsdpo_data.answers.lexicon.words import (
    CURRENCY_SCALES,
    SCALES,
    SHORT_SCALES,
    SMALL_NUMBERS,
    find_denominator,
    read_number_words,
)
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.fractions_and_roots import parse_fraction
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.lookahead import is_unit_ahead
from fsdpo_data.answers.parsing.operands import operand
from fsdpo_data.answers.tree import Value

MAX_NUMBER_WORDS = 20  #: Maximum number of words in one number.
DOZEN = 12


@operand("num")
def parse_number(cursor: TokenCursor) -> Value:
    """Parse the text after a number: "6th", "5 squared", mixed numbers and "2.5 million"."""
    token = cursor.peek(-1)
    number = token.number
    if number is None:
        raise UnparsableAnswerError(f"the number {token.text} has no value")
    if cursor.is_at_end():
        return number
    if cursor.peek_sign() == "_":
        return _parse_based_number(cursor, token.text)
    if cursor.peek_word() in ORDINAL_MARKS and not cursor.peek().space:
        cursor.skip()
        return tree.Call("ordinal", (number,))
    if (
        cursor.peek_sign() == "("
        and SMALL_NUMBERS.get(cursor.peek_word(1)) == number.value
        and cursor.peek_sign(2) == ")"
    ):
        cursor.skip(3)  # "3 (three)"
        return number
    if cursor.peek_sign() == "%" and cursor.peek_sign(1) in ("cdot", "times", "*"):
        cursor.skip()  # "100% · s"
        return tree.Num(number.value / 100)
    word = cursor.peek_word()
    if word in ("squared", "cubed"):
        cursor.skip()
        return tree.Pow(number, parse_integer("2" if word == "squared" else "3"))
    if word == "factorial":
        cursor.skip()
        return tree.Call("factorial", (number,))
    scale = _peek_scale(cursor)
    if scale is not None:
        cursor.skip()
        is_exact = number.decimal_places is None or scale == DOZEN  # "2.5 dozen" is exactly 30
        decimal_places = None if is_exact else (number.decimal_places or 0) - len(str(scale)) + 1
        return tree.Num(number.value * scale, decimal_places, number.significant_digits)
    if number.decimal_places is None and number.value.denominator == 1:
        fraction = _parse_fraction_part(cursor)
        if fraction is not None:
            return tree.Num(number.value + fraction)
    return number


def _peek_scale(cursor: TokenCursor) -> int | None:
    """Return the size of a scale after a number, such as "million" or the K of "$12K", or None."""
    token = cursor.peek()
    if cursor.currency is not None and token.text in CURRENCY_SCALES:
        return CURRENCY_SCALES[token.text]
    if token.upright and token.text in SHORT_SCALES:
        return SHORT_SCALES[token.text]
    return SCALES.get(token.text.lower()) if token.kind == "word" else None


def _parse_based_number(cursor: TokenCursor, digits: str) -> Value:
    """Parse the subscript of a number, which is its base: ``25_6``."""
    cursor.skip()
    base = cursor.take_group_text()
    if not base.isdigit() or not digits.replace(".", "").isdigit() or int(base[:3]) < 2:
        raise UnparsableAnswerError("the subscript of a number is not a base")
    return tree.NumberInBase(digits, int(base[:3]))


def _parse_fraction_part(cursor: TokenCursor) -> Fraction | None:
    r"""Parse the ``\frac35`` of ``12\frac35`` or the ``1/3`` of ``8 1/3``."""
    start = cursor.position
    if (fraction_in_words := _parse_fraction_words(cursor)) is not None:
        return fraction_in_words
    if cursor.peek(1).kind == "num" and cursor.peek_sign(2) == "/":
        cursor.accept_word("and")
    # "5 \frac{km}{h}" is a number with a unit, and not a mixed number.
    if cursor.peek_sign() == "frac" and not (
        cursor.peek_sign(1) == "{" and is_unit_ahead(cursor, 2)
    ):
        cursor.skip()
        fraction = parse_fraction(cursor)
        if (
            isinstance(fraction, tree.Num)
            and 0 < fraction.value < 1
            and fraction.decimal_places is None
        ):
            return fraction.value
    elif cursor.peek().kind == "num" and cursor.peek().space and cursor.peek_sign(1) == "/":
        top = cursor.take().number
        bottom = cursor.peek(1).number
        cursor.skip(2)
        if top is not None and bottom is not None and bottom.value > top.value > 0:
            quotient = top.value / bottom.value
            if top.decimal_places is None and bottom.decimal_places is None:
                return quotient
    cursor.position = start
    return None


def _parse_fraction_words(cursor: TokenCursor) -> Fraction | None:
    """Parse the "and a half" of "5 and a half"."""
    start = cursor.position
    if cursor.accept_word("and") and find_denominator(cursor.peek_word(1)):
        cursor.skip()
        part = parse_number_words(cursor)
        if isinstance(part, tree.Num) and 0 < part.value < 1:
            return part.value
    cursor.position = start
    return None


def parse_number_words(cursor: TokenCursor) -> Value:
    """Parse a number in words; its first word is already taken."""
    cursor.position -= 1
    words: list[str] = []
    end_positions: list[int] = []  # For every word, the position after it.
    index = cursor.position
    while len(words) < MAX_NUMBER_WORDS and index < len(cursor.tokens):
        token = cursor.tokens[index]
        index += 1
        if token.kind in ("word", "let"):
            words.append(token.text.lower())
            end_positions.append(index)
        elif token.text == "," and words and words[-1] in ("thousand", "million", "billion"):
            continue
        elif token.text != "-" or token.space:
            break
    number_words = read_number_words(words)
    if number_words is None:
        raise UnparsableAnswerError(f"the word {words[0] if words else ''} is not a number")
    number, word_count, is_ordinal = number_words
    cursor.position = end_positions[word_count - 1]
    if is_ordinal:
        return tree.Call("ordinal", (tree.Num(number),))
    if (
        cursor.peek_sign() == "("
        and cursor.peek(1).number == tree.Num(number)
        and cursor.peek_sign(2) == ")"
    ):
        cursor.skip(3)  # "three (3)"
    return tree.Num(number)
