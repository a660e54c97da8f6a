"""Ranges of numbers in options, such as ``0.2..0.8``."""

from __future__ import annotations

import math
from typing import NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl


class NumberRange(NamedTuple):
    """A range of numbers that includes its bounds."""

    low: float  #: Lower bound; minus infinity for none.
    high: float  #: Upper bound; infinity for none.

    def contains(self, column: str) -> pl.Expr:
        """Return whether a column is in the range; null stays null."""
        value = pl.col(column)
        return (value >= self.low) & (value <= self.high)


def parse_range(text: str, field: str) -> NumberRange:
    """Parse ``LOW..HIGH``, where one of the bounds may be missing.

    Args:
        text: The text of the user.
        field: Field of the options, for errors.

    Raises:
        InputError: if the text is not a range, or no number is in the range.
    """
    low_text, separator, high_text = text.partition("..")
    try:
        low = float(low_text) if low_text.strip() else -math.inf
        high = float(high_text) if high_text.strip() else math.inf
    except ValueError:
        separator = ""
        low = high = math.nan
    if not separator or not (low_text.strip() or high_text.strip()):
        raise InputError(
            "expected a range LOW..HIGH, such as `0.2..0.8`, `..800` or `2..`.",
            field=field,
            value=text,
        )
    if not low <= high:
        raise InputError(
            "expected a lower bound that is at most the upper bound.", field=field, value=text
        )
    return NumberRange(low, high)
