"""Evaluation of expressions modulo two large primes, exact for rational functions.

The cost does not depend on the size of the numbers. Symbols, ``e`` and ``pi`` get fixed
pseudo-random residues; ``i`` gets a root of -1. A root, a logarithm or a sine gets a residue that
is a hash of the residues of its arguments. Equal residues show that two expressions are equal;
an error would need a collision modulo both primes. Different residues show a difference only
between rational functions (``ResidueEvaluator.is_exact``).
"""

from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.exact_values import integer_value
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
    add,
    negate,
    substitute,
)

#: Primes that are 1 modulo 4, so that -1 has a square root.
PRIMES = (2305843009213693921, 2305843009213693693)
#: Maximum number of factors of a factorial or a binomial coefficient.
MAX_FACTORS = 20_000


class UndefinedValueError(ArithmeticError):
    """The expression has no value at this point."""


class ResidueEvaluator:
    """Evaluator of expressions modulo one prime, with symbols at one fixed point.

    Args:
        prime: The modulus.
        point: Number of the point; it seeds the residues of the symbols.
        budget: Operations that the evaluation may take.

    Attributes:
        is_exact: Whether all expressions so far were rational functions.
    """

    def __init__(self, prime: int, point: int, budget: Budget) -> None:
        self.prime = prime
        self.point = point
        self.budget = budget
        self.is_exact = True

    def value(self, node: Node) -> int:
        """Return the residue of ``node``.

        Raises:
            UndefinedValueError: A denominator is zero, or the value has no residue (±).
            NumberTooLargeError: An exponent or a factorial is out of bounds.
            BudgetExceededError: The evaluation takes too many operations.
        """
        self.budget.spend(1)
        match node:
            case Num():
                top = node.value.numerator
                bottom = node.value.denominator
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
                return self._power_residue(node)
            case Sym():
                return _residue(f"{node.name} {self.point}", self.prime)
            case Const("i"):
                return _root_of_minus_one(self.prime)
            case Const():
                return _residue(f"constant {node.name}", self.prime)
            case Call():
                return self._call_residue(node)
            case PlusMinus():
                raise UndefinedValueError("two values")

    def _inverse(self, residue: int) -> int:
        if residue % self.prime == 0:
            raise UndefinedValueError("division by zero")
        return pow(residue, -1, self.prime)

    def _power_residue(self, node: Pow) -> int:
        exponent = integer_value(node.exponent)
        if exponent is None:
            return self._hashed_residue("^", (self.value(node.base), self.value(node.exponent)))
        base = self.value(node.base)
        if exponent < 0:
            return pow(self._inverse(base), -exponent, self.prime)
        return pow(base, exponent, self.prime)

    def _call_residue(self, node: Call) -> int:
        if node.name == "mod" and (remainder := integer_value(node)) is not None:
            return remainder % self.prime
        if node.name in ("factorial", "binom", "perm"):
            counts = [integer_value(arg) for arg in node.args]
            integers = [count for count in counts if count is not None]
            if len(integers) == len(counts):
                return self._combinatorial_residue(node.name, integers)
        args = _from_zero(node) if node.name in DISCRETE_OPERATORS else node.args
        return self._hashed_residue(node.name, tuple(map(self.value, args)))

    def _combinatorial_residue(self, name: str, counts: list[int]) -> int:
        """Return the residue of a factorial, a binomial coefficient or a k-permutation count."""
        n = counts[0]
        if n < 0:
            raise UndefinedValueError("negative count")
        if name == "factorial":
            return _range_product(1, n, self.prime, self.budget)
        k = counts[1]
        if not 0 <= k <= n:
            return 0
        if name == "binom":
            k = min(k, n - k)
        top = _range_product(n - k + 1, n, self.prime, self.budget)
        if name == "perm":
            return top
        return top * self._inverse(_range_product(1, k, self.prime, self.budget)) % self.prime

    def _hashed_residue(self, name: str, residues: tuple[int, ...]) -> int:
        """Return a residue for a function that has no value modulo a prime."""
        self.is_exact = False
        return _residue(f"{name} {residues}", self.prime)


def _from_zero(node: Call) -> tuple[Node, ...]:
    """Return the arguments of a sum or product whose index starts at 0."""
    if len(node.args) != 4:
        return node.args
    index, low, high, body = node.args
    if not isinstance(index, Sym):
        return node.args
    n_steps = high if high == Const("inf") else add([high, negate(low)])
    shifted = substitute(body, {index.name: add([index, low])})
    return index, Num(Fraction(0)), n_steps, shifted


def _range_product(first: int, last: int, prime: int, budget: Budget) -> int:
    """Return the product of the integers from ``first`` to ``last``, modulo ``prime``."""
    if last - first > MAX_FACTORS:
        raise NumberTooLargeError("factorial")
    # A multiplication modulo a prime costs a fraction of the evaluation of a node.
    budget.spend(max(last - first, 0) // 16)
    result = 1
    for factor in range(first, last + 1):
        result = result * factor % prime
    return result


@lru_cache(maxsize=16_384)
def _residue(key: str, prime: int) -> int:
    """Return a pseudo-random residue, which is a hash of ``key``."""
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()) % prime


@lru_cache(maxsize=8)
def _root_of_minus_one(prime: int) -> int:
    base = 2
    # If base is not a square modulo the prime, its ((prime - 1) / 4)-th power is a root of -1.
    while pow(base, (prime - 1) // 2, prime) == 1:
        base += 1
    return pow(base, (prime - 1) // 4, prime)
