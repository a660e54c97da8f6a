"""Row hook of Omni-MATH: it drops the problems that a program cannot grade."""

from collections.abc import Mapping
from typing import Any

from fsdpo_data.answers.comparison.equivalence import comparison_rule
from fsdpo_data.answers.parsing.read import read

_PROSE_RULE = "words"  #: Comparison rule of golds that need a human grader.


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the row, or None to drop it because its gold is missing or is prose."""
    gold = str(fields.get("answer") or "")
    is_gradable = gold and comparison_rule(read(gold)) != _PROSE_RULE
    return fields if is_gradable else None
