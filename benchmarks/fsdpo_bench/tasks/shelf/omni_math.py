"""Omni-MATH: what a program can score of it, which are golds that read as mathematics."""

from collections.abc import Mapping
from typing import Any

from fsdpo_data.answers.comparing.equal import rule_of
from fsdpo_data.answers.reading.read import read

_PROSE = ("words", "text", "sentence")  #: Kinds of golds that need a reader.


def row(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Leave out the problems whose gold is a sentence."""
    gold = str(fields.get("answer") or "")
    return fields if gold and rule_of(read(gold)) not in _PROSE else None
