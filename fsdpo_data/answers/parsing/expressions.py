r"""Parser of expressions in LaTeX or plain text: sums and products.

Recursive descent over the tokens of ``lex``. Neighbouring factors are multiplied. ``12\frac35`` and
``8 1/3`` are mixed numbers. The argument of ``\sin 2x`` is the product.
"""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError
from fsdpo_data.answers.parsing.lookahead import is_factor_next, is_unit_ahead
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.number_sets import is_number_set
from fsdpo_data.answers.parsing.operands import parse_power, parse_primary
from fsdpo_data.answers.tree import Node, Value

_VECTOR_COMMANDS = ("vec", "overrightarrow")


def parse_sum(cursor: TokenCursor) -> Value:
    """Parse ``a + b - c``; return a value that is not an expression unchanged."""
    first = _parse_term(cursor, cursor.accept("+", "-", "pm", "mp"))
    if not tree.is_node(first) or is_number_set(first) or cursor.is_at_end():
        return first
    terms = [as_node(first)]
    while sign := cursor.accept("+", "-", "pm", "mp"):
        terms.append(as_node(_parse_term(cursor, sign)))
    if _is_mod_next(cursor):
        return _parse_remainder(cursor, terms)
    command = cursor.accept("over", "choose")
    if not command:
        return tree.add(terms)
    top = tree.add(terms)
    bottom = as_node(parse_sum(cursor))
    return tree.divide(top, bottom) if command == "over" else tree.Call("binom", (top, bottom))


def _parse_term(cursor: TokenCursor, sign: str) -> Value:
    """Parse a product and apply the sign before it."""
    value = parse_product(cursor)
    if sign in ("", "+"):
        return value
    node = as_node(value)
    if sign == "-":
        return tree.negate(node)
    return tree.PlusMinus(1 if sign == "pm" else -1, node)


def parse_product(cursor: TokenCursor) -> Value:
    """Parse ``a * b / c`` and products without a sign.

    Raises:
        UnparsableAnswerError: The product is the operator ``d/dx``.
    """
    first = parse_factor(cursor)
    if not tree.is_node(first):
        return first
    factors = [as_node(first)]
    divisors: list[Node] = []
    if first == tree.Sym("d") and cursor.peek_sign() == "/" and _is_differential(cursor.peek(1)):
        raise UnparsableAnswerError("a derivative is not evaluated")
    while not cursor.is_product_end():
        sign = cursor.peek_sign()
        if sign == "times" and _has_vectors(cursor):
            cursor.skip()
            factors = [tree.Call("cross", (tree.multiply(factors), as_node(parse_factor(cursor))))]
        elif cursor.accept("*", "times", "cdot") or (not sign and _accept_cross(cursor)):
            factors.append(as_node(parse_factor(cursor)))
        elif (
            sign in ("/", "div")
            and cursor.peek_word(1) not in ("", "x")
            and is_unit_ahead(cursor, 1)
        ):
            break
        elif cursor.accept("/", "div") or (
            cursor.peek_word(1) == "of" and cursor.accept_word("out")
        ):
            cursor.accept_word("of")
            divisors.append(as_node(parse_factor(cursor)))
        elif _is_mod_next(cursor):
            break
        elif cursor.peek_word() == "choose" and cursor.peek(1).kind == "num":
            cursor.skip()
            factors[-1] = tree.Call("binom", (factors[-1], as_node(parse_factor(cursor))))
        elif cursor.peek(int(sign in ("(", "["))).kind == "begin":
            return _scale_matrix(tree.multiply(factors), parse_primary(cursor))
        elif is_factor_next(cursor):
            factors.append(as_node(parse_power(cursor)))
        else:
            break
    product = tree.multiply(factors)
    return tree.divide(product, tree.multiply(divisors)) if divisors else product


def _is_differential(token: Token) -> bool:
    """Whether a token is a differential such as ``dx``."""
    return token.kind == "word" and len(token.text) == 2 and token.text[0] == "d"


def _has_vectors(cursor: TokenCursor) -> bool:
    r"""Whether the answer has vectors, so that ``\times`` is the cross product."""
    return any(token.text in _VECTOR_COMMANDS for token in cursor.tokens)


def _is_mod_next(cursor: TokenCursor) -> bool:
    """Whether "mod" follows, as in "5 mod 3"; in a congruence, it does not mean a remainder."""
    has_sign = cursor.peek_sign() == "bmod"
    has_word = cursor.peek_word() == "mod" and cursor.peek(1).kind == "num"
    is_remainder = has_sign or (has_word and not cursor.peek_sign())
    return is_remainder and not any(token.text in ("equiv", "cong") for token in cursor.tokens)


def _parse_remainder(cursor: TokenCursor, terms: list[Node]) -> Node:
    r"""Parse the modulus of ``-1 \bmod 7``, which is 6.

    A sum before or after it may be the number, or contain the remainder: ``3 + 5 \bmod 7``. It
    becomes a function that is not evaluated.
    """
    cursor.skip()
    modulus = as_node(parse_factor(cursor))
    terms_after = []
    while sign := cursor.accept("+", "-", "pm", "mp"):
        terms_after.append(as_node(_parse_term(cursor, sign)))
    if len(terms) > 1 or terms_after:
        last_sum = tree.add(terms_after) if terms_after else tree.Num(Fraction(0))
        return tree.Call("mod of a sum", (tree.add(terms), modulus, last_sum))
    return remainder(terms[0], modulus)


def _accept_cross(cursor: TokenCursor) -> bool:
    """Step over the multiplication sign x of "3.8 x 10^5"."""
    is_between_numbers = cursor.peek(1).kind == "num" and cursor.peek(-1).kind == "num"
    return is_between_numbers and bool(cursor.accept_word("x"))


def parse_factor(cursor: TokenCursor) -> Value:
    """Parse a power and the signs before it."""
    sign = cursor.accept("-", "+")
    if not sign:
        return parse_power(cursor)
    cursor.enter_level()
    value = parse_factor(cursor)
    cursor.leave_level()
    return tree.negate(as_node(value)) if sign == "-" else value


def remainder(number: Node, modulus: Node) -> Node:
    """Return ``number`` modulo ``modulus``, as a number if both are integers."""
    if isinstance(number, tree.Num) and isinstance(modulus, tree.Num):
        denominators = (number.value.denominator, modulus.value.denominator)
        if denominators == (1, 1) and modulus.value > 0:
            return tree.Num(number.value % modulus.value)
    return tree.Call("mod", (number, modulus))


def _scale_matrix(factor: Node, matrix: Value) -> Value:
    """Return a matrix times a number.

    Raises:
        UnparsableAnswerError: The value after the factor is not a matrix.
    """
    if not isinstance(matrix, tree.Matrix):
        raise UnparsableAnswerError("the value after a factor is not a matrix")
    rows = [tuple(tree.multiply([factor, as_node(entry)]) for entry in row) for row in matrix.rows]
    return tree.Matrix(tuple(rows))
