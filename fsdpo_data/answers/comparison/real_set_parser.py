"""Parser of sets of reals: intervals, relations, set-builders and lists of them."""

from dataclasses import replace
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.exact_values import linear_coefficients
from fsdpo_data.answers.comparison.numeric import is_unknown_function
from fsdpo_data.answers.comparison.real_sets import (
    NotASetError,
    RealSet,
    complement,
    half_line_endpoints,
    intersection,
    interval_endpoints,
    point_endpoints,
    real_line_endpoints,
    union,
)
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.lexicon.units import PERCENT
from fsdpo_data.answers.tree import Node, Value

_VARIABLES = frozenset(("x", "y", "z", "t", "u", "w", "theta"))
#: Operators of a comparison after its sides are swapped.
_SWAPPED_OPS = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_ORDER_OPS = frozenset(("<", ">", "<=", ">="))
_FUNCTION_VALUE = tree.Sym("y")  #: The variable of the values of a function, ``f(x) >= 2``.


def parse_real_set(value: Value, budget: Budget) -> RealSet:
    """Read ``value`` as a set of reals.

    Raises:
        NotASetError: The value is not made of numbers, intervals and comparisons.
    """
    match value:
        case tree.ValueList():
            return _parse_value_list(value, budget)
        case tree.Relation((low, tree.Call(name), high), ops) if (
            is_unknown_function(name)
            and _ORDER_OPS.issuperset(ops)
            and not (_has_calls(low) or _has_calls(high))
        ):
            variable = tree.Sym("")  # the values of a function: "5 <= m(x) <= 7" is an interval
            return parse_real_set(tree.Relation((low, variable, high), value.ops), budget)
        case tree.Relation((tree.Call() as call, bound), ops) if (
            _is_function_value(call) and _ORDER_OPS.issuperset(ops) and not _has_calls(bound)
        ):
            return parse_real_set(tree.Relation((_FUNCTION_VALUE, bound), ops), budget)
        case tree.SetMembership(tree.Call() as call, right, negated) if _is_function_value(call):
            return parse_real_set(tree.SetMembership(_FUNCTION_VALUE, right, negated), budget)
        case tree.Relation():
            neighbors = zip(value.parts, value.ops, value.parts[1:], strict=False)
            sets = [_parse_comparison(left, op, right, budget) for left, op, right in neighbors]
            return intersection(sets, budget)
        case tree.SetMembership() if isinstance(value.left, tree.Sym):
            container = parse_real_set(value.right, budget)
            endpoints = container.endpoints
            if value.negated:
                endpoints = complement(endpoints, budget)
            return RealSet(endpoints, value.left.name, container.unit)
        case tree.Connective():
            return _parse_connective(value, budget)
        case tree.SetBuilder():
            return _parse_set_builder(value, budget)
        case tree.Sym() if value.name == "RR":
            return RealSet(real_line_endpoints(budget))
        case tree.Quantity():
            number, unit = _split_unit(value)
            return RealSet(parse_real_set(number, budget).endpoints, unit=unit)
    if tree.is_node(value) and not free_symbols(value):
        return RealSet(point_endpoints(value, budget))
    raise NotASetError


def _is_function_value(call: tree.Call) -> bool:
    """Whether a call is the value of an unknown function at a variable, ``f(x)`` but not f(2)."""
    is_variable = len(call.args) == 1 and isinstance(call.args[0], tree.Sym)
    return is_variable and is_unknown_function(call.name)


def _has_calls(value: Value) -> bool:
    """Whether a value contains an unknown function, such as ``f(2)``."""
    return any(
        isinstance(part, tree.Call) and is_unknown_function(part.name) for part in tree.walk(value)
    )


def _split_unit(value: Value) -> tuple[Value, tree.Unit | None]:
    """Return a number and its unit of measure; a percentage becomes a number.

    Raises:
        NotASetError: The value is a class modulo a number, not a single number.
    """
    if not isinstance(value, tree.Quantity):
        return value, None
    if value.unit.label.startswith("mod "):
        raise NotASetError
    if value.unit.dims == PERCENT.dims:
        return tree.multiply([value.node, tree.Num(Fraction(1, 100))]), None
    return value.node, value.unit


def _parse_value_list(value: tree.ValueList, budget: Budget) -> RealSet:
    """Read an interval, a finite set, or intervals and statements with commas between them."""
    if value.brackets in tree.INTERVAL_BRACKETS and len(value.items) == 2:
        return _parse_interval(value, budget)
    if value.brackets == "{}":
        if any(isinstance(item, tree.ValueList) and item.brackets == "{}" for item in value.items):
            raise NotASetError  # a set of sets
        return union([parse_real_set(item, budget) for item in value.items], budget)
    if value.brackets == "" and value.items:
        return _parse_list(value.items, budget)
    raise NotASetError


