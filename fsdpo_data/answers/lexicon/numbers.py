r"""Plain numbers: how they are written, and when a decimal stands for another value.

``read_number`` is the fast path in front of the parser: one regular expression decides whether a
short text is a plain number (``1,000``, ``-3.50``, ``7/9``, ``\frac{3}{4}``, ``25\%``).
"""

import re
from fractions import Fraction

from fsdpo_data.answers.lexicon.units import DOLLAR, PERCENT
from fsdpo_data.answers.tree import MAX_POWER_OF_TEN, Num, Quantity
from fsdpo_data.core.toml_tables import compile_patterns, read_toml

MAX_DIGITS = 1_000  #: Numbers with more digits are compared as text only.

#: Significant digits a decimal must show before it stands for a value it does not equal.
MIN_DIGITS_RECURRING = 4  # 0.3333 for 1/3
MIN_DIGITS_OTHER = 6  # 1.41421 for \sqrt 2
#: Digits from which a difference in the last places is float noise: 14.999999999999998 is 15.
FLOAT_DIGITS = 15
FLOAT_NOISE = Fraction(1, 10**15)

_PLAIN = compile_patterns(read_toml(__file__))["plain"]
_SEPARATOR = re.compile(r"[,{}\\!]")


def read_number(text: str) -> Num | Quantity | None:
    """Read ``text`` if all of it is one plain number, sum of money or percentage."""
    if len(text) > MAX_DIGITS:
        return None
    text = text.strip()
    if len(text) > 2 and text[0] == "$" == text[-1]:
        text = text[1:-1].strip()
    if text.endswith("."):
        text = text[:-1]
    match = _PLAIN.fullmatch(text)
    number = _from_match(match) if match else None
    if match is None or number is None:
        return None
    if match["money"]:
        return None if match["percent"] else Quantity(number, DOLLAR)
    return Quantity(number, PERCENT) if match["percent"] else number


def _from_match(match: re.Match[str]) -> Num | None:
    negative = (match["sign"] == "-") != bool(match["sign2"])
    top = match["top"] or match["num"] or match["num1"]
    if top is not None:
        bottom = int(match["bottom"] or match["den"] or match["den1"])
        if bottom == 0:
            return None
        value = Fraction(int(top), bottom)
        return Num(-value if negative else value)
    whole, places = match["whole"] or "", match["places"] or ""
    if not whole and not places:
        return None
    digits, sign = _SEPARATOR.sub("", whole), "-" if negative else ""
    if not places and match["power"] is None:
        return Num(Fraction(int(sign + digits)))
    return make_decimal(digits, places, int(match["power"] or 0), sign)


def make_decimal(integer_part: str, decimals: str, power: int = 0, sign: str = "") -> Num | None:
    """Return ``whole.places`` times ten to ``power``, or None if that is out of bounds."""
    if abs(power) > MAX_POWER_OF_TEN or len(integer_part) + len(decimals) > MAX_DIGITS:
        return None
    digits = integer_part + decimals
    exponent = power - len(decimals)
    value = Fraction(int(digits or 0) * 10 ** max(exponent, 0), 10 ** max(-exponent, 0))
    return Num(-value if sign == "-" else value, -exponent, len(digits.strip("0")))


def make_repeating_decimal(integer_part: str, decimals: str, cycle: str) -> Num:
    """Return ``whole.places`` followed by ``cycle`` for ever."""
    scale = 10 ** len(decimals)
    head = Fraction(int((integer_part or "0") + decimals), scale)
    return Num(head + Fraction(int(cycle), scale * (10 ** len(cycle) - 1)))


def numbers_agree(left: Num, right: Num) -> bool:
    """Compare by value; a decimal may stand for another value to the precision it shows."""
    if left.value == right.value:
        return True
    if left.decimal_places is None and right.decimal_places is None:
        return False
    return any(
        matches_shown_digits(shown, other.value, other.decimal_places is None)
        for shown, other in ((left, right), (right, left))
    )


def matches_shown_digits(shown: Num, value: Fraction, is_exact: bool) -> bool:
    """Whether a decimal is ``value`` rounded or cut to its digits.

    ``exact`` says that the value is written exactly, not as another decimal.
    """
    if shown.decimal_places is None:
        return False
    if shown.significant_digits >= FLOAT_DIGITS and abs(value) < FLOAT_NOISE.denominator:
        return abs(shown.value - value) <= FLOAT_NOISE * abs(value)
    needed = MIN_DIGITS_RECURRING if is_exact and _recurs(value) else MIN_DIGITS_OTHER
    if value.denominator == 1 or shown.value.denominator == 1:
        return False  # integers are exact, "145.0" too
    may_cut = not is_exact or (shown.decimal_places >= MIN_DIGITS_RECURRING and _recurs(value))
    return shown.significant_digits >= needed and is_rounded(shown, value, may_cut)


def is_rounded(shown: Num, value: Fraction, may_cut: bool) -> bool:
    """Whether ``shown`` is ``value`` rounded, or with ``may_cut`` cut, to its digits."""
    beyond = abs(value) - abs(shown.value)
    same_sign = (value < 0) == (shown.value < 0)
    most = last_digit_size(shown) if may_cut else last_digit_size(shown) / 2
    return same_sign and -last_digit_size(shown) / 2 <= beyond < most


def last_digit_size(shown: Num) -> Fraction:
    """Return the size of one unit in the last place that a decimal shows."""
    return Fraction(10) ** -(shown.decimal_places or 0)


def _recurs(value: Fraction) -> bool:
    """Whether the decimals of ``value`` never end."""
    rest = value.denominator
    if rest.bit_length() > 4 * MAX_DIGITS:
        return True
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest > 1


def is_close_to_gold(number: Fraction, gold: Num, relative: Fraction) -> bool:
    """The tolerant rule: ``number`` rounds to the gold at its digits, or is close relatively.

    An exact gold shows all its digits.
    """
    if gold.decimal_places is not None and abs(number - gold.value) <= last_digit_size(gold) / 2:
        return True
    return abs(number - gold.value) <= relative * abs(gold.value)
