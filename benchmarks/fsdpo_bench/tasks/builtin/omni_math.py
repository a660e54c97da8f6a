"""Omni-MATH: what a program can score of it, which are golds that read as mathematics."""

from collections.abc import Mapping
from typing import Any

from fsdpo_data.answers.comparison.equivalence import comparison_rule
from fsdpo_data.answers.parsing.read import read

_PROSE = ("words", "text", "sentence")  #: Kinds of golds that need a reader.


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Leave out the problems whose gold is a sentence."""
    gold = str(fields.get("answer") or "")
    return fields if gold and comparison_rule(read(gold)) not in _PROSE else None