def _parse_interval(value: tree.ValueList, budget: Budget) -> RealSet:
    low, low_unit = _split_unit(value.items[0])
    high, high_unit = _split_unit(value.items[1])
    if not (tree.is_node(low) and tree.is_node(high)):
        raise NotASetError
    if low_unit and high_unit and low_unit != high_unit:
        raise NotASetError
    endpoints = interval_endpoints(
        low,
        high,
        low_closed=value.brackets[0] == "[",
        high_closed=value.brackets[1] == "]",
        budget=budget,
    )
    if not endpoints:
        raise NotASetError  # a point in the plane, such as (5, 2)
    return RealSet(endpoints, unit=low_unit or high_unit)


def _parse_list(items: tuple[Value, ...], budget: Budget) -> RealSet:
    """Read statements or intervals that commas separate.

    Intervals form a union. Statements form an intersection, or a union if that is empty.
    """
    first = items[0]
    # "x != 1, 2" excludes both numbers.
    if isinstance(first, tree.Relation) and first.ops == ("!=",):
        items = tuple(
            tree.Relation((first.parts[0], item), ("!=",)) if tree.is_node(item) else item
            for item in items
        )
    sets = [parse_real_set(item, budget) for item in items]
    if all(isinstance(item, tree.ValueList) for item in items):
        return union(sets, budget)
    if not all(
        isinstance(item, tree.Relation | tree.SetMembership | tree.Connective) for item in items
    ):
        raise NotASetError
    common = intersection(sets, budget)
    return common if common.endpoints else union(sets, budget)


def _parse_comparison(left: Value, op: str, right: Value, budget: Budget) -> RealSet:
    """Read ``left op right`` as the set of the values of its variable."""
    if op not in _SWAPPED_OPS:
        raise NotASetError
    if _has_variable_on_right(left, right):
        left, right = right, left
        op = _SWAPPED_OPS[op]
    right, unit = _split_unit(right)
    if tree.has_plus_minus(right) and op in ("=", "!="):
        sets = [
            _parse_comparison(left, op, value, budget) for value in tree.plus_minus_values(right)
        ]
        return union(sets, budget) if op == "=" else intersection(sets, budget)
    if not tree.is_node(right) or not tree.is_node(left):
        raise NotASetError
    if isinstance(left, tree.Sym) and left.name not in free_symbols(right):
        return RealSet(half_line_endpoints(op, right, budget), left.name, unit)
    if free_symbols(right):
        raise NotASetError
    if isinstance(left, tree.Call) and left.name == "abs":
        return _parse_absolute_value(left.args[0], op, right, budget)
    return _parse_linear_comparison(left, op, right, budget)


def _has_variable_on_right(left: Value, right: Value) -> bool:
    """Whether the variable is on the right side of a comparison, as in ``2 < x``."""
    if isinstance(right, tree.Sym) and isinstance(left, tree.Sym):
        return right.name in _VARIABLES and left.name not in _VARIABLES
    if isinstance(right, tree.Sym):
        return True
    if not (tree.is_node(left) and tree.is_node(right)):
        return False
    return bool(free_symbols(right)) and not free_symbols(left)


def _parse_absolute_value(inner: Node, op: str, bound: Node, budget: Budget) -> RealSet:
    """Read ``|inner| op bound``, such as ``|x - 1| < 3``."""
    sets = [
        _parse_comparison(inner, _SWAPPED_OPS[op], tree.negate(bound), budget),
        _parse_comparison(inner, op, bound, budget),
    ]
    return intersection(sets, budget) if op in ("<", "<=", "!=") else union(sets, budget)


def _parse_linear_comparison(left: Node, op: str, right: Node, budget: Budget) -> RealSet:
    """Read a comparison with a linear left side, such as ``1 - 2x < 5``."""
    names = free_symbols(left)
    if len(names) != 1:
        raise NotASetError
    (name,) = names
    coefficients = linear_coefficients(left, name)
    if coefficients is None:
        raise NotASetError
    intercept, slope = coefficients
    bound = tree.multiply([tree.Num(1 / slope), tree.add([right, tree.Num(-intercept)])])
    return RealSet(half_line_endpoints(op if slope > 0 else _SWAPPED_OPS[op], bound, budget), name)


def _parse_connective(value: tree.Connective, budget: Budget) -> RealSet:
    """Read a union, intersection or difference of sets, or statements with "or" or "and"."""
    sets = [parse_real_set(part, budget) for part in value.parts]
    if value.op in ("or", "union"):
        return union(sets, budget)
    if value.op == "minus":
        sets[1] = replace(sets[1], endpoints=complement(sets[1].endpoints, budget))
    return intersection(sets, budget)


def _parse_set_builder(value: tree.SetBuilder, budget: Budget) -> RealSet:
    """Read a set such as ``{x in R | x > 2}``."""
    head = value.head
    sets: list[RealSet] = []
    if isinstance(head, tree.SetMembership):
        sets.append(parse_real_set(head, budget))
        head = head.left
    if not isinstance(head, tree.Sym):
        raise NotASetError
    if len(value.conditions) == 1:
        sets.append(parse_real_set(value.conditions[0], budget))
    elif value.conditions:
        sets.append(parse_real_set(tree.ValueList("", value.conditions), budget))
    result = intersection(sets, budget)
    if result.variable not in ("", head.name):
        raise NotASetError
    return RealSet(result.endpoints, unit=result.unit)
