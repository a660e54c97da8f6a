"""Comparison of functions by cases on a window of their variable.

The window has whole numbers, half-integers, the bounds of all cases and the numbers near them. A
function by cases may equal an expression: ``x if x >= 0, -x if x < 0`` is ``|x|``.
"""

from collections.abc import Callable
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import are_equal_expressions, nearly_equal
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import MpNumber, mpmath_context
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import Node, Value

_INTEGER_NAMES = frozenset("nmk")  #: Names of variables that are whole numbers.
_MAX_INTEGER = 12  #: Largest whole number of the window of a sequence without larger bounds.
_BEYOND = 1_000  #: Distance of the last number of a window from the bounds.
_MIN_COMPARED = 6  #: Fewest numbers of the window at which both functions are defined.
_MAX_BRANCHES = 8  #: Most cases of a function.
_PARITIES = {"even": 0, "odd": 1}
#: Comparisons of two numbers that are not equal, and those that also hold for equal numbers.
_STRICT_OPS: dict[str, Callable[[MpNumber, MpNumber], bool]] = {
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
}
_CLOSED_OPS = frozenset(("<=", ">=", "="))
#: Tests of the membership in a set of numbers, by the name of the set.
_NUMBER_SETS: dict[str, Callable[[MpNumber], bool]] = {
    "ZZ": lambda number: mpmath_context().isint(number),
    "NN": lambda number: mpmath_context().isint(number) and number >= 0,
    "NN+": lambda number: mpmath_context().isint(number) and number > 0,
    "RR": lambda number: mpmath_context().im(number) == 0,
}


class _UnknownConditionError(ValueError):
    """The condition of a case cannot be evaluated."""


def are_equal_by_cases(gold: Value, answer: Value, budget: Budget) -> bool:
    """Whether two functions have equal values in the window; one of them is a function by cases."""
    sides = (gold, answer)
    branches = [branch for side in sides for branch in _branches(side)]
    values = [value for value, _ in branches]
    if not all(tree.is_node(value) for value in values) or len(branches) > 2 * _MAX_BRANCHES:
        return False
    conditions = [condition for _, condition in branches if condition is not None]
    names = {name for value in values for name in free_symbols(value)}
    try:
        bounds = [part for condition in conditions for part in _operands(condition)]
    except _UnknownConditionError:
        return False
    names |= {name for bound in bounds for name in free_symbols(bound)}
    if len(names) != 1:
        return False
    (name,) = names
    n_compared = 0
    starts_low = all(_states_start(side) for side in sides)
    for number in _window(name, bounds, conditions, starts_low=starts_low):
        try:
            values_at_number = [_value_at(side, name, number, budget) for side in sides]
            if None in values_at_number:
                if values_at_number != [None, None]:
                    return False
                continue
            left, right = values_at_number
            if not are_equal_expressions(left, right, budget):  # type: ignore[arg-type]
                return False
        except UndefinedValueError:
            continue
        except (NumberTooLargeError, _UnknownConditionError):
            return False
        n_compared += 1
    return n_compared >= _MIN_COMPARED


def _branches(side: Value) -> tuple[tree.Branch, ...]:
    """Return the cases of a function; an expression has one."""
    return side.branches if isinstance(side, tree.Piecewise) else ((side, None),)


def _operands(condition: Value) -> list[Node]:
    """Return the expressions that a condition compares."""
    match condition:
        case tree.Relation():
            parts = condition.parts
        case tree.SetMembership(left, tree.ValueList(_, items)):
            parts = (left, *items)
        case tree.SetMembership(left, _):
            parts = (left,)
        case tree.Connective(("and" | "or"), joined):
            parts = tuple(operand for part in joined for operand in _operands(part))
        case tree.ValueList("", items):
            parts = tuple(operand for part in items for operand in _operands(part))
        case tree.Quantity(node, unit) if unit.label in _PARITIES:
            parts = (node,)
        case _:
            raise _UnknownConditionError
    nodes = [part for part in parts if tree.is_node(part)]
    if len(nodes) < len(parts):
        raise _UnknownConditionError
    return nodes


def _states_start(side: Value) -> bool:
    """Whether all cases of a function have a condition with two bounds, or with a lower one."""
    return all(
        isinstance(condition, tree.Relation)
        and (len(condition.ops) > 1 or condition.ops[0] in (">", ">=", "="))
        for _, condition in _branches(side)
    )


