"""Evaluation in 60 digits: roots, powers, logarithms, trigonometry at fixed points."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache, reduce
from hashlib import blake2b
from operator import add, mul
from typing import Any, TypeAlias

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.modular import UndefinedValueError
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
    Value,
    walk,
)

DIGITS = 60
#: Operators with a bound variable; most terms of a sum, and pieces of an integral, that are added.
LISTED = frozenset(("sum", "prod"))
OPERATORS = LISTED | {"int", "lim"}
TERMS, SLICES = 200, 24
MAX_LOG = 10**15  #: Largest logarithm of a power that is evaluated.
MAX_ARGUMENT = 10**12  #: Largest argument of a trigonometric function or a factorial.
COST = 8  #: What one operation in 60 digits costs, in operations modulo a prime.

Real: TypeAlias = Any  # mpmath's mpf and mpc carry no types


@cache
def context() -> Any:
    """Return mpmath's arithmetic in 60 digits, apart from its global one."""
    from mpmath import MPContext  # type: ignore[import-untyped]

    arithmetic = MPContext()
    arithmetic.dps = DIGITS
    return arithmetic


@cache
def tenth(places: int) -> Real:
    """Return ten to the power of ``-places``: a power in 60 digits costs more than a comparison."""
    return context().mpf(10) ** -places


