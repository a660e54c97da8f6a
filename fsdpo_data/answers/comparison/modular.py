"""Evaluation modulo two large primes: exact for rational functions, whatever their size.

Symbols, ``e`` and ``pi`` get fixed pseudo-random residues, ``i`` a root of -1. A root, a logarithm
or a sine of something gets a residue made from the residues of its arguments, so two trees that
agree here agree as expressions in those; that they differ here says nothing about them
(``Residue.exact`` is False).
"""

from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import factorial, prod

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.tree import Add, Call, Const, Div, Mul, Node, Num, PlusMinus, Pow, Sym

#: Primes that are 1 modulo 4, so that -1 has a square root.
PRIMES = (2305843009213693921, 2305843009213693693)
#: Longest product that a factorial or a binomial coefficient is multiplied out to.
MAX_FACTORS = 20_000
MAX_FACTORIAL = 1_000  #: Largest factorial that is written out as an exponent.
MAX_PARTS = 50  #: Most terms or factors of a number that is worked out.
MAX_EXPONENT_BITS = 20_000  #: Largest exponent, in bits.


class UndefinedValueError(ArithmeticError):
    """The expression has no value at this point."""


class Residues:
    """Evaluates trees modulo one prime, with symbols at one of the fixed points.

    Attributes:
        exact: Whether everything so far was a rational function.
    """

    def __init__(self, prime: int, point: int, budget: Budget) -> None:
        self.prime, self.point, self.budget = prime, point, budget
        self.exact = True

    def value(self, node: Node) -> int:
        """Return the residue of ``node``.

        Raises:
            Undefined: A denominator vanishes.
            NumberTooLargeError: An exponent or a factorial is out of bounds.
            BudgetExceededError: Too many operations.
        """
        self.budget.spend(1)
        match node:
            case Num():
                top, bottom = node.value.numerator, node.value.denominator
                return (top if bottom == 1 else top * self._inverse(bottom)) % self.prime
            case Add():
                return sum(map(self.value, node.terms)) % self.prime
            case Mul():
                result = 1
                for factor in node.factors:
                    result = result * self.value(factor) % self.prime
                return result
            case Div():
                return self.value(node.top) * self._inverse(self.value(node.bottom)) % self.prime
            case Pow():
                return self._power(node)
            case Sym():
                return _residue(f"{node.name} {self.point}", self.prime)
            case Const("i"):
                return _root_of_minus_one(self.prime)
            case Const():
                return _residue(f"constant {node.name}", self.prime)
            case Call():
                return self._call(node)
            case PlusMinus():
                raise UndefinedValueError("two values")

    def _inverse(self, residue: int) -> int:
        if residue % self.prime == 0:
            raise UndefinedValueError("division by zero")
        return pow(residue, -1, self.prime)

    def _power(self, node: Pow) -> int:
        exponent = integer_value(node.exponent)
        if exponent is None:
            return self._opaque("^", self.value(node.base), self.value(node.exponent))
        base = self.value(node.base)
        if exponent < 0:
            return pow(self._inverse(base), -exponent, self.prime)
        return pow(base, exponent, self.prime)

    def _call(self, node: Call) -> int:
        if node.name == "deg":
            degree = self.value(Const("pi")) * self._inverse(180)
            return self.value(node.args[0]) * degree % self.prime
        if node.name in ("factorial", "binom", "perm"):
            counts = [integer_value(arg) for arg in node.args]
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):
                return self._combinatorial(node.name, known)
        return self._opaque(node.name, *map(self.value, node.args))

    def _combinatorial(self, name: str, counts: list[int]) -> int:
        n = counts[0]
        if n < 0:
            raise UndefinedValueError("negative count")
        if name == "factorial":
            return _product(1, n, self.prime, self.budget)
        k = counts[1]
        if not 0 <= k <= n:
            return 0
        if name == "binom":
            k = min(k, n - k)
        top = _product(n - k + 1, n, self.prime, self.budget)
        if name == "perm":
            return top
        return top * self._inverse(_product(1, k, self.prime, self.budget)) % self.prime

    def _opaque(self, name: str, *residues: int) -> int:
        self.exact = False
        return _residue(f"{name} {residues}", self.prime)


def integer_value(node: Node) -> int | None:
    """Return the integer that a constant ``node`` is; NumberTooLargeError if it is out of bounds."""
    match node:
        case Num() if node.value.denominator == 1:
            return int(node.value)
        case Mul():
            factors = [integer_value(factor) for factor in node.factors]
            known = [factor for factor in factors if factor is not None]
            return prod(known) if len(known) == len(factors) else None
        case Pow():
            base, exponent = integer_value(node.base), integer_value(node.exponent)
            if base is None or exponent is None or exponent < 0:
                return None
            if abs(base) > 1 and base.bit_length() * exponent > MAX_EXPONENT_BITS:
                raise NumberTooLargeError("exponent")
            return int(base**exponent)
        case Call("factorial", (inner,)):
            n = integer_value(inner)
            if n is not None and n > MAX_FACTORIAL:
                raise NumberTooLargeError("factorial")
            return None if n is None or n < 0 else factorial(n)
    return None


def rational_value(node: Node) -> Fraction | None:
    """Return the rational number that ``node`` is, if it can be written out shortly."""
    match node:
        case Num():
            return node.value
        case Add() | Mul():
            parts = node.terms if isinstance(node, Add) else node.factors
            values = [rational_value(part) for part in parts[:MAX_PARTS]]
            known = [value for value in values if value is not None]
            if len(known) < len(parts):
                return None
            whole = sum if isinstance(node, Add) else prod
            return whole(known, start=Fraction(isinstance(node, Mul)))
        case Div():
            top, bottom = rational_value(node.top), rational_value(node.bottom)
            return None if top is None or not bottom else top / bottom
        case Pow():
            base, exponent = rational_value(node.base), rational_value(node.exponent)
            if base and exponent is not None and exponent.denominator == 1 and abs(exponent) < 200:
                return base ** int(exponent)
    return None


def _product(first: int, last: int, prime: int, budget: Budget) -> int:
    if last - first > MAX_FACTORS:
        raise NumberTooLargeError("factorial")
    budget.spend(max(last - first, 0) // 16)
    result = 1
    for factor in range(first, last + 1):
        result = result * factor % prime
    return result


@lru_cache(maxsize=16_384)
def _residue(key: str, prime: int) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()) % prime


@lru_cache(maxsize=8)
def _root_of_minus_one(prime: int) -> int:
    base = 2
    while pow(base, (prime - 1) // 2, prime) == 1:
        base += 1
    return pow(base, (prime - 1) // 4, prime)