def _window(
    name: str, bounds: list[Node], conditions: list[Value], *, starts_low: bool
) -> list[Node]:
    """Return the numbers at which two functions are compared.

    A sequence starts at 1, unless both sides state where it starts (``starts_low``).
    """
    has_parity = any(isinstance(condition, tree.Quantity) for condition in conditions)
    if has_parity or name in _INTEGER_NAMES:
        sizes = {int(bound.value) for bound in bounds if isinstance(bound, tree.Num)}
        near = {size + distance for size in sizes for distance in (-1, 0, 1, 2, _BEYOND)}
        integers = sorted({*range(1, _MAX_INTEGER + 1), *near})
        return [tree.Num(Fraction(number)) for number in integers if number > 0 or starts_low]
    constants = [bound for bound in bounds if not free_symbols(bound)]
    constants = [bound for bound in dict.fromkeys(constants) if bound != tree.Const("inf")]
    near_bounds = [
        tree.add([bound, tree.Num(Fraction(distance, 3))])
        for bound in constants
        for distance in (-3 * _BEYOND, -2, -1, 0, 1, 2, 3 * _BEYOND)
    ]
    return [tree.Num(Fraction(half, 2)) for half in range(-6, 10)] + near_bounds


def _value_at(side: Value, name: str, number: Node, budget: Budget) -> Node | None:
    """Return the value of a function at a number, or None where no case applies."""
    otherwise: Node | None = None
    values: list[Node] = []
    for value, condition in _branches(side):
        if not tree.is_node(value):
            continue
        value_at_number = tree.substitute(value, {name: number})
        if condition is None:
            otherwise = value_at_number
        elif _holds(condition, name, number, budget):
            values.append(value_at_number)
    if not all(are_equal_expressions(values[0], value, budget) for value in values[1:]):
        raise _UnknownConditionError  # two cases with different values
    return values[0] if values else otherwise


def _holds(condition: Value, name: str, number: Node, budget: Budget) -> bool:
    """Whether a condition holds for a value of the variable.

    Raises:
        _UnknownConditionError: The condition has another form.
        UndefinedValueError: A side of the condition has no value at this number.
    """

    def evaluate(value: Value) -> MpNumber:
        if not tree.is_node(value):
            raise _UnknownConditionError
        if value in (tree.Const("inf"), tree.negate(tree.Const("inf"))):
            infinity = mpmath_context().inf
            return infinity if value == tree.Const("inf") else -infinity
        return Evaluator(0, budget).value(tree.substitute(value, {name: number}))

    match condition:
        case tree.Relation():
            values = [evaluate(part) for part in condition.parts]
            neighbors = zip(values, condition.ops, values[1:], strict=False)
            return all(_compare(left, op, right) for left, op, right in neighbors)
        case tree.SetMembership(left, tree.Sym(set_name), negated) if set_name in _NUMBER_SETS:
            return _NUMBER_SETS[set_name](evaluate(left)) != negated
        case tree.SetMembership(left, tree.ValueList(brackets, (low, high)), negated) if (
            brackets in ("()", "[]", "(]", "[)")
        ):
            ops = ("<=" if brackets[0] == "[" else "<", "<=" if brackets[1] == "]" else "<")
            chain = tree.Relation((low, left, high), ops)
            return _holds(chain, name, number, budget) != negated
        case tree.Connective("or", parts):
            return any(_holds(part, name, number, budget) for part in parts)
        case tree.Connective("and", parts) | tree.ValueList("", parts):
            return all(_holds(part, name, number, budget) for part in parts)
        case tree.Quantity(node, unit) if unit.label in _PARITIES:
            value = evaluate(node)
            return bool(mpmath_context().isint(value) and value % 2 == _PARITIES[unit.label])
    raise _UnknownConditionError


def _compare(left: MpNumber, op: str, right: MpNumber) -> bool:
    """Compare two numbers; numbers that agree in all reliable digits are equal."""
    if mpmath_context().isinf(left) or mpmath_context().isinf(right):
        are_equal = left == right
    else:
        are_equal = nearly_equal(left, right, max(abs(left), abs(right), 1))
    if op == "!=":
        return not are_equal
    if are_equal:
        return op in _CLOSED_OPS
    strict = _STRICT_OPS.get(op.rstrip("="))
    if strict is None and op != "=":
        raise _UnknownConditionError
    return strict is not None and strict(left, right)
