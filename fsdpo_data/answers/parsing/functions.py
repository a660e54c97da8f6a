r"""Parser of functions and their arguments: ``\sin^2 x``, ``\log_2 8``, ``f(x)``."""

from fractions import Fraction
from math import gcd, lcm

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import FUNCTION_LETTERS, FUNCTIONS, TRIG_FUNCTIONS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.expressions import parse_factor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.lookahead import is_factor_next
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.operands import (
    mark,
    name_mark,
    operand,
    parse_exponent,
    parse_power,
    parse_script,
)
from fsdpo_data.answers.parsing.statements import parse_value
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

#: Greek names of functions, which no product has before a constant.
_FUNCTIONS_OF_CONSTANTS = frozenset(("Gamma", "zeta", "phi", "sigma", "tau"))
_OPERATION_TOKENS = frozenset(
    ("(", ")", "{", "}", "+", "-", "*", "/", "^", "cdot", "times", "frac")
)
_MAX_ARGUMENT_TOKENS = 40  #: Most tokens of a constant argument.


@operand("cmd", *FUNCTIONS)
def parse_function_command(cursor: TokenCursor) -> Value:
    r"""Parse a function after its command."""
    return parse_function(cursor, FUNCTIONS[cursor.peek(-1).text])


@operand("cmd", "lfloor", "lceil")
def parse_rounding(cursor: TokenCursor) -> Node:
    r"""Parse ``\lfloor x \rfloor`` or ``\lceil x \rceil``."""
    name = cursor.peek(-1).text[1:]
    return tree.Call(name, parse_arguments(cursor, f"r{name}"))


@mark("^")
def parse_power_mark(cursor: TokenCursor, base: Value) -> Value:
    """Parse an exponent; ``f^{-1}(2)`` is a value of the inverse of f."""
    power = parse_exponent(cursor, as_node(base))
    is_function = isinstance(base, tree.Sym) and base.name in FUNCTION_LETTERS
    if not is_function or cursor.peek_sign() != "(" or not isinstance(power, tree.Pow):
        return power
    cursor.skip()
    name = f"{format_value(base)}^{format_value(power.exponent)}"
    return tree.Call(name, parse_arguments(cursor, ")"))


@mark("!")
def parse_factorial(cursor: TokenCursor, argument: Value) -> Node:
    """Parse a factorial or a double factorial."""
    name = "factorial2" if cursor.accept("!") else "factorial"
    return tree.Call(name, (as_node(argument),))


@name_mark("'")
def parse_prime(cursor: TokenCursor, symbol: tree.Sym) -> Value:
    """Parse the prime of a variable or function: ``f'(2)``."""
    return parse_application(cursor, tree.Sym(symbol.name + "'"))


def parse_function(cursor: TokenCursor, name: str) -> Value:
    r"""Parse the arguments of a function: ``\sin^2 x``, ``\log_2 8``, ``\arctan(y/x)``."""
    if name in ("max", "min") and cursor.peek_word() == "at":
        raise UnparsableAnswerError("the position of a maximum or minimum is not a value")
    base: Node | None = None
    exponent: Node | None = None
    while cursor.peek_sign() in ("_", "^"):
        if cursor.take().text == "_":
            base = parse_script(cursor)
        elif cursor.accept_degree_or_primes() == "circ":
            raise UnparsableAnswerError("a function has a degree sign instead of an exponent")
        else:
            exponent = parse_script(cursor)
    args = _parse_function_arguments(cursor)
    if name in ("max", "min") and (base is not None or len(args) < 2):
        raise UnparsableAnswerError("a maximum or minimum has no list of values")
    if exponent == tree.Num(Fraction(-1)) and name in TRIG_FUNCTIONS:
        name = "a" + name
        exponent = None
    node: Node
    if name in ("gcd", "lcm"):
        node = _gcd_or_lcm(name, args)
    elif name == "exp":
        node = tree.Pow(tree.Const("e"), args[0])
    elif name == "cis":
        imaginary_part = tree.Mul((tree.Const("i"), tree.Call("sin", args)))
        node = tree.Add((tree.Call("cos", args), imaginary_part))
    else:
        node = tree.Call(name, args if base is None else (*args, base))
    return node if exponent is None else tree.Pow(node, exponent)


def _parse_function_arguments(cursor: TokenCursor) -> tuple[Node, ...]:
    """Parse arguments in brackets, or the product after the name of a function."""
    if opener := cursor.accept("(", "["):
        return parse_arguments(cursor, ")" if opener == "(" else "]")
    factors = [as_node(parse_factor(cursor))]
    while is_factor_next(cursor) and not (
        cursor.peek().kind in ("cmd", "word") and cursor.peek().text in FUNCTIONS
    ):
        if cursor.peek_sign() == "(" and not isinstance(factors[-1], tree.Num):
            break  # "\\sin x (y + 1)" is a product
        factors.append(as_node(parse_power(cursor)))
    argument = tree.multiply(factors)
    if cursor.peek_sign() == "/" and cursor.peek(1).kind == "num" and tree.Const("pi") in factors:
        cursor.skip()
        argument = tree.divide(argument, as_node(parse_power(cursor)))
    return (argument,)


def parse_application(cursor: TokenCursor, symbol: tree.Sym) -> Value:
    """Parse the argument of a function, if an opening bracket follows its name.

    The letters f, g, h, F, G and H, and names with a prime, take any argument. Functions of number
    theory and analysis, such as ``varphi``, take constants. Other names take a single letter or
    number, so ``x(x+1)`` stays a product.
    """
    if cursor.peek_sign() != "(":
        return symbol
    is_closed = cursor.peek_sign(2) == ")"
    has_single_token = is_closed and cursor.peek(1).kind in ("num", "let")
    is_known = symbol.name in _FUNCTIONS_OF_CONSTANTS and _has_constant_argument(cursor)
    is_function = symbol.name.rstrip("'") in FUNCTION_LETTERS or symbol.name.endswith("'")
    if is_function or is_known or has_single_token:
        cursor.skip()
        return tree.Call(symbol.name, parse_arguments(cursor, ")"))
    return symbol


def _has_constant_argument(cursor: TokenCursor) -> bool:
    """Whether the brackets that follow have numbers and their operations only."""
    depth = 0
    for offset in range(_MAX_ARGUMENT_TOKENS):
        token = cursor.peek(offset)
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return True
        if token.kind != "num" and token.text not in _OPERATION_TOKENS:
            return False
    return False


def parse_arguments(cursor: TokenCursor, closer: str) -> tuple[Node, ...]:
    """Parse the arguments of a function, and its closing bracket."""
    arguments = parse_value(cursor)
    cursor.expect(closer)
    return tuple(map(as_node, tree.list_values(arguments)))


def _gcd_or_lcm(name: str, args: tuple[Node, ...]) -> Node:
    """Return ``gcd`` or ``lcm`` of integers; for other arguments, a call with sorted arguments."""
    numbers = [
        int(arg.value) for arg in args if isinstance(arg, tree.Num) and arg.value.denominator == 1
    ]
    if len(numbers) < len(args):
        return tree.Call(name, tuple(sorted(args, key=format_value)))
    return tree.Num(Fraction(gcd(*numbers) if name == "gcd" else lcm(*numbers)))
