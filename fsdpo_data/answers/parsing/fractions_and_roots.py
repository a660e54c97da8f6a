r"""Parser of fractions, derivatives and roots: ``\frac12``, ``\frac{dx}{dt}``, ``\sqrt[3]{2}``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import FUNCTIONS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token, parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.tree import Node

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.operands import OperandParser
    from fsdpo_data.answers.parsing.statements import StatementParser

_DERIVATIVE_NUMERATOR = re.compile(r"(?:d|partial)(?:\^\{?(\d)\}?)?([A-Za-z].*)")
_DERIVATIVE_DENOMINATOR = re.compile(r"(?:d|partial)([A-Za-z]+)(?:\^\{?\d\}?)?")


class FractionParser:
    """Parser of fractions and roots; their arguments may omit the braces."""

    __slots__ = ("_cursor", "_operands", "_statements")

    def __init__(
        self, cursor: TokenCursor, operands: OperandParser, statements: StatementParser
    ) -> None:
        self._cursor = cursor
        self._operands = operands
        self._statements = statements

    def parse_fraction(self) -> Node:
        """Parse the two arguments of a fraction, or a derivative."""
        cursor = self._cursor
        start = cursor.position
        derivative = self._parse_derivative()
        if derivative is not None:
            return derivative
        cursor.position = start
        top = self.parse_argument()
        bottom = self.parse_argument()
        return tree.divide(top, bottom)

    def _parse_derivative(self) -> Node | None:
        r"""Parse ``\frac{d^2 x}{dt^2}`` as the variable ``x''``; None for other fractions."""
        cursor = self._cursor
        if cursor.peek_sign() != "{" or cursor.peek(1).text[:1] not in ("d", "p"):
            return None
        numerator = _DERIVATIVE_NUMERATOR.fullmatch(cursor.take_group_text())
        if numerator is None or cursor.peek_sign() != "{":
            return None
        denominator = _DERIVATIVE_DENOMINATOR.fullmatch(cursor.take_group_text())
        if denominator is None:
            return None
        primes = "'" * int(numerator[1] or 1)
        variable = denominator[1] if "partial" in denominator[0] else ""
        return tree.Sym(numerator[2] + primes + variable)

    def parse_root(self) -> Node:
        r"""Parse the degree and the argument of a root; ``\sqrt13`` is the root of 13."""
        cursor = self._cursor
        degree: Node | None = None
        if cursor.accept("["):
            degree = as_node(self._statements.parse_value())
            cursor.expect("]")
        number = cursor.take().number if cursor.peek().kind == "num" else None
        radicand = self.parse_argument() if number is None else number
        return tree.Call("root", (radicand, degree or parse_integer("2")))

    def parse_argument(self) -> Node:
        r"""Parse the argument of a command: a braced group or one token (``\frac12``)."""
        cursor = self._cursor
        if cursor.peek_sign() == "{":
            return as_node(self._operands.parse_primary())
        token = cursor.peek()
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            cursor.tokens[cursor.position : cursor.position + 1] = [
                Token("num", digits, number=parse_integer(digits))
                for digits in (token.text[0], token.text[1:])
            ]
        if token.text.lower() not in FUNCTIONS:  # "√sin x"
            cursor.split_word()
        return as_node(self._operands.parse_primary())
