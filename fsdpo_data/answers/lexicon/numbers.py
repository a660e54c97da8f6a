r"""Plain numbers: their notation, and the decimals that are accepted for the value they round.

``read_number`` is the fast path before the parser. One regular expression recognises a plain
number: ``1,000``, ``-3.50``, ``7/9``, ``\frac{3}{4}`` or ``25\%``.
"""

import re
from fractions import Fraction

from fsdpo_data.answers.lexicon.units import DOLLAR, PERCENT
from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import MAX_POWER_OF_TEN, Num, Quantity

MAX_DIGITS = 1_000  #: Numbers with more digits are compared as text only.

# A decimal needs this many significant digits before it counts as a value that it rounds.
MIN_DIGITS_RECURRING = 4  #: For a recurring decimal: 0.3333 for 1/3.
MIN_DIGITS_OTHER = 6  #: For other values: 1.41421 for \sqrt 2.
#: From this many digits on, a difference in the last digits is float noise: 14.999999999999998
#: is 15.
FLOAT_DIGITS = 15
#: A float has at most this many digits. The digits of a longer decimal were written on purpose.
MAX_FLOAT_DIGITS = 17
FLOAT_NOISE = Fraction(1, 10**15)  #: The relative size of float noise.

_PLAIN = compile_patterns(read_module_table(__file__))["plain"]
_SEPARATOR = re.compile(r"[,{}\\!]")


def read_number(text: str) -> Num | Quantity | None:
    """Parse ``text`` if it is nothing but a plain number, a sum of money or a percentage."""
    if len(text) > MAX_DIGITS:
        return None
    text = text.strip()
    if len(text) > 2 and text[0] == "$" == text[-1]:
        text = text[1:-1].strip()
    if text.endswith("."):
        text = text[:-1]
    match = _PLAIN.fullmatch(text)
    number = _number_from_match(match) if match else None
    if match is None or number is None:
        return None
    if match["money"]:
        return None if match["percent"] else Quantity(number, DOLLAR)
    return Quantity(number, PERCENT) if match["percent"] else number


def _number_from_match(match: re.Match[str]) -> Num | None:
    is_negative = (match["sign"] == "-") != bool(match["sign2"])
    numerator = match["top"] or match["num"] or match["num1"]
    if numerator is not None:
        denominator = int(match["bottom"] or match["den"] or match["den1"])
        if denominator == 0:
            return None
        value = Fraction(int(numerator), denominator)
        return Num(-value if is_negative else value)
    integer_part = match["integer_part"] or ""
    decimals = match["decimals"] or ""
    if not integer_part and not decimals:
        return None
    digits = _SEPARATOR.sub("", integer_part)
    sign = "-" if is_negative else ""
    if not decimals and match["power"] is None:
        return Num(Fraction(int(sign + digits)))
    return make_decimal(digits, decimals, int(match["power"] or 0), sign)


def make_decimal(integer_part: str, decimals: str, power: int = 0, sign: str = "") -> Num | None:
    """Return ``integer_part.decimals`` times ten to ``power``, or None if it is too large."""
    if abs(power) > MAX_POWER_OF_TEN or len(integer_part) + len(decimals) > MAX_DIGITS:
        return None
    digits = integer_part + decimals
    exponent = power - len(decimals)
    value = Fraction(int(digits or 0) * 10 ** max(exponent, 0), 10 ** max(-exponent, 0))
    return Num(-value if sign == "-" else value, -exponent, len(digits.strip("0")))


def make_repeating_decimal(integer_part: str, decimals: str, cycle: str) -> Num:
    """Return ``integer_part.decimals`` followed by endless repetitions of ``cycle``."""
    scale = 10 ** len(decimals)
    head = Fraction(int((integer_part or "0") + decimals), scale)
    return Num(head + Fraction(int(cycle), scale * (10 ** len(cycle) - 1)))


def numbers_agree(left: Num, right: Num) -> bool:
    """Whether two numbers have the same value, within the precision of a written decimal."""
    if left.value == right.value:
        return True
    if left.decimal_places is None and right.decimal_places is None:
        return False
    return any(
        matches_written_digits(decimal, other.value, is_exact=other.decimal_places is None)
        for decimal, other in ((left, right), (right, left))
    )


def matches_written_digits(decimal: Num, value: Fraction, *, is_exact: bool) -> bool:
    """Whether a decimal is ``value``, rounded or truncated to the digits of the decimal.

    ``is_exact`` states that ``value`` comes from an exact number, not from another decimal.
    """
    if decimal.decimal_places is None:
        return False
    is_float = FLOAT_DIGITS <= decimal.significant_digits <= MAX_FLOAT_DIGITS
    if is_float and abs(value) < FLOAT_NOISE.denominator:
        return abs(decimal.value - value) <= FLOAT_NOISE * abs(value)
    min_digits = MIN_DIGITS_RECURRING if is_exact and _recurs(value) else MIN_DIGITS_OTHER
    if value.denominator == 1 or decimal.value.denominator == 1:
        return False  # integers are exact, "145.0" too
    is_long = decimal.decimal_places >= MIN_DIGITS_RECURRING
    may_truncate = not is_exact or (is_long and _recurs(value))
    return decimal.significant_digits >= min_digits and is_rounded(
        decimal, value, may_truncate=may_truncate
    )


def is_rounded(decimal: Num, value: Fraction, *, may_truncate: bool) -> bool:
    """Whether a decimal is ``value`` rounded to its digits, or truncated with ``may_truncate``."""
    missing_part = abs(value) - abs(decimal.value)
    has_same_sign = (value < 0) == (decimal.value < 0)
    digit_size = last_digit_size(decimal)
    upper_bound = digit_size if may_truncate else digit_size / 2
    return has_same_sign and -digit_size / 2 <= missing_part < upper_bound


def last_digit_size(decimal: Num) -> Fraction:
    """Return the value of one unit in the last digit of a decimal."""
    return Fraction(10) ** -(decimal.decimal_places or 0)


def _recurs(value: Fraction) -> bool:
    """Whether the decimal expansion of ``value`` never ends."""
    remainder = value.denominator
    if remainder.bit_length() > 4 * MAX_DIGITS:
        return True
    for prime in (2, 5):
        while remainder % prime == 0:
            remainder //= prime
    return remainder > 1


def is_close_to_gold(number: Fraction, gold: Num, relative: Fraction) -> bool:
    """Whether a number rounds to the gold, or is within a relative tolerance of it.

    This is the rule of graders with a tolerance. The first condition needs a decimal gold.
    """
    if gold.decimal_places is not None and abs(number - gold.value) <= last_digit_size(gold) / 2:
        return True
    return abs(number - gold.value) <= relative * abs(gold.value)
