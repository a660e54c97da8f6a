"""Equations that give values to names: what is named, and which value it has."""

from collections.abc import Sequence
from typing import TypeGuard

from fsdpo_data.answers.comparison.numeric import is_unknown_function
from fsdpo_data.answers.comparison.symbols import BINDING_OPERATORS, free_symbols
from fsdpo_data.answers.lexicon.vocabulary import TRIG_FUNCTIONS
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import (
    Add,
    Call,
    Connective,
    Div,
    Mul,
    Num,
    Quantity,
    Ratio,
    Relation,
    SetBuilder,
    SetMembership,
    Sym,
    Value,
    ValueList,
    is_node,
)

#: Names of operations. A problem never defines a function with such a name.
_OPERATIONS = frozenset(("cross", "mod", "gcd", "lcm", "det", "not"))
#: Names of the roots of an equation. Numbered roots have no order.
_ROOT_NAMES = frozenset(("x", "t", "z", "r", "lambda"))


def assigned_values(value: Value) -> tuple[Value, ...] | None:
    """Return the values that a chain such as ``x = 2 + 3 = 5`` gives for its result.

    - A name and its values (``x = 2 + 3 = 5``, ``5 = x``): all values.
    - A calculation (``2 + 3 = 5``), or one set in several notations: all parts.
    - An identity (``a + b = b + a``): the first and the last part.
    - A calculation with several letters (``a + b + c = 5``): all parts after the first.
    - A finite set (``x in {1, 2}``): the set.

    The operators may be ``=``, ``~`` (approximately equal) and ``==`` (congruent). The result is
    None for all other values.
    """
    if isinstance(value, SetMembership | SetBuilder):
        return _finite_set(value)
    if not isinstance(value, Relation) or not set(value.ops) <= {"=", "~", "=="}:
        return None
    first = value.parts[0]
    other_parts = value.parts[1:]
    if all(
        isinstance(part, Connective | ValueList) and not _is_composite_name(part)
        for part in value.parts
    ):
        return value.parts  # one set in several notations
    if _is_variable(first) or _is_geometric_name(first) or _is_composite_name(first):
        while len(other_parts) > 1 and isinstance(other_parts[0], Sym):  # x = y = 5
            other_parts = other_parts[1:]
        return other_parts
    if isinstance(other_parts[-1], Sym) and len(other_parts) == 1 and not letters(first):
        return (first,)
    if not letters(first):
        return value.parts
    if is_node(first) and letters(first) == letters(other_parts[-1]):
        return (first, other_parts[-1])  # an identity
    # In "a + b + c = 5", the result follows the calculation.
    return other_parts if is_node(first) and len(letters(first)) > 1 else None


def chain_result(answer: Value, gold: Value) -> Sequence[Value] | None:
    """Return the parts of a chain ``x = 2 · 3 = 6`` that the caller compares with the gold.

    The parts are the last one and all plain values before it: each of them must equal the gold. In
    a chain with ``~``, the parts are all assigned values, and one of them must equal the gold. For
    a gold with letters, the only part is the last one with the same letters, because rounded values
    may follow it.
    """
    chain = assigned_values(answer)
    if chain is None or (isinstance(answer, Relation) and "~" in answer.ops):
        return chain
    if is_node(gold) and free_symbols(gold) and letters(chain[-1]):
        parts = [part for part in chain if letters(part) == free_symbols(gold)]
        return parts[-1:] or chain
    return (
        *(part for part in chain[:-1] if isinstance(part, Num | ValueList | Connective)),
        chain[-1],
    )


def is_rounded_calculation(value: Value) -> TypeGuard[Relation]:
    """Whether a value is ``200/3 ~ 66.67``: a number, and its rounded decimal."""
    if not isinstance(value, Relation) or not {"~"} <= set(value.ops) <= {"=", "~"}:
        return False
    return not any(map(letters, value.parts))


def states_antiderivative(value: Value) -> bool:
    """Whether a value is ``2x = x + x + C``: two forms of one function, with its constant."""
    if not isinstance(value, Relation) or not isinstance(value.parts[0], Add | Mul | Div):
        return False
    last = value.parts[-1]
    return isinstance(last, Add) and Sym("C") in last.terms


def states_result(value: Relation) -> bool:
    """Whether an equation is true in itself: a calculation, or an antiderivative with ``+ C``.

    Two of them are equal if their results are. The difference of their sides is always zero.
    """
    if name_of(value) is not None:
        return False  # f(2) = 5
    return not any(map(letters, value.parts)) or states_antiderivative(value)


def has_named_left_side(value: Value) -> bool:
    """Whether a relation with any operator has a name, such as ``x`` or ``f(x)``, as its left side.

    The name of a segment or an angle counts only if the last part has no letters.
    """
    if not isinstance(value, Relation):
        return False
    first = value.parts[0]
    return isinstance(first, Sym | Call | ValueList) or (
        (_is_geometric_name(first) or _is_named_ratio(first)) and not letters(value.parts[-1])
    )


def assignments_by_name(value: ValueList) -> dict[str, Value]:
    """Return the values of ``a = 2, f(1) = 3`` by name.

    The result is empty unless all items are assignments to different names.
    """
    values = {
        format_value(item.parts[0]): item.parts[-1]
        for item in value.items
        if isinstance(item, Relation)
        and isinstance(item.parts[0], Sym | Call)
        and item.ops in (("=",), ("~",))
    }
    return values if len(values) == len(value.items) > 1 else {}


