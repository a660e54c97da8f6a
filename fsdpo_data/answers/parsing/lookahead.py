"""Decisions on the next tokens: whether they are a factor, a unit or a condition."""

from fsdpo_data.answers.lexicon.units import LETTER_UNITS, SHORT_UNITS, find_unit
from fsdpo_data.answers.lexicon.vocabulary import (
    ACCENTS,
    CONSTANTS,
    FUNCTIONS,
    KEYWORDS,
    SHORT_NOUNS,
    SYMBOLS,
    is_known_name,
    is_language_word,
)
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token

#: Commands outside the vocabulary tables that begin a factor.
_FACTOR_COMMANDS = frozenset(
    ("frac", "sqrt", "surd", "cbrt", "qdrt", "binom", "lfloor", "lceil", "mathbb")
)
_COMPARISON_SIGNS = frozenset(("<", ">", "le", "ge", "=", "ne", "in"))


def is_factor_next(cursor: TokenCursor) -> bool:
    """Whether the next token begins another factor of the product."""
    token = cursor.peek()
    if token.space > 2 and token.kind in ("let", "word"):
        return False  # a new statement
    if token.kind == "num":
        previous = cursor.tokens[cursor.position - 1]
        if previous.kind == "num":  # "2^6 3^5"
            return (
                token.space > 0
                and cursor.position > 1
                and cursor.tokens[cursor.position - 2].text == "^"
            )
        return previous.kind != "word" and not (_is_after_degrees(cursor) and token.space < 2)
    if token.kind == "let":
        if token.text in ("C", "F") and _is_after_degrees(cursor):
            return False
        if token.text == "a" and cursor.currency is not None and find_unit(cursor.peek_word(1)):
            return False  # "$18 a day"
        return not is_letter_unit(cursor, token)
    if token.kind == "word":
        return _is_word_factor(cursor, token)
    if token.kind == "op":
        if token.text == "(":
            if cursor.peek_word(1) == "mod" or cursor.peek_sign(1) in ("mod", "bmod"):
                return False
            return not is_bracketed_unit_next(cursor)
        if token.text == "[":
            return not cursor.square_closes
        return token.text == "{" or (token.text == "|" and not cursor.bars_close)
    if token.text == "frac" and cursor.peek_sign(1) == "{" and is_unit_ahead(cursor, 2):
        return False
    if token.text in ("mu", "micro", "Omega") and _is_unit_letter(cursor, token.text):
        return False
    if token.text == "|":
        return not cursor.bars_close
    tables = (SYMBOLS, FUNCTIONS, CONSTANTS, ACCENTS, _FACTOR_COMMANDS)
    return token.kind == "cmd" and any(token.text in table for table in tables)


def _is_word_factor(cursor: TokenCursor, token: Token) -> bool:
    """Whether the next token, a word, is a factor, not a unit or a word of a language."""
    if token.text in ("min", "max") and cursor.peek_sign(1) not in ("(", "{"):
        return False
    if is_condition_next(cursor):
        return False
    if token.upright and token.text.lower() in FUNCTIONS:
        return True
    if token.upright or (token.space == 1 and token.text.lower() in SHORT_NOUNS):
        return False  # "32 CDs"
    if cursor.letter_units or is_known_name(token.text):
        return is_known_name(token.text)
    is_unit = find_unit(token.text) is not None
    if token.text in SHORT_UNITS:
        is_unit = is_letter_unit(cursor, token)
    is_keyword_or_unit = token.text.lower() in KEYWORDS or is_unit
    return not is_keyword_or_unit and not is_language_word(token.text)


def _is_after_degrees(cursor: TokenCursor) -> bool:
    """Whether the previous tokens are a degree sign."""
    previous = cursor.tokens[max(cursor.position - 2, 0) : cursor.position]
    texts = [token.text for token in previous]
    return texts[-1:] == ["circ"] or texts in (["circ", "}"], ["o", "}"])


