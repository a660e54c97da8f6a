"""Equations, inequalities, assignments and function definitions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeGuard

from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.numeric import Evaluator, is_unknown_function
from fsdpo_data.answers.comparison.symbols import BINDING_OPERATORS, free_symbols
from fsdpo_data.answers.lexicon.units import unit_ratio
from fsdpo_data.answers.lexicon.vocabulary import TRIG_FUNCTIONS
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import (
    Add,
    Call,
    Connective,
    Div,
    Matrix,
    Mul,
    Node,
    Num,
    Piecewise,
    Quantity,
    Ratio,
    Relation,
    SetBuilder,
    SetMembership,
    Sym,
    Unit,
    Value,
    ValueList,
    add,
    has_plus_minus,
    is_node,
    list_values,
    map_children,
    multiply,
    negate,
    plus_minus_values,
    substitute,
    walk,
)

#: Operators of inequalities. For each of them, ``a op b`` if and only if ``a - b op 0``.
INEQUALITY_OPS = frozenset(("<", ">", "<=", ">=", "!="))
#: Names of arbitrary constants.
_CONSTANT_NAMES = frozenset(("C", "K", "c", "k", "C_1", "c_1", "A"))
#: Names of operations. A problem never defines a function with such a name.
_OPERATIONS = frozenset(("cross", "mod", "gcd", "lcm", "det", "not"))


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
    if isinstance(other_parts[-1], Sym) and len(other_parts) == 1 and not _letters(first):
        return (first,)
    if not _letters(first):
        return value.parts
    if is_node(first) and _letters(first) == _letters(other_parts[-1]):
        return (first, other_parts[-1])  # an identity
    # In "a + b + c = 5", the result follows the calculation.
    return other_parts if is_node(first) and len(_letters(first)) > 1 else None


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
    if is_node(gold) and free_symbols(gold) and _letters(chain[-1]):
        parts = [part for part in chain if _letters(part) == free_symbols(gold)]
        return parts[-1:] or chain
    return (
        *(part for part in chain[:-1] if isinstance(part, Num | ValueList | Connective)),
        chain[-1],
    )


def is_rounded_calculation(value: Value) -> TypeGuard[Relation]:
    """Whether a value is ``200/3 ~ 66.67``: a number, and its rounded decimal."""
    if not isinstance(value, Relation) or not {"~"} <= set(value.ops) <= {"=", "~"}:
        return False
    return not any(map(_letters, value.parts))


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
    return not any(map(_letters, value.parts)) or states_antiderivative(value)


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


def is_function_name(name: str) -> bool:
    """Whether a problem may define a function with this name, such as ``f``."""
    return is_unknown_function(name) and name not in BINDING_OPERATORS and name not in _OPERATIONS


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


def has_named_left_side(value: Value) -> bool:
    """Whether a relation with any operator has a name, such as ``x`` or ``f(x)``, as its left side.

    The name of a segment or an angle counts only if the last part has no letters.
    """
    if not isinstance(value, Relation):
        return False
    first = value.parts[0]
    return isinstance(first, Sym | Call | ValueList) or (
        (_is_geometric_name(first) or _is_named_ratio(first)) and not _letters(value.parts[-1])
    )


def _is_named_ratio(value: Value) -> bool:
    """Whether ``value`` is the ratio of two names: ``h / r``."""
    return isinstance(value, Div) and isinstance(value.top, Sym) and isinstance(value.bottom, Sym)


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


#: Names of the roots of an equation. Numbered roots have no order.
_ROOT_NAMES = frozenset(("x", "t", "z", "r", "lambda"))


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
    return (
        isinstance(value, Relation) and name_of(value) is None and any(map(_letters, value.parts))
    )


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


#: Names of coordinates, which have an order.
_COORDINATES = frozenset("xyz")


def sort_coordinates(gold: Value, answer: Value) -> tuple[Value, Value]:
    """Return ``(y, x) = (2, 1)`` as ``(x, y) = (1, 2)``, in lists too.

    Other names than x, y and z are sorted only if both sides have names.
    """
    sides = [list_values(side) for side in (gold, answer)]
    names = [frozenset(name for item in items for name in _point_names(item)) for items in sides]
    if not any(names):
        return gold, answer
    is_named = names[0] == names[1]
    return (
        _sort_items(gold) if is_named or names[0] <= _COORDINATES else gold,
        _sort_items(answer) if is_named or names[1] <= _COORDINATES else answer,
    )


def _point_names(value: Value) -> tuple[str, ...]:
    """Return the names of ``(x, y) = (1, 2)``; empty for other values."""
    if not isinstance(value, Relation) or value.ops != ("=",):
        return ()
    left, right = value.parts
    if not (isinstance(left, ValueList) and isinstance(right, ValueList)):
        return ()
    names = tuple(item.name for item in left.items if isinstance(item, Sym))
    return names if len(names) == len(left.items) == len(right.items) else ()


def _sort_items(value: Value) -> Value:
    """Sort the coordinates of a named point, or of the points of a list."""
    if isinstance(value, ValueList) and not value.brackets:
        return ValueList("", tuple(map(_sort_items, value.items)))
    names = _point_names(value)
    if not names or not isinstance(value, Relation):
        return value
    left, right = value.parts
    if not (isinstance(left, ValueList) and isinstance(right, ValueList)):
        return value
    order = sorted(range(len(names)), key=lambda index: names[index])
    points = (
        ValueList(side.brackets, tuple(side.items[index] for index in order))
        for side in (left, right)
    )
    return Relation(tuple(points), ("=",))


def assigned_points(value: Value) -> Value:
    """Return ``x = 1, y = 2, x = 3, y = 4`` as the list of the points (1, 2) and (3, 4).

    The coordinates of a point are in the order of their names. Other values are unchanged.
    """
    if not isinstance(value, ValueList) or len(value.items) < 4:
        return value
    names = [
        item.parts[0].name
        for item in value.items
        if isinstance(item, Relation) and item.ops == ("=",) and isinstance(item.parts[0], Sym)
    ]
    size = names[1:].index(names[0]) + 1 if names[:1] and names[0] in names[1:] else 0
    is_periodic = names == names[:size] * (len(value.items) // size) if size > 1 else False
    if not is_periodic or len(set(names)) != size:
        return value
    points = []
    for start in range(0, len(names), size):
        items = sorted(zip(names[:size], value.items[start : start + size], strict=True), key=_name)
        coordinates = tuple(item.parts[-1] for _, item in items if isinstance(item, Relation))
        points.append(ValueList("()", coordinates))
    return ValueList("", tuple(points))


def _name(entry: tuple[str, Value]) -> str:
    return entry[0]


def equation_of_points(value: Value) -> Value:
    """Return the relation of ``{(x, y) | x + y = 1}``; other values are unchanged."""
    if not isinstance(value, SetBuilder) or len(value.conditions) != 1:
        return value
    [condition] = value.conditions
    if not (isinstance(value.head, ValueList) and isinstance(condition, Relation)):
        return value
    names = [item.name for item in value.head.items if isinstance(item, Sym)]
    letters = frozenset().union(*map(_letters, condition.parts))
    # {(y, x) | y = 2x} is another set of points than {(x, y) | y = 2x}.
    is_point = len(names) == len(value.head.items) and names == sorted(names)
    return condition if is_point and letters.issuperset(names) else value


def _letters(value: Value) -> frozenset[str]:
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


def expand_equalities(value: Value, other: Value) -> Value:
    """Return ``x = y = 5`` as ``x = 5, y = 5`` if the other value is a list of equations."""
    is_chain = isinstance(value, Relation) and len(value.ops) > 1 and set(value.ops) == {"="}
    if not (is_chain and isinstance(value, Relation) and isinstance(other, ValueList)):
        return value
    are_equations = all(isinstance(item, Relation) and item.ops == ("=",) for item in other.items)
    if not are_equations or len(other.items) != len(value.ops):
        return value
    return ValueList(
        "", tuple(Relation((part, value.parts[-1]), ("=",)) for part in value.parts[:-1])
    )


def rename_argument(value: Value, other: Value) -> Value:
    """Return ``d(h) = 3h, h > 0`` in the argument of another definition, ``d(t) = 3t, t > 0``."""
    if not (isinstance(value, ValueList) and isinstance(other, ValueList)):
        return value
    heads = [
        side.items[0].parts[0]
        for side in (other, value)
        if side.items and isinstance(side.items[0], Relation)
    ]
    are_definitions = all(isinstance(head, Call) and is_function_name(head.name) for head in heads)
    if len(heads) < 2 or not are_definitions:
        return value
    new_name, name = map(_argument_name, heads)
    if not (new_name and name) or new_name == name or new_name in all_names(value):
        return value
    items = tuple(rename_symbols(item, {name: new_name}) for item in value.items)
    return ValueList(value.brackets, items)


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


def is_constant_assignment(relation: Relation) -> bool:
    """Whether the equation ``relation`` has a variable on its left and a value without letters."""
    return isinstance(relation.parts[0], Sym) and not _letters(relation.parts[-1])


def definition_bodies(gold: Relation, answer: Relation) -> tuple[Value, Value] | None:
    """Return the right sides of two definitions of a function, in the same variable.

    One side must be ``f(x) = ...``; the other may be ``y = ...``. The result is None if the
    relations are not definitions of the same function.
    """
    if gold.ops != ("=",) or answer.ops != ("=",):
        return None
    left = gold.parts[0]
    right = answer.parts[0]
    if not isinstance(left, Call) and not isinstance(right, Call):
        return None
    if not isinstance(left, Call | Sym) or not isinstance(right, Call | Sym):
        return None
    if left.name != right.name and "y" not in (left.name, right.name):
        return None
    if any(isinstance(head, Call) and not is_function_name(head.name) for head in (left, right)):
        return None
    if left != right and not all(
        isinstance(head, Sym) or _argument_name(head) for head in (left, right)
    ):
        return None  # f(2) is not f(3)
    body = answer.parts[1]
    gold_variable = _argument_name(left)
    answer_variable = _argument_name(right)
    if gold_variable and answer_variable and gold_variable != answer_variable:
        if gold_variable in all_names(body):
            return None  # in "f(w) = 2x", x is another name
        body = rename_symbols(body, {answer_variable: gold_variable})
    return gold.parts[1], body


def _argument_name(head: Value) -> str:
    """Return the ``x`` of ``f(x)``, or "" if the argument is not one symbol.

    A capital letter, as in the expectation ``E(X)``, names an object.
    """
    if isinstance(head, Call) and len(head.args) == 1 and isinstance(head.args[0], Sym):
        name = head.args[0].name
        return "" if name[0].isupper() else name
    return ""


def without_domain_condition(value: Value) -> Value:
    """Return ``1/x`` for ``1/x, x != 0``: the condition only repeats the natural domain.

    Any other condition belongs to the answer: ``y = 2x, x > 0`` is half of the line ``y = 2x``.
    """
    if not (isinstance(value, ValueList) and value.brackets == "" and len(value.items) > 1):
        return value
    statement, *conditions = value.items
    head: Value | None = None
    body = statement
    if isinstance(statement, Relation) and statement.ops == ("=",):
        head = statement.parts[0]
        body = statement.parts[-1]
    if is_node(body) and all(_is_natural_domain(head, body, item) for item in conditions):
        return statement
    return value


def insert_definitions(value: Value) -> Value:
    """Return ``2/5`` for ``a/b, a = 2, b = 5``; other values are unchanged."""
    if not (isinstance(value, ValueList) and value.brackets == "" and len(value.items) > 1):
        return value
    formula, *definitions = value.items
    names: dict[str, Node] = {}
    for definition in definitions:
        if not isinstance(definition, Relation) or definition.ops != ("=",):
            return value
        name, meaning = definition.parts
        if not isinstance(name, Sym) or not is_node(meaning):
            return value
        names[name.name] = meaning
    is_defined = is_node(formula) and names.keys() <= free_symbols(formula)
    return substitute(formula, names) if is_node(formula) and is_defined else value


#: A condition such as ``x > b`` excludes the numbers up to ``b``. The body must have no value at
#: these distances below ``b`` (for ``x < b``, above ``b``).
_EXCLUDED_DISTANCES = (Fraction(1, 2), Fraction(1), Fraction(7, 3))


def _is_natural_domain(head: Value | None, body: Node, condition: Value) -> bool:
    """Whether a condition excludes only points at which ``body`` has no value.

    Examples are ``x != 0`` for ``1/x`` and ``x >= 1`` for ``sqrt(x - 1)``.
    """
    if isinstance(condition, SetMembership):
        if condition.right in (Sym("NN"), Sym("NN+")) and isinstance(condition.left, Sym):
            return _is_sequence(head, condition.left)
        return condition.right == Sym("RR") and condition.left in walk(body)
    if not isinstance(condition, Relation) or len(condition.ops) != 1:
        return False
    name, bound = condition.parts
    op = condition.ops[0]
    if not (isinstance(name, Sym) and name.name in free_symbols(body) and op in INEQUALITY_OPS):
        return False
    if op == ">=" and bound in (Num(Fraction(0)), Num(Fraction(1))) and isinstance(head, Sym):
        return _is_sequence(head, name)
    excluded = list(plus_minus_values(bound)) if op in ("!=", "<", ">") else []
    if op != "!=" and isinstance(bound, Num):
        direction = 1 if op.startswith(">") else -1
        excluded += [Num(bound.value - direction * distance) for distance in _EXCLUDED_DISTANCES]
    for point in excluded:
        try:
            if is_node(point):
                # 0 is the index of the sample point, which gives all other symbols a value.
                Evaluator(0, Budget(10_000)).value(substitute(body, {name.name: point}))
            return False
        except UndefinedValueError:
            continue
    return bool(excluded)


def _is_sequence(head: Value | None, index: Sym) -> bool:
    """Whether the left side of a definition is a sequence with this index, such as ``a_n``."""
    return isinstance(head, Sym) and head.name.endswith(f"_{index.name}")


def square_out(relation: Relation) -> Relation:
    r"""Return ``y = \pm f(x)`` as ``(y - f(x)) (y + f(x)) = 0``; other relations are unchanged."""
    left, right = relation.parts
    if not (is_node(left) and is_node(right) and has_plus_minus(right)) or is_constant_assignment(
        relation
    ):
        return relation
    factors = [add([left, negate(value)]) for value in plus_minus_values(right) if is_node(value)]
    return Relation((multiply(factors), Num(Fraction(0))), ("=",))


def side_differences(gold: Relation, answer: Relation) -> tuple[Node, Node] | None:
    """Return left side minus right side of both relations.

    The result is None if a side is not an expression or if the units differ.
    """
    differences: list[Node] = []
    units: list[Unit] = []
    for relation in (gold, answer):
        quantities = [part for part in relation.parts if isinstance(part, Quantity)]
        units.extend(part.unit for part in quantities[:1])
        left, right = (
            part.node if isinstance(part, Quantity) else part for part in relation.parts[:2]
        )
        if not is_node(left) or not is_node(right):
            return None
        differences.append(add([left, negate(right)]))
    if len(units) == 2 and unit_ratio(units[0], units[1]) != 1:
        return None
    return differences[0], differences[1]


def with_common_constant(gold: Node, answer: Node) -> Node | None:
    """Return ``answer`` with the constant of ``gold``, if each has one of its own: C and K."""
    gold_names = free_symbols(gold) - free_symbols(answer)
    answer_names = free_symbols(answer) - free_symbols(gold)
    if (
        not len(gold_names) == len(answer_names) == 1
        or not gold_names | answer_names <= _CONSTANT_NAMES
    ):
        return None
    return substitute(answer, {name: Sym(min(gold_names)) for name in answer_names})


def without_arguments(gold: Node, answer: Node) -> tuple[Node, Node] | None:
    """Write ``y`` for ``y(t)`` in both nodes if one node has ``y(t)`` and the other ``y``.

    Equations of motion often omit the time. The result is None in all other cases.
    """
    for node, other in ((gold, answer), (answer, gold)):
        applications = _function_applications(node)
        if (
            applications
            and {name for name, _ in applications} <= free_symbols(other)
            and len({argument for _, argument in applications}) == 1
            and not _function_applications(other)
        ):
            return _drop_arguments(gold), _drop_arguments(answer)
    return None


def _function_applications(node: Node) -> set[tuple[str, Node]]:
    """Return the unknown functions of ``node`` with their first arguments."""
    calls = (part for part in walk(node) if isinstance(part, Call))
    return {(call.name, call.args[0]) for call in calls if is_function_name(call.name)}


def _drop_arguments(node: Node) -> Node:
    """Replace unknown functions of one symbol by their names."""
    if isinstance(node, Call) and is_function_name(node.name) and isinstance(node.args[0], Sym):
        return Sym(node.name)
    return map_children(node, _drop_arguments)
