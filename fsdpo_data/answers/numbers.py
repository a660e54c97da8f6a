r"""Numbers as answers write them: exact values with the precision they show.

This is the fast path in front of the parser: one regular expression decides whether a short text
is a plain number (``1,000``, ``-3.50``, ``7/9``, ``\frac{3}{4}``, ``4.5e33``, ``25\%``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

#: Numbers with more digits are compared as text only.
MAX_DIGITS = 1_000
#: Powers of ten beyond this stay unevaluated.
MAX_POWER_OF_TEN = 5_000

#: Significant digits a decimal must show before it stands for a value it does not equal.
MIN_DIGITS_RECURRING = 4  # 0.3333 for 1/3
MIN_DIGITS_OTHER = 6  # 1.41421 for \sqrt 2
#: Digits from which a difference in the last places is float noise: 14.999999999999998 is 15.
FLOAT_DIGITS = 15

_INTEGER = r"\d{1,3}(?:(?:,|\{,\}|,\\!|\\,)\d{3})+(?!\d)|\d+"
_PLAIN = re.compile(
    rf"(?P<sign>[-+−]?)\s?(?P<money>\\?\$)?\s?(?P<sign2>[-−]?)(?:"
    rf"(?P<whole>{_INTEGER})?(?P<point>\.(?P<places>\d*))?(?:[eE](?P<power>[-+]?\d{{1,6}}))?"
    rf"(?P<percent>\s?\\?%)?"
    rf"|(?P<top>\d+)\s?/\s?(?P<bottom>\d+)"
    rf"|\\[dt]?frac\s?(?:\{{\s?(?P<num>-?\d+)\s?\}}|(?P<num1>\d))\s?"
    rf"(?:\{{\s?(?P<den>\d+)\s?\}}|(?P<den1>\d)))"
)
_SEPARATOR = re.compile(r"[,{}\\!]")


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number and how it was written.

    Attributes:
        value: The exact value of what is written.
        places: Digits shown after the decimal point; None for a number written exactly
            (an integer or a fraction). Negative for ``4.5e33``: the last digit shown is 10^32.
        digits: Significant digits shown, for decimals.
        unit: ``$``, ``%`` or nothing.
    """

    value: Fraction
    places: int | None = None
    digits: int = 0
    unit: str = ""


def read_number(text: str) -> Number | None:
    """Read ``text`` if all of it is one plain number."""
    if len(text) > MAX_DIGITS:
        return None
    text = text.strip()
    if len(text) > 2 and text[0] == "$" == text[-1]:
        text = text[1:-1].strip()
    text = text.rstrip(".") if text.endswith(".") else text
    match = _PLAIN.fullmatch(text)
    return _from_match(match) if match else None


def _from_match(match: re.Match[str]) -> Number | None:
    part = match.groupdict()
    top, bottom = part["top"] or part["num"] or part["num1"], None
    negative = (part["sign"] in ("-", "−") and bool(part["sign"])) != bool(part["sign2"])
    unit = "$" if part["money"] else ""
    if top is not None:
        bottom = part["bottom"] or part["den"] or part["den1"]
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
        return Number(-value if negative else value, unit=unit)
    whole, places = part["whole"] or "", part["places"] or ""
    if not whole and not places:
        return None
    number = decimal(_SEPARATOR.sub("", whole), places, int(part["power"] or 0))
    if number is None:
        return None
    value = -number.value if negative else number.value
    shows_places = bool(part["point"]) or part["power"] is not None
    unit = "%" if part["percent"] else unit
    return Number(value, number.places if shows_places else None, number.digits, unit)


def decimal(whole: str, places: str, power: int = 0) -> Number | None:
    """Return ``whole.places`` times ten to ``power``, or None if that is out of bounds."""
    if abs(power) > MAX_POWER_OF_TEN or len(whole) + len(places) > MAX_DIGITS:
        return None
    digits = whole + places
    exponent = power - len(places)
    value = Fraction(int(digits) * 10 ** max(exponent, 0), 10 ** max(-exponent, 0))
    return Number(value, -exponent, len(digits.lstrip("0")))


def agree(left: Number, right: Number) -> bool:
    """Compare by value; a decimal may stand for another value to the precision it shows."""
    if left.value == right.value:
        return True
    if left.places is None and right.places is None:
        return False
    for shown, other in ((left, right), (right, left)):
        if shown.places is not None and stands_for(shown, other.value, other.places is None):
            return True
    return False


def stands_for(shown: Number, value: Fraction, exact: bool) -> bool:
    """Whether the decimal ``shown`` is ``value`` rounded or cut to the digits it shows."""
    if shown.places is None:
        return False
    needed = MIN_DIGITS_RECURRING if exact and _recurs(value) else MIN_DIGITS_OTHER
    if value.denominator == 1:
        needed = FLOAT_DIGITS
    if shown.digits < needed:
        return False
    unit_in_last_place = Fraction(10) ** -shown.places
    return abs(shown.value - value) < unit_in_last_place


def _recurs(value: Fraction) -> bool:
    """Whether the decimals of ``value`` never end."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest > 1


def rounds_to(number: Fraction, gold: Number, relative: Fraction) -> bool:
    """The tolerant rule: ``number`` rounds to the gold at its digits, or is close relatively.

    Args:
        number: The value to judge.
        gold: The gold with the digits it shows; an exact gold shows all its digits.
        relative: Largest relative error accepted.
    """
    if gold.places is not None:
        half_a_unit = Fraction(10) ** -gold.places / 2
        if abs(number - gold.value) <= half_a_unit:
            return True
    return abs(number - gold.value) <= relative * abs(gold.value)
