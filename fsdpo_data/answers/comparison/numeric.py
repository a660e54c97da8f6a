"""Numeric evaluation of expressions with mpmath, in 60 digits and at fixed sample points.

Unlike values modulo a prime (:mod:`.modular`), these values also decide roots, powers, logarithms
and trigonometric functions.
"""

from collections.abc import Callable
from functools import reduce
from operator import add, mul

from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison.exact_values import integer_value
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.mpmath_functions import (
    DIGITS,
    MpNumber,
    mpmath_context,
    mpmath_functions,
    rational_number,
    ten_to_minus,
)
from fsdpo_data.answers.comparison.sample_points import symbol_value
from fsdpo_data.answers.comparison.symbols import DISCRETE_OPERATORS
from fsdpo_data.answers.tree import (
    Add,
    Call,
    Const,
    Div,
    Mul,
    Node,
    Num,
    PlusMinus,
    Pow,
    Sym,
    walk,
)

#: Largest size of all terms of a finite sum or product that is evaluated, in nodes.
MAX_FINITE_NODES = 5_000
MAX_LOG = 10**15  #: Largest logarithm of a power that is evaluated.
MAX_ARGUMENT = 10**12  #: Largest argument of a trigonometric function or a factorial.
_LARGE_SUM = 10**45  #: A sum with larger terms may lose the digits of small ones.
#: Budget that one operation in 60 digits costs; one operation modulo a prime costs 1.
OPERATION_COST = 8


