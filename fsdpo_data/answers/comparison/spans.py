"""Comparison of families of functions that are linear in their arbitrary constants.

``C_1 e^x + C_2 e^-x`` and ``A cosh x + B sinh x`` are one family, because their basis functions
span the same space.
"""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import (
    MpNumber,
    mpmath_context,
    ten_to_minus,
)
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import ONE, Mul, Node, Num, Sym, add, substitute, walk

_POINTS = (0, 1, 2, 4, 5, 6, 8, 9, 10, 11)  #: Sample points with small values.
_MIN_SIZE = Fraction(3)  #: The smallest size by which sample values are divided.
_EXTRA_POINTS = 2  #: Points in addition to the number of constants.
_EQUAL_DIGITS = 25  #: Digits in which two equal values agree.
_ZERO_DIGITS = 40  #: A pivot that is smaller than one in this digit is a rounding error.
#: An expression with the names of its constants.
Family = tuple[Node, Sequence[str]]


def have_equal_spans(gold: Family, answer: Family, budget: Budget) -> bool:
    """Whether two families, linear in the same number of constants, have the same functions.

    Families that are not linear, or have too few values, are left unread.
    """
    n_constants = len(gold[1])
    gold, answer = _near_one(gold, answer)
    columns: list[tuple[list[MpNumber], list[MpNumber]]] = []
    for point in _POINTS:
        with suppress(UndefinedValueError, NumberTooLargeError):
            values = (_basis_values(*gold, point, budget), _basis_values(*answer, point, budget))
            if values[0] is None or values[1] is None:
                break  # not linear
            columns.append((values[0], values[1]))
        if len(columns) == n_constants + _EXTRA_POINTS:
            break
    if len(columns) < n_constants + _EXTRA_POINTS:
        budget.unread = f"the constants {', '.join(gold[1])}"
        return False
    gold_rows = [list(row) for row in zip(*(column[0] for column in columns), strict=True)]
    answer_rows = [list(row) for row in zip(*(column[1] for column in columns), strict=True)]
    gold_start, *gold_basis = gold_rows
    answer_start, *answer_basis = answer_rows
    difference = [left - right for left, right in zip(gold_start, answer_start, strict=True)]
    is_full = _rank(gold_basis) == n_constants == _rank(answer_basis)
    return is_full and _rank([*gold_basis, *answer_basis, difference]) == n_constants


def _near_one(gold: Family, answer: Family) -> tuple[Family, Family]:
    """Replace each variable x by ``1 + x / s``, for a size s that all numbers are below.

    Far from 1, one of e^{80 x} and x^{80} is so large that it hides all other functions.
    """
    constants = {*gold[1], *answer[1]}
    nodes = (gold[0], answer[0])
    sizes = [abs(part.value) for node in nodes for part in walk(node) if isinstance(part, Num)]
    factor = Num(1 / max([*sizes, _MIN_SIZE]))
    names = (free_symbols(nodes[0]) | free_symbols(nodes[1])) - constants
    variables = {name: add([ONE, Mul((factor, Sym(name)))]) for name in names}
    gold_node, answer_node = (substitute(node, variables) for node in nodes)
    return (gold_node, gold[1]), (answer_node, answer[1])


def _basis_values(
    node: Node, constants: Sequence[str], point: int, budget: Budget
) -> list[MpNumber] | None:
    """Return the value without constants and the factor of each constant, None if not linear."""

    def value(sizes: dict[str, int]) -> MpNumber:
        numbers: dict[str, Node] = {name: Num(Fraction(sizes.get(name, 0))) for name in constants}
        return Evaluator(point, budget, allow_complex=False).value(substitute(node, numbers))

    start = value({})
    factors = [value({name: 1}) - start for name in constants]
    other_sizes = {name: 3 - index * 5 for index, name in enumerate(constants)}
    predicted = start + sum(
        factor * other_sizes[name] for factor, name in zip(factors, constants, strict=True)
    )
    scale = 1 + abs(predicted) + max(map(abs, factors))
    is_linear = abs(value(other_sizes) - predicted) < ten_to_minus(_EQUAL_DIGITS) * scale
    return [start, *factors] if is_linear else None


def _rank(rows: list[list[MpNumber]]) -> int:
    """Return the rank of a matrix by elimination with the largest pivot."""
    mp = mpmath_context()
    matrix = []
    for row in rows:
        scale = max(map(abs, row))
        matrix.append([entry / scale for entry in row] if scale > ten_to_minus(40) else row)
    rank = 0
    for column in range(len(matrix[0])):
        pivot = max(
            range(rank, len(matrix)), key=lambda index: abs(matrix[index][column]), default=None
        )
        if pivot is None or abs(matrix[pivot][column]) < mp.mpf(10) ** -_ZERO_DIGITS:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        for index in range(rank + 1, len(matrix)):
            ratio = matrix[index][column] / matrix[rank][column]
            matrix[index] = [
                entry - ratio * other
                for entry, other in zip(matrix[index], matrix[rank], strict=True)
            ]
        rank += 1
        if rank == len(matrix):
            break
    return rank
