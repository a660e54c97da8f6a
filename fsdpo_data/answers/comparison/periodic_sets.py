"""Comparison of periodic sets of reals: families, residue classes, unions of intervals.

``x = pi/4 + k pi/2`` and ``x = pi/4 + k pi, x = 3 pi/4 + k pi`` are one set. So two sets are equal
if they contain the same end points, and the same points between them, in a common period.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import (
    MpNumber,
    mpmath_context,
    ten_to_minus,
)
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.comparison.windows import INTEGER_NAMES
from fsdpo_data.answers.lexicon.units import DEGREE
from fsdpo_data.answers.tree import Node, Value

_DOMAINS = frozenset(("ZZ", "NN", "NN+"))  #: Sets over which a whole number runs.
_MAX_COPIES = 60  #: Most copies of a piece in the common period.
_MAX_DENOMINATOR = 24  #: Largest denominator of the ratio of two periods.
_MAX_PIECES = 12  #: Most pieces of a set.
_EQUAL_DIGITS = 30  #: Digits in which two equal points agree.
_CHAIN_OPS = {("<", "<"), ("<", "<="), ("<=", "<"), ("<=", "<=")}
_REVERSED_OPS = {">": "<", ">=": "<="}


class _NotPeriodicError(ValueError):
    """The value is not a periodic set of reals."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A point or an interval, repeated with a period."""

    low: MpNumber  #: Lower end.
    high: MpNumber  #: Upper end; equal to ``low`` for a point.
    period: MpNumber  #: Distance between two copies.
    low_closed: bool = True  #: Whether the lower end belongs to the piece.
    high_closed: bool = True  #: Whether the upper end belongs to the piece.

    def contains(self, point: MpNumber) -> bool:
        """Whether a point is in one of the copies."""
        mp = mpmath_context()
        width = self.high - self.low
        tolerance = ten_to_minus(_EQUAL_DIGITS) * (1 + self.period)
        offset = (point - self.low) - mp.floor((point - self.low) / self.period) * self.period
        if self.period - offset < tolerance:
            offset -= self.period
        while offset <= width + tolerance:
            if abs(offset) < tolerance and abs(offset - width) < tolerance:
                is_inside = self.low_closed and self.high_closed
            elif abs(offset) < tolerance:
                is_inside = self.low_closed
            elif abs(offset - width) < tolerance:
                is_inside = self.high_closed
            else:
                is_inside = True
            if is_inside:
                return True
            offset += self.period
        return False


@dataclass(frozen=True, slots=True)
class PeriodicSet:
    """A union of repeated pieces, or its complement."""

    pieces: tuple[Piece, ...]  #: The pieces.
    is_complement: bool  #: Whether the set has all points outside the pieces.
    variable: str  #: The name of its elements, such as the x of ``x = pi k``; "" without one.
    is_certain: bool  #: Whether the value can only be a set: it has angles, residues or a domain.

    def contains(self, point: MpNumber) -> bool:
        """Whether a point is an element of the set."""
        return any(piece.contains(point) for piece in self.pieces) != self.is_complement


def are_equal_periodic_sets(gold: Value, answer: Value, budget: Budget) -> bool:
    """Whether two values are the same periodic set of reals."""
    return compare_periodic_sets(gold, answer, budget) is True


def compare_periodic_sets(gold: Value, answer: Value, budget: Budget) -> bool | None:
    """Return whether two periodic sets are equal, None if a side is another value."""
    try:
        left = _parse_periodic_set(gold, budget)
        right = _parse_periodic_set(answer, budget)
    except (_NotPeriodicError, UndefinedValueError, NumberTooLargeError):
        return None
    if left.variable and right.variable and left.variable != right.variable:
        return False
    if not (left.is_certain or right.is_certain):
        return None
    period = _common_period((*left.pieces, *right.pieces))
    if period is None:
        return None
    points = _test_points((*left.pieces, *right.pieces), period)
    budget.spend(len(points) * (len(left.pieces) + len(right.pieces)))
    return all(left.contains(point) == right.contains(point) for point in points)


def parameter_names(value: Value) -> frozenset[str]:
    """Return the names of the whole numbers over which a value runs, such as k in "k in Z"."""
    domains = filter(_is_domain, _statements_and_values(value))
    return frozenset(domain.left.name for domain in domains)  # type: ignore[union-attr]


def _statements_and_values(value: Value) -> tuple[Value, ...]:
    """Return the parts of a set-builder, of a list or of joined statements."""
    if isinstance(value, tree.SetBuilder):
        defines_head = any(
            isinstance(condition, tree.Relation) and condition.parts[0] == value.head
            for condition in value.conditions
        )
        return value.conditions if defines_head else (value.head, *value.conditions)
    if isinstance(value, tree.Connective) and value.op in ("and", "or"):
        return value.parts
    if isinstance(value, tree.ValueList) and value.brackets in ("", "{}"):
        return tuple(part for item in value.items for part in tree.list_values(item))
    return (value,)


