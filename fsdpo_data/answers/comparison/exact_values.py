"""Exact values of constant expressions: integers, rationals and linear coefficients."""

from fractions import Fraction
from math import gcd, prod

from fsdpo_data.answers.budget import NumberTooLargeError
from fsdpo_data.answers.tree import Add, Call, Div, Mul, Node, Num, Pow, substitute

MAX_PARTS = 50  #: Most terms or factors for which ``rational_value`` returns a number.
MAX_EXPONENT_BITS = 20_000  #: Largest size of an integer power in an exponent, in bits.
MAX_RATIONAL_POWER = 200  #: Bound on the powers that ``rational_value`` computes, exclusive.


def integer_value(node: Node) -> int | None:
    """Return the value of a constant integer expression, or None.

    Raises:
        NumberTooLargeError: A power is out of bounds.
    """
    match node:
        case Num() if node.value.denominator == 1:
            return int(node.value)
        case Pow():
            base = integer_value(node.base)
            exponent = integer_value(node.exponent)
            if base is None or exponent is None or exponent < 0:
                return None
            if abs(base) > 1 and base.bit_length() * exponent > MAX_EXPONENT_BITS:
                raise NumberTooLargeError("exponent")
            return int(base**exponent)
        case Call("mod", (number, modulus)):
            return _remainder(number, integer_value(modulus))
    return None


def _remainder(number: Node, modulus: int | None) -> int | None:
    """Return a constant integer modulo another; a power may be larger than other integers.

    The power ``3^{-1}`` is the inverse modulo ``modulus``; None if there is none.
    """
    if modulus is None or modulus <= 0:
        return None
    if isinstance(number, Pow):
        base = integer_value(number.base)
        exponent = integer_value(number.exponent)
        if base is None or exponent is None or (exponent < 0 and gcd(base, modulus) != 1):
            return None
        return pow(base, exponent, modulus)
    value = integer_value(number)
    return None if value is None else value % modulus


def rational_value(node: Node) -> Fraction | None:
    """Return the value of a short constant rational expression, or None."""
    match node:
        case Num():
            return node.value
        case Add() | Mul():
            parts = node.terms if isinstance(node, Add) else node.factors
            values = [rational_value(part) for part in parts[:MAX_PARTS]]
            fractions = [value for value in values if value is not None]
            if len(fractions) < len(parts):
                return None
            if isinstance(node, Add):
                return sum(fractions, start=Fraction(0))
            return prod(fractions, start=Fraction(1))
        case Div():
            top = rational_value(node.top)
            bottom = rational_value(node.bottom)
            return None if top is None or not bottom else top / bottom
        case Pow():
            base = rational_value(node.base)
            exponent = rational_value(node.exponent)
            if not base or exponent is None or exponent.denominator != 1:
                return None
            if abs(exponent) < MAX_RATIONAL_POWER:
                return base ** int(exponent)
    return None


def linear_coefficients(node: Node, name: str) -> tuple[Fraction, Fraction] | None:
    """Return a and b if ``node`` is ``a + b x`` with a nonzero b, else None.

    The check uses only the values at 0, 1 and 2, where they must be rational.
    """
    values = [rational_value(substitute(node, {name: Num(Fraction(x))})) for x in (0, 1, 2)]
    intercept, middle, end = values
    if intercept is None or middle is None or end is None:
        return None
    slope = middle - intercept
    return (intercept, slope) if slope != 0 and end - middle == slope else None
