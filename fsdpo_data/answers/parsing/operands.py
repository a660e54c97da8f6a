"""Parser of operands: numbers, names, commands and brackets, with exponents and other marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import FUNCTION_LETTERS, ORDINAL_MARKS
from fsdpo_data.answers.parsing.brackets import BracketParser
from fsdpo_data.answers.parsing.commands import CommandParser
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.environments import EnvironmentParser
from fsdpo_data.answers.parsing.fractions_and_roots import FractionParser
from fsdpo_data.answers.parsing.functions import FunctionParser
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError
from fsdpo_data.answers.parsing.names import NameParser
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.numbers import NumberParser
from fsdpo_data.answers.parsing.operators import OperatorParser
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.expressions import ExpressionParser
    from fsdpo_data.answers.parsing.quantities import QuantityParser
    from fsdpo_data.answers.parsing.statements import StatementParser

_BRACKET_COMMANDS = frozenset(("langle", "lset", "|"))  #: Commands that open a bracket.
MAX_POSTFIX = 20  #: Maximum number of exponents, factorials and primes after one operand.


class OperandParser:
    """Parser of one operand of a product."""

    __slots__ = (
        "_brackets",
        "_commands",
        "_cursor",
        "_environments",
        "_functions",
        "_names",
        "_numbers",
    )

    def __init__(
        self,
        cursor: TokenCursor,
        expressions: ExpressionParser,
        quantities: QuantityParser,
        statements: StatementParser,
    ) -> None:
        self._cursor = cursor
        fractions = FractionParser(cursor, self, statements)
        self._environments = EnvironmentParser(cursor, quantities, statements)
        self._brackets = BracketParser(cursor, self, statements, self._environments)
        self._functions = FunctionParser(cursor, expressions, self, statements)
        self._numbers = NumberParser(cursor, fractions)
        self._names = NameParser(
            cursor,
            operands=self,
            functions=self._functions,
            fractions=fractions,
            numbers=self._numbers,
        )
        self._commands = CommandParser(
            cursor,
            expressions=expressions,
            operands=self,
            functions=self._functions,
            fractions=fractions,
            operators=OperatorParser(cursor, expressions, self, statements),
        )

    def parse_power(self) -> Value:
        """Parse an operand with its exponents, subscripts, factorials and primes."""
        cursor = self._cursor
        cursor.count_operand()
        value = self.parse_primary()
        return self.parse_postfix(value) if tree.is_node(value) else self._parse_transpose(value)

    def _parse_transpose(self, value: Value) -> Value:
        r"""Return the transpose of a vector or matrix if ``^T`` follows, else ``value``."""
        cursor = self._cursor
        braced = int(cursor.peek_sign(1) == "{")
        if cursor.peek_sign() != "^" or cursor.peek(1 + braced).text not in (
            "T",
            "top",
            "intercal",
        ):
            return value
        rows = value.rows if isinstance(value, tree.Matrix) else None
        if isinstance(value, tree.ValueList) and value.brackets in ("()", "[]"):
            rows = (value.items,)
        if rows is None or (braced and cursor.peek_sign(3) != "}"):
            raise UnparsableAnswerError("a transposed value is not a matrix")
        cursor.skip(2 + 2 * braced)
        return tree.Matrix(tuple(zip(*rows, strict=True)))

    def parse_postfix(self, value: Value) -> Value:
        """Parse exponents, subscripts, factorials and primes after ``value``."""
        cursor = self._cursor
        for _ in range(MAX_POSTFIX):
            sign = cursor.peek_sign()
            if sign == "^":
                cursor.skip()
                power = self._parse_exponent(as_node(value))
                value = self._parse_inverse(value, power)
            elif sign == "_" and isinstance(value, tree.Sym):
                cursor.skip()
                value = self._names.parse_subscript(value)
            elif sign == "!":
                cursor.skip()
                name = "factorial2" if cursor.accept("!") else "factorial"
                value = tree.Call(name, (as_node(value),))
            elif sign == "'" and isinstance(value, tree.Sym):
                cursor.skip()
                value = tree.Sym(value.name + "'")
                if cursor.peek_sign() == "(":
                    value = self._functions.parse_application(value)
            else:
                return value
        raise UnparsableAnswerError(
            f"an operand has more than {MAX_POSTFIX} exponents and other marks"
        )

    def _parse_inverse(self, function: Value, power: Node) -> Value:
        """Parse ``f^{-1}(2)`` as a value of the inverse of f; return other powers unchanged."""
        cursor = self._cursor
        is_function = isinstance(function, tree.Sym) and function.name in FUNCTION_LETTERS
        if not is_function or cursor.peek_sign() != "(" or not isinstance(power, tree.Pow):
            return power
        cursor.skip()
        name = f"{format_value(function)}^{format_value(power.exponent)}"
        return tree.Call(name, self._functions.parse_arguments(")"))

    def _parse_exponent(self, base: Node) -> Node:
        """Parse the text after ``^``: an exponent, degrees, primes or an ordinal mark."""
        cursor = self._cursor
        primes = cursor.accept_degree_or_primes()
        if primes == "circ":
            return tree.Call("deg", (base,))
        if primes:
            if not isinstance(base, tree.Sym):
                raise UnparsableAnswerError("a prime follows an expression that is not a variable")
            return tree.Sym(base.name + "'" * primes.count("'"))
        if isinstance(base, tree.Num) and self._accept_ordinal_mark():
            return tree.Call("ordinal", (base,))
        return tree.Pow(base, self.parse_script())

    def _accept_ordinal_mark(self) -> bool:
        """Step over the ordinal mark of ``6^{th}``."""
        cursor = self._cursor
        braced = int(cursor.peek_sign() == "{")
        if cursor.peek_word(braced) not in ORDINAL_MARKS:
            return False
        cursor.skip(1 + braced)
        if braced:
            cursor.expect("}")
        return True

    def parse_script(self) -> Node:
        """Parse an exponent or a subscript: a braced group, or one operand with its sign."""
        cursor = self._cursor
        cursor.enter_level()
        cursor.count_operand()
        if cursor.accept("-"):
            node = tree.negate(self.parse_script())
        else:
            cursor.accept("+")
            if cursor.peek().kind == "word" and cursor.peek_sign(1) == "^":
                cursor.split_word()  # "e^xe^y" is a product
            number = cursor.take().number if cursor.peek().kind == "num" else None
            node = as_node(self.parse_primary()) if number is None else number
            if cursor.accept("^"):
                node = self._parse_exponent(node)
            elif cursor.peek_sign() == "!":
                node = as_node(self.parse_postfix(node))
        cursor.leave_level()
        return node

    def parse_primary(self) -> Value:
        """Parse a number, a letter, a word, a command or a bracket."""
        cursor = self._cursor
        cursor.enter_level()
        value = self._parse_token(cursor.take())
        cursor.leave_level()
        return value

    def _parse_token(self, token: Token) -> Value:
        """Parse an operand; its first token is already taken."""
        if token.kind == "num" and token.number is not None:
            return self._numbers.parse_number(token.number)
        if token.kind == "let":
            return self._names.parse_letter(token)
        if token.kind == "word":
            return self._names.parse_word(token)
        if token.kind == "cmd":
            if token.text in _BRACKET_COMMANDS:
                return self._brackets.parse_bracket(token.text)
            return self._commands.parse_command(token.text)
        if token.kind == "op":
            return self._brackets.parse_bracket(token.text)
        if token.kind == "begin":
            return self._environments.parse_environment(token.text)
        raise UnparsableAnswerError(f"the operand before {token.text or 'the end'} is missing")