def is_numbered_root(name: str) -> bool:
    """Whether a name denotes one of several roots, such as ``x_1``."""
    root, _, number = name.partition("_")
    return root in _ROOT_NAMES and number.isdigit()


def name_of(value: Value) -> Value | None:
    """Return the left side of ``x = 5``, ``f(2) = 5`` or ``(x, y) = (1, 2)``, None without one."""
    if not isinstance(value, Relation) or not set(value.ops) <= {"=", "~"}:
        return None
    first = value.parts[0]
    is_name = _is_variable(first) or _is_geometric_name(first) or _is_composite_name(first)
    return first if is_name else None


def is_open_equation(value: Value) -> bool:
    """Whether a value is an equation between letters, and not the value of a name."""
    return isinstance(value, Relation) and name_of(value) is None and any(map(letters, value.parts))


def is_constant_assignment(relation: Relation) -> bool:
    """Whether the equation ``relation`` has a variable on its left and a value without letters."""
    return isinstance(relation.parts[0], Sym) and not letters(relation.parts[-1])


def value_of(value: Value) -> Value:
    """Return the value that an item of a list gives: the last side of an equation."""
    values = assigned_values(value)
    return value if values is None else values[-1]


def are_same_names(left: Value, right: Value) -> bool:
    """Whether two names denote the same thing; roots are the same with any number."""
    if left == right:
        return True
    if not (isinstance(left, Sym) and isinstance(right, Sym)):
        return False
    stems = [
        symbol.name.partition("_")[0] if is_numbered_root(symbol.name) else symbol.name
        for symbol in (left, right)
    ]
    return stems[0] == stems[1]


def is_function_name(name: str) -> bool:
    """Whether a problem may define a function with this name, such as ``f``."""
    return is_unknown_function(name) and name not in BINDING_OPERATORS and name not in _OPERATIONS


def _is_variable(value: Value) -> bool:
    """Whether ``value`` is a name for a number: ``x``, ``f(2)``, ``sin A`` or ``|AB|``.

    An integral counts as a name. ``sqrt(y) = 3``, ``log_2 x = 3`` and ``|x| = 3`` are equations
    still to be solved.
    """
    if isinstance(value, Call) and value.name == "abs":
        return isinstance(value.args[0], Mul) or value.args[0] not in (Sym("x"), Sym("y"))
    if isinstance(value, Call):
        return (
            value.name == "int"
            or is_function_name(value.name)
            or (value.name in TRIG_FUNCTIONS and bool(free_symbols(value)))
        )
    return isinstance(value, Sym) or _is_composition(value)


def _is_composition(value: Value) -> bool:
    """Whether ``value`` is ``t(g(16))``, which the parser reads as a product."""
    if not isinstance(value, Mul) or len(value.factors) != 2:
        return False
    outer, inner = value.factors
    return isinstance(outer, Sym) and isinstance(inner, Call) and is_function_name(inner.name)


def _finite_set(value: SetMembership | SetBuilder) -> tuple[Value, ...] | None:
    """Return the set of ``x in {1, 2}`` or ``{x : x = 1 or x = 2}`` as a tuple of one value.

    The result is None for other sets.
    """
    if isinstance(value, SetMembership):
        is_finite = isinstance(value.right, ValueList) and value.right.brackets == "{}"
        return (value.right,) if is_finite and not value.negated else None
    members = tuple(
        condition.parts[1]
        for condition in value.conditions
        if isinstance(condition, Relation)
        and condition.ops == ("=",)
        and condition.parts[0] == value.head
    )
    if len(members) == len(value.conditions) > 0:
        return (ValueList("{}", members),)
    return None


def _is_named_ratio(value: Value) -> bool:
    """Whether ``value`` is the ratio of two names: ``h / r``."""
    return isinstance(value, Div) and isinstance(value.top, Sym) and isinstance(value.bottom, Sym)


def letters(value: Value) -> frozenset[str]:
    """Return the symbols of an expression or a quantity; other values have the symbol ``?``."""
    is_expression = is_node(value) or isinstance(value, Quantity)
    return free_symbols(value) - {"ldots"} if is_expression else frozenset("?")


def _is_geometric_name(value: Value) -> bool:
    """Whether ``value`` is the name of a segment or an angle: ``AB``, ``angle ABC``.

    In plain text, the parser reads such a name as the product of its letters.
    """
    return isinstance(value, Mul) and all(
        isinstance(factor, Sym)
        and (factor.name[-2:].isupper() or factor.name in ("angle", "triangle"))
        for factor in value.factors
    )


def _is_composite_name(value: Value) -> bool:
    """Whether ``value`` consists of names: ``(x, y)``, ``x:y`` or ``M ∩ N``."""
    if isinstance(value, Connective):
        return all(_is_composite_name(part) or isinstance(part, Sym) for part in value.parts)
    if isinstance(value, Ratio):
        return all(isinstance(part, Sym) or _is_geometric_name(part) for part in value.parts)
    if not isinstance(value, ValueList):
        return False
    if len(value.items) == 1 and value.brackets == "{}":
        return isinstance(value.items[0], Sym) or _is_composite_name(value.items[0])
    return all(isinstance(item, Sym) for item in value.items)
