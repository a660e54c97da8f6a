r"""Parser of fractions, derivatives, roots and binomials: ``\frac12``, ``\sqrt[3]{2}``."""

import re

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import FUNCTIONS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.operands import operand, parse_primary
from fsdpo_data.answers.parsing.statements import parse_value
from fsdpo_data.answers.tree import Node

_DERIVATIVE_NUMERATOR = re.compile(r"(?:d|partial)(?:\^\{?(\d)\}?)?([A-Za-z].*)")
#: The numerator of an operator such as ``\frac{d}{dx}``, also with its operand in brackets.
_OPERATOR_NUMERATOR = re.compile(r"(?:d|partial)(?:\^\{?\d\}?)?(?:\(.*)?")
_DERIVATIVE_DENOMINATOR = re.compile(r"(?:d|partial)([A-Za-z]+)(?:\^\{?(\d)\}?)?")

#: Variables by which a prime differentiates; a derivative by another variable names it.
_PRIME_VARIABLES = ("x", "t")


@operand("cmd", "frac")
def parse_fraction(cursor: TokenCursor) -> Node:
    """Parse the two arguments of a fraction, or a derivative."""
    start = cursor.position
    derivative = _parse_derivative(cursor)
    if derivative is not None:
        return derivative
    cursor.position = start
    top = parse_argument(cursor)
    bottom = parse_argument(cursor)
    return tree.divide(top, bottom)


def _parse_derivative(cursor: TokenCursor) -> Node | None:
    r"""Parse ``\frac{d^2 x}{dt^2}`` as the variable ``x''``; None for other fractions.

    Raises:
        UnparsableAnswerError: ``\frac{d}{dx}`` is an operator.
    """
    if cursor.peek_sign() != "{" or cursor.peek(1).text[:1] not in ("d", "p"):
        return None
    top = cursor.take_group_text()
    if cursor.peek_sign() != "{":
        return None
    numerator = _DERIVATIVE_NUMERATOR.fullmatch(top)
    denominator = _DERIVATIVE_DENOMINATOR.fullmatch(cursor.take_group_text())
    if denominator is not None and _OPERATOR_NUMERATOR.fullmatch(top):
        raise UnparsableAnswerError("a derivative is not evaluated")
    if numerator is None:
        return None
    is_letter_order = denominator is not None and len(denominator[1]) > 1
    if denominator is None or (not is_letter_order and numerator[1] != denominator[2]):
        return None
    primes = "'" * int(numerator[1] or 1)
    is_named = "partial" in denominator[0] or denominator[1] not in _PRIME_VARIABLES
    variable = denominator[1] if is_named else ""
    return tree.Sym(numerator[2] + primes + variable)


@operand("cmd", "sqrt", "surd")
def parse_root(cursor: TokenCursor) -> Node:
    r"""Parse the degree and the argument of a root; ``\sqrt13`` is the root of 13."""
    degree: Node | None = None
    if cursor.accept("["):
        degree = as_node(parse_value(cursor))
        cursor.expect("]")
    number = cursor.take().number if cursor.peek().kind == "num" else None
    radicand = parse_argument(cursor) if number is None else number
    return tree.Call("root", (radicand, degree or parse_integer("2")))


@operand("cmd", "cbrt", "qdrt")
def parse_named_root(cursor: TokenCursor) -> Node:
    """Parse the argument of a cube root or a fourth root."""
    degree = parse_integer("3" if cursor.peek(-1).text == "cbrt" else "4")
    return tree.Call("root", (as_node(parse_primary(cursor)), degree))


@operand("cmd", "binom")
def parse_binomial(cursor: TokenCursor) -> Node:
    r"""Parse the two arguments of ``\binom``."""
    return tree.Call("binom", (parse_argument(cursor), parse_argument(cursor)))


def parse_argument(cursor: TokenCursor) -> Node:
    r"""Parse the argument of a command: a braced group or one token (``\frac12``)."""
    if cursor.peek_sign() == "{":
        return as_node(parse_primary(cursor))
    token = cursor.peek()
    if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
        cursor.tokens[cursor.position : cursor.position + 1] = [
            Token("num", digits, number=parse_integer(digits))
            for digits in (token.text[0], token.text[1:])
        ]
    if token.text.lower() not in FUNCTIONS:  # "√sin x"
        cursor.split_word()
    return as_node(parse_primary(cursor))
