r"""Parser of operators with a bound variable: sums, products, integrals and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.tree import Node

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.expressions import ExpressionParser
    from fsdpo_data.answers.parsing.operands import OperandParser
    from fsdpo_data.answers.parsing.statements import StatementParser

#: First character of the names of bound variables. Letters of an answer never start with it.
BOUND_PREFIX = "#"


class OperatorParser:
    """Parser of sums, products, integrals and limits."""

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

    def parse_big_operator(self, name: str) -> Node:
        r"""Parse ``\sum_{k=1}^{n} k^2``; the index variable gets a canonical name."""
        cursor = self._cursor
        parts: list[Node] = []
        while cursor.peek_sign() in ("_", "^"):
            cursor.skip()
            if cursor.accept("{"):
                bound = self._statements.parse_value()
                cursor.accept("}")
            else:
                bound = self._operands.parse_primary()
            sides = bound.parts if isinstance(bound, tree.Relation) else (bound,)
            parts.extend(as_node(side) for side in sides)
        return _build_bound_operator(name, parts, as_node(self._expressions.parse_product()))


def _build_bound_operator(name: str, parts: list[Node], body: Node) -> Node:
    """Return a sum, product, limit or integral whose bound variable has a canonical name.

    Args:
        name: ``sum``, ``prod``, ``lim`` or ``int``.
        parts: The variable and the bounds, as far as they are written.
        body: The expression after the operator; for integrals it ends in ``dx``.
    """
    variable = parts[0] if parts and name != "int" else None
    if name == "int":
        factors = body.factors if isinstance(body, tree.Mul) else ()
        while factors and isinstance(factors[-1], tree.Mul):
            factors = (*factors[:-1], *factors[-1].factors)
        if len(factors) > 1 and factors[-2] == tree.Sym("d"):
            variable = factors[-1]
            body = tree.multiply(list(factors[:-2])) if len(factors) > 2 else parse_integer("1")
            parts = [variable, *parts]
    if not isinstance(variable, tree.Sym) and variable != tree.Const("i"):
        return tree.Call(name, (*parts, body))
    if name == "int" and len(parts) == 1:
        return tree.Call(name, (body, variable))  # an antiderivative is a function of its variable
    canonical = tree.Sym(f"{BOUND_PREFIX}{_bound_variable_depth(body)}")
    return tree.Call(
        name, (canonical, *parts[1:], _rename_variable(body, variable, canonical.name))
    )


def _bound_variable_depth(node: Node) -> int:
    """Return how deep ``node`` nests operators with a bound variable."""
    depth = max(map(_bound_variable_depth, tree.children(node)), default=0)
    if isinstance(node, tree.Call) and node.args[:1] == (tree.Sym(f"{BOUND_PREFIX}{depth}"),):
        return depth + 1
    return depth


def _rename_variable(node: Node, old: tree.Sym | tree.Const, new: str) -> Node:
    """Rename a variable, also where it is a subscript as in ``a_k``."""
    if node == old:
        return tree.Sym(new)
    if isinstance(node, tree.Sym) and node.name.endswith(f"_{old.name}"):
        return tree.Sym(node.name[: -len(old.name)] + new)
    return tree.map_children(node, lambda child: _rename_variable(child, old, new))
