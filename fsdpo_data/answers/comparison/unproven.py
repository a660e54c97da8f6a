"""Differences that are not proven: equations, families and inequalities in other forms.

A constant ratio shows that two equations are equal, but ``e^y = x + 1`` and ``y = ln(x + 1)`` have
none. They differ for certain if a sampled solution of one of them violates the other one.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import (
    are_equal_expressions,
    constant_sizes,
    nearly_equal,
)
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import (
    MpNumber,
    mpmath_context,
    ten_to_minus,
)
from fsdpo_data.answers.comparison.numeric import Evaluator, is_unknown_function
from fsdpo_data.answers.comparison.real_set_parser import parse_real_set
from fsdpo_data.answers.comparison.real_sets import NotASetError
from fsdpo_data.answers.comparison.relations import INEQUALITY_OPS, definition_bodies
from fsdpo_data.answers.comparison.symbols import all_names, free_symbols
from fsdpo_data.answers.comparison.windows import breakpoints, window
from fsdpo_data.answers.tree import Node, Num, Relation, Sym, Value

#: Names of arbitrary constants.
_CONSTANT = re.compile(r"C|[Cc]_\w+")
_CONSTANT_VALUES = (Fraction(2, 3), Fraction(5, 2), Fraction(-7, 5))
#: Name of the value of an expression in the equation that defines it.
_VALUE = "(value)"
_POINTS = (0, 1, 3, 4)  #: Sample points; symbols are also negative at two of them.
#: Sizes between which a root is searched.
_SIZES = [Fraction(3, 2) ** power / 32 for power in range(26)]
_GRID = [*(-size for size in reversed(_SIZES)), Fraction(1, 10**6), *_SIZES]
_MAX_ROOTS = 3  #: Most roots of one variable at one sample point.
_ROOT_DIGITS = 40  #: Digits below its largest term in which an equation holds at a root.
_EQUAL_DIGITS = 25  #: Digits in which two values are equal; a root has more digits.
_OPERATIONS = 150_000  #: Operations of one comparison.


def find_unproven(gold: Value, answer: Value) -> str:
    """Return what two sides are if nothing proves that they differ, or "".

    The sides have no constant ratio, and are no equal sets.
    """
    try:
        sides = _as_equations(gold, answer)
        if sides is not None:
            return "the equations" if _may_be_equal(*sides, Budget(_OPERATIONS)) else ""
        return "the inequalities" if _may_be_equal_sets(gold, answer) else ""
    except BudgetExceededError:
        return "the equations"


def _as_equations(gold: Value, answer: Value) -> tuple[Node, Node] | None:
    """Return left side minus right side of two equations or families; None for other values."""
    is_equation = [isinstance(side, Relation) and side.ops == ("=",) for side in (gold, answer)]
    if isinstance(gold, Relation) and isinstance(answer, Relation) and all(is_equation):
        bodies = definition_bodies(gold, answer)
        if bodies is None:
            differences = [_difference(*gold.parts), _difference(*answer.parts)]
        else:
            differences = [_difference(Sym(_VALUE), body) for body in bodies]
    elif tree.is_node(gold) and tree.is_node(answer) and _constants(gold) and _constants(answer):
        differences = [_difference(Sym(_VALUE), side) for side in (gold, answer)]
    else:
        return None
    left, right = differences
    return None if left is None or right is None else (left, right)


def _difference(left: Value, right: Value) -> Node | None:
    """Return the difference of two expressions that can be evaluated; None for other values."""
    if not (tree.is_node(left) and tree.is_node(right)):
        return None
    difference = tree.add([left, tree.negate(right)])
    calls = [part for part in tree.walk(difference) if isinstance(part, tree.Call)]
    is_known = not any(is_unknown_function(call.name) for call in calls)
    return difference if is_known and not tree.has_plus_minus(difference) else None


def _constants(node: Node) -> list[str]:
    """Return the names of the arbitrary constants of an expression."""
    return [name for name in sorted(free_symbols(node)) if _CONSTANT.fullmatch(name)]


def _may_be_equal(left: Node, right: Node, budget: Budget) -> bool:
    """Whether no sampled solution of one equation violates the other equation."""
    constants = [_constants(left), _constants(right)]
    if any(constants):
        if not len(constants[0]) == len(constants[1]) == 1:
            return False
        right = tree.substitute(right, {constants[1][0]: Sym(constants[0][0])})
    names = free_symbols(left)
    if names != free_symbols(right) or len(names) < 2:
        return False
    if any(constants):
        name = constants[0][0]
        return not (
            _are_different_families(left, right, name, budget)
            or _are_different_families(right, left, name, budget)
        )
    return not (_is_violated(left, right, budget) or _is_violated(right, left, budget))


def _is_violated(equation: Node, other: Node, budget: Budget) -> bool:
    """Whether a solution of an equation violates the other equation."""
    for solution in _solutions(equation, budget):
        with suppress(UndefinedValueError, NumberTooLargeError):
            evaluator = Evaluator(0, budget)
            value = evaluator.value(tree.substitute(other, solution))
            if abs(value) > ten_to_minus(_EQUAL_DIGITS) * max(1, evaluator.scale):
                return True
    return False


def _are_different_families(family: Node, other: Node, constant: str, budget: Budget) -> bool:
    """Whether a curve of a family lies on several curves of the other one.

    Only a family that is linear in its constant has one constant at each point.
    """
    if not _is_linear(other, constant, budget):
        return False
    for size in _CONSTANT_VALUES:
        values: list[MpNumber] = []
        curve = tree.substitute(family, {constant: Num(size)})
        for solution in _solutions(curve, budget):
            with suppress(UndefinedValueError, NumberTooLargeError):
                value = _constant_at(tree.substitute(other, solution), constant, budget)
                values.append(value)
                max_difference = ten_to_minus(_EQUAL_DIGITS) * max(1, abs(value))
                if abs(value - values[0]) > max_difference:
                    return True
    return False


def _is_linear(node: Node, name: str, budget: Budget) -> bool:
    """Whether an expression is linear in a symbol."""
    start, middle, end = (tree.substitute(node, {name: Num(Fraction(size))}) for size in (-2, 1, 4))
    bend = tree.add([start, tree.multiply([Num(Fraction(-2)), middle]), end])
    return are_equal_expressions(bend, Num(Fraction(0)), budget)


def _constant_at(node: Node, name: str, budget: Budget) -> MpNumber:
    """Return the root of an expression that is linear in its only symbol.

    Raises:
        UndefinedValueError: The expression has no value or no root.
    """
    start, end = (
        Evaluator(0, budget).value(tree.substitute(node, {name: Num(Fraction(size))}))
        for size in (0, 1)
    )
    if start == end:
        raise UndefinedValueError("the constant is not in the equation")
    return start / (start - end)


def _solutions(equation: Node, budget: Budget) -> Iterator[dict[str, Node]]:
    """Yield sampled solutions of ``equation = 0``: a value of each symbol."""
    names = sorted(free_symbols(equation), reverse=True)
    for point in _POINTS:
        values: dict[str, Node] = {
            name: _exact(Evaluator(point, budget).value(Sym(name))) for name in names
        }
        for name in names:
            other_values = {other: value for other, value in values.items() if other != name}
            roots = _roots(tree.substitute(equation, other_values), name, budget)
            if roots:
                yield from (other_values | {name: root} for root in roots)
                break


def _exact(number: MpNumber) -> Num:
    """Return a real number in 60 digits as a fraction."""
    mantissa, exponent = mpmath_context().mpf(number).man_exp
    sign = -1 if number < 0 else 1
    return Num(sign * abs(int(mantissa)) * Fraction(2) ** int(exponent))


def _roots(node: Node, name: str, budget: Budget) -> list[Num]:
    """Return roots of an expression in one symbol, where it changes its sign on the grid."""
    roots: list[Num] = []
    previous: tuple[Fraction, MpNumber] | None = None
    for number in _GRID:
        value = _real_value(node, name, Num(number), budget)
        if previous is not None and value is not None and value * previous[1] < 0:
            root = _root_between(node, name, (previous[0], number), budget)
            roots += [] if root is None else [root]
            if len(roots) == _MAX_ROOTS:
                break
        previous = None if value is None else (number, value)
    return roots


def _root_between(
    node: Node, name: str, bounds: tuple[Fraction, Fraction], budget: Budget
) -> Num | None:
    """Return the root of an expression between two numbers; None at a pole."""
    mp = mpmath_context()

    def value_at(number: MpNumber) -> MpNumber:
        value = _real_value(node, name, _exact(number), budget)
        if value is None:
            raise ValueError
        return value

    start, end = (mp.mpf(bound.numerator) / bound.denominator for bound in bounds)
    try:
        root = _exact(mp.findroot(value_at, (start, end), solver="anderson", verify=False))
        evaluator = Evaluator(0, budget)
        value = evaluator.value(tree.substitute(node, {name: root}))
    except (ValueError, ZeroDivisionError, UndefinedValueError, NumberTooLargeError):
        return None
    is_root = abs(value) < ten_to_minus(_ROOT_DIGITS) * max(1, evaluator.scale)
    return root if is_root else None


def _real_value(node: Node, name: str, number: Num, budget: Budget) -> MpNumber | None:
    """Return a real value of an expression in one symbol; None if it has none."""
    try:
        value = Evaluator(0, budget).value(tree.substitute(node, {name: number}))
    except (UndefinedValueError, NumberTooLargeError):
        return None
    mp = mpmath_context()
    return mp.re(value) if mp.im(value) == 0 else None


def _may_be_equal_sets(gold: Value, answer: Value) -> bool:
    """Whether an inequality that no rule solves holds for the same sampled numbers as a set."""
    sides = (gold, answer)
    if all(map(_is_read_as_set, sides)) or not all(map(_has_inequality, sides)):
        return False
    names = all_names(gold) | all_names(answer)
    if len(names) != 1:
        return False
    (name,) = names
    budget = Budget(_OPERATIONS)
    nodes = [part for side in sides for part in _nodes(side)]
    numbers = window(
        breakpoints(frozenset().union(*map(constant_sizes, nodes))), are_integers=False
    )
    try:
        return all(
            _contains(gold, name, Num(number), budget)
            == _contains(answer, name, Num(number), budget)
            for number in numbers
        )
    except (NotASetError, NumberTooLargeError):
        return False


def _is_read_as_set(value: Value) -> bool:
    """Whether the comparison of sets has read a value."""
    with suppress(NotASetError):
        parse_real_set(value, Budget(_OPERATIONS))
        return True
    return False


def _has_inequality(value: Value) -> bool:
    """Whether a value is an inequality, several ones, or a set of intervals."""
    match value:
        case Relation():
            return INEQUALITY_OPS.issuperset(value.ops)
        case tree.Connective() if value.op in ("or", "and", "union", "intersection"):
            return all(map(_has_inequality, value.parts))
        case tree.ValueList():
            is_interval = value.brackets in tree.INTERVAL_BRACKETS and len(value.items) == 2
            is_list = value.brackets == "" and bool(value.items)
            return is_interval or (is_list and all(map(_has_inequality, value.items)))
    return False


def _nodes(value: Value) -> Iterator[Node]:
    """Yield the expressions of an inequality or a set."""
    if isinstance(value, Relation | tree.Connective):
        for part in value.parts:
            yield from _nodes(part)
    elif isinstance(value, tree.ValueList):
        for item in value.items:
            yield from _nodes(item)
    elif tree.is_node(value):
        yield value


def _contains(value: Value, name: str, number: Num, budget: Budget) -> bool:
    """Whether a number is in a set, or satisfies an inequality in one symbol.

    Raises:
        NotASetError: A part of the value is no real number.
    """
    match value:
        case tree.Connective():
            parts = (_contains(part, name, number, budget) for part in value.parts)
            return any(parts) if value.op in ("or", "union") else all(parts)
        case tree.ValueList("", items):
            return all(_contains(item, name, number, budget) for item in items)
        case tree.ValueList(brackets, (low, high)):
            signs = ("<=" if brackets[0] == "[" else "<", "<=" if brackets[1] == "]" else "<")
            return _holds(Relation((low, number, high), signs), name, number, budget)
        case Relation():
            return _holds(value, name, number, budget)
    raise NotASetError


def _holds(relation: Relation, name: str, number: Num, budget: Budget) -> bool:
    """Whether a chain of inequalities holds for a value of its symbol."""
    values = [_real_or_infinite(part, name, number, budget) for part in relation.parts]
    pairs = zip(values, relation.ops, values[1:], strict=False)
    return all(
        left is not None and right is not None and _compare(left, op, right)
        for left, op, right in pairs
    )


def _real_or_infinite(value: Value, name: str, number: Num, budget: Budget) -> MpNumber | None:
    """Return the value of a part of an inequality; None if it has none.

    Raises:
        NotASetError: The part is no expression.
    """
    if not tree.is_node(value):
        raise NotASetError
    if value == tree.Const("inf"):
        return mpmath_context().inf
    if value == tree.negate(tree.Const("inf")):
        return mpmath_context().ninf
    return _real_value(value, name, number, budget)


def _compare(left: MpNumber, op: str, right: MpNumber) -> bool:
    """Whether two numbers are in a relation."""
    mp = mpmath_context()
    is_finite = mp.isfinite(left) and mp.isfinite(right)
    are_equal = bool(is_finite and nearly_equal(left, right, max(abs(left), abs(right))))
    if op == "!=":
        return not are_equal
    if are_equal:
        return op in ("<=", ">=")
    return bool(left < right if op.startswith("<") else left > right)
