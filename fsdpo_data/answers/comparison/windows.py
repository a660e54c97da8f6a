"""Numbers at which functions with steps, kinks or cases are compared.

They lie around every number at which a floor, an absolute value or a case may begin: a constant of
one of the sides, a combination of two constants, or a root of one.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations
from math import isqrt

#: Names of whole numbers.
INTEGER_NAMES = frozenset("knm")
_MAX_INTEGER = 20  #: Largest whole number of a window without constants.
_MAX_COMBINED = 4  #: Most constants that are combined with each other.
_MAX_FURTHER = 12  #: Most further constants, the largest ones.
#: Distances of the numbers around a breakpoint.
DISTANCES = (Fraction(-1, 3), Fraction(0), Fraction(1, 3))


def window(centers: Iterable[Fraction], *, are_integers: bool) -> list[Fraction]:
    """Return numbers around 0 and around the centers, and some far from all of them.

    With ``are_integers``, they are positive whole numbers.
    """
    centers = list(centers)
    far = 10 * max(map(abs, centers), default=Fraction(1))
    if are_integers:
        near = {int(center) + distance for center in centers for distance in (-1, 0, 1, 2)}
        integers = [*range(1, _MAX_INTEGER + 1), *sorted(near), int(far)]
        return [Fraction(number) for number in dict.fromkeys(integers) if number > 0]
    numbers = [Fraction(half, 2) for half in range(-6, 10)]
    numbers += [
        sign * center + distance for center in centers for sign in (1, -1) for distance in DISTANCES
    ]
    return list(dict.fromkeys([*numbers, far, -far]))


def breakpoints(constants: Iterable[Fraction]) -> list[Fraction]:
    """Return the constants of expressions, and what two of the smallest ones give.

    These are sums, products, quotients, and roots.
    """
    sizes = sorted({abs(constant) for constant in constants} - {Fraction(0)})
    smallest = sizes[:_MAX_COMBINED]
    centers = [*smallest]
    centers += [2 * constant for constant in smallest]
    centers += [Fraction(isqrt(int(constant))) for constant in smallest if constant > 1]
    for left, right in combinations(smallest, 2):
        centers += [left * right, left / right, right / left, left + right, right - left]
    return list(dict.fromkeys([*centers, *sizes[-_MAX_FURTHER:]]))
