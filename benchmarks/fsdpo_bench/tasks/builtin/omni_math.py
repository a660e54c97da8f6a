"""Hook of Omni-MATH: keep the problems that a program can grade."""

from collections.abc import Mapping
from typing import Any

from fsdpo_data.answers.comparison.equivalence import comparison_rule
from fsdpo_data.answers.parsing.read import read

_PROSE_RULES = ("words", "text", "sentence")  #: Comparison rules of golds that need a human grader.


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Exclude problems without a gold, and problems whose gold is prose."""
    gold = str(fields.get("answer") or "")
    is_gradable = gold and comparison_rule(read(gold)) not in _PROSE_RULES
    return fields if is_gradable else None
