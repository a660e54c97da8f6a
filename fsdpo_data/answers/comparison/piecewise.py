"""Comparison of functions by cases on a window of their variable.

A function by cases may equal an expression: ``x if x >= 0, -x if x < 0`` is ``|x|``.
"""

from collections.abc import Mapping
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import (
    are_equal_expressions,
    constant_sizes,
    nearly_equal,
)
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import MpNumber, mpmath_context
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.comparison.windows import DISTANCES, INTEGER_NAMES, breakpoints, window
from fsdpo_data.answers.tree import Node, Num, Value

_MIN_COMPARED = 6  #: Fewest numbers of the window at which both functions are defined.
_PARITIES = {"even": 0, "odd": 1}
#: The sets of whole numbers.
_INTEGER_SETS = (tree.Sym("ZZ"), tree.Sym("NN"), tree.Sym("NN+"))
#: The smallest numbers of sets.
_SMALLEST: Mapping[Value, int] = {tree.Sym("NN"): 0, tree.Sym("NN+"): 1}


class _UnreadCasesError(ValueError):
    """A case has a value or a condition that cannot be evaluated."""


def are_equal_by_cases(gold: Value, answer: Value, budget: Budget) -> bool:
    """Whether two functions have equal values in the window; one of them is a function by cases."""
    try:
        return _are_equal_in_window((gold, answer), budget)
    except (_UnreadCasesError, NumberTooLargeError):
        budget.unread = "the cases of a function"
        return False


def _are_equal_in_window(sides: tuple[Value, Value], budget: Budget) -> bool:
    branches = [branch for side in sides for branch in _branches(side)]
    conditions = [condition for _, condition in branches if condition is not None]
    values = [value for value, _ in branches if tree.is_node(value)]
    bounds = [part for condition in conditions for part in _operands(condition)]
    names = frozenset[str]().union(*map(free_symbols, (*values, *bounds)))
    if len(values) < len(branches) or len(names) != 1:
        raise _UnreadCasesError
    [name] = names
    n_compared = 0
    has_start = all(map(_states_start, sides))
    for number in _window(name, values, bounds, conditions, has_start=has_start):
        try:
            left, right = (_value_at(side, name, number, budget) for side in sides)
            if (left is None) != (right is None):
                return False
            if left is None or right is None:
                continue
            if not are_equal_expressions(left, right, budget):
                return False
        except UndefinedValueError:
            continue
        n_compared += 1
    if n_compared < _MIN_COMPARED:
        raise _UnreadCasesError
    return True


def _branches(side: Value) -> tuple[tree.Branch, ...]:
    """Return the cases of a function; an expression has one."""
    return side.branches if isinstance(side, tree.Piecewise) else ((side, None),)


def _operands(condition: Value) -> list[Node]:
    """Return the expressions that a condition compares."""
    match condition:
        case tree.Relation():
            parts = condition.parts
            _check_bare_variable(parts)
        case tree.SetMembership(left, right) if right in _INTEGER_SETS:
            parts = (left,)
            _check_bare_variable(parts)
        case tree.Connective("and", joined):
            return [operand for part in joined for operand in _operands(part)]
        case tree.Quantity(node, unit) if unit.label in _PARITIES:
            parts = (node,)
        case _:
            raise _UnreadCasesError
    nodes = [part for part in parts if tree.is_node(part)]
    if len(nodes) < len(parts):
        raise _UnreadCasesError
    return nodes


def _check_bare_variable(parts: tuple[Value, ...]) -> None:
    """Refuse bounds on ``2x`` or ``x^2``, which no number of the window is near."""
    if any(
        tree.is_node(part) and free_symbols(part) and type(part) is not tree.Sym for part in parts
    ):
        raise _UnreadCasesError


def _states_start(side: Value) -> bool:
    """Whether all cases of a function have a condition with two bounds, or with a lower one."""
    return all(
        isinstance(condition, tree.Relation)
        and (len(condition.ops) > 1 or condition.ops[0] in (">", ">=", "="))
        for _, condition in _branches(side)
    )


def _window(
    name: str, values: list[Node], bounds: list[Node], conditions: list[Value], *, has_start: bool
) -> list[Node]:
    """Return the numbers at which two functions are compared.

    A sequence starts at 1, unless both sides state where it starts (``has_start``).
    """
    has_parity = any(isinstance(condition, tree.Quantity) for condition in conditions)
    are_integers = has_parity or name in INTEGER_NAMES
    centers = breakpoints(frozenset().union(*map(constant_sizes, values)))
    centers += [bound.value for bound in bounds if isinstance(bound, Num)]
    numbers = window(centers, are_integers=are_integers)
    if has_start:
        numbers += [
            bound.value + distance
            for bound in bounds
            if isinstance(bound, Num)
            for distance in (-1, 0)
        ]
    other_bounds = [bound for bound in bounds if not isinstance(bound, Num | tree.Sym)]
    near_bounds = [
        tree.add([bound, Num(distance)])
        for bound in other_bounds
        if not free_symbols(bound)
        for distance in ((Fraction(-1), Fraction(0), Fraction(1)) if are_integers else DISTANCES)
    ]
    return [*map(Num, numbers), *near_bounds]


def _value_at(side: Value, name: str, number: Node, budget: Budget) -> Node | None:
    """Return the value of a function at a number, or None where no case applies."""
    otherwise: Node | None = None
    values: list[Node] = []
    for value, condition in _branches(side):
        value_at_number = tree.substitute(value, {name: number})  # type: ignore[arg-type]
        if condition is None:
            otherwise = value_at_number
        elif _holds(condition, name, number, budget):
            values.append(value_at_number)
    if not all(are_equal_expressions(values[0], value, budget) for value in values[1:]):
        raise _UnreadCasesError  # two cases with different values
    return values[0] if values else otherwise


def _holds(condition: Value, name: str, number: Node, budget: Budget) -> bool:
    """Whether a condition holds for a value of the variable."""
    if isinstance(condition, tree.Connective):
        return all(_holds(part, name, number, budget) for part in condition.parts)
    evaluator = Evaluator(0, budget)
    values = [
        evaluator.value(tree.substitute(node, {name: number})) for node in _operands(condition)
    ]
    if isinstance(condition, tree.Relation):
        neighbors = zip(values, condition.ops, values[1:], strict=False)
        return all(_compare(left, op, right) for left, op, right in neighbors)
    is_integer = bool(mpmath_context().isint(values[0]))
    if isinstance(condition, tree.SetMembership):
        smallest = _SMALLEST.get(condition.right, -mpmath_context().inf)
        return (is_integer and values[0] >= smallest) != condition.negated
    if isinstance(condition, tree.Quantity):
        return is_integer and values[0] % 2 == _PARITIES[condition.unit.label]
    raise _UnreadCasesError


def _compare(left: MpNumber, op: str, right: MpNumber) -> bool:
    """Compare two numbers; numbers that agree in all reliable digits are equal."""
    are_equal = nearly_equal(left, right, max(abs(left), abs(right), 1))
    match op:
        case "=" | "<=" | ">=" if are_equal:
            return True
        case "<" | "<=":
            return bool(left < right) and not are_equal
        case ">" | ">=":
            return bool(left > right) and not are_equal
        case "!=" | "=":
            return (op == "!=") != are_equal
    raise _UnreadCasesError