class Evaluator:
    """Evaluates trees at one point.

    Args:
        point: Which of the fixed points the symbols take.
        budget: Counts operations.
        complex_plane: Whether roots and logarithms of negative numbers have values.
        counters: Names that stand for whole numbers, such as the last index of a sum.
        rough: Whether limits, integrals and endless sums have values, good to some percent.

    Attributes:
        scale: The largest term of any sum so far; what cancelled is known to this scale only.
    """

    def __init__(
        self,
        point: int,
        budget: Budget,
        complex_plane: bool = False,
        counters: frozenset[str] = frozenset(),
        rough: bool = False,
    ) -> None:
        self.point, self.budget, self.complex_plane = point, budget, complex_plane
        self.rough = rough
        self.mp = context()
        self.scale: Real = 0
        self._bound = {name: self.mp.mpf(1 + (ord(name[0]) + point) % 7) for name in counters}

    def value(self, node: Node) -> Real:
        """Return the value of ``node``.

        Raises:
            Undefined: It has none at this point.
            NumberTooLargeError: A power, factorial or argument is out of bounds.
            BudgetExceededError: Too many operations.
        """
        self.budget.spend(COST)
        match node:
            case Num():
                whole = node.value.denominator == 1
                return self.mp.mpf(node.value.numerator) if whole else _rational(node.value)
            case Add():
                terms = [self.value(term) for term in node.terms]
                self.scale = max(self.scale, *(abs(term) for term in terms))
                return reduce(add, terms)
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
                bound = self._bound.get(node.name)
                return _symbol(node.name, self.point) if bound is None else bound
            case Const("i"):
                return self.mp.mpc(0, 1)
            case Const("inf"):
                raise UndefinedValueError("infinity")
            case Const():
                return +(self.mp.pi if node.name == "pi" else self.mp.e)
            case Call():
                return self._call(node)
            case PlusMinus():
                raise UndefinedValueError("two values")

    def power(self, base: Real, exponent: Real) -> Real:
        """Return ``base`` to ``exponent``; odd roots of negative numbers are real."""
        mp = self.mp
        if base == 0:
            if mp.re(exponent) <= 0:
                raise UndefinedValueError("power of zero")
            return mp.mpf(0)
        # The binary exponent bounds the logarithm, which costs more than most powers.
        if abs(exponent) * (abs(mp.mag(base)) + 2) > MAX_LOG and (
            abs(exponent) * (abs(mp.log(abs(base))) + 1) > MAX_LOG
        ):
            raise NumberTooLargeError("power")
        if mp.im(exponent) == 0 and mp.isint(mp.re(exponent)):
            return base ** int(mp.re(exponent))
        negative = mp.im(base) == 0 and mp.re(base) < 0
        if negative and not self.complex_plane:
            return self._odd_root(base, exponent)
        return mp.power(base, exponent)

    def _odd_root(self, base: Real, exponent: Real) -> Real:
        """Return a negative number to a power with a small odd denominator."""
        if self.mp.im(exponent) != 0:
            raise UndefinedValueError("complex power of a negative number")
        base, exponent = self.mp.re(base), self.mp.re(exponent)
        for denominator in (3, 5, 7, 9, 11):
            top = exponent * denominator
            nearest = self.mp.nint(top)
            if abs(top - nearest) < tenth(DIGITS - 5) * max(1, abs(top)):
                root = -(self.mp.root(-base, denominator))
                return root ** int(nearest)
        raise UndefinedValueError("power of a negative number")

    def _call(self, node: Call) -> Real:
        if node.name in OPERATORS and (found := self._operator(node)) is not None:
            return found
        args = [self.value(arg) for arg in node.args]
        if node.name in _FUNCTIONS:
            return _FUNCTIONS[node.name](self, *args)
        if node.name in _library():
            return self._library_call(node.name, args)
        return _symbol(f"{node.name} {[self.mp.nstr(arg, 40) for arg in args]}", 0)

    def _operator(self, node: Call) -> Real | None:
        """Return the value of a sum, product, limit or integral; None if it cannot be told."""
        ends = node.args[1:-1]
        if len(ends) != (1 if node.name == "lim" else 2) or not isinstance(node.args[0], Sym):
            return None
        endless = ends[-1] == Const("inf")
        low = self.mp.mpf(1) if node.name == "lim" else self.value(ends[0])
        high = low + TERMS if endless else self.value(ends[-1])
        whole = self.mp.isint(low) and self.mp.isint(high)
        if self.mp.im(low) != 0 or self.mp.im(high) != 0:
            return None
        if node.name in LISTED and whole and -2 < high - low <= TERMS:
            if endless and not self.rough:
                return None
            terms: list[Real] = []
            for step in range(int(high - low) + 1):
                terms.append(self._at(node, low + step))
                looks = endless and node.name == "sum" and step % 16 == 15
                if looks and max(map(abs, terms[-4:])) < abs(self.mp.fsum(terms)) / 10**4:
                    break  # what follows adds next to nothing
            return self.mp.fsum(terms) if node.name == "sum" else self.mp.fprod(terms)
        if not self.rough or (endless and node.name == "int"):
            return None
        if node.name == "lim":
            return self._at(node, self.mp.mpf(10) ** 4 if endless else high + self.mp.mpf(10) ** -4)
        width = (high - low) / SLICES
        return width * self.mp.fsum(
            self._at(node, low + width * (step + self.mp.mpf(1) / 2)) for step in range(SLICES)
        )

    def _at(self, node: Call, place: Real) -> Real:
        """Return the value of what an operator is applied to, with its variable at a place."""
        name = node.args[0].name  # type: ignore[union-attr]
        self._bound[name] = place
        value = self.value(node.args[-1])
        del self._bound[name]
        return value

    def _library_call(self, name: str, args: list[Real]) -> Real:
        if len(args) != 1:
            raise UndefinedValueError("arguments")
        if abs(args[0]) > MAX_ARGUMENT:
            raise NumberTooLargeError("argument")
        try:
            result = _library()[name](args[0])
        except (ZeroDivisionError, ValueError):
            raise UndefinedValueError(name) from None
        if not self.mp.isfinite(result):
            raise UndefinedValueError(name)
        left_the_line = self.mp.im(result) != 0 and self.mp.im(args[0]) == 0
        if left_the_line and not self.complex_plane:
            raise UndefinedValueError(name)
        return result

    def root(self, base: Real, degree: Real) -> Real:
        """Return the real root where there is one."""
        mp = self.mp
        if degree == 0 or mp.im(degree) != 0 or not mp.isint(mp.re(degree)):
            return self.power(base, 1 / degree) if degree != 0 else _raise_undefined()
        n = int(mp.re(degree))
        if mp.im(base) == 0 and mp.re(base) < 0:
            if n % 2:
                return -mp.root(-base, n)
            if not self.complex_plane:
                raise UndefinedValueError("even root of a negative number")
        if not 0 < n <= 1_000:
            return self.power(base, 1 / degree)
        return mp.root(base, n) if base != 0 else mp.mpf(0)

    def log(self, argument: Real, base: Real | None = None) -> Real:
        """Return the logarithm; without a base, the natural one."""
        if argument == 0 or (not self.complex_plane and self.mp.re(argument) < 0):
            raise UndefinedValueError("logarithm")
        result = self.mp.log(argument)
        if base is None:
            return result
        below = self.log(base)
        return result / below if below != 0 else _raise_undefined()


