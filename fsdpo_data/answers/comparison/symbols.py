"""Facts about expressions that need no evaluation: symbols, operators, imaginary units."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from fsdpo_data.answers.tree import (
    Call,
    Connective,
    Const,
    Div,
    Matrix,
    Node,
    Num,
    Piecewise,
    Pow,
    Quantity,
    Relation,
    SetMembership,
    Sym,
    Value,
    ValueList,
    is_node,
    map_children,
    substitute,
    walk,
)

#: Operators whose bound variable runs over integers.
DISCRETE_OPERATORS = frozenset(("sum", "prod"))
#: All operators with a bound variable.
BINDING_OPERATORS = DISCRETE_OPERATORS | {"int", "lim"}


def free_symbols(value: Value) -> frozenset[str]:
    """Return the names of all symbols in ``value`` that no operator binds.

    The parser gives bound variables names that start with ``#``.
    """
    return frozenset([x.name for x in walk(value) if type(x) is Sym and x.name[:1] != "#"])


def indexed_names(value: Value) -> frozenset[str]:
    """Return the names of the sequences whose index an operator binds, as ``a_#`` of ``a_k``."""
    return frozenset(x.name for x in walk(value) if isinstance(x, Call) and "#" in x.name)


def integer_symbols(node: Node) -> frozenset[str]:
    """Return the symbols in the bounds of sums and products, which must be integers."""
    names: set[str] = set()
    for part in walk(node):
        if isinstance(part, Call) and part.name in DISCRETE_OPERATORS:
            for bound in part.args[1:-1]:
                names |= free_symbols(bound)
    return frozenset(names)


def unevaluated_operators(node: Node) -> frozenset[str]:
    """Return the names of the operators without a value: all but finite sums and products."""
    return frozenset(
        part.name
        for part in walk(node)
        if isinstance(part, Call) and part.name in BINDING_OPERATORS and not _is_finite_sum(part)
    )


def _is_finite_sum(call: Call) -> bool:
    """Whether a call is a sum or product between bounds that are surely whole numbers."""
    if call.name not in DISCRETE_OPERATORS or len(call.args) != 4:
        return False
    if not isinstance(call.args[0], Sym):
        return False
    bounds = [part for bound in call.args[1:3] for part in walk(bound)]
    return Const("inf") not in bounds and not any(isinstance(part, Div) for part in bounds)


def has_imaginary_unit(node: Node) -> bool:
    """Whether ``i`` occurs in ``node``."""
    return any(type(part) is Const and part.name == "i" for part in walk(node))


def has_absolute_value(*nodes: Node) -> bool:
    """Whether one of ``nodes`` contains an absolute value."""
    parts = (part for node in nodes for part in walk(node))
    return any(isinstance(part, Call) and part.name == "abs" for part in parts)


#: Functions with steps or kinks, which random points may miss.
_EVEN_DEGREES = tuple(Num(Fraction(degree)) for degree in (2, 4, 6))
_STEP_FUNCTIONS = frozenset(("floor", "ceil", "abs", "sgn", "max", "min", "factorial2", "mod"))


def has_steps(*nodes: Node) -> bool:
    """Whether one of ``nodes`` contains a function with steps or kinks, such as a floor."""
    parts = (part for node in nodes for part in walk(node))
    return any(
        isinstance(part, Call) and (part.name in _STEP_FUNCTIONS or _is_root_with_kink(part))
        for part in parts
    )


def _is_root_with_kink(call: Call) -> bool:
    """Whether a call is an even root of an expression that may be a square, as ``|x - 5|`` is."""
    if call.name != "root" or call.args[1] not in _EVEN_DEGREES:
        return False
    return any(
        isinstance(part, Pow) and part.exponent in _EVEN_DEGREES and free_symbols(part.base)
        for part in walk(call.args[0])
    )


def all_names(value: Value | None) -> frozenset[str]:
    """Return the names of all symbols of a value, also of conditions and of sets."""
    match value:
        case None:
            return frozenset()
        case Relation() | Connective():
            parts: Sequence[Value | None] = value.parts
        case ValueList():
            parts = value.items
        case SetMembership():
            parts = (value.left, value.right)
        case Piecewise():
            parts = [part for branch in value.branches for part in branch]
        case Matrix():
            parts = [entry for row in value.rows for entry in row]
        case _:
            return free_symbols(value)
    return frozenset().union(*map(all_names, parts))


def rename_symbols(value: Value, names: Mapping[str, str]) -> Value:
    """Rename symbols in an expression, a list or a relation; other values are unchanged."""
    match value:
        case Relation():
            parts = tuple(rename_symbols(part, names) for part in value.parts)
            return Relation(parts, value.ops)
        case ValueList():
            items = tuple(rename_symbols(item, names) for item in value.items)
            return ValueList(value.brackets, items)
        case SetMembership():
            left = rename_symbols(value.left, names)
            return SetMembership(left, value.right, value.negated)
        case Connective():
            parts = tuple(rename_symbols(part, names) for part in value.parts)
            return Connective(value.op, parts)
        case Piecewise():
            return Piecewise(
                tuple(
                    (rename_symbols(case, names), condition and rename_symbols(condition, names))
                    for case, condition in value.branches
                )
            )
        case Matrix():
            return Matrix(
                tuple(tuple(rename_symbols(entry, names) for entry in row) for row in value.rows)
            )
        case Quantity() if is_node(value.node):
            node = rename_symbols(value.node, names)
            return Quantity(node, value.unit) if is_node(node) else value
    symbols: dict[str, Node] = {name: Sym(new_name) for name, new_name in names.items()}
    return _rename_sequences(substitute(value, symbols), names) if is_node(value) else value


def _rename_sequences(node: Node, names: Mapping[str, str]) -> Node:
    """Rename sequences whose index an operator binds."""
    node = map_children(node, lambda child: _rename_sequences(child, names))
    is_renamed = isinstance(node, Call) and node.name in names
    return Call(names[node.name], node.args) if is_renamed else node  # type: ignore[union-attr]