def _is_domain(part: Value) -> bool:
    """Whether ``part`` is the domain of a parameter, such as ``k in Z``."""
    return (
        isinstance(part, tree.SetMembership)
        and not part.negated
        and isinstance(part.left, tree.Sym)
        and isinstance(part.right, tree.Sym)
        and part.right.name in _DOMAINS
    )


def _mentions_angle(value: Value) -> bool:
    """Whether a value contains pi or an angle in degrees."""
    return any(
        isinstance(part, tree.Quantity)
        or part == tree.Const("pi")
        or (isinstance(part, tree.Call) and part.name == "deg")
        for part in tree.walk(value)
    )


def residue_with_modulus(value: Value) -> tree.Quantity | None:
    """Return the right side of a congruence, or None. The modulus is its unit."""
    if not isinstance(value, tree.Relation) or value.ops != ("==",):
        return None
    right = value.parts[-1]
    if isinstance(right, tree.Quantity) and right.unit.label.startswith("mod "):
        return right
    return None


def _parse_periodic_set(value: Value, budget: Budget) -> PeriodicSet:
    """Read a set over a whole number as its parameter, or residue classes.

    Raises:
        _NotPeriodicError: The value is another value.
    """
    parts = _statements_and_values(value)
    domains = [part for part in parts if _is_domain(part)]
    statements = [part for part in parts if part not in domains]
    names = {part.left.name for part in domains if part.right == tree.Sym("ZZ")}  # type: ignore[union-attr]
    if len(names) < len(domains):
        raise _NotPeriodicError
    reader = _PieceReader(frozenset(names) or INTEGER_NAMES, budget)
    for statement in _with_common_modulus(statements):
        reader.read(statement)
    pieces = tuple(reader.pieces)
    if not 0 < len(pieces) <= _MAX_PIECES or len(reader.variables) > 1 or len(reader.kinds) > 1:
        raise _NotPeriodicError
    return PeriodicSet(
        pieces=pieces,
        is_complement=reader.kinds == {"!="},
        variable=next(iter(reader.variables), ""),
        is_certain=bool(names) or reader.has_angles or reader.has_residues,
    )


def _with_common_modulus(statements: list[Value]) -> list[Value]:
    """Return ``x = 1, 3 (mod 4)`` as two residue classes; other statements are unchanged."""
    last = statements[-1] if statements else None
    first = statements[0] if statements else None
    is_modulus = isinstance(last, tree.Quantity) and last.unit.label.startswith("mod ")
    if not (is_modulus and isinstance(last, tree.Quantity) and isinstance(first, tree.Relation)):
        return statements
    residues = [first.parts[-1], *statements[1:-1], last.node]
    return [
        tree.Relation((first.parts[0], tree.Quantity(residue, last.unit)), ("==",))
        for residue in residues
        if tree.is_node(residue)
    ]


