"""Comparison of values with a notation of their own: clock times, dates, numbers in a base."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Value

_HOUR_SECONDS = 3600
_HALF_DAY_SECONDS = 12 * _HOUR_SECONDS


def are_equal_times(gold: Value, answer: Value) -> bool:
    """Whether two clock times or dates agree in everything that both state.

    A bare number such as ``3`` agrees with a full hour such as ``3 p.m.``.
    """
    for time, number in ((gold, answer), (answer, gold)):
        if isinstance(number, tree.Num) and isinstance(time, tree.DateOrTime):
            return _is_full_hour(time, number)
    if not (isinstance(gold, tree.DateOrTime) and isinstance(answer, tree.DateOrTime)):
        return False
    return _are_equal_dates(gold, answer) and _are_equal_clock_times(gold, answer)


def _is_full_hour(time: tree.DateOrTime, number: tree.Num) -> bool:
    """Whether a clock time with a.m. or p.m. is a full hour with this number."""
    if time.seconds is None or time.day is not None or time.half_of_day not in ("am", "pm"):
        return False
    is_full_hour = time.seconds % _HOUR_SECONDS == 0
    return is_full_hour and number.value % 12 == time.seconds // _HOUR_SECONDS % 12


def _are_equal_dates(gold: tree.DateOrTime, answer: tree.DateOrTime) -> bool:
    """Whether two dates agree; a clock time may omit the day and the month."""
    for gold_part, answer_part in ((gold.day, answer.day), (gold.month, answer.month)):
        if gold_part == answer_part:
            continue
        if gold.seconds is None or (gold_part is not None and answer_part is not None):
            return False
    return gold.year is None or answer.year is None or gold.year == answer.year


def _are_equal_clock_times(gold: tree.DateOrTime, answer: tree.DateOrTime) -> bool:
    """Whether two clock times agree; "3:30" without a.m. or p.m. may be either."""
    if gold.seconds is None or answer.seconds is None:
        return gold.seconds == answer.seconds
    if gold.seconds == answer.seconds:
        return True
    if abs(gold.seconds - answer.seconds) != _HALF_DAY_SECONDS:
        return False
    return _may_be_other_half(gold, answer) or _may_be_other_half(answer, gold)


def _may_be_other_half(time: tree.DateOrTime, other: tree.DateOrTime) -> bool:
    """Whether ``time`` states no half of the day and ``other`` states one."""
    if time.seconds is None or time.half_of_day != "" or other.half_of_day not in ("am", "pm"):
        return False
    return time.seconds < _HALF_DAY_SECONDS + _HOUR_SECONDS


def are_equal_digits(gold: Value, answer: Value) -> bool:
    """Whether two numbers in a base agree; the answer may omit the base of the gold."""
    if isinstance(gold, tree.NumberInBase) and isinstance(answer, tree.NumberInBase):
        return gold.base == answer.base and gold.digits.lstrip("0") == answer.digits.lstrip("0")
    for number, other in ((gold, answer), (answer, gold)):
        if not isinstance(number, tree.NumberInBase) or not isinstance(other, tree.Num):
            continue
        if number.base == 10:
            return Fraction(number.digits) == other.value
    if isinstance(gold, tree.NumberInBase) and isinstance(answer, tree.Num):
        return gold.digits.lstrip("0") == format_value(answer).lstrip("0")
    return False
