"""Brackets, rows and items of lists, tuples and matrices."""

from enum import IntEnum

from fsdpo_data.answers import tree
from fsdpo_data.answers.comparison import assignments
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Value


class Container(IntEnum):
    """The collection whose items are compared; a larger number is stricter.

    As a whole answer, ``{1}`` and ``1`` are the same. As items of a collection, they differ.
    """

    NONE = 0  #: The values are whole answers.
    ORDERED = 1  #: The values are items of a tuple, an interval or a matrix.
    #: The values are items of a set or a list. Names of counted things must agree as well, because
    #: no position tells the items apart: "9 red and 5 blue" are not "5 red and 9 blue".
    UNORDERED = 2


def brackets_agree(gold: str, answer: str, length: int) -> bool:
    """Whether two lists with these brackets may be equal; ``length`` is the gold's."""
    if gold == answer:
        return True
    pair = {gold, answer}
    # (1, 2) and [1, 2] may be intervals, but longer lists cannot.
    if pair == {"()", "[]"}:
        return length > 2
    has_plain_list = "" in pair
    has_tuple = "()" in pair or "[]" in pair
    return has_plain_list and has_tuple and (length != 2 or "()" in pair)


def matrix_rows(value: Value) -> tuple[tuple[Value, ...], ...] | None:
    """Return the rows of a matrix, or of a list of tuples; None for other values."""
    if isinstance(value, tree.Matrix):
        return value.rows
    if not isinstance(value, tree.ValueList) or value.brackets not in ("()", "[]", ""):
        return None
    tuples = [item for item in value.items if isinstance(item, tree.ValueList)]
    if len(tuples) < len(value.items) or any(row.brackets not in ("()", "[]") for row in tuples):
        return (value.items,)
    return tuple(row.items for row in tuples)


def column_as_row(rows: tuple[tuple[Value, ...], ...]) -> tuple[tuple[Value, ...], ...]:
    """Return a single column as a row; other rows are unchanged."""
    return rows if any(len(row) > 1 for row in rows) else (tuple(row[0] for row in rows),)


def assigned_items(value_list: tree.ValueList) -> tuple[Value, ...]:
    r"""Return the values of a list: of an assignment its right side, of ``\pm`` both values."""
    values: list[Value] = []
    for item in value_list.items:
        assigned = assignments.assigned_values(item)
        values.extend(_signed_values(item if assigned is None else assigned[-1]))
    return tuple(values)


def named_items(value_list: tree.ValueList) -> tuple[Value, ...]:
    r"""Return the items of a list, each with the name in ``x = 1, 2``; ``\pm`` gives two items.

    Items after a name have no name of their own if the list names several things.
    """
    names = {assignments.name_of(item) for item in value_list.items} - {None}
    name = names.pop() if len(names) == 1 else None
    items: list[Value] = []
    for item in value_list.items:
        own_name = assignments.name_of(item)
        is_unnamed = own_name is None and (not items or isinstance(item, tree.Relation))
        item_name = None if is_unnamed else own_name or name
        if item_name is None:
            items.extend(_signed_values(item))
            continue
        values = _signed_values(assignments.value_of(item))
        items.extend(tree.Relation((item_name, value), ("=",)) for value in values)
    return tuple(items)


def have_same_roots(gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
    """Whether the numbered roots of two lists have the same numbers, if both number them."""
    roots = [
        {format_value(name) for name in map(assignments.name_of, items) if name is not None}
        for items in (gold, answer)
    ]
    are_numbered = all(names and all(map(assignments.is_numbered_root, names)) for names in roots)
    return not are_numbered or roots[0] == roots[1]


def _signed_values(value: Value) -> tuple[Value, ...]:
    r"""Return both values of ``1 \pm x``, and both tuples of ``(4 \pm x, \pm 8)``."""
    if not (isinstance(value, tree.ValueList) and value.brackets == "()"):
        return tree.plus_minus_values(value)
    pairs = [tree.plus_minus_values(item) for item in value.items]
    if all(len(pair) == 1 for pair in pairs):
        return (value,)
    return tuple(
        tree.ValueList("()", tuple(pair[min(index, len(pair) - 1)] for pair in pairs))
        for index in (0, 1)
    )


def expand_plus_minus(value: Value) -> Value:
    r"""Return the list of both values of ``1 \pm x`` or ``(1 \pm x, 0)``; others are unchanged."""
    values = _signed_values(value)
    return value if len(values) == 1 else tree.ValueList("", values)


def independent_signs(gold: Value, answer: Value) -> tuple[Value, Value] | None:
    r"""Return a list and the values of ``\pm a \pm b``, if the list has as many items.

    The sides keep their order. The result is None for other values.
    """
    sides = []
    is_expanded = False
    for side, other in ((gold, answer), (answer, gold)):
        values = tree.independent_sign_values(side)
        if values and isinstance(other, tree.ValueList) and len(other.items) == len(values):
            side = tree.ValueList("", values)
            is_expanded = True
        sides.append(side)
    return (sides[0], sides[1]) if is_expanded else None
