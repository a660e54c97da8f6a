"""Sets of real numbers: sorted endpoints, unions, intersections and complements.

A set is a sorted tuple of endpoints, at which it alternately begins and ends.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import (
    are_equal_expressions,
    infinity_sign,
    nearly_equal,
)
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import MpNumber, mpmath_context
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.sample_points import ALPHABETIC_POINT
from fsdpo_data.answers.lexicon.units import unit_ratio
from fsdpo_data.answers.tree import Node

MAX_ENDPOINTS = 120  #: Most endpoints of the sets of one union or intersection.
_INF = tree.Const("inf")
_MINUS_INF = tree.negate(_INF)


class NotASetError(ValueError):
    """The answer is not a set of reals."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Position on the real line where a set begins or ends: just before or after a number."""

    number: Node  #: The number.
    value: MpNumber  #: Value of the number; symbols have fixed positive values.
    is_after_number: bool  #: Whether the endpoint is to the right of the number itself.


@dataclass(frozen=True, slots=True)
class RealSet:
    """Union of disjoint intervals, from left to right."""

    endpoints: tuple[Endpoint, ...]  #: Begin and end of the first interval, of the second, ….
    variable: str = ""  #: Name of the variable whose values form the set; "" without a name.
    unit: tree.Unit | None = None  #: Unit of the endpoints, if stated.


def are_equal_sets(left: RealSet, right: RealSet, budget: Budget) -> bool:
    """Whether two sets have equal intervals; units are converted if both sides state one."""
    unit_factor = unit_ratio(right.unit, left.unit) if left.unit and right.unit else Fraction(1)
    if unit_factor is None or len(left.endpoints) != len(right.endpoints):
        return False
    return all(
        a.is_after_number == b.is_after_number
        and are_equal_expressions(a.number, _rescale_endpoint(b.number, unit_factor), budget)
        for a, b in zip(left.endpoints, right.endpoints, strict=True)
    )


def _rescale_endpoint(number: Node, unit_factor: Fraction) -> Node:
    """Return the number of an endpoint in a unit that is ``1 / unit_factor`` times as large."""
    return number if unit_factor == 1 or infinity_sign(number) else tree.scale(number, unit_factor)


def interval_endpoints(
    low: Node, high: Node, *, low_closed: bool, high_closed: bool, budget: Budget
) -> tuple[Endpoint, ...]:
    """Return the two endpoints of an interval, none if it is empty."""
    left = _endpoint(low, is_after_number=not low_closed, budget=budget)
    if high is low and not infinity_sign(low):
        right = replace(left, is_after_number=high_closed)
    else:
        right = _endpoint(high, is_after_number=high_closed, budget=budget)
    if _nearly_equal_values(left.value, right.value):
        return (left, right) if right.is_after_number and not left.is_after_number else ()
    return (left, right) if left.value < right.value else ()


def point_endpoints(number: Node, budget: Budget) -> tuple[Endpoint, ...]:
    """Return the endpoints of the set that contains only ``number``."""
    return interval_endpoints(number, number, low_closed=True, high_closed=True, budget=budget)


def real_line_endpoints(budget: Budget) -> tuple[Endpoint, ...]:
    """Return the endpoints of the set of all reals."""
    return interval_endpoints(_MINUS_INF, _INF, low_closed=False, high_closed=False, budget=budget)


def half_line_endpoints(op: str, bound: Node, budget: Budget) -> tuple[Endpoint, ...]:
    """Return the endpoints of the numbers x with ``x op bound``."""
    if op == "!=":
        return complement(point_endpoints(bound, budget), budget)
    low = _MINUS_INF if op in ("<", "<=") else bound
    high = _INF if op in (">", ">=") else bound
    is_closed = op in ("<=", ">=", "=")
    return interval_endpoints(low, high, low_closed=is_closed, high_closed=is_closed, budget=budget)


