"""The parser of complete answers: lists, sets, intervals, relations, ratios, matrices.

An answer is parsed completely or not at all. The parsers are functions of a :class:`TokenCursor`,
one module per part of the grammar: statements contain quantities, quantities contain expressions,
and expressions contain operands.
"""

from fractions import Fraction

from fsdpo_data.answers import tree

# These modules register the handlers of operands.
from fsdpo_data.answers.parsing import (  # noqa: F401
    brackets,
    commands,
    environments,
    fractions_and_roots,
    functions,
    names,
    numbers,
    operators,
)
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError
from fsdpo_data.answers.parsing.statements import parse_value
from fsdpo_data.answers.tree import Node, Value

_UNIT_VECTORS = ("basisi", "basisj", "basisk")  #: The unit vectors, as ``clean`` writes them.


def parse_answer(tokens: list[Token], letter_units: bool = False) -> Value:
    """Parse all tokens.

    Args:
        tokens: The tokens of the answer.
        letter_units: Whether a letter after a number is a unit: ``5m`` is five metres.

    Raises:
        UnparsableAnswerError: The tokens are not a complete answer of this grammar.
    """
    cursor = TokenCursor(tokens, letter_units)
    value = parse_value(cursor)
    cursor.accept(".")
    if not cursor.is_at_end():
        raise UnparsableAnswerError(f"the token {cursor.peek().text} follows the end of the answer")
    return value


def vector_components(value: Value) -> Value:
    """Return a sum of unit vectors such as ``3i + 4j`` as ``(3, 4)``; other values unchanged."""
    if isinstance(value, tree.Relation):
        return tree.Relation(tuple(map(vector_components, value.parts)), value.ops)
    symbols = {part.name for part in tree.walk(value) if isinstance(part, tree.Sym)}
    unit_vectors = symbols.intersection(_UNIT_VECTORS)
    if not tree.is_node(value) or not unit_vectors:
        return value
    axes = _UNIT_VECTORS if _UNIT_VECTORS[2] in unit_vectors else _UNIT_VECTORS[:2]
    zeros: dict[str, Node] = dict.fromkeys(_UNIT_VECTORS, tree.Num(Fraction(0)))
    components = [tree.substitute(value, zeros | {axis: tree.ONE}) for axis in axes]
    return tree.ValueList("()", tuple(components))