def _raise_undefined() -> Real:
    raise UndefinedValueError("no value")


@cache
def _library() -> dict[str, Callable[[Real], Real]]:
    """Return the functions of one argument that mpmath has."""
    mp = context()
    return {
        "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
        "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
        "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
        "acot": mp.acot, "asec": mp.asec, "acsc": mp.acsc,
        "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh, "acoth": mp.acoth,
        "factorial": mp.factorial, "factorial2": mp.fac2, "floor": mp.floor, "ceil": mp.ceil,
    }  # fmt: skip


def _binomial(evaluator: Evaluator, n: Real, k: Real) -> Real:
    if max(abs(n), abs(k)) > MAX_ARGUMENT:
        raise NumberTooLargeError("binomial")
    try:
        result = evaluator.mp.binomial(n, k)
    except (ZeroDivisionError, ValueError):
        raise UndefinedValueError("binomial") from None
    return result if evaluator.mp.isfinite(result) else _raise_undefined()


def _real_part(choose: Callable[..., Real]) -> Callable[..., Real]:
    def call(evaluator: Evaluator, *args: Real) -> Real:
        if any(evaluator.mp.im(arg) != 0 for arg in args):
            raise UndefinedValueError("order of complex numbers")
        return choose([evaluator.mp.re(arg) for arg in args])

    return call


_FUNCTIONS: dict[str, Callable[..., Real]] = {
    "root": Evaluator.root,
    "ln": Evaluator.log,
    "log": lambda e, x, base=None: e.log(x, e.mp.mpf(10) if base is None else base),
    "lg": lambda e, x: e.log(x, e.mp.mpf(10)),
    "abs": lambda e, x: abs(x),
    "deg": lambda e, x: x * e.mp.pi / 180,
    "ordinal": lambda e, x: x,
    "binom": _binomial,
    "perm": lambda e, n, k: _binomial(e, n, k) * e.mp.factorial(k),
    "max": _real_part(max),
    "min": _real_part(min),
    "sgn": lambda e, x: e.mp.sign(x),
}


def is_unknown(name: str) -> bool:
    """Whether ``name`` is no function that can be evaluated."""
    return name not in _FUNCTIONS and name not in _library()


@lru_cache(maxsize=8_192)
def _rational(value: Fraction) -> Real:
    return context().mpf(value.numerator) / value.denominator


#: Points at which symbols may be negative; at the others all are positive.
_SIGNED = frozenset((1, 3, 6))
ORDERED = -1  #: The point at which symbols are positive and grow in alphabetic order.
#: Where the points lie that are not in (0.2, 2.5).
_RANGES = {2: (0.05, 0.9), 5: (0.05, 0.9), 3: (3, 40), 7: (3, 40)}


@lru_cache(maxsize=8_192)
def _symbol(name: str, point: int) -> Real:
    """Return the value of a symbol: up to 2.5, below 1 or signed at some points."""
    if point == ORDERED:
        return context().mpf(sum(map(ord, name))) / 37
    digest = blake2b(f"{name} {point}".encode("utf-8", "replace"), digest_size=9).digest()
    mp = context()
    value = mp.mpf(int.from_bytes(digest[:8])) / 2**64
    low, width = _RANGES.get(point, (0.2, 2.3))
    value = value * width + low
    # What is not negative at 3 is at 1, so that signs show.
    negative = _symbol(name, 3) > 0 if point == 1 else digest[8] % 2
    return -value if point in _SIGNED and negative else value


def counters(node: Node) -> frozenset[str]:
    """Return the symbols that stand for whole numbers: those in the ends of sums and products."""
    listed = (each for each in walk(node) if isinstance(each, Call) and each.name in LISTED)
    return frozenset().union(*(symbols(end) for call in listed for end in call.args[1:-1]))


def has_imaginary(node: Node) -> bool:
    """Whether ``i`` occurs in ``node``."""
    return any(type(part) is Const and part.name == "i" for part in walk(node))


def has_bars(*nodes: Node) -> bool:
    """Whether a part of ``nodes`` stands in bars."""
    parts = (part for node in nodes for part in walk(node))
    return any(isinstance(part, Call) and part.name == "abs" for part in parts)


def symbols(value: Value) -> frozenset[str]:
    """Return the names of all symbols in ``value`` that no operator binds."""
    return frozenset([x.name for x in walk(value) if type(x) is Sym and x.name[:1] != "#"])