def _endpoint(number: Node, *, is_after_number: bool, budget: Budget) -> Endpoint:
    """Return an endpoint with its value; NotASetError if the number is not real."""
    mp = mpmath_context()
    sign = infinity_sign(number)
    if sign > 0:
        return Endpoint(_INF, mp.inf, is_after_number=True)
    if sign < 0:
        return Endpoint(_MINUS_INF, mp.ninf, is_after_number=False)
    try:
        value = Evaluator(ALPHABETIC_POINT, budget).value(number)
    except (UndefinedValueError, NumberTooLargeError):
        raise NotASetError from None
    if mp.im(value) != 0:
        raise NotASetError
    return Endpoint(number, mp.re(value), is_after_number)


def _nearly_equal_values(left: MpNumber, right: MpNumber) -> bool:
    """Whether two real or infinite values agree up to rounding errors."""
    if left == right:
        return True
    mp = mpmath_context()
    return bool(mp.isfinite(left) and mp.isfinite(right) and nearly_equal(left, right, 0))


def union(sets: list[RealSet], budget: Budget) -> RealSet:
    """Return the points that lie in at least one of the sets.

    Raises:
        NotASetError: The sets have different variables or units, or too many endpoints.
    """
    return _combine_sets(sets, min_sets=1, budget=budget)


def intersection(sets: list[RealSet], budget: Budget) -> RealSet:
    """Return the points that lie in all sets.

    Raises:
        NotASetError: The sets have different variables or units, or too many endpoints.
    """
    return _combine_sets(sets, min_sets=len(sets), budget=budget)


def _combine_sets(sets: list[RealSet], *, min_sets: int, budget: Budget) -> RealSet:
    """Return the set of the points that lie in at least ``min_sets`` of the sets."""
    if len(sets) == 1:
        return sets[0]
    variables = {real_set.variable for real_set in sets} - {""}
    units = {real_set.unit for real_set in sets if real_set.unit}
    if len(variables) > 1 or len(units) > 1:
        raise NotASetError
    endpoints = _sweep_endpoints([real_set.endpoints for real_set in sets], min_sets, budget)
    return RealSet(endpoints, "".join(variables), next(iter(units), None))


def complement(endpoints: tuple[Endpoint, ...], budget: Budget) -> tuple[Endpoint, ...]:
    """Return the endpoints of the complement."""
    low, high = real_line_endpoints(budget)
    all_endpoints = (low, *endpoints, high)
    # A set that is unbounded on one side already has this endpoint; its complement does not.
    return tuple(endpoint for endpoint in all_endpoints if all_endpoints.count(endpoint) == 1)


def _sweep_endpoints(
    endpoints_by_set: list[tuple[Endpoint, ...]], min_sets: int, budget: Budget
) -> tuple[Endpoint, ...]:
    """Return the endpoints of the points that lie in at least ``min_sets`` of the sets.

    The sweep goes over all endpoints from left to right and counts the sets around the position.
    """
    # Each endpoint with the change of that count: 1 where a set begins, -1 where it ends.
    steps = [
        (endpoint, -1 if index % 2 else 1)
        for endpoints in endpoints_by_set
        for index, endpoint in enumerate(endpoints)
    ]
    if len(steps) > MAX_ENDPOINTS:
        raise NotASetError
    budget.spend(len(steps))
    steps.sort(key=lambda step: step[0].value)
    # Values that differ only by rounding errors become equal, so that they form one group.
    for index in range(1, len(steps)):
        previous, _ = steps[index - 1]
        endpoint, change = steps[index]
        if _nearly_equal_values(previous.value, endpoint.value):
            steps[index] = replace(endpoint, value=previous.value), change
    steps.sort(key=lambda step: (step[0].value, step[0].is_after_number))
    result: list[Endpoint] = []
    n_sets = 0
    for _, group in groupby(steps, key=lambda step: (step[0].value, step[0].is_after_number)):
        group_steps = list(group)
        previous_n_sets = n_sets
        n_sets += sum(change for _, change in group_steps)
        if (previous_n_sets >= min_sets) != (n_sets >= min_sets):
            result.append(group_steps[0][0])
    return tuple(result)
