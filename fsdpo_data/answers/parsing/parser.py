"""The parser of complete answers: lists, sets, intervals, relations, ratios, matrices.

An answer is parsed completely or not at all.
"""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError
from fsdpo_data.answers.parsing.statements import StatementParser
from fsdpo_data.answers.tree import Node, Value

_UNIT_VECTORS = ("basisi", "basisj", "basisk")  #: The unit vectors, as ``clean`` writes them.


class AnswerParser:
    """Parser of a complete answer.

    Statements contain quantities, quantities contain expressions, and expressions contain operands.
    Each parser owns the parsers of its parts. The grammar is recursive: a bracket, which is an
    operand, contains a complete list. Inner parsers therefore also refer to the outer ones.
    """

    __slots__ = ("_cursor", "_statements")

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        self._cursor = TokenCursor(tokens, letter_units)
        self._statements = StatementParser(self._cursor)

    def parse_answer(self) -> Value:
        """Parse all tokens.

        Raises:
            UnparsableAnswerError: The tokens are not a complete answer of this grammar.
        """
        cursor = self._cursor
        value = self._statements.parse_value()
        cursor.accept(".")
        if not cursor.is_at_end():
            raise UnparsableAnswerError(
                f"the token {cursor.peek().text} follows the end of the answer"
            )
        return value


def vector_components(value: Value) -> Value:
    """Return a sum of unit vectors such as ``3i + 4j`` as ``(3, 4)``; other values unchanged."""
    if isinstance(value, tree.Relation):
        return tree.Relation(tuple(map(vector_components, value.parts)), value.ops)
    names = {part.name for part in tree.walk(value) if isinstance(part, tree.Sym)}
    unit_vectors = names.intersection(_UNIT_VECTORS)
    if not tree.is_node(value) or not unit_vectors:
        return value
    axes = _UNIT_VECTORS if _UNIT_VECTORS[2] in unit_vectors else _UNIT_VECTORS[:2]
    zeros: dict[str, Node] = dict.fromkeys(_UNIT_VECTORS, tree.Num(Fraction(0)))
    components = [tree.substitute(value, zeros | {axis: tree.ONE}) for axis in axes]
    return tree.ValueList("()", tuple(components))