class _PieceReader:
    """Reader of the pieces of a set.

    Args:
        parameters: Names of the parameter.
        budget: The operations that the evaluation may use.
    """

    def __init__(self, parameters: frozenset[str], budget: Budget) -> None:
        self.pieces: list[Piece] = []
        self.variables: set[str] = set()
        self.kinds: set[str] = set()  #: "=" for pieces, "!=" for excluded pieces.
        self.has_residues = False
        self.has_angles = False
        self._parameters = parameters
        self._budget = budget

    def read(self, value: Value) -> None:
        """Read a statement about the elements, or a set of them."""
        match value:
            case tree.Connective(("or" | "union"), parts):
                for part in parts:
                    self.read(part)
            case tree.SetMembership(tree.Sym(name), inner, False):
                self.variables.add(name)
                self.read(inner)
            case tree.ValueList(brackets, (low, high)) if brackets in tree.INTERVAL_BRACKETS:
                self._add_interval(low, high, brackets[0] == "[", brackets[1] == "]")
            case tree.Relation((head, right), ("==",)):
                self._add_residue(head, right)
            case tree.Relation((tree.Sym(name), body), (("=" | "!=") as op,)):
                self.variables.add(name)
                self._add_points(body, op)
            case tree.Relation((low, tree.Sym(name), high), ops):
                if ops[0] in _REVERSED_OPS:
                    low, high = high, low
                    ops = tuple(_REVERSED_OPS.get(op, op) for op in reversed(ops))
                if ops not in _CHAIN_OPS:
                    raise _NotPeriodicError
                self.variables.add(name)
                self._add_interval(low, high, ops[0] == "<=", ops[1] == "<=")
            case tree.ValueList("", items):
                for item in items:
                    self.read(item)
            case _:
                self._add_points(value, "=")

    def _add_points(self, body: Value, op: str) -> None:
        self.kinds.add(op)
        for value in tree.plus_minus_values(body):
            start, slope = self._line(value)
            self.pieces.append(Piece(start, start, abs(slope)))

    def _add_interval(self, low: Value, high: Value, low_closed: bool, high_closed: bool) -> None:
        self.kinds.add("=")
        start, slope = self._line(low)
        end, end_slope = self._line(high)
        if abs(slope - end_slope) > ten_to_minus(_EQUAL_DIGITS) * abs(slope) or end <= start:
            raise _NotPeriodicError
        self.pieces.append(Piece(start, end, abs(slope), low_closed, high_closed))

    def _add_residue(self, head: Value, right: Value) -> None:
        """Add ``x = 2 (mod 5)``."""
        is_residue = isinstance(right, tree.Quantity) and right.unit.label.startswith("mod ")
        if not (is_residue and isinstance(right, tree.Quantity) and isinstance(head, tree.Sym)):
            raise _NotPeriodicError
        self.kinds.add("=")
        self.variables.add(head.name)
        self.has_residues = True
        modulus = self._number(tree.Num(Fraction(right.unit.label.removeprefix("mod "))))
        residue = self._number(right.node)
        self.pieces.append(Piece(residue, residue, modulus))

    def _line(self, value: Value) -> tuple[MpNumber, MpNumber]:
        """Return a and b of a value ``a + b k``, whose b is not 0."""
        node = value
        if isinstance(value, tree.Quantity):
            if value.unit.dims != DEGREE.dims:
                raise _NotPeriodicError
            node = tree.Call("deg", (value.node,))
        if not tree.is_node(node):
            raise _NotPeriodicError
        self.has_angles |= _mentions_angle(value)
        names = free_symbols(node)
        if len(names) != 1 or not names <= self._parameters:
            raise _NotPeriodicError
        (name,) = names
        values = [
            self._number(tree.substitute(node, {name: tree.Num(Fraction(k))})) for k in (0, 1, 2)
        ]
        start, middle, end = values
        slope = middle - start
        error = abs(end - middle - slope)
        if slope == 0 or error > ten_to_minus(_EQUAL_DIGITS) * (1 + abs(end)):
            raise _NotPeriodicError
        return start, slope

    def _number(self, node: Node) -> MpNumber:
        value = Evaluator(0, self._budget).value(node)
        mp = mpmath_context()
        if mp.im(value) != 0:
            raise _NotPeriodicError
        return mp.re(value)


def _common_period(pieces: tuple[Piece, ...]) -> MpNumber | None:
    """Return the least common multiple of all periods, or None without a small one."""
    mp = mpmath_context()
    base = pieces[0].period
    ratios: list[Fraction] = []
    for piece in pieces:
        ratio = piece.period / base
        denominators = range(1, _MAX_DENOMINATOR + 1)
        denominator = next(
            (d for d in denominators if abs(ratio * d - mp.nint(ratio * d)) < ten_to_minus(20)),
            None,
        )
        if denominator is None:
            return None
        ratios.append(Fraction(int(mp.nint(ratio * denominator)), denominator))
    # The multiple of fractions in lowest terms: lcm of numerators over gcd of denominators.
    common = lcm(*(ratio.denominator for ratio in ratios))
    multiple = Fraction(lcm(*(int(ratio * common) for ratio in ratios)), common)
    if any(multiple / ratio > _MAX_COPIES for ratio in ratios):
        return None
    return base * multiple.numerator / multiple.denominator


def _test_points(pieces: tuple[Piece, ...], period: MpNumber) -> list[MpNumber]:
    """Return all ends of pieces in one period, and the points in the middle between them."""
    ends = sorted(_ends_in_period(pieces, period))
    middles = [
        (left + right) / 2 for left, right in zip(ends, [*ends[1:], ends[0] + period], strict=True)
    ]
    return ends + [
        middle
        for middle, end in zip(middles, ends, strict=True)
        if abs(middle - end) > ten_to_minus(_EQUAL_DIGITS - 5) * period
    ]


def _ends_in_period(pieces: tuple[Piece, ...], period: MpNumber) -> Iterator[MpNumber]:
    """Yield the ends of all copies of pieces, modulo the common period."""
    mp = mpmath_context()
    for piece in pieces:
        n_copies = int(mp.nint(period / piece.period))
        for copy in range(n_copies):
            for end in {piece.low, piece.high}:
                point = end + copy * piece.period
                yield point - mp.floor(point / period) * period
