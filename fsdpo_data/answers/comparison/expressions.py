"""Whether two expressions are equal: structure, then residues, then 60 digits."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import islice

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison import symbolic
from fsdpo_data.answers.comparison.modular import (
    PRIMES,
    Residues,
    UndefinedValueError,
    rational_value,
)
from fsdpo_data.answers.comparison.numeric import (
    Evaluator,
    Real,
    context,
    counters,
    has_bars,
    has_imaginary,
    symbols,
    tenth,
)
from fsdpo_data.answers.lexicon.numbers import (
    MIN_DIGITS_OTHER,
    is_close_to_gold,
    matches_shown_digits,
    numbers_agree,
)
from fsdpo_data.answers.tree import Const, Mul, Node, Num, Pow, Sym, multiply, substitute

#: Points tried for expressions with symbols, and how many must agree.
POINTS = (0, 7, 2, 4, 3, 1, 8, 5, 6)
EARLY_STOP_POINTS = 4
MIN_COMPARED_POINTS = 2
MAX_PARAMETERS = 6  #: Most parameters that an equation may have been multiplied by.
_RELATIVE = 45  # digits in which two values must agree
_CANCELLED = 53  # digits below the largest term at which a difference is rounding


def same_node(left: Node, right: Node, budget: Budget) -> bool:
    """Whether two expressions have the same value wherever both have one.

    Raises:
        BudgetExceededError: Deciding takes more operations than are granted.
        NumberTooLargeError: Both are too large to be evaluated.
    """
    if left == right:
        return True
    if isinstance(left, Num) and isinstance(right, Num):
        return numbers_agree(left, right)
    ends = infinity_sign(left), infinity_sign(right)
    if ends != (0, 0):
        return ends[0] == ends[1]
    known = _by_residues(left, right, budget)
    if known is True:
        return True
    if _is_shown(left, right) or _is_shown(right, left):
        return _to_shown_digits(left, right, budget)
    if known is not None:
        return known
    return _by_digits(left, right, budget) or symbolic.equal(left, right, budget)


def infinity_sign(node: Node) -> int:
    """Return the sign of an infinite ``node``, 0 if it is finite."""
    if isinstance(node, Const):
        return int(node.name == "inf")
    if isinstance(node, Mul) and len(node.factors) == 2:
        sign, inner = node.factors
        if isinstance(sign, Num) and inner == Const("inf"):
            return 1 if sign.value > 0 else -1
    return 0


def _by_residues(left: Node, right: Node, budget: Budget) -> bool | None:
    """Compare modulo primes: True if equal, False if unequal, None if that is not known."""
    exact = True
    for point, prime in enumerate(PRIMES):
        sides = Residues(prime, point, budget), Residues(prime, point, budget)
        try:
            values = sides[0].value(left), sides[1].value(right)
        except (UndefinedValueError, NumberTooLargeError):
            return None
        exact = exact and sides[0].exact and sides[1].exact
        if values[0] != values[1]:
            return False if exact else None
    return True


def _is_shown(number: Node, other: Node) -> bool:
    """Whether ``number`` is a decimal that may stand for the constant ``other``."""
    return isinstance(number, Num) and number.decimal_places is not None and not symbols(other)


def _to_shown_digits(left: Node, right: Node, budget: Budget) -> bool:
    shown, other = (left, right) if _is_shown(left, right) else (right, left)
    if not isinstance(shown, Num) or shown.significant_digits < MIN_DIGITS_OTHER:
        return False
    exact = rational_value(other)
    if exact is not None:
        return numbers_agree(shown, Num(exact))
    value = _real(other, budget)
    return value is not None and matches_shown_digits(shown, value, is_exact=False)


def within_tolerance(gold: Num, answer: Node, relative: Fraction, budget: Budget) -> bool:
    """The tolerant rule for a constant ``answer``; see ``rounds_to``."""
    if isinstance(answer, Num):
        return is_close_to_gold(answer.value, gold, relative)
    value = _real(answer, budget)
    return value is not None and is_close_to_gold(value, gold, relative)


def _real(node: Node, budget: Budget) -> Fraction | None:
    """Return a constant as a fraction good to 60 digits; None if it is no real number."""
    found = None if symbols(node) else _constant(node)
    if found is None or context().im(found[0]) != 0:
        return None
    budget.spend(found[2])
    man, exp = context().re(found[0]).man_exp
    return Fraction(int(man)) * Fraction(2) ** int(exp) if abs(exp) < 100_000 else Fraction(0)


@lru_cache(maxsize=2_048)
def _constant(node: Node) -> tuple[Real, Real, int] | None:
    """Return value, scale and cost of an expression without symbols, None if it has no value."""
    budget = Budget(100_000)
    for complex_plane in (has_imaginary(node), True):
        evaluator = Evaluator(0, budget, complex_plane)
        try:
            value = evaluator.value(node)
        except UndefinedValueError:
            continue
        return value, evaluator.scale, 100_000 - budget.left
    return None


def _by_digits(left: Node, right: Node, budget: Budget) -> bool:
    if not symbols(left) and not symbols(right):
        return _same_constant(left, right, budget)
    imaginary = has_imaginary(left) or has_imaginary(right)
    for complex_plane in (imaginary, True):
        checked = _at_points(left, right, budget, complex_plane)
        if checked is not None:
            return checked
    return False


def _at_points(left: Node, right: Node, budget: Budget, complex_plane: bool) -> bool | None:
    """Compare at points; None if too few lie in both domains."""
    agreed = 0
    points = POINTS[:4] if complex_plane else POINTS
    for values in _values(left, right, budget, complex_plane, points):
        if not nearly_equal(*values):
            return False
        agreed += 1
        if agreed == EARLY_STOP_POINTS + 1 and not has_bars(left, right):
            break  # with bars, all points are asked, also those at which symbols are negative
    return True if agreed >= MIN_COMPARED_POINTS else None


def _values(
    left: Node,
    right: Node,
    budget: Budget,
    complex_plane: bool = False,
    points: Sequence[int] = POINTS,
) -> Iterator[tuple[Real, Real, Real]]:
    """Yield both values and the scale of their terms, at points where both have one."""
    whole = counters(left) | counters(right)
    for point in points:
        sides = [Evaluator(point, budget, complex_plane, whole) for _ in range(2)]
        with suppress(UndefinedValueError, NumberTooLargeError):
            values = sides[0].value(left), sides[1].value(right)
            yield *values, max(sides[0].scale, sides[1].scale)


def nearly_equal(left: Real, right: Real, scale: Real) -> bool:
    """Whether two values agree in all digits that can be trusted."""
    difference = abs(left - right)
    if difference <= tenth(_RELATIVE) * max(abs(left), abs(right)):
        return True
    return bool(difference <= tenth(_CANCELLED) * scale)


def _same_constant(left: Node, right: Node, budget: Budget) -> bool:
    found = []
    for node in (left, right):
        with suppress(NumberTooLargeError):
            found.append(_constant(node))
    if not found:
        raise NumberTooLargeError("both sides")
    if len(found) < 2 or found[0] is None or found[1] is None:
        return False
    (value, scale, cost), (other, other_scale, other_cost) = found[0], found[1]
    budget.spend(cost + other_cost)
    return nearly_equal(value, other, max(scale, other_scale))


def constant_difference(left: Node, right: Node, budget: Budget) -> bool:
    """Whether ``left - right`` is the same at all points."""
    gaps = [
        (value - other, max(scale, 1))
        for value, other, scale in islice(_values(left, right, budget), EARLY_STOP_POINTS)
    ]
    return len(gaps) > MIN_COMPARED_POINTS and all(
        nearly_equal(gap, gaps[0][0], scale) for gap, scale in gaps
    )


def constant_ratio(left: Node, right: Node, budget: Budget) -> int:
    """Return the sign of ``left / right`` if that is the same constant everywhere, else 0.

    The sign is 2 if the ratio is not real. Numbers have a ratio, but it says nothing.
    """
    if not symbols(left) and not symbols(right):
        return int(same_node(left, right, budget))
    if not _same_ratio_of_residues(left, right, budget):
        return 0
    return _ratio_of_digits(left, right, budget)


_UNKNOWNS = frozenset("xyztuvwnk")  #: Names of unknowns; an equation is not divided by them.


def parameter_ratio(left: Node, right: Node, budget: Budget) -> bool:
    """Whether ``left / right`` is a product of powers of parameters, as ``L C`` is."""
    names = sorted(symbols(left) | symbols(right))
    names = [name for name in names if name[0] not in _UNKNOWNS and "'" not in name]
    if not 0 < len(names) <= MAX_PARAMETERS:
        return False
    start = _ratios(left, right, budget, False)[:1]
    factor: list[Node] = []
    for name in names if start else ():
        doubled = {name: multiply([Num(Fraction(2)), Sym(name)])}
        moved = substitute(left, doubled), substitute(right, doubled)
        ratios = _ratios(*moved, budget, False)[:1]
        power = _power_of_two(ratios[0] / start[0]) if ratios else None
        if power is None:
            return False
        factor.append(Pow(Sym(name), Num(Fraction(power))))
    return bool(factor) and constant_ratio(left, multiply([right, *factor]), budget) != 0


def _power_of_two(ratio: Real) -> int | None:
    mp = context()
    if mp.im(ratio) != 0 or mp.re(ratio) <= 0:
        return None
    power = int(mp.nint(mp.log(ratio, 2)))
    close_enough = abs(ratio - mp.mpf(2) ** power) < tenth(30) * abs(ratio)
    return power if close_enough and abs(power) <= 4 else None


def _same_ratio_of_residues(left: Node, right: Node, budget: Budget) -> bool:
    """Cheap refusal: the ratios of residues at two points differ."""
    ratios = []
    for point in (0, 1):
        sides = Residues(PRIMES[0], point, budget), Residues(PRIMES[0], point, budget)
        try:
            top, bottom = sides[0].value(left), sides[1].value(right)
        except (UndefinedValueError, NumberTooLargeError):
            return True
        if not (sides[0].exact and sides[1].exact) or not bottom:
            return True
        ratios.append(top * pow(bottom, -1, PRIMES[0]) % PRIMES[0])
    return ratios[0] == ratios[1]


def _ratio_of_digits(left: Node, right: Node, budget: Budget) -> int:
    mp = context()
    imaginary = has_imaginary(left) or has_imaginary(right)
    ratios = _ratios(left, right, budget, imaginary)
    if len(ratios) < MIN_COMPARED_POINTS:  # hardly any point lies in the real domain of √sin x + √x
        ratios = _ratios(left, right, budget, True)
    if len(ratios) < MIN_COMPARED_POINTS or ratios[0] == 0:
        return 0
    if any(abs(ratio - ratios[0]) > tenth(30) * abs(ratios[0]) for ratio in ratios):
        return 0
    if mp.im(ratios[0]) != 0:
        return 2
    return 1 if mp.re(ratios[0]) > 0 else -1


def _ratios(left: Node, right: Node, budget: Budget, complex_plane: bool) -> list[Real]:
    """Return ``left / right`` at the first points where both have values."""
    values = _values(left, right, budget, complex_plane)
    ratios = (top / bottom for top, bottom, _ in values if bottom != 0)
    return list(islice(ratios, len(POINTS) if has_bars(left, right) else EARLY_STOP_POINTS))
