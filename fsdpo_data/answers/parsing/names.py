"""Parser of letters and words: variables with subscripts, named functions, number words."""

import re

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import CURRENCIES, find_unit
from fsdpo_data.answers.lexicon.vocabulary import (
    CONSTANTS,
    FIGURE_WORDS,
    FUNCTIONS,
    GREEK_LETTERS,
    KEYWORDS,
    MAX_PRODUCT_LETTERS,
    PART_WORDS,
    is_language_word,
)
from fsdpo_data.answers.lexicon.words import ORDINALS, SCALES, is_number_word
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.fractions_and_roots import parse_root
from fsdpo_data.answers.parsing.functions import parse_application, parse_arguments, parse_function
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.numbers import parse_number_words
from fsdpo_data.answers.parsing.operands import (
    name_mark,
    operand,
    parse_postfix,
    parse_power,
    parse_primary,
    parse_script,
)
from fsdpo_data.answers.tree import Node, Value

#: Signs in the argument of P that make it an event: P is then a probability.
_EVENT_SIGNS = frozenset(("|", "=", "<", ">", "le", "ge", "cap", "cup", "overline", "bar"))


@operand("let")
def parse_letter(cursor: TokenCursor) -> Value:
    """Parse an expression that starts with a letter; the letter is already taken."""
    token = cursor.peek(-1)
    if token.text in ("e", "i") and cursor.peek_sign() != "_":
        return CONSTANTS[token.text]
    symbol = tree.Sym(token.text)
    if token.text in ("a", "A") and (
        cursor.peek_word() in SCALES or cursor.peek_word() in PART_WORDS
    ):
        return parse_number_words(cursor)
    if token.text == "P" and cursor.peek_sign() == "(":
        event = _parse_event(cursor)
        if event is not None:
            return event
    if token.text == "C" and cursor.peek_sign() == "(" and cursor.peek_sign(2) == ",":
        cursor.skip()
        return tree.Call("binom", parse_arguments(cursor, ")"))
    return symbol if cursor.peek().space else parse_application(cursor, symbol)


def _parse_event(cursor: TokenCursor) -> tree.Sym | None:
    r"""Parse the probability of an event, ``P(A \mid B)`` or ``P(X \ge 2)``, as one name."""
    ahead = 1
    depth = 1
    while depth and cursor.peek(ahead).kind != "eof":
        depth += (cursor.peek_sign(ahead) == "(") - (cursor.peek_sign(ahead) == ")")
        ahead += 1
    event_tokens = cursor.tokens[cursor.position + 1 : cursor.position + ahead - 1]
    texts = [token.text for token in event_tokens]
    if depth or not _EVENT_SIGNS & set(texts):
        return None
    cursor.skip(ahead)
    return tree.Sym(f"P({' '.join(texts)})")


@name_mark("_")
def parse_subscript(cursor: TokenCursor, symbol: tree.Sym) -> Value:
    r"""Parse the subscript of ``x_1``; ``C_n^k`` is a binomial coefficient."""
    name = cursor.take_group_text()
    if symbol.name == "C" and name in ("n", "m", "N") and cursor.accept("^"):
        return tree.Call("binom", (tree.Sym(name), parse_script(cursor)))
    if symbol.name in ("C", "P", "A") and name.isdigit() and cursor.peek_sign() == "^":
        start = cursor.position
        cursor.skip()
        total = int(name)
        chosen = parse_script(cursor)
        if isinstance(chosen, tree.Num) and 1 <= chosen.value <= total:
            function = "binom" if symbol.name == "C" else "perm"
            return tree.Call(function, (parse_integer(name), chosen))
        cursor.position = start
    stem = symbol.name.rstrip("'")
    primes = symbol.name[len(stem) :]
    return parse_application(cursor, tree.Sym(f"{stem}_{name}{primes}"))


