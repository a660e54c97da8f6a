r"""``\pm``: one expression that stands for several values."""

from __future__ import annotations

from fsdpo_data.answers.tree import (
    Items,
    Node,
    PlusMinus,
    Quantity,
    Value,
    children,
    is_node,
    negate,
    rebuild,
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
    """Replace every ``±`` by one of its signs."""
    if isinstance(node, PlusMinus):
        inner = _choose(node.node, sign)
        return inner if node.sign == sign else negate(inner)
    return rebuild(node, lambda child: _choose(child, sign))
