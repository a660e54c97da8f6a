r"""Parser of LaTeX commands: constants, accents, figures, currencies, derivatives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import UNIT_SIGNS
from fsdpo_data.answers.lexicon.vocabulary import ACCENTS, CONSTANTS, FUNCTIONS, SYMBOLS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.number_sets import parse_number_set
from fsdpo_data.answers.tree import Node, Value

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.expressions import ExpressionParser
    from fsdpo_data.answers.parsing.fractions_and_roots import FractionParser
    from fsdpo_data.answers.parsing.functions import FunctionParser
    from fsdpo_data.answers.parsing.operands import OperandParser
    from fsdpo_data.answers.parsing.operators import OperatorParser

_CORNER = re.compile(r"[A-Z](?:_?\d+|')?|.")


class CommandParser:
    """Parser of commands; fractions, functions and operators have parsers of their own."""

    __slots__ = ("_cursor", "_expressions", "_fractions", "_functions", "_operands", "_operators")

    def __init__(
        self,
        cursor: TokenCursor,
        *,
        expressions: ExpressionParser,
        operands: OperandParser,
        functions: FunctionParser,
        fractions: FractionParser,
        operators: OperatorParser,
    ) -> None:
        self._cursor = cursor
        self._expressions = expressions
        self._operands = operands
        self._functions = functions
        self._fractions = fractions
        self._operators = operators

    def parse_command(self, name: str) -> Value:
        """Parse the text after a command; the command is already taken."""
        cursor = self._cursor
        if name == "frac":
            return self._fractions.parse_fraction()
        if name in ("sqrt", "surd"):
            return self._fractions.parse_root()
        if name in ("cbrt", "qdrt"):
            degree = parse_integer("3" if name == "cbrt" else "4")
            return tree.Call("root", (as_node(self._operands.parse_primary()), degree))
        if name in FUNCTIONS:
            return self._functions.parse_function(FUNCTIONS[name])
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in UNIT_SIGNS and name != "%":
            cursor.currency = UNIT_SIGNS[name]
            return self._expressions.parse_factor()
        if name == "binom":
            return tree.Call(
                "binom", (self._fractions.parse_argument(), self._fractions.parse_argument())
            )
        if name in ("lfloor", "lceil"):
            return tree.Call(name[1:], self._functions.parse_arguments(f"r{name[1:]}"))
        if name in ACCENTS:
            return self._parse_accent(name)
        if name == "mathbb":
            return parse_number_set(cursor, cursor.take_group_text() * 2)
        if name == "emptyset":
            return tree.ValueList("{}", ())
        if name == "pm" or name == "mp":
            return tree.PlusMinus(1 if name == "pm" else -1, as_node(self._operands.parse_power()))
        if name in ("angle", "triangle"):
            return self._parse_figure(name)
        if name in ("sum", "prod", "int", "lim"):
            return self._operators.parse_big_operator(name)
        if name in ("neg", "lnot"):
            return tree.Call("not", (as_node(self._expressions.parse_factor()),))
        if name == "partial":
            return self._parse_partial_derivative()
        if name in SYMBOLS:
            symbol = tree.Sym(name)
            return (
                self._functions.parse_application(symbol) if cursor.peek_sign() == "(" else symbol
            )
        raise UnparsableAnswerError(f"the command {name} is not supported")

    def _parse_figure(self, name: str) -> Node:
        r"""Parse ``\angle ABC`` as one name, which is the same from either end.

        The corners of a triangle have no order, except in a congruence or similarity.
        """
        cursor = self._cursor
        if cursor.peek_sign() == "{":
            corners = _CORNER.findall(cursor.take_group_text())
        else:
            corners = []
            while cursor.peek().kind in ("let", "word") and cursor.peek().text.isupper():
                corners += cursor.take().text
                if cursor.accept("_"):
                    corners[-1] += f"_{cursor.take_group_text()}"
        if name == "triangle":
            has_order = any(token.text in ("cong", "sim") for token in cursor.tokens)
            return tree.Sym(f"triangle {''.join(corners if has_order else sorted(corners))}")
        return tree.Sym(f"angle {''.join(min(corners, corners[::-1]))}")

    def _parse_partial_derivative(self) -> Node:
        r"""Parse ``\partial f/\partial x``."""
        cursor = self._cursor
        function = cursor.take_group_text()
        if cursor.peek_sign() == "/" and cursor.peek_sign(1) == "partial":
            cursor.skip(2)
            return tree.Sym(f"{function}'{cursor.take_group_text()}")
        raise UnparsableAnswerError("the partial derivative has no denominator")

    def _parse_accent(self, name: str) -> Value:
        r"""Parse a variable with an accent: ``\dot{x}``, ``\vec{v}``, ``\overline{AB}``."""
        cursor = self._cursor
        text = cursor.take_group_text()
        if name in ("dot", "ddot"):
            symbol = tree.Sym(text + ("'" if name == "dot" else "''"))
            return (
                self._functions.parse_application(symbol) if cursor.peek_sign() == "(" else symbol
            )
        # Plain "AB" is read as this product too, so both forms of a segment agree.
        if name == "overline" and len(text) == 2 and text.isupper():
            return tree.multiply([tree.Sym(letter) for letter in text])
        if name in ("vec", "overrightarrow"):
            return tree.Sym(text if len(text) == 1 else f"vec({text})")
        return tree.Sym(f"{name}({text})")
