"""Sets of reals: intervals, relations and set-builders brought to one sorted form."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import infinity_sign, nearly_equal, same_node
from fsdpo_data.answers.comparison.modular import UndefinedValueError, rational_value
from fsdpo_data.answers.comparison.numeric import ORDERED, Evaluator, Real, context, symbols
from fsdpo_data.answers.lexicon.units import PERCENT, unit_ratio
from fsdpo_data.answers.tree import Node, Value

MAX_CUTS = 120  #: Most ends of intervals that are looked at together.
_VARIABLES = frozenset(("x", "y", "z", "t", "u", "w", "theta"))
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_INF = tree.Const("inf")
_MINUS_INF = tree.negate(_INF)


class NotASetError(ValueError):
    """The answer is not a set of reals."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a set begins or ends: just before a number, or just after it."""

    end: Node  #: The number.
    key: Real  #: Its value; of a symbolic one, at the first fixed point.
    after: bool  #: Whether the number itself lies to the left of the cut.


@dataclass(frozen=True, slots=True)
class RealSet:
    """Disjoint intervals from left to right, and what was said to lie in them."""

    cuts: tuple[Endpoint, ...]  #: Where an interval begins, where it ends, where the next begins, …
    variable: str = ""  #: The name of what lies in them, "" if none was said.
    unit: tree.Unit | None = None  #: The unit of their ends, if one was said.


def parse_real_set(value: Value, budget: Budget) -> RealSet:
    """Read ``value`` as a set of reals; NotASetError unless it is made of intervals."""
    match value:
        case tree.ValueList():
            return _items(value, budget)
        case tree.Relation():
            neighbours = zip(value.parts, value.ops, value.parts[1:], strict=False)
            return _intersection([_comparison(*each, budget) for each in neighbours], budget)
        case tree.SetMembership() if isinstance(value.left, tree.Sym):
            inner = parse_real_set(value.right, budget)
            cuts = _complement(inner.cuts, budget) if value.negated else inner.cuts
            return RealSet(cuts, value.left.name, inner.unit)
        case tree.Connective():
            return _join(value, budget)
        case tree.SetBuilder():
            return _builder(value, budget)
        case tree.Sym() if value.name == "RR":
            return RealSet(_interval(_MINUS_INF, _INF, False, budget))
        case tree.Quantity():
            number, unit = _without_unit(value)
            return RealSet(parse_real_set(number, budget).cuts, unit=unit)
    if tree.is_node(value) and not symbols(value):
        return RealSet(_interval(value, value, True, budget))
    raise NotASetError


def same_set(left: RealSet, right: RealSet, budget: Budget) -> bool:
    """Whether two sets have the same intervals with the same ends, in the same unit."""
    size = unit_ratio(right.unit, left.unit) if left.unit and right.unit else Fraction(1)
    return (
        size is not None
        and len(left.cuts) == len(right.cuts)
        and all(
            a.after == b.after and same_node(a.end, _rescale_endpoint(b.end, size), budget)
            for a, b in zip(left.cuts, right.cuts, strict=True)
        )
    )


def _rescale_endpoint(end: Node, size: Fraction) -> Node:
    """Return an end in another unit."""
    return end if size == 1 or infinity_sign(end) else tree.scale(end, size)


def _without_unit(value: Value) -> tuple[Value, tree.Unit | None]:
    """Return a number and the unit it is measured in; a percentage is a number.

    Raises:
        NotASetError: A class modulo a number is no single number.
    """
    if not isinstance(value, tree.Quantity):
        return value, None
    if value.unit.label.startswith("mod "):
        raise NotASetError
    if value.unit.dims == PERCENT.dims:
        return tree.multiply([value.node, tree.Num(Fraction(1, 100))]), None
    return value.node, value.unit


def _interval(
    low: Node, high: Node, closed: bool | tuple[bool, bool], budget: Budget
) -> tuple[Endpoint, ...]:
    """Return the cuts of an interval, none if it is empty; its ends are closed both, or each."""
    low_closed, high_closed = closed if isinstance(closed, tuple) else (closed, closed)
    left = _cut(low, not low_closed, budget)
    point = high is low and not infinity_sign(low)
    right = replace(left, after=high_closed) if point else _cut(high, high_closed, budget)
    if _equal(left.key, right.key):
        return (left, right) if right.after and not left.after else ()
    return (left, right) if left.key < right.key else ()


