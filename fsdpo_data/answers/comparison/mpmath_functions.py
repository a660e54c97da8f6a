"""Numbers and functions of mpmath in 60 digits."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, TypeAlias

DIGITS = 60  #: Decimal digits of every number.

#: A real or complex number of mpmath (``mpf`` or ``mpc``), which has no type annotations.
MpNumber: TypeAlias = Any


@cache
def mpmath_context() -> Any:
    """Return a private mpmath context with 60 digits; mpmath's global context stays unchanged."""
    from mpmath import MPContext  # type: ignore[import-untyped]

    mp = MPContext()
    mp.dps = DIGITS
    return mp


@cache
def ten_to_minus(digits: int) -> MpNumber:
    """Return ten to the power of ``-digits``.

    The cache matters: a power in 60 digits costs more than the comparison that needs it.
    """
    return mpmath_context().mpf(10) ** -digits


@lru_cache(maxsize=8_192)
def rational_number(value: Fraction) -> MpNumber:
    """Return a rational number in 60 digits; numbers are cached, because answers repeat them."""
    return mpmath_context().mpf(value.numerator) / value.denominator


@cache
def mpmath_functions() -> dict[str, Callable[[MpNumber], MpNumber]]:
    """Return the functions of one argument that mpmath computes, by name."""
    mp = mpmath_context()
    return {
        "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
        "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
        "sech": mp.sech, "csch": mp.csch, "asech": mp.asech, "acsch": mp.acsch,
        "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
        "acot": mp.acot, "asec": mp.asec, "acsc": mp.acsc,
        "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh, "acoth": mp.acoth,
        "factorial": mp.factorial, "factorial2": mp.fac2,
        "Gamma": mp.gamma, "zeta": mp.zeta, "floor": mp.floor, "ceil": mp.ceil,
    }  # fmt: skip