class Evaluator:
    """Evaluator of expressions at one sample point, which gives every symbol a value.

    Args:
        point: Index of the sample point.
        budget: Budget that every operation is charged to.
        allow_complex: Whether roots and logarithms of negative numbers have (complex) values.
        integer_symbols: Symbols that get small integers, such as the last index of a sum.

    Attributes:
        scale: The largest absolute term of all sums so far. Cancellation leaves rounding errors
            in proportion to it.
        has_lost_term: Whether a term of a sum was too small for the digits of the sum.
    """

    def __init__(
        self,
        point: int,
        budget: Budget,
        *,
        allow_complex: bool = False,
        integer_symbols: frozenset[str] = frozenset(),
    ) -> None:
        self.point = point
        self.budget = budget
        self.allow_complex = allow_complex
        self.mp = mpmath_context()
        self.scale: MpNumber = 0
        self.has_lost_term = False
        #: Values of bound variables and of integer symbols, by name.
        self._bound_values = {
            name: self.mp.mpf(1 + (ord(name[0]) + point) % 7) for name in integer_symbols
        }

    def value(self, node: Node) -> MpNumber:
        """Return the value of ``node``.

        Raises:
            UndefinedValueError: The expression has no value at this point.
            NumberTooLargeError: A power, factorial or argument is out of bounds.
            BudgetExceededError: The evaluation takes too many operations.
        """
        self.budget.spend(OPERATION_COST)
        match node:
            case Num():
                number = node.value
                is_integer = number.denominator == 1
                return self.mp.mpf(number.numerator) if is_integer else rational_number(number)
            case Add():
                terms = [self.value(term) for term in node.terms]
                scale = self.scale
                for term in terms:
                    scale = max(scale, abs(term))
                self.scale = scale
                total = reduce(add, terms)
                if scale > _LARGE_SUM:
                    lost = abs(total) * ten_to_minus(DIGITS)
                    self.has_lost_term |= any(0 < abs(term) < lost for term in terms)
                return total
            case Mul():
                return reduce(mul, [self.value(factor) for factor in node.factors])
            case Div():
                bottom = self.value(node.bottom)
                if bottom == 0:
                    raise UndefinedValueError("division by zero")
                return self.value(node.top) / bottom
            case Pow():
                return self.power(self.value(node.base), self.value(node.exponent))
            case Sym():
                bound_value = self._bound_values.get(node.name)
                return symbol_value(node.name, self.point) if bound_value is None else bound_value
            case Const("i"):
                return self.mp.mpc(0, 1)
            case Const("inf"):
                raise UndefinedValueError("infinity")
            case Const():
                return +(self.mp.pi if node.name == "pi" else self.mp.e)
            case Call():
                return self._call_value(node)
            case PlusMinus():
                raise UndefinedValueError("two values")

    def power(self, base: MpNumber, exponent: MpNumber) -> MpNumber:
        """Return ``base`` to the power of ``exponent``; odd roots of negative numbers are real."""
        mp = self.mp
        if base == 0:
            if mp.re(exponent) <= 0:
                raise UndefinedValueError("power of zero")
            return mp.mpf(0)
        # The binary exponent is a cheap bound for the logarithm, which costs more than most powers.
        if abs(exponent) * (abs(mp.mag(base)) + 2) > MAX_LOG and (
            abs(exponent) * (abs(mp.log(abs(base))) + 1) > MAX_LOG
        ):
            raise NumberTooLargeError("power")
        if mp.im(exponent) == 0 and mp.isint(mp.re(exponent)):
            return base ** int(mp.re(exponent))
        is_negative = mp.im(base) == 0 and mp.re(base) < 0
        if is_negative and not self.allow_complex:
            return self._odd_root_power(base, exponent)
        return mp.power(base, exponent)

    def _odd_root_power(self, base: MpNumber, exponent: MpNumber) -> MpNumber:
        """Return a negative number to a power with a small odd denominator."""
        if self.mp.im(exponent) != 0:
            raise UndefinedValueError("complex power of a negative number")
        base = self.mp.re(base)
        exponent = self.mp.re(exponent)
        for denominator in (3, 5, 7, 9, 11):
            numerator = exponent * denominator
            nearest = self.mp.nint(numerator)
            if abs(numerator - nearest) < ten_to_minus(DIGITS - 5) * max(1, abs(numerator)):
                root = -(self.mp.root(-base, denominator))
                return root ** int(nearest)
        raise UndefinedValueError("power of a negative number")

    def _call_value(self, node: Call) -> MpNumber:
        if node.name in DISCRETE_OPERATORS:
            sum_or_product = self._sum_or_product(node)
            if sum_or_product is not None:
                return sum_or_product
        if node.name == "mod" and (remainder := integer_value(node)) is not None:
            return self.mp.mpf(remainder)
        args = [self.value(arg) for arg in node.args]
        if node.name in _FUNCTIONS:
            return _FUNCTIONS[node.name](self, *args)
        if node.name in mpmath_functions():
            return self._mpmath_value(node.name, args)
        # An unknown function gets a value that depends only on its name and its arguments.
        return symbol_value(f"{node.name} {[self.mp.nstr(arg, 40) for arg in args]}", 0)

    def _sum_or_product(self, node: Call) -> MpNumber | None:
        """Return the value of a finite sum or product; None for another one.

        Raises:
            BudgetExceededError: It has too many terms.
        """
        if len(node.args) != 4 or Const("inf") in node.args or not isinstance(node.args[0], Sym):
            return None
        low = self.value(node.args[1])
        high = self.value(node.args[2])
        if self.mp.im(low) != 0 or self.mp.im(high) != 0:
            return None
        low = self.mp.re(low)
        high = self.mp.re(high)
        if not (self.mp.isint(low) and self.mp.isint(high) and high - low > -2):
            return None
        n_terms = int(high - low) + 1
        if n_terms * len(walk(node.args[-1])) > MAX_FINITE_NODES:
            raise BudgetExceededError("a sum or product has too many terms to evaluate them")
        terms = [self._operand_value(node, low + step) for step in range(n_terms)]
        if node.name == "prod":
            return self.mp.fprod(terms)
        self.scale = max(self.scale, *map(abs, terms), 0)
        return self.mp.fsum(terms)

    def _operand_value(self, node: Call, variable_value: MpNumber) -> MpNumber:
        """Return the value of an operator's operand for one value of the bound variable."""
        name = node.args[0].name  # type: ignore[union-attr]
        outer_values = self._bound_values
        self._bound_values = outer_values | {name: variable_value}
        try:
            return self.value(node.args[-1])
        finally:
            self._bound_values = outer_values

    def _mpmath_value(self, name: str, args: list[MpNumber]) -> MpNumber:
        """Return the value of an mpmath function of one argument."""
        if len(args) != 1:
            raise UndefinedValueError("arguments")
        if abs(args[0]) > MAX_ARGUMENT:
            raise NumberTooLargeError("argument")
        try:
            result = mpmath_functions()[name](args[0])
        except (ZeroDivisionError, ValueError):
            raise UndefinedValueError(name) from None
        if not self.mp.isfinite(result):
            raise UndefinedValueError(name)
        if abs(args[0]) >= 1 and abs(result) <= ten_to_minus(DIGITS - 5) * abs(args[0]):
            return self.mp.mpf(0)  # the rounding error of sin(π) and cos(π/2)
        left_real_line = self.mp.im(result) != 0 and self.mp.im(args[0]) == 0
        if left_real_line and not self.allow_complex:
            raise UndefinedValueError(name)
        return result

    def root(self, base: MpNumber, degree: MpNumber) -> MpNumber:
        """Return the root of ``base``; the real root if ``base`` has one."""
        mp = self.mp
        if degree == 0 or mp.im(degree) != 0 or not mp.isint(mp.re(degree)):
            return self.power(base, 1 / degree) if degree != 0 else _raise_undefined()
        n = int(mp.re(degree))
        if mp.im(base) == 0 and mp.re(base) < 0:
            if n % 2:
                return -mp.root(-base, n)
            if not self.allow_complex:
                raise UndefinedValueError("even root of a negative number")
        if not 0 < n <= 1_000:
            return self.power(base, 1 / degree)
        return mp.root(base, n) if base != 0 else mp.mpf(0)

    def log(self, argument: MpNumber, base: MpNumber | None = None) -> MpNumber:
        """Return the logarithm of ``argument``; without a base, the natural logarithm."""
        if argument == 0 or (not self.allow_complex and self.mp.re(argument) < 0):
            raise UndefinedValueError("logarithm")
        result = self.mp.log(argument)
        if base is None:
            return result
        base_log = self.log(base)
        return result / base_log if base_log != 0 else _raise_undefined()