def _cut(end: Node, after: bool, budget: Budget) -> Endpoint:
    mp, sign = context(), infinity_sign(end)
    if sign:
        return Endpoint(_INF, mp.inf, True) if sign > 0 else Endpoint(_MINUS_INF, mp.ninf, False)
    try:
        key = Evaluator(ORDERED, budget).value(end)
    except (UndefinedValueError, NumberTooLargeError):
        raise NotASetError from None
    if mp.im(key) != 0:
        raise NotASetError
    return Endpoint(end, mp.re(key), after)


def _equal(left: Real, right: Real) -> bool:
    return bool(left == right) or bool(
        context().isfinite(left) and context().isfinite(right) and nearly_equal(left, right, 0)
    )


def _items(value: tree.ValueList, budget: Budget) -> RealSet:
    if value.brackets in ("()", "[]", "(]", "[)") and len(value.items) == 2:
        (low, unit), (high, high_unit) = map(_without_unit, value.items)
        if not (tree.is_node(low) and tree.is_node(high)) or (
            unit and high_unit and unit != high_unit
        ):
            raise NotASetError
        closed = value.brackets[0] == "[", value.brackets[1] == "]"
        cuts = _interval(low, high, closed, budget)
        if not cuts:
            raise NotASetError  # a point whose second coordinate is not above the first
        return RealSet(cuts, unit=unit or high_unit)
    if value.brackets == "{}":
        return _union([parse_real_set(item, budget) for item in value.items], budget)
    if value.brackets == "" and value.items:
        return _parse_list(value.items, budget)
    raise NotASetError


def _parse_list(items: tuple[Value, ...], budget: Budget) -> RealSet:
    """Read statements or intervals with commas between: all hold, or if none can, any."""
    first = items[0]
    if isinstance(first, tree.Relation) and first.ops == ("!=",):
        items = tuple(
            tree.Relation((first.parts[0], item), ("!=",)) if tree.is_node(item) else item
            for item in items
        )
    sets = [parse_real_set(item, budget) for item in items]
    if all(isinstance(item, tree.ValueList) for item in items):
        return _union(sets, budget)
    if not all(
        isinstance(item, tree.Relation | tree.SetMembership | tree.Connective) for item in items
    ):
        raise NotASetError
    both = _intersection(sets, budget)
    return both if both.cuts else _union(sets, budget)


def _comparison(left: Value, op: str, right: Value, budget: Budget) -> RealSet:
    if op not in _FLIP:
        raise NotASetError
    if _more_variable(right, left):
        left, right, op = right, left, _FLIP[op]
    right, unit = _without_unit(right)
    if tree.has_plus_minus(right) and op in ("=", "!="):
        both = [_comparison(left, op, value, budget) for value in tree.plus_minus_values(right)]
        return _union(both, budget) if op == "=" else _intersection(both, budget)
    if not tree.is_node(right) or not tree.is_node(left):
        raise NotASetError
    if isinstance(left, tree.Sym) and left.name not in symbols(right):
        return RealSet(_ray(op, right, budget), left.name, unit)
    if symbols(right):
        raise NotASetError
    if isinstance(left, tree.Call) and left.name == "abs":
        return _absolute(left.args[0], op, right, budget)
    return _linear(left, op, right, budget)


def _more_variable(right: Value, left: Value) -> bool:
    """Whether the right side of a comparison holds the variable, as in ``2 < x``."""
    if isinstance(right, tree.Sym) and isinstance(left, tree.Sym):
        return right.name in _VARIABLES and left.name not in _VARIABLES
    if isinstance(right, tree.Sym):
        return True
    return tree.is_node(left) and tree.is_node(right) and bool(symbols(right)) and not symbols(left)


def _absolute(inner: Node, op: str, bound: Node, budget: Budget) -> RealSet:
    """Read ``|x - 1| < 3``."""
    both = [
        _comparison(inner, _FLIP[op], tree.negate(bound), budget),
        _comparison(inner, op, bound, budget),
    ]
    return _intersection(both, budget) if op in ("<", "<=", "!=") else _union(both, budget)


