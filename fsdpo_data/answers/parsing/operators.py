r"""Parser of operators with a bound variable: sums, products, integrals and limits."""

import re

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.expressions import parse_product
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.operands import operand, parse_primary
from fsdpo_data.answers.parsing.statements import parse_value
from fsdpo_data.answers.tree import Node

#: First character of the names of bound variables. Letters of an answer never start with it.
BOUND_PREFIX = "#"
#: The relation between the variable of an operator and its first bound.
_BOUND_OPS = {"sum": "=", "prod": "=", "int": "=", "lim": "->"}


@operand("cmd", "sum", "prod", "int", "lim")
def parse_big_operator(cursor: TokenCursor) -> Node:
    r"""Parse ``\sum_{k=1}^{n} k^2``; the index variable gets a canonical name."""
    name = cursor.peek(-1).text
    parts: list[Node] = []
    while cursor.peek_sign() in ("_", "^"):
        cursor.skip()
        if cursor.accept("{"):
            bound = parse_value(cursor)
            cursor.accept("}")
        else:
            bound = parse_primary(cursor)
        if isinstance(bound, tree.Relation) and bound.ops != (_BOUND_OPS[name],):
            raise UnparsableAnswerError(f"the bound of {name} is another relation")
        sides = bound.parts if isinstance(bound, tree.Relation) else (bound,)
        parts.extend(as_node(side) for side in sides)
    return _build_bound_operator(name, parts, as_node(parse_product(cursor)))


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
    if name == "int" and variable is None:
        raise UnparsableAnswerError("the integral has no variable")
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
    """Rename a variable; ``a_k`` and ``a_{n-k}`` become functions of their index ``k``."""
    if node == old:
        return tree.Sym(new)
    if isinstance(node, tree.Sym) and (match := _indexed_name(node.name, old.name)):
        return tree.Call(match, (tree.Sym(new),))
    return tree.map_children(node, lambda child: _rename_variable(child, old, new))


def _indexed_name(name: str, index: str) -> str:
    """Return a name whose subscript contains the index, with a mark in its place, or ""."""
    stem, _, subscript = name.partition("_")
    parts = re.findall(r"[A-Za-z]+|[^A-Za-z]", subscript)
    if index not in parts:
        return ""
    return f"{stem}_{''.join(BOUND_PREFIX if part == index else part for part in parts)}"