def _raise_undefined() -> MpNumber:
    raise UndefinedValueError("no value")


def _binomial(evaluator: Evaluator, n: MpNumber, k: MpNumber) -> MpNumber:
    if max(abs(n), abs(k)) > MAX_ARGUMENT:
        raise NumberTooLargeError("binomial")
    try:
        result = evaluator.mp.binomial(n, k)
    except (ZeroDivisionError, ValueError):
        raise UndefinedValueError("binomial") from None
    return result if evaluator.mp.isfinite(result) else _raise_undefined()


def _choose_real(choose: Callable[..., MpNumber]) -> Callable[..., MpNumber]:
    """Wrap ``min`` or ``max`` as a function of an evaluator and real arguments."""

    def call(evaluator: Evaluator, *args: MpNumber) -> MpNumber:
        """Choose one of the arguments; UndefinedValueError if one of them is complex."""
        if any(evaluator.mp.im(arg) != 0 for arg in args):
            raise UndefinedValueError("order of complex numbers")
        return choose([evaluator.mp.re(arg) for arg in args])

    return call


#: Functions of an evaluator and the values of the arguments, by name.
_FUNCTIONS: dict[str, Callable[..., MpNumber]] = {
    "root": Evaluator.root,
    "ln": Evaluator.log,
    "log": lambda e, x, base=None: e.log(x, e.mp.mpf(10) if base is None else base),
    "lg": lambda e, x: e.log(x, e.mp.mpf(10)),
    "abs": lambda e, x: abs(x),
    "deg": lambda e, x: x * e.mp.pi / 180,
    "ordinal": lambda e, x: x,  # "3rd" is 3
    "binom": _binomial,
    "perm": lambda e, n, k: _binomial(e, n, k) * e.mp.factorial(k),
    "max": _choose_real(max),
    "min": _choose_real(min),
    "sgn": lambda e, x: e.mp.sign(x),
}


def is_unknown_function(name: str) -> bool:
    """Whether a name has no function; operators such as ``sum`` count as unknown."""
    return name not in _FUNCTIONS and name not in mpmath_functions()