def _is_unit_letter(cursor: TokenCursor, name: str) -> bool:
    r"""Whether a Greek letter is part of a unit: ``\mu\mathrm{m}``, or ``\Omega`` for ohms."""
    following = cursor.peek(1)
    if name == "Omega":
        return cursor.letter_units
    is_before_unit = following.text == "Omega" or find_unit(following.text) is not None
    return is_before_unit and (name == "micro" or following.upright or cursor.letter_units)


def is_letter_unit(cursor: TokenCursor, token: Token) -> bool:
    """Whether a letter after a number, or a prefix and a letter, is a unit, not a variable."""
    if token.text not in LETTER_UNITS and token.text not in SHORT_UNITS:
        return False
    if cursor.peek_sign(1) == "^" and token.text != "m":
        has_minus = "-" in (cursor.peek_sign(2), cursor.peek_sign(3))
        return token.upright or (cursor.letter_units and has_minus)  # "3s^2" is not a time
    if cursor.letter_units or token.upright or _is_in_compound(cursor, token):
        return True
    if token.space >= 2:
        return cursor.peek(1).kind == "eof" or (
            cursor.peek_sign(1) == "^" and cursor.position + 5 >= len(cursor.tokens)
        )
    # "5 m" is a number and a letter in plain text.
    return token.space == 1 and len(cursor.tokens) == 2 and cursor.tokens[0].kind == "num"


def _is_in_compound(cursor: TokenCursor, token: Token) -> bool:
    """Whether a letter is the larger unit of "2 h 50 min" or "5 m 20 cm"."""
    if cursor.peek(1).kind != "num" or cursor.tokens[cursor.position - 1].kind != "num":
        return False
    if token.text == "h" and cursor.peek(2).text == "m":
        return True  # "2 h 50 m" is a time
    unit = find_unit(token.text)
    smaller = find_unit(cursor.peek(2).text)
    return unit is not None and smaller is not None and unit.dims == smaller.dims


def is_bracketed_unit_next(cursor: TokenCursor) -> bool:
    """Whether a noun or unit in brackets follows at the end: "(apples)" after a number."""
    ahead = 1
    word_count = 0
    while cursor.peek(ahead).kind in ("word", "let") or cursor.peek_sign(ahead) in ("-", ".", "'"):
        word_count += cursor.peek(ahead).kind == "word"
        ahead += 1
    is_last_bracket = cursor.peek_sign(ahead) == ")" and (
        cursor.peek(ahead + 1).kind == "eof" or cursor.peek_sign(ahead + 1) in (",", ";")
    )
    if not is_last_bracket or ahead == 1:
        return False
    if word_count == 0:
        return ahead == 2 and len(cursor.tokens) == 4 and cursor.peek().space > 0
    words = [cursor.peek(index).text for index in range(1, ahead)]
    if "-" in words and all(len(word) == 2 and word.isupper() for word in words if word != "-"):
        return False  # a difference of segments: "2(AB - CD)"
    return cursor.position == 1 or any(
        is_language_word(cursor.peek(index).text) or is_unit_ahead(cursor, index)
        for index in range(1, ahead)
    )


def is_unit_ahead(cursor: TokenCursor, ahead: int) -> bool:
    """Whether the token that is ``ahead`` tokens after the next one is the name of a unit."""
    token = cursor.peek(ahead)
    if token.kind == "let":
        return (token.upright or cursor.letter_units) and token.text in LETTER_UNITS
    if token.text in SHORT_UNITS:
        return token.upright or cursor.letter_units
    return token.kind == "word" and find_unit(token.text) is not None


def is_condition_next(cursor: TokenCursor) -> bool:
    """Whether "otherwise" follows, or "if" with a comparison."""
    word = cursor.peek_word()
    return word in ("otherwise", "else") or (
        word in ("if", "for", "when", "where")
        and (
            any(cursor.peek_sign(ahead) in _COMPARISON_SIGNS for ahead in range(2, 5))
            or any(cursor.peek_word(ahead) in ("even", "odd") for ahead in (2, 3))
        )
    )