@operand("word")
def parse_word(cursor: TokenCursor) -> Value:
    """Parse an expression that starts with a word; the word is already taken."""
    token = cursor.peek(-1)
    word = token.text
    lower = word.lower()
    if lower in CONSTANTS:
        return CONSTANTS[lower]
    if word in ("sqrt", "Sqrt"):
        return parse_root(cursor)
    # Upright "min" means minutes, and upright "max" is a label.
    if lower in FUNCTIONS and not (token.upright and lower in ("max", "min")):
        return parse_function(cursor, FUNCTIONS[lower])
    if word in ("np", "math") and cursor.accept("."):
        return parse_primary(cursor)
    if lower in GREEK_LETTERS:
        return tree.Sym(word if word in GREEK_LETTERS else lower)
    if is_number_word(word) or lower in ORDINALS or lower in ("a", "an"):
        return parse_number_words(cursor)
    if lower in ("negative", "minus"):
        return tree.negate(as_node(parse_power(cursor)))
    if (
        re.fullmatch("d[a-z]", word)
        and cursor.peek_sign() == "/"
        and cursor.peek_word(1)[:1] == "d"
    ):
        cursor.skip(2)
        return tree.Sym(word[1:] + "'")
    if lower in FIGURE_WORDS and cursor.peek().text.isupper():  # "triangle ABC": skip the word
        return parse_primary(cursor)
    n_dots = 1 if cursor.peek_sign() == "." else 0  # "Rs. 50"
    is_before_amount = cursor.peek(n_dots).kind in ("num", "cmd")
    if lower in CURRENCIES and word != "RS" and is_before_amount:  # "RS" is a line segment
        cursor.accept(".")
        cursor.currency = CURRENCIES[lower]
        return parse_primary(cursor)
    names_figure = token.upright and word.isupper() and len(cursor.tokens) > 1  # r"\text{AB} = 5"
    if not names_figure:
        _check_letter_product(cursor, token)
    return _parse_letters(cursor, word)


def _check_letter_product(cursor: TokenCursor, token: Token) -> None:
    """Raise ``UnparsableAnswerError`` if a word cannot be a product of letters."""
    word = token.text
    starts_sentence = word.istitle() and len(word) > 1 and cursor.peek().kind == "word"
    if (
        token.upright
        or starts_sentence  # "It will be"
        or word.lower() in KEYWORDS
        or is_language_word(word)
        or _is_among_words(cursor, token)
    ):
        raise UnparsableAnswerError(f"the word {word} is not part of an expression")
    if find_unit(word) is not None and word.lower() == word and len(word) > 2:
        raise UnparsableAnswerError(f"the unit {word} has no number")


def _is_among_words(cursor: TokenCursor, token: Token) -> bool:
    """Whether the word before or after a short word is short, too: "por lo tanto".

    A product of letters is one word, and a unit may follow it.
    """
    previous = cursor.tokens[max(cursor.position - 2, 0) : cursor.position - 1]
    neighbors = [*previous, cursor.peek()]
    return token.text.islower() and any(
        neighbor.kind == "word"
        and neighbor.text.islower()
        and not neighbor.upright
        and len(neighbor.text) <= MAX_PRODUCT_LETTERS
        and find_unit(neighbor.text) is None
        and neighbor.text not in KEYWORDS
        and neighbor.text not in FUNCTIONS
        for neighbor in neighbors
    )


def _parse_letters(cursor: TokenCursor, word: str) -> Value:
    """Multiply the letters of ``word``; an exponent belongs to the last letter."""
    if len(word) == 2 and word.isupper() and _is_segment_product(cursor):
        return tree.Sym(f"segment {''.join(sorted(word))}")
    letters: list[Node] = [
        CONSTANTS.get(c, tree.Sym(c)) if c in "ei" else tree.Sym(c) for c in word
    ]
    if cursor.peek_sign() in ("^", "_", "!", "'"):
        letters[-1] = as_node(parse_postfix(cursor, letters[-1]))
    elif isinstance(letters[-1], tree.Sym):
        letters[-1] = as_node(parse_application(cursor, letters[-1]))
    return tree.multiply(letters)


def _is_segment_product(cursor: TokenCursor) -> bool:
    r"""Whether the previous word is a line segment in a product: ``AB \cdot CD``."""
    signs = ("cdot", "times", "*")
    left_pair = cursor.tokens[max(cursor.position - 3, 0) : cursor.position - 1]
    right_pair = cursor.tokens[cursor.position :][:2]
    return any(
        len(pair) == 2
        and pair[sign_index].text in signs
        and len(pair[1 - sign_index].text) == 2
        and pair[1 - sign_index].text.isupper()
        for pair, sign_index in ((left_pair, 1), (right_pair, 0))
    )