def _linear(left: Node, op: str, right: Node, budget: Budget) -> RealSet:
    """Read ``1 - 2x < 5``, by the values of the left side at 0, 1 and 2."""
    names = symbols(left)
    if len(names) != 1:
        raise NotASetError
    (name,) = names
    line = linear(left, name)
    if line is None:
        raise NotASetError
    start, slope = line
    bound = tree.multiply([tree.Num(1 / slope), tree.add([right, tree.Num(-start)])])
    return RealSet(_ray(op if slope > 0 else _FLIP[op], bound, budget), name)


def linear(node: Node, name: str) -> tuple[Fraction, Fraction] | None:
    """Return a and b of ``a + b x``, by its values at 0, 1 and 2; None if it is no such line."""
    values = [
        rational_value(tree.substitute(node, {name: tree.Num(Fraction(at))})) for at in (0, 1, 2)
    ]
    start, middle, end = values
    if start is None or middle is None or end is None:
        return None
    slope = middle - start
    return (start, slope) if slope != 0 and end - middle == slope else None


def _ray(op: str, end: Node, budget: Budget) -> tuple[Endpoint, ...]:
    if op == "!=":
        return _complement(_interval(end, end, True, budget), budget)
    low = _MINUS_INF if op in ("<", "<=") else end
    high = _INF if op in (">", ">=") else end
    return _interval(low, high, op in ("<=", ">=", "="), budget)


def _join(value: tree.Connective, budget: Budget) -> RealSet:
    sets = [parse_real_set(part, budget) for part in value.parts]
    if value.op in ("or", "union"):
        return _union(sets, budget)
    if value.op == "minus":
        sets[1] = replace(sets[1], cuts=_complement(sets[1].cuts, budget))
    return _intersection(sets, budget)


def _builder(value: tree.SetBuilder, budget: Budget) -> RealSet:
    head = value.head
    sets: list[RealSet] = []
    if isinstance(head, tree.SetMembership):
        sets.append(parse_real_set(head, budget))
        head = head.left
    if not isinstance(head, tree.Sym):
        raise NotASetError
    if value.conditions:
        listed = (
            value.conditions[0]
            if len(value.conditions) == 1
            else tree.ValueList("", value.conditions)
        )
        sets.append(parse_real_set(listed, budget))
    found = _intersection(sets, budget)
    if found.variable not in ("", head.name):
        raise NotASetError
    return RealSet(found.cuts, unit=found.unit)


def _union(sets: list[RealSet], budget: Budget) -> RealSet:
    return _overlap(sets, 1, budget)


def _intersection(sets: list[RealSet], budget: Budget) -> RealSet:
    return _overlap(sets, len(sets), budget)


def _overlap(sets: list[RealSet], least: int, budget: Budget) -> RealSet:
    """Return what lies in at least so many of the sets.

    Raises:
        NotASetError: They are sets of different things, or there are too many ends.
    """
    if len(sets) == 1:
        return sets[0]
    variables = {found.variable for found in sets} - {""}
    units = {found.unit for found in sets if found.unit}
    if len(variables) > 1 or len(units) > 1:
        raise NotASetError
    cuts = _swept([found.cuts for found in sets], least, budget)
    return RealSet(cuts, "".join(variables), next(iter(units), None))


def _complement(cuts: tuple[Endpoint, ...], budget: Budget) -> tuple[Endpoint, ...]:
    low, high = _interval(_MINUS_INF, _INF, False, budget)
    ends = (low, *cuts, high)
    return tuple(cut for cut in ends if ends.count(cut) == 1)


def _swept(cuts: list[tuple[Endpoint, ...]], least: int, budget: Budget) -> tuple[Endpoint, ...]:
    """Go over all cuts from left to right, counting in how many sets one is."""
    steps = [(cut, -1 if at % 2 else 1) for each in cuts for at, cut in enumerate(each)]
    if len(steps) > MAX_CUTS:
        raise NotASetError
    budget.spend(len(steps))
    steps.sort(key=lambda step: step[0].key)
    for at in range(1, len(steps)):  # values that are equal but for rounding share a key
        (before, _), (cut, step) = steps[at - 1 : at + 1]
        if _equal(before.key, cut.key):
            steps[at] = replace(cut, key=before.key), step
    steps.sort(key=lambda step: (step[0].key, step[0].after))
    found, inside = [], 0
    for _, here in groupby(steps, key=lambda step: (step[0].key, step[0].after)):
        met = list(here)
        outside, inside = inside, inside + sum(step for _, step in met)
        if (outside >= least) != (inside >= least):
            found.append(met[0][0])
    return tuple(found)
