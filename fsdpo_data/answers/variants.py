r"""``\pm``: one expression that stands for several values."""

from __future__ import annotations

from fsdpo_data.answers.tree import (
    Add,
    Call,
    Div,
    Items,
    Mul,
    Node,
    PlusMinus,
    Pow,
    Quantity,
    Value,
    children,
    is_node,
    negate,
)


def has_variants(value: Value) -> bool:
    r"""Whether ``\pm`` occurs in an expression or quantity."""
    node = value.node if isinstance(value, Quantity) else value
    return is_node(node) and _count(node) > 0  # type: ignore[arg-type]


def _count(node: Node) -> int:
    return isinstance(node, PlusMinus) + sum(map(_count, children(node)))


def expand(value: Value) -> Value:
    r"""Write ``1 \pm x`` as the list of its values; signs of several ``\pm`` go together."""
    if not has_variants(value):
        return value
    if isinstance(value, Quantity):
        return Items("", tuple(Quantity(_choose(value.node, sign), value.unit) for sign in (1, -1)))
    return Items("", tuple(_choose(value, sign) for sign in (1, -1)))  # type: ignore[arg-type]


def both_values(value: Value) -> tuple[Value, ...]:
    r"""Return the values that ``\pm`` stands for."""
    expanded = expand(value)
    return expanded.items if isinstance(expanded, Items) else (value,)


def _choose(node: Node, sign: int) -> Node:
    match node:
        case PlusMinus():
            inner = _choose(node.node, sign)
            return inner if node.sign == sign else negate(inner)
        case Add():
            return Add(tuple(_choose(term, sign) for term in node.terms))
        case Mul():
            return Mul(tuple(_choose(factor, sign) for factor in node.factors))
        case Div():
            return Div(_choose(node.top, sign), _choose(node.bottom, sign))
        case Pow():
            return Pow(_choose(node.base, sign), _choose(node.exponent, sign))
        case Call():
            return Call(node.name, tuple(_choose(arg, sign) for arg in node.args))
        case _:
            return node
