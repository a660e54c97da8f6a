"""Points whose coordinates have names: ``(x, y) = (1, 2)``, ``x = 1, y = 2``."""

from fsdpo_data.answers.comparison.assignments import letters
from fsdpo_data.answers.tree import Relation, SetBuilder, Sym, Value, ValueList, list_values

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
    names_of_parts = frozenset().union(*map(letters, condition.parts))
    # {(y, x) | y = 2x} is another set of points than {(x, y) | y = 2x}.
    is_point = len(names) == len(value.head.items) and names == sorted(names)
    return condition if is_point and names_of_parts.issuperset(names) else value
