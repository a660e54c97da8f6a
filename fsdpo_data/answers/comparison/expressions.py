"""Comparison of expressions: by structure, by residues, in 60 digits, and last by sympy."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from itertools import islice, product
from typing import NamedTuple

from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison import symbolic
from fsdpo_data.answers.comparison.exact_values import rational_value
from fsdpo_data.answers.comparison.modular import PRIMES, ResidueEvaluator, UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import (
    DIGITS,
    MpNumber,
    mpmath_context,
    ten_to_minus,
)
from fsdpo_data.answers.comparison.numeric import Evaluator
from fsdpo_data.answers.comparison.symbols import (
    free_symbols,
    has_absolute_value,
    has_imaginary_unit,
    has_steps,
    indexed_names,
    integer_symbols,
    unevaluated_operators,
)
from fsdpo_data.answers.comparison.windows import INTEGER_NAMES, breakpoints, window
from fsdpo_data.answers.lexicon.numbers import (
    MIN_DIGITS_OTHER,
    is_close_to_gold,
    matches_written_digits,
    numbers_agree,
)
from fsdpo_data.answers.tree import (
    Const,
    Mul,
    Node,
    Num,
    Pow,
    Relation,
    Sym,
    add,
    children,
    is_node,
    multiply,
    negate,
    substitute,
    walk,
)

#: Fixed points at which expressions with symbols are compared, in this order.
POINTS = (0, 7, 2, 4, 3, 1, 8, 5, 6)
#: Number of points that are used in the complex plane, where evaluation costs more.
_COMPLEX_POINTS = 4
#: Number of agreeing points after which further points are skipped.
EARLY_STOP_POINTS = 4
#: Fewest points at which both expressions need a value.
MIN_COMPARED_POINTS = 2
MAX_PARAMETERS = 6  #: Most parameters by which an equation may be multiplied.
MAX_PARAMETER_POWER = 4  #: Largest power of a parameter by which an equation may be multiplied.
_RELATIVE_DIGITS = 45  #: Leading digits in which two equal values agree.
#: Digits below the largest term at which a difference is a rounding error.
_CANCELLATION_DIGITS = 53
_RATIO_DIGITS = 30  #: Leading digits in which two equal ratios agree.
#: Operations that evaluating one constant may take.
_MAX_CONSTANT_OPERATIONS = 100_000
#: A value with a larger binary exponent counts as zero, because its fraction would be huge.
_MAX_BINARY_EXPONENT = 100_000
#: First letters of unknowns; dividing an equation by an unknown would change its solutions.
_UNKNOWNS = frozenset("xyztuvwnk")
_MAX_WINDOW_SYMBOLS = 2  #: Most symbols of expressions that are compared in a window.
_MAX_CONSTANT_SIZE = 10**15  #: Largest irrational constant of a window.
_MAX_GRID_NUMBERS = 8  #: Most numbers of each of two integer symbols that are compared together.
_MIN_WINDOW_POINTS = 10  #: Fewest whole numbers that make two expressions equal.
_WINDOW_OPERATIONS = 40_000  #: Operations that the comparison in a window may use.


def are_equal_expressions(left: Node, right: Node, budget: Budget) -> bool:
    """Whether two expressions have the same value at all points where both are defined.

    Raises:
        BudgetExceededError: The decision takes more operations than the budget allows.
        NumberTooLargeError: Both expressions are too large to be evaluated.
    """
    if left == right:
        return True
    if isinstance(left, Num) and isinstance(right, Num):
        return numbers_agree(left, right)
    unevaluated = unevaluated_operators(left) | unevaluated_operators(right)
    left_infinity = infinity_sign(left)
    right_infinity = infinity_sign(right)
    if left_infinity or right_infinity:
        if unevaluated:
            budget.unread = f"the operator {min(unevaluated)}"
        return left_infinity == right_infinity
    equal_by_residues = _compare_by_residues(left, right, budget)
    if equal_by_residues is True:
        return True
    if unevaluated:
        budget.unread = f"the operator {min(unevaluated)}"
    if _is_decimal_for(left, right) or _is_decimal_for(right, left):
        return _compare_to_shown_digits(left, right, budget)
    if equal_by_residues is not None:
        return equal_by_residues
    if _compare_by_digits(left, right, budget):
        return True
    return bool(unevaluated) and symbolic.are_proven_equal(left, right)


def infinity_sign(node: Node) -> int:
    """Return the sign of an infinite ``node``, 0 if it is finite."""
    if isinstance(node, Const):
        return int(node.name == "inf")
    if isinstance(node, Mul) and len(node.factors) == 2:
        sign, inner = node.factors
        if isinstance(sign, Num) and inner == Const("inf"):
            return 1 if sign.value > 0 else -1
    return 0


def _compare_by_residues(left: Node, right: Node, budget: Budget) -> bool | None:
    """Return whether residues modulo all primes are equal, None if they decide nothing."""
    is_exact = True
    for point, prime in enumerate(PRIMES):
        left_evaluator = ResidueEvaluator(prime, point, budget)
        right_evaluator = ResidueEvaluator(prime, point, budget)
        try:
            left_residue = left_evaluator.value(left)
            right_residue = right_evaluator.value(right)
        except (UndefinedValueError, NumberTooLargeError):
            return None
        is_exact = is_exact and left_evaluator.is_exact and right_evaluator.is_exact
        if left_residue != right_residue:
            return False if is_exact else None
    return True


def _is_decimal_for(number: Node, constant: Node) -> bool:
    """Whether ``number`` is a decimal that may be a rounded form of ``constant``."""
    return (
        isinstance(number, Num) and number.decimal_places is not None and not free_symbols(constant)
    )


def _compare_to_shown_digits(left: Node, right: Node, budget: Budget) -> bool:
    """Compare a decimal with a constant at the digits that the decimal shows."""
    decimal, constant = (left, right) if _is_decimal_for(left, right) else (right, left)
    if not isinstance(decimal, Num):
        return False
    exact_value = rational_value(constant)
    if exact_value is not None:
        return numbers_agree(decimal, Num(exact_value))
    if decimal.significant_digits < MIN_DIGITS_OTHER:
        return False
    value = _real_value(constant, budget)
    return value is not None and matches_written_digits(decimal, value, is_exact=False)


def within_tolerance(gold: Num, answer: Node, relative_tolerance: Fraction, budget: Budget) -> bool:
    """Whether a constant ``answer`` is close to ``gold``; see ``is_close_to_gold``."""
    if isinstance(answer, Num):
        return is_close_to_gold(answer.value, gold, relative_tolerance)
    value = _real_value(answer, budget)
    return value is not None and is_close_to_gold(value, gold, relative_tolerance)


def _real_value(node: Node, budget: Budget) -> Fraction | None:
    """Return a real constant as a fraction with 60 correct digits; None if it is not real."""
    constant = None if free_symbols(node) else _constant_value(node)
    if constant is None:
        return None
    mp = mpmath_context()
    if mp.im(constant.value) != 0:
        return None
    budget.spend(constant.cost)
    real_part = mp.re(constant.value)
    mantissa, exponent = real_part.man_exp  # the mantissa has no sign
    if abs(exponent) >= _MAX_BINARY_EXPONENT:
        return Fraction(0)
    return int(mp.sign(real_part)) * Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


class ConstantValue(NamedTuple):
    """Value of an expression without symbols.

    Attributes:
        value: The value, in 60 digits.
        scale: The largest term of all sums in the expression.
        has_lost_term: Whether a term of a sum was too small for the digits of the sum.
        cost: The operations that the evaluation took.
    """

    value: MpNumber
    scale: MpNumber
    has_lost_term: bool
    cost: int


@lru_cache(maxsize=2_048)
def _constant_value(node: Node) -> ConstantValue | None:
    """Evaluate an expression without symbols; return None if it has no value."""
    budget = Budget(_MAX_CONSTANT_OPERATIONS)
    for allow_complex in (has_imaginary_unit(node), True):
        evaluator = Evaluator(0, budget, allow_complex=allow_complex)
        try:
            value = evaluator.value(node)
        except UndefinedValueError:
            continue
        cost = _MAX_CONSTANT_OPERATIONS - budget.left
        return ConstantValue(value, evaluator.scale, evaluator.has_lost_term, cost)
    return None


def _compare_by_digits(left: Node, right: Node, budget: Budget) -> bool:
    """Compare in 60 digits: on the real line first, then in the complex plane."""
    if not free_symbols(left) and not free_symbols(right):
        return _compare_constants(left, right, budget)
    is_complex = has_imaginary_unit(left) or has_imaginary_unit(right)
    for allow_complex in (is_complex, True):
        are_equal = _compare_at_points(left, right, budget, allow_complex=allow_complex)
        if are_equal is not None:
            return are_equal
    return False


def _compare_at_points(
    left: Node, right: Node, budget: Budget, *, allow_complex: bool
) -> bool | None:
    """Compare at fixed points; return None if both are defined at too few of them."""
    if has_steps(left, right) and (indexed_names(left) or indexed_names(right)):
        budget.unread = "the terms of a sequence"  # no point shows where ⌊a_k / 3⌋ changes
        return False
    if has_steps(left, right):
        is_equal_in_window = compare_in_window(left, right, budget)
        if is_equal_in_window is not None:
            return is_equal_in_window
    agreeing_points = 0
    points = POINTS[:_COMPLEX_POINTS] if allow_complex else POINTS
    values = _values_at_points(left, right, budget, allow_complex=allow_complex, points=points)
    for left_value, right_value, scale in values:
        if not nearly_equal(left_value, right_value, scale):
            return False
        agreeing_points += 1
        # An absolute value may show only where symbols are negative, so it needs all points.
        if agreeing_points == EARLY_STOP_POINTS + 1 and not has_absolute_value(left, right):
            break
    return True if agreeing_points >= MIN_COMPARED_POINTS else None


def compare_in_window(left: Node, right: Node, budget: Budget) -> bool | None:
    """Compare two expressions with steps, such as floors, on a window of each symbol.

    The window has whole numbers and half-integers, and the numbers near all constants. If all
    symbols are names of integers, the expressions are equal if they agree on whole numbers.

    Returns:
        False if they differ in the window, or if it cannot tell; ``budget.unread`` then says why.
        True if they agree on all whole numbers of integer symbols. None if the window does not
        decide.
    """
    names = sorted(free_symbols(left) | free_symbols(right))
    if not 0 < len(names) <= _MAX_WINDOW_SYMBOLS:
        return None
    are_integers = INTEGER_NAMES.issuperset(names)
    numbers = window(
        breakpoints(constant_sizes(left) | constant_sizes(right)), are_integers=are_integers
    )
    window_budget = Budget(_WINDOW_OPERATIONS)
    try:
        n_compared = 0
        for values in _window_values(names, numbers, are_integers=are_integers):
            are_equal = _agree_at(left, right, values, window_budget)
            if are_equal is False:
                return False
            n_compared += bool(are_equal)
        if not are_integers or n_compared < _MIN_WINDOW_POINTS:
            return None
        # A natural number is the usual meaning of n; other letters may be negative.
        for name in set(names) - {"n"}:
            for number in (Fraction(0), *(-number for number in numbers)):
                if _agree_at(left, right, {name: Num(number)}, window_budget) is False:
                    budget.unread = f"the sign of {name}"
                    return False
    except BudgetExceededError:
        budget.unread = "a function with steps at many numbers"
        return False
    return True


def _window_values(
    names: Sequence[str], numbers: Sequence[Fraction], *, are_integers: bool
) -> Iterator[dict[str, Node]]:
    """Yield values of symbols: of each symbol alone, and of two integer symbols together."""
    for name in names:
        for number in numbers:
            yield {name: Num(number)}
    if are_integers and len(names) > 1:
        for values in product(numbers[:_MAX_GRID_NUMBERS], repeat=len(names)):
            yield dict(zip(names, map(Num, values), strict=True))


def _agree_at(left: Node, right: Node, values: Mapping[str, Node], budget: Budget) -> bool | None:
    """Whether two expressions agree where symbols have these values; None if not defined there."""
    left_side = substitute(left, values)
    right_side = substitute(right, values)
    names = free_symbols(left) | free_symbols(right)
    are_equal = None
    for left_value, right_value, scale in _values_at_points(
        left_side, right_side, budget, points=POINTS[:1], integer_names=frozenset(names)
    ):
        if not nearly_equal(left_value, right_value, scale):
            return False
        are_equal = True
    return are_equal


def constant_sizes(node: Node) -> frozenset[Fraction]:
    """Return the sizes of the largest parts without symbols, such as ``10^6`` in ``x - 10^6``."""
    if any(isinstance(part, Sym) for part in walk(node)):  # bound ones, too
        return frozenset().union(*map(constant_sizes, children(node)))
    value = rational_value(node)
    if value is None:
        constant = _constant_value(node)
        mp = mpmath_context()
        is_real = constant is not None and mp.im(constant.value) == 0
        size = mp.fabs(constant.value) if constant is not None and is_real else mp.inf
        value = Fraction(int(mp.nint(size))) if size < _MAX_CONSTANT_SIZE else None
    return frozenset((abs(value),)) if value else frozenset()


def _values_at_points(
    left: Node,
    right: Node,
    budget: Budget,
    *,
    allow_complex: bool = False,
    points: Sequence[int] = POINTS,
    integer_names: frozenset[str] = frozenset(),
) -> Iterator[tuple[MpNumber, MpNumber, MpNumber]]:
    """Yield both values and the scale of their terms, at the points where both are defined."""
    integer_names |= integer_symbols(left) | integer_symbols(right)
    new_evaluator = partial(
        Evaluator, budget=budget, allow_complex=allow_complex, integer_symbols=integer_names
    )
    for point in points:
        left_evaluator = new_evaluator(point)
        right_evaluator = new_evaluator(point)
        with suppress(UndefinedValueError, NumberTooLargeError):
            left_value = left_evaluator.value(left)
            right_value = right_evaluator.value(right)
            yield left_value, right_value, max(left_evaluator.scale, right_evaluator.scale)


def nearly_equal(left: MpNumber, right: MpNumber, scale: MpNumber) -> bool:
    """Whether two values agree in all digits that rounding errors leave.

    ``scale`` is the largest term that went into the values: rounding errors are proportional to it.
    """
    difference = abs(left - right)
    if difference <= ten_to_minus(_RELATIVE_DIGITS) * max(abs(left), abs(right)):
        return True
    return bool(difference <= ten_to_minus(_CANCELLATION_DIGITS) * scale)


def _compare_constants(left: Node, right: Node, budget: Budget) -> bool:
    """Compare two constants; NumberTooLargeError only if both are too large."""
    constants: list[ConstantValue | None] = []
    for node in (left, right):
        with suppress(NumberTooLargeError):
            constants.append(_constant_value(node))
    if not constants:
        raise NumberTooLargeError("both sides")
    if len(constants) < 2 or constants[0] is None or constants[1] is None:
        return False
    first = constants[0]
    second = constants[1]
    budget.spend(first.cost + second.cost)
    if not nearly_equal(first.value, second.value, max(first.scale, second.scale)):
        return False
    if first.has_lost_term != second.has_lost_term:
        budget.unread = f"the digits of a value after the first {DIGITS}"  # 100000! + 1, 100000!
        return False
    return True


def has_constant_difference(left: Node, right: Node, budget: Budget) -> bool:
    """Whether ``left - right`` is the same at all points."""
    values = islice(_values_at_points(left, right, budget), EARLY_STOP_POINTS)
    differences = [
        (left_value - right_value, max(scale, 1)) for left_value, right_value, scale in values
    ]
    return len(differences) > MIN_COMPARED_POINTS and all(
        nearly_equal(difference, differences[0][0], scale) for difference, scale in differences
    )


def constant_ratio_sign(left: Node, right: Node, budget: Budget) -> int:
    """Return the sign of ``left / right`` if the ratio is the same constant everywhere, else 0.

    The sign is 2 if the ratio is not real. Two numbers always have a constant ratio, so for them
    the result is 1 if they are equal, else 0.
    """
    if not free_symbols(left) and not free_symbols(right):
        return int(are_equal_expressions(left, right, budget))
    if not _may_have_constant_ratio(left, right, budget):
        return 0
    return _ratio_sign_by_digits(left, right, budget)


def are_equal_solutions(difference: Node, explicit: Relation, budget: Budget) -> bool:
    """Whether ``difference = 0`` is linear in y and has the solution ``y = f(x)``.

    ``x y = C`` is ``y = C / x``. An equation that is not linear in y may have other solutions.
    """
    name, solution = explicit.parts
    if not isinstance(name, Sym) or not is_node(solution):
        return False
    # Another letter in the equation may be 0: "a x = a y" is not "x = y".
    if name.name in free_symbols(solution) or free_symbols(difference) != {
        name.name,
        *free_symbols(solution),
    }:
        return False
    sizes = [substitute(difference, {name.name: Num(Fraction(size))}) for size in (-2, 0, 2)]
    start, middle, end = sizes
    bend = add([start, multiply([Num(Fraction(-2)), middle]), end])
    slope = add([middle, negate(start)])
    zero = Num(Fraction(0))
    if are_equal_expressions(slope, zero, budget) or not are_equal_expressions(bend, zero, budget):
        return False
    return are_equal_expressions(substitute(difference, {name.name: solution}), zero, budget)


def has_parameter_ratio(left: Node, right: Node, budget: Budget) -> bool:
    """Whether ``left / right`` is a product of powers of parameters, such as ``L C``.

    The parameters must occur on both sides: ``a x = a y`` is not the answer ``x = y``. Doubling one
    parameter multiplies such a ratio by a power of two, which gives its exponent.
    """
    names = sorted(free_symbols(left) | free_symbols(right))
    shared_names = free_symbols(left) & free_symbols(right)
    parameters = [name for name in names if name[0] not in _UNKNOWNS and "'" not in name]
    if not 0 < len(parameters) <= MAX_PARAMETERS:
        return False
    ratios = _ratios(left, right, budget, allow_complex=False)
    # A left side of 0, as of 0.9 × 40 = 36, has no ratio.
    if not ratios or ratios[0] == 0:
        return False
    powers: list[Node] = []
    for name in parameters:
        doubled = {name: multiply([Num(Fraction(2)), Sym(name)])}
        new_left = substitute(left, doubled)
        new_right = substitute(right, doubled)
        new_ratios = _ratios(new_left, new_right, budget, allow_complex=False)
        exponent = _log_two(new_ratios[0] / ratios[0]) if new_ratios else None
        if exponent is None or (exponent and name not in shared_names):
            return False
        powers.append(Pow(Sym(name), Num(Fraction(exponent))))
    return constant_ratio_sign(left, multiply([right, *powers]), budget) != 0


def _log_two(ratio: MpNumber) -> int | None:
    """Return k if ``ratio`` is the k-th power of two and k is small, else None."""
    mp = mpmath_context()
    if mp.im(ratio) != 0 or mp.re(ratio) <= 0:
        return None
    exponent = int(mp.nint(mp.log(mp.re(ratio), 2)))
    is_power = abs(ratio - mp.mpf(2) ** exponent) < ten_to_minus(_RATIO_DIGITS) * abs(ratio)
    return exponent if is_power and abs(exponent) <= MAX_PARAMETER_POWER else None


def _may_have_constant_ratio(left: Node, right: Node, budget: Budget) -> bool:
    """Return False if the ratios of residues at two points differ: a cheap refusal."""
    prime = PRIMES[0]
    ratios = []
    for point in (0, 1):
        left_evaluator = ResidueEvaluator(prime, point, budget)
        right_evaluator = ResidueEvaluator(prime, point, budget)
        try:
            top = left_evaluator.value(left)
            bottom = right_evaluator.value(right)
        except (UndefinedValueError, NumberTooLargeError):
            return True
        if not (left_evaluator.is_exact and right_evaluator.is_exact) or not bottom:
            return True
        ratios.append(top * pow(bottom, -1, prime) % prime)
    return ratios[0] == ratios[1]


def _ratio_sign_by_digits(left: Node, right: Node, budget: Budget) -> int:
    """Return the sign of ``left / right`` as :func:`constant_ratio_sign` does, by 60 digits."""
    mp = mpmath_context()
    is_complex = has_imaginary_unit(left) or has_imaginary_unit(right)
    ratios = _ratios(left, right, budget, allow_complex=is_complex)
    # Expressions such as √sin x + √x are real at too few of the points.
    if len(ratios) < MIN_COMPARED_POINTS:
        ratios = _ratios(left, right, budget, allow_complex=True)
    if len(ratios) < MIN_COMPARED_POINTS or ratios[0] == 0:
        return 0
    max_difference = ten_to_minus(_RATIO_DIGITS) * abs(ratios[0])
    if any(abs(ratio - ratios[0]) > max_difference for ratio in ratios):
        return 0
    if mp.im(ratios[0]) != 0:
        return 2
    return 1 if mp.re(ratios[0]) > 0 else -1


def _ratios(left: Node, right: Node, budget: Budget, *, allow_complex: bool) -> list[MpNumber]:
    """Return ``left / right`` at the first points where both are defined."""
    values = _values_at_points(left, right, budget, allow_complex=allow_complex)
    ratios = (top / bottom for top, bottom, _ in values if bottom != 0)
    n_points = len(POINTS) if has_absolute_value(left, right) else EARLY_STOP_POINTS
    return list(islice(ratios, n_points))
