"""How a field of a row becomes a gold: the words of ``gold = …`` in a benchmark's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fsdpo_data.problems.forms import NotAProblem, answer_text, boxed_gold

#: Decimal places of numeric golds: AddSub's original has binary noise (0.6666666666666666), the
#: form of the MAWPS collection has it rounded.
GOLD_PLACES = 10


def after_hashes(value: Any) -> str:
    """Take GSM8K's gold: what follows the last ``####``, or all of it where there is none."""
    if isinstance(value, str):
        value = value.rpartition("####")[2].strip()
    return answer_text(value)


def maybe_missing(value: Any) -> str:
    """Take a gold that may be missing: such a problem is kept, and is nobody's failure."""
    return answer_text(value).strip() if value else ""


def rounded(value: Any) -> str:
    """Take a gold that is a number, or one as text (``27.0``, ``025``), so that all forms agree."""
    text = answer_text(value)
    try:
        return answer_text(round(float(text), GOLD_PLACES))
    except ValueError:
        raise NotAProblem(f"the answer {text!r} is no number") from None


READERS: Mapping[str, Callable[[Any], str]] = {
    "text": answer_text,
    "boxed": boxed_gold,
    "hashes": after_hashes,
    "maybe": maybe_missing,
    "number": rounded,
}
