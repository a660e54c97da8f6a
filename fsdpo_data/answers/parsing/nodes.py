"""Conversion of parsed values to expressions."""

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import DEGREE
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.tree import Node, Value


def as_node(value: Value) -> Node:
    """Return ``value`` as an expression.

    Raises:
        UnparsableAnswerError: The value is not an expression, for example a list.
    """
    if isinstance(value, tree.Quantity) and value.unit == DEGREE:
        return tree.Call("deg", (value.node,))
    if not tree.is_node(value):
        raise UnparsableAnswerError("a value in the expression is not an expression")
    return value
