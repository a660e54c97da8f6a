r"""Parser of functions and their arguments: ``\sin^2 x``, ``\log_2 8``, ``f(x)``."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import FUNCTION_LETTERS, FUNCTIONS, TRIG_FUNCTIONS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.lookahead import is_factor_next
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.expressions import ExpressionParser
    from fsdpo_data.answers.parsing.operands import OperandParser
    from fsdpo_data.answers.parsing.statements import StatementParser


class FunctionParser:
    """Parser of functions and their arguments."""

    __slots__ = ("_cursor", "_expressions", "_operands", "_statements")

    def __init__(
        self,
        cursor: TokenCursor,
        expressions: ExpressionParser,
        operands: OperandParser,
        statements: StatementParser,
    ) -> None:
        self._cursor = cursor
        self._expressions = expressions
        self._operands = operands
        self._statements = statements

    def parse_function(self, name: str) -> Value:
        r"""Parse the arguments of a function: ``\sin^2 x``, ``\log_2 8``, ``\arctan(y/x)``."""
        cursor = self._cursor
        if name in ("max", "min") and cursor.peek_word() == "at":
            raise UnparsableAnswerError("the position of a maximum or minimum is not a value")
        base: Node | None = None
        exponent: Node | None = None
        while cursor.peek_sign() in ("_", "^"):
            if cursor.take().text == "_":
                base = self._operands.parse_script()
            elif cursor.accept_degree_or_primes() == "circ":
                raise UnparsableAnswerError("a function has a degree sign instead of an exponent")
            else:
                exponent = self._operands.parse_script()
        args = self._parse_function_arguments()
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

    def _parse_function_arguments(self) -> tuple[Node, ...]:
        """Parse arguments in brackets, or the product after the name of a function."""
        cursor = self._cursor
        if opener := cursor.accept("(", "["):
            return self.parse_arguments(")" if opener == "(" else "]")
        factors = [as_node(self._expressions.parse_factor())]
        while is_factor_next(cursor) and not (
            cursor.peek().kind in ("cmd", "word") and cursor.peek().text in FUNCTIONS
        ):
            if cursor.peek_sign() == "(" and not isinstance(factors[-1], tree.Num):
                break  # "\\sin x (y + 1)" is a product
            factors.append(as_node(self._operands.parse_power()))
        argument = tree.multiply(factors)
        if (
            cursor.peek_sign() == "/"
            and cursor.peek(1).kind == "num"
            and tree.Const("pi") in factors
        ):
            cursor.skip()
            argument = tree.divide(argument, as_node(self._operands.parse_power()))
        return (argument,)

    def parse_application(self, symbol: tree.Sym) -> Value:
        """Parse the argument of a function; the cursor is at the opening bracket.

        The letters f, g, h, F, G and H, and names with a prime, take any argument. Other names take
        a single letter or number, so ``x(x+1)`` stays a product.
        """
        cursor = self._cursor
        is_closed = cursor.peek_sign(2) == ")"
        has_single_token = is_closed and cursor.peek(1).kind in ("num", "let")
        if (
            symbol.name.rstrip("'") in FUNCTION_LETTERS
            or has_single_token
            or symbol.name.endswith("'")
        ):
            cursor.skip()
            return tree.Call(symbol.name, self.parse_arguments(")"))
        return symbol

    def parse_arguments(self, closer: str) -> tuple[Node, ...]:
        """Parse the arguments of a function, and its closing bracket."""
        cursor = self._cursor
        arguments = self._statements.parse_value()
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
