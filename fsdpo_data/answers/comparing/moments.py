"""Clock times, dates and digits in a base: compared as they are written."""

from fractions import Fraction

from fsdpo_data.answers.show import show
from fsdpo_data.answers.tree import Based, Moment, Num, Value

_HALF_DAY = 12 * 3600


def same_moment(gold: Value, answer: Value) -> bool:
    """Whether two clock times or dates agree in everything both state."""
    if isinstance(answer, Num) and isinstance(gold, Moment):
        if gold.seconds is None or gold.day is not None or gold.half not in ("am", "pm"):
            return False
        return gold.seconds % 3600 == 0 and answer.value % 12 == gold.seconds // 3600 % 12
    if not (isinstance(gold, Moment) and isinstance(answer, Moment)):
        return False
    for left, right in ((gold.day, answer.day), (gold.month, answer.month)):
        if left != right and (gold.seconds is None or (left is not None and right is not None)):
            return False
    if gold.year is not None and answer.year is not None and gold.year != answer.year:
        return False
    if gold.seconds is None or answer.seconds is None:
        return gold.seconds == answer.seconds
    if gold.seconds == answer.seconds:
        return True
    # "3:30" without a.m. or p.m. may be either.
    return abs(gold.seconds - answer.seconds) == _HALF_DAY and (
        (gold.half == "" and gold.seconds < _HALF_DAY + 3600 and answer.half in ("am", "pm"))
        or (answer.half == "" and answer.seconds < _HALF_DAY + 3600 and gold.half in ("am", "pm"))
    )


def same_digits(gold: Value, answer: Value) -> bool:
    """Compare numbers in a base; the answer may leave out the gold's base."""
    if isinstance(gold, Based) and isinstance(answer, Based):
        same_digits = gold.digits.lstrip("0") == answer.digits.lstrip("0")
        return gold.base == answer.base and same_digits
    for based, other in ((gold, answer), (answer, gold)):
        if isinstance(based, Based) and based.base == 10 and isinstance(other, Num):
            return Fraction(based.digits) == other.value
    if isinstance(gold, Based) and isinstance(answer, Num):
        return gold.digits.lstrip("0") == show(answer).lstrip("0")
    return False
