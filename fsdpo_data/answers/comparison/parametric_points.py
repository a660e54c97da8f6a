"""Comparison of sets of points over real parameters: lines, planes, solutions of linear systems.

``(1, 2) + t(3, 4)`` and ``x = 4 + 3s, y = 6 + 4s`` are one line. Each direction of one side is a
combination of the directions of the other side, and so is the difference of their points.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from fsdpo_data.answers.comparison.exact_values import linear_coefficients, rational_value
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import (
    Call,
    Node,
    Num,
    Relation,
    Sym,
    Value,
    ValueList,
    add,
    is_node,
    multiply,
    substitute,
)

#: Names that may denote a real parameter.
_PARAMETERS = frozenset(
    ("t", "s", "r", "u", "v", "k", "c", "lambda", "mu", "alpha", "beta", "x", "y", "z", "w")
)
#: Names that denote a coordinate, also where a text gives them no value.
_COORDINATE_NAMES = frozenset("xyzw")
_MAX_DIMENSIONS = 8  #: Most coordinates of a point.
_MAX_PARAMETERS = 3  #: Most parameters of a set of points.

Row = list[Fraction]


def are_equal_point_sets(gold: Value, answer: Value) -> bool:
    """Whether two sides state the same points over real parameters.

    Coordinates are linear in the parameters, with rational coefficients. Two plain tuples with the
    same letter are not sets of points: ``(t, 2t)`` may be one point for a given t.
    """
    gold_coordinates = _coordinates(gold)
    answer_coordinates = _coordinates(answer)
    if gold_coordinates is None or answer_coordinates is None:
        return False
    coordinate_names, gold_points = gold_coordinates
    other_names, answer_points = answer_coordinates
    if len(gold_points) != len(answer_points):
        return False
    if coordinate_names and other_names and coordinate_names != other_names:
        return False
    gold_names = sorted(frozenset().union(*map(free_symbols, gold_points)))
    answer_names = sorted(frozenset().union(*map(free_symbols, answer_points)))
    are_tuples = isinstance(gold, ValueList) and isinstance(answer, ValueList)
    if not 0 < len(gold_names) == len(answer_names) <= _MAX_PARAMETERS:
        return False
    if not all(name.partition("_")[0] in _PARAMETERS for name in (*gold_names, *answer_names)):
        return False
    has_common_name = not set(gold_names).isdisjoint(answer_names)
    if are_tuples and has_common_name and not _has_assignments(gold, answer):
        return False
    if _are_functions(gold, answer):
        return False
    gold_rows = _affine_rows(gold_points, gold_names)
    answer_rows = _affine_rows(answer_points, answer_names)
    if gold_rows is None or answer_rows is None:
        return False
    gold_start, *gold_directions = gold_rows
    answer_start, *answer_directions = answer_rows
    difference = [left - right for left, right in zip(gold_start, answer_start, strict=True)]
    rank = _rank(gold_directions)
    return (
        rank < len(gold_points)  # all points of the space are no answer
        and rank == len(gold_names) == _rank(answer_directions)
        and _rank([*gold_directions, *answer_directions, difference]) == rank
    )


def _are_functions(*sides: Value) -> bool:
    """Whether both sides define a function: at each time, ``r(t)`` is one point."""
    return all(isinstance(side, Relation) and isinstance(side.parts[0], Call) for side in sides)


def _has_assignments(*sides: Value) -> bool:
    """Whether one of the sides names its coordinates: ``x = t, y = 2t``."""
    return any(
        isinstance(side, ValueList) and all(isinstance(item, Relation) for item in side.items)
        for side in sides
    )


#: The names of the coordinates of a point, none if they are not stated, and their values.
_Coordinates = tuple[tuple[str, ...], list[Node]]


def _coordinates(value: Value) -> _Coordinates | None:
    """Return the coordinates of a point in the order of their names, or None."""
    if isinstance(value, Relation) and set(value.ops) == {"="}:
        if len(value.parts) > 2:
            return _coordinates_of_chain(value)
        value = value.parts[1]  # (x, y) = (1 + t, 2), or r = (1 + t, 2)
    if not isinstance(value, ValueList) or not 1 < len(value.items) <= _MAX_DIMENSIONS:
        return None
    if _has_assignments(value):
        return _assigned_coordinates(value)
    nodes = [item for item in value.items if is_node(item)]
    is_point = value.brackets == "()" and len(nodes) == len(value.items)
    return ((), nodes) if is_point else None


def _assigned_coordinates(value: ValueList) -> _Coordinates | None:
    """Return the coordinates of ``x = 2t, y = t``; of ``x = 2y``, y is another coordinate."""
    coordinates: dict[str, Node] = {}
    for item in value.items:
        if not isinstance(item, Relation) or item.ops != ("=",):
            return None
        name, coordinate = item.parts
        if not isinstance(name, Sym) or not is_node(coordinate):
            return None
        coordinates[name.name] = coordinate
    letters = frozenset().union(*map(free_symbols, coordinates.values()))
    if len(coordinates) < len(value.items) or letters & coordinates.keys():
        return None
    stems = _COORDINATE_NAMES | {name.partition("_")[0] for name in coordinates}
    coordinates |= {name: Sym(name) for name in letters if name.partition("_")[0] in stems}
    return _in_order(coordinates)


def _in_order(coordinates: Mapping[str, Node]) -> _Coordinates:
    """Return named coordinates in the order of their names."""
    names = tuple(sorted(coordinates, key=_coordinate_order))
    return names, [coordinates[name] for name in names]


def _coordinates_of_chain(chain: Relation) -> _Coordinates | None:
    """Return the coordinates of the line ``(x - 1)/2 = (y - 3)/4 = z`` over t, or None."""
    coordinates: dict[str, Node] = {}
    for part in chain.parts:
        names = free_symbols(part) if is_node(part) else frozenset()
        coefficients = linear_coefficients(part, *names) if len(names) == 1 else None  # type: ignore[arg-type]
        if coefficients is None:
            return None
        intercept, slope = coefficients
        [name] = names
        shifted = add([Sym("t"), Num(-intercept)])
        coordinates[name] = multiply([shifted, Num(1 / slope)])
    if len(coordinates) < len(chain.parts) or "t" in coordinates:
        return None
    return _in_order(coordinates)


def _coordinate_order(name: str) -> tuple[bool, str]:
    """Return the sort key of a coordinate: x, y, z, w."""
    return (name == "w", name)


def _affine_rows(coordinates: Sequence[Node], names: Sequence[str]) -> list[Row] | None:
    """Return a point and the direction of each parameter, or None if they are not rational.

    The point at other values of the parameters shows whether the coordinates are linear.
    """

    def point(values: dict[str, int]) -> Row | None:
        numbers: dict[str, Node] = {name: Num(Fraction(values.get(name, 0))) for name in names}
        row = [rational_value(substitute(node, numbers)) for node in coordinates]
        numbers_found = [entry for entry in row if entry is not None]
        return numbers_found if len(numbers_found) == len(row) else None

    start = point({})
    ends = [point({name: 1}) for name in names]
    sizes = {name: 3 - 5 * index for index, name in enumerate(names)}
    probe = point(sizes)
    if start is None or probe is None:
        return None
    directions = []
    for end in ends:
        if end is None:
            return None
        directions.append([last - first for first, last in zip(start, end, strict=True)])
    predicted = [
        first + sum(row[index] * sizes[name] for row, name in zip(directions, names, strict=True))
        for index, first in enumerate(start)
    ]
    return [start, *directions] if predicted == probe else None


def _rank(rows: Sequence[Row]) -> int:
    """Return the rank of a rational matrix, by elimination."""
    matrix = [list(row) for row in rows]
    rank = 0
    for column in range(len(matrix[0]) if matrix else 0):
        pivot = next((row for row in range(rank, len(matrix)) if matrix[row][column]), None)
        if pivot is None:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        for row in range(rank + 1, len(matrix)):
            ratio = matrix[row][column] / matrix[rank][column]
            matrix[row] = [
                entry - ratio * other
                for entry, other in zip(matrix[row], matrix[rank], strict=True)
            ]
        rank += 1
    return rank
