"""Sets of reals: intervals, relations and set-builders brought to one sorted form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from fsdpo_data.answers.budget import Budget, TooLarge
from fsdpo_data.answers.comparing.agree import close, infinite, same_node
from fsdpo_data.answers.comparing.modular import Undefined, rational_value
from fsdpo_data.answers.comparing.numeric import ORDERED, Evaluator, Real, context, symbols
from fsdpo_data.answers.comparing.variants import both_values, has_variants
from fsdpo_data.answers.lexicon.units import PERCENT, ratio
from fsdpo_data.answers.tree import (
    Builder,
    Call,
    Const,
    Items,
    Join,
    Member,
    Node,
    Num,
    Quantity,
    Relation,
    Sym,
    Unit,
    Value,
    add,
    is_node,
    multiply,
    negate,
    substitute,
)

#: Most pieces of one set.
MAX_PIECES = 60
_VARIABLES = frozenset(("x", "y", "z", "t", "u", "w", "theta"))
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


class NotASet(ValueError):
    """The answer is not a set of reals."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval.

    Attributes:
        low: Left end.
        high: Right end.
        low_closed: Whether the left end belongs to it.
        high_closed: Whether the right end does.
        low_key: Value of the left end; of a symbolic end, at the first fixed point.
        high_key: Value of the right end.
    """

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool
    low_key: Real
    high_key: Real


@dataclass(frozen=True, slots=True)
class RealSet:
    """Disjoint pieces from left to right, and what was said to lie in them.

    Attributes:
        pieces: The intervals.
        variable: The name of what lies in them, "" if none was said.
        unit: The unit of their ends, if one was said.
    """

    pieces: tuple[Piece, ...]
    variable: str = ""
    unit: Unit | None = None


_INF = Const("inf")
_MINUS_INF = negate(_INF)


def real_set(value: Value, budget: Budget) -> RealSet:
    """Read ``value`` as a set of reals.

    Raises:
        NotASet: It is none, or one that is not made of intervals.
    """
    match value:
        case Items():
            return _items(value, budget)
        case Relation():
            return _relation(value, budget)
        case Member() if isinstance(value.left, Sym):
            inner = real_set(value.right, budget)
            found = _complement(inner, budget) if value.negated else inner
            return RealSet(found.pieces, value.left.name, inner.unit)
        case Join():
            return _join(value, budget)
        case Builder():
            return _builder(value, budget)
        case Sym() if value.name == "RR":
            return RealSet((_piece(_MINUS_INF, _INF, False, False, budget),))
        case Quantity():
            number, unit = _without_unit(value)
            return RealSet(real_set(number, budget).pieces, unit=unit)
    if is_node(value) and not symbols(value):  # type: ignore[arg-type]
        return RealSet((_piece(value, value, True, True, budget),))  # type: ignore[arg-type]
    raise NotASet


def same_set(left: RealSet, right: RealSet, budget: Budget) -> bool:
    """Whether two sets have the same pieces with the same ends, in the same unit."""
    if left.unit and right.unit and (size := ratio(right.unit, left.unit)) != 1:
        if size is None:
            return False
        right = RealSet(tuple(_resized(piece, size) for piece in right.pieces))
    return len(left.pieces) == len(right.pieces) and all(
        a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        and same_node(a.low, b.low, budget)
        and same_node(a.high, b.high, budget)
        for a, b in zip(left.pieces, right.pieces, strict=True)
    )


def _resized(piece: Piece, size: Fraction) -> Piece:
    """Return a piece with its ends in another unit; its keys stay."""
    ends = [
        end
        if infinite(end)
        else multiply([Num(end.value) if isinstance(end, Num) else end, Num(size)])
        for end in (piece.low, piece.high)
    ]
    return replace(piece, low=ends[0], high=ends[1])


def _without_unit(quantity: Quantity) -> tuple[Node, Unit | None]:
    """Return a number and the unit it is measured in; a percentage is a number.

    Raises:
        NotASet: A class modulo a number is no single number.
    """
    if quantity.unit.label.startswith("mod "):
        raise NotASet
    if quantity.unit.dims == PERCENT.dims:
        return multiply([quantity.node, Num(Fraction(1, 100))]), None
    return quantity.node, quantity.unit


def _piece(low: Node, high: Node, low_closed: bool, high_closed: bool, budget: Budget) -> Piece:
    keys = _key(low, budget), _key(high, budget)
    return Piece(
        low, high, low_closed and not infinite(low), high_closed and not infinite(high), *keys
    )


def _key(node: Node, budget: Budget) -> Real:
    sign = infinite(node)
    mp = context()
    if sign:
        return mp.mpf("inf") * sign
    try:
        value = Evaluator(ORDERED, budget).value(node)
    except (Undefined, TooLarge):
        raise NotASet from None
    if mp.im(value) != 0:
        raise NotASet
    return mp.re(value)


def _equal(left: Real, right: Real) -> bool:
    return bool(left == right) or bool(
        context().isfinite(left) and context().isfinite(right) and close(left, right, 0)
    )


def _items(value: Items, budget: Budget) -> RealSet:
    if value.brackets in ("()", "[]", "(]", "[)") and len(value.items) == 2:
        (low, unit), (high, high_unit) = (
            _without_unit(end) if isinstance(end, Quantity) else (end, None) for end in value.items
        )
        if not (is_node(low) and is_node(high)) or (unit and high_unit and unit != high_unit):
            raise NotASet
        piece = _piece(low, high, value.brackets[0] == "[", value.brackets[1] == "]", budget)  # type: ignore[arg-type]
        if piece.low_key > piece.high_key:
            raise NotASet
        return RealSet((piece,), unit=unit or high_unit)
    if value.brackets == "{}":
        return _union([real_set(item, budget) for item in value.items], budget)
    if value.brackets == "" and value.items:
        return _listed(value.items, budget)
    raise NotASet


def _listed(items: tuple[Value, ...], budget: Budget) -> RealSet:
    """Read statements or intervals with commas between: all hold, or if none can, any."""
    first = items[0]
    if isinstance(first, Relation) and first.ops == ("!=",):
        items = tuple(
            Relation((first.parts[0], item), ("!=",)) if is_node(item) else item for item in items
        )
    sets = [real_set(item, budget) for item in items]
    if all(isinstance(item, Items) for item in items):
        return _union(sets, budget)
    if not all(isinstance(item, Relation | Member | Join) for item in items):
        raise NotASet
    both = _intersection(sets, budget)
    return both if both.pieces else _union(sets, budget)


def _relation(value: Relation, budget: Budget) -> RealSet:
    sets = [
        _comparison(left, op, right, budget)
        for left, op, right in zip(value.parts, value.ops, value.parts[1:], strict=False)
    ]
    return _intersection(sets, budget)


def _comparison(left: Value, op: str, right: Value, budget: Budget) -> RealSet:
    if op not in _FLIP:
        raise NotASet
    if _more_variable(right, left):
        left, right, op = right, left, _FLIP[op]
    unit = None
    if isinstance(right, Quantity):
        right, unit = _without_unit(right)
    if has_variants(right) and op in ("=", "!="):
        both = [_comparison(left, op, value, budget) for value in both_values(right)]
        return _union(both, budget) if op == "=" else _intersection(both, budget)
    if not is_node(right) or not is_node(left):
        raise NotASet
    if isinstance(left, Sym) and left.name not in symbols(right):  # type: ignore[arg-type]
        return RealSet(_ray(op, right, budget), left.name, unit)  # type: ignore[arg-type]
    if symbols(right):  # type: ignore[arg-type]
        raise NotASet
    if isinstance(left, Call) and left.name == "abs":
        return _absolute(left.args[0], op, right, budget)  # type: ignore[arg-type]
    return _linear(left, op, right, budget)  # type: ignore[arg-type]


def _more_variable(right: Value, left: Value) -> bool:
    """Whether the right side of a comparison holds the variable, as in ``2 < x``."""
    if isinstance(right, Sym) and isinstance(left, Sym):
        return right.name in _VARIABLES and left.name not in _VARIABLES
    if isinstance(right, Sym):
        return True
    return (
        is_node(left) and is_node(right) and bool(symbols(right)) and not symbols(left)  # type: ignore[arg-type]
    )


def _absolute(inner: Node, op: str, bound: Node, budget: Budget) -> RealSet:
    """Read ``|x - 1| < 3``."""
    both = [
        _comparison(inner, _FLIP[op], negate(bound), budget),
        _comparison(inner, op, bound, budget),
    ]
    return _intersection(both, budget) if op in ("<", "<=", "!=") else _union(both, budget)


def _linear(left: Node, op: str, right: Node, budget: Budget) -> RealSet:
    """Read ``1 - 2x < 5``, by the values of the left side at 0, 1 and 2."""
    names = symbols(left)
    if len(names) != 1:
        raise NotASet
    (name,) = names
    values = [rational_value(substitute(left, name, Num(Fraction(at)))) for at in (0, 1, 2)]
    start, middle, end = values
    if start is None or middle is None or end is None or end - middle != middle - start:
        raise NotASet
    slope = middle - start
    if slope == 0:
        raise NotASet
    bound = multiply([Num(1 / slope), add([right, Num(-start)])])
    return RealSet(_ray(op if slope > 0 else _FLIP[op], bound, budget), name)


def _ray(op: str, end: Node, budget: Budget) -> tuple[Piece, ...]:
    closed = op in ("<=", ">=", "=")
    below = _piece(_MINUS_INF, end, False, closed, budget)
    above = _piece(end, _INF, closed, False, budget)
    if op in ("<", "<="):
        return (below,)
    if op in (">", ">="):
        return (above,)
    if op == "=":
        return (_piece(end, end, True, True, budget),)
    return (below, above)


def _join(value: Join, budget: Budget) -> RealSet:
    sets = [real_set(part, budget) for part in value.parts]
    if value.op in ("or", "union"):
        return _union(sets, budget)
    if value.op == "minus":
        return _intersection([sets[0], _complement(sets[1], budget)], budget)
    return _intersection(sets, budget)


def _builder(value: Builder, budget: Budget) -> RealSet:
    head = value.head
    sets: list[RealSet] = []
    if isinstance(head, Member):
        sets.append(real_set(head, budget))
        head = head.left
    if not isinstance(head, Sym):
        raise NotASet
    if value.conditions:
        listed = value.conditions[0] if len(value.conditions) == 1 else Items("", value.conditions)
        sets.append(real_set(listed, budget))
    found = _intersection(sets, budget)
    if found.variable not in ("", head.name):
        raise NotASet
    return RealSet(found.pieces, unit=found.unit)


def _variable(sets: Iterable[RealSet]) -> str:
    names = {found.variable for found in sets} - {""}
    if len(names) > 1:
        raise NotASet
    return names.pop() if names else ""


def _common_unit(sets: Iterable[RealSet]) -> Unit | None:
    units = {found.unit for found in sets if found.unit}
    if len(units) > 1:
        raise NotASet
    return units.pop() if units else None


def _union(sets: list[RealSet], budget: Budget) -> RealSet:
    pieces = sorted(
        (piece for found in sets for piece in found.pieces if not _is_empty(piece)),
        key=lambda piece: (piece.low_key, not piece.low_closed),
    )
    if len(pieces) > MAX_PIECES:
        raise NotASet
    budget.spend(len(pieces))
    merged: list[Piece] = []
    for piece in pieces:
        if merged and _touch(merged[-1], piece):
            merged[-1] = _merge(merged[-1], piece)
        else:
            merged.append(piece)
    return RealSet(tuple(merged), _variable(sets), _common_unit(sets))


def _is_empty(piece: Piece) -> bool:
    if _equal(piece.low_key, piece.high_key):
        return not (piece.low_closed and piece.high_closed)
    return bool(piece.low_key > piece.high_key)


def _touch(left: Piece, right: Piece) -> bool:
    if _equal(left.high_key, right.low_key):
        return left.high_closed or right.low_closed
    return bool(right.low_key < left.high_key)


def _merge(left: Piece, right: Piece) -> Piece:
    if _equal(left.high_key, right.high_key):
        high, closed, key = left.high, left.high_closed or right.high_closed, left.high_key
    elif left.high_key > right.high_key:
        high, closed, key = left.high, left.high_closed, left.high_key
    else:
        high, closed, key = right.high, right.high_closed, right.high_key
    return Piece(left.low, high, left.low_closed, closed, left.low_key, key)


def _intersection(sets: list[RealSet], budget: Budget) -> RealSet:
    name = _variable(sets)
    pieces = list(sets[0].pieces)
    for other in sets[1:]:
        budget.spend(len(pieces) * len(other.pieces))
        crossed = [_cross(a, b) for a in pieces for b in other.pieces]
        pieces = [piece for piece in crossed if not _is_empty(piece)]
        if len(pieces) > MAX_PIECES:
            raise NotASet
    return RealSet(tuple(pieces), name, _common_unit(sets))


def _cross(a: Piece, b: Piece) -> Piece:
    if _equal(a.low_key, b.low_key):
        low, low_closed, low_key = a.low, a.low_closed and b.low_closed, a.low_key
    else:
        first = a if a.low_key > b.low_key else b
        low, low_closed, low_key = first.low, first.low_closed, first.low_key
    if _equal(a.high_key, b.high_key):
        high, high_closed, high_key = a.high, a.high_closed and b.high_closed, a.high_key
    else:
        last = a if a.high_key < b.high_key else b
        high, high_closed, high_key = last.high, last.high_closed, last.high_key
    return Piece(low, high, low_closed, high_closed, low_key, high_key)


def _complement(found: RealSet, budget: Budget) -> RealSet:
    mp = context()
    low, low_closed, low_key = _MINUS_INF, False, -mp.inf
    pieces = []
    for piece in found.pieces:
        gap = Piece(low, piece.low, low_closed, not piece.low_closed, low_key, piece.low_key)
        if not _is_empty(gap) and not infinite(piece.low):
            pieces.append(gap)
        low, low_closed, low_key = piece.high, not piece.high_closed, piece.high_key
    if not infinite(low) or not found.pieces:
        pieces.append(Piece(low, _INF, low_closed, False, low_key, mp.inf))
    budget.spend(len(pieces))
    return RealSet(tuple(pieces))
