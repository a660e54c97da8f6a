"""Parser of brackets: groups, tuples, intervals, sets and absolute values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.tree import Node, Value

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.environments import EnvironmentParser
    from fsdpo_data.answers.parsing.operands import OperandParser
    from fsdpo_data.answers.parsing.statements import StatementParser

#: For every opening bracket, the brackets that may close it; "]0, 1[" is an open interval.
_CLOSERS = {"(": (")", "]"), "[": ("]", ")", "["), "]": ("[", "]"), "langle": ("rangle",)}


class BracketParser:
    """Parser of the content and the end of a bracket."""

    __slots__ = ("_cursor", "_environments", "_operands", "_statements")

    def __init__(
        self,
        cursor: TokenCursor,
        operands: OperandParser,
        statements: StatementParser,
        environments: EnvironmentParser,
    ) -> None:
        self._cursor = cursor
        self._operands = operands
        self._statements = statements
        self._environments = environments

    def parse_bracket(self, opener: str) -> Value:
        """Parse the content and the end of a bracket; the opening bracket is already taken."""
        cursor = self._cursor
        # "{x | x > 2}" has no backslashes.
        is_builder = (
            opener == "{" and cursor.peek().kind == "let" and cursor.peek_sign(1) in ("|", ":")
        )
        if opener == "lset" and cursor.peek().text == "array":
            cursor.take()
            return self._environments.parse_system()
        if opener == "lset" or is_builder:
            return self._parse_set()
        if opener == "|":
            operand = as_node(self._parse_inside(bars_close=True))
            cursor.expect("|")
            return tree.Call("abs", (operand,))
        if opener == "{":
            if cursor.peek_sign() == "}":
                raise UnparsableAnswerError("a group is empty")
            group = self._parse_inside(bars_close=False)
            cursor.expect("}")
            unbracketed = isinstance(group, tree.ValueList) and not group.brackets
            return tree.ValueList("{}", tree.list_values(group)) if unbracketed else group
        if opener == "_":
            return self._parse_choose()
        if opener not in _CLOSERS:
            raise UnparsableAnswerError(f"the sign {opener} does not open a bracket")
        outer_square_closes = cursor.square_closes
        cursor.square_closes = opener in "[]"
        content = self._parse_inside(bars_close=False)
        cursor.square_closes = outer_square_closes
        closer = cursor.expect(*_CLOSERS[opener])
        return _build_bracketed_value(opener, content, closer)

    def _parse_set(self) -> Value:
        """Parse ``{1, 2}`` or ``{x | x > 2}``; the opening brace is already taken."""
        cursor = self._cursor
        if cursor.accept("rset", "}"):
            return tree.ValueList("{}", ())
        head = self._parse_inside(bars_close=True)
        has_conditions = bool(cursor.accept("|", ":", ";"))
        conditions = self._parse_inside(bars_close=False) if has_conditions else None
        cursor.expect("rset", "}")
        if conditions is None:
            return tree.ValueList("{}", tree.list_values(head))
        return tree.SetBuilder(head, tree.list_values(conditions))

    def _parse_choose(self) -> Node:
        """Parse the binomial coefficient ``_{10}C_3``."""
        cursor = self._cursor
        total = self._operands.parse_script()
        cursor.currency = None  # the "$" before "_{10}C_3" delimits math, and is not a currency
        if cursor.peek_word() != "c" or cursor.peek_sign(1) != "_":
            raise UnparsableAnswerError("the subscript has no variable")
        cursor.skip(2)
        return tree.Call("binom", (total, self._operands.parse_script()))

    def _parse_inside(self, bars_close: bool) -> Value:
        """Parse the content of a bracket; ``bars_close`` says whether ``|`` ends it."""
        cursor = self._cursor
        outer_bars_close = cursor.bars_close
        cursor.bars_close = bars_close
        value = self._statements.parse_value()
        cursor.bars_close = outer_bars_close
        return value


def _build_bracketed_value(opener: str, content: Value, closer: str) -> Value:
    """Return the value of a bracket: a group, a tuple or an interval.

    Raises:
        UnparsableAnswerError: The brackets of a single value do not match.
    """
    left = {"(": "(", "langle": "(", "[": "[", "]": "("}[opener]
    right = {")": ")", "rangle": ")", "]": "]", "[": ")"}[closer]
    if isinstance(content, tree.ValueList) and not content.brackets:
        return tree.ValueList(left + right, content.items)
    if left + right not in ("()", "[]"):
        raise UnparsableAnswerError("the brackets do not match")
    return content
