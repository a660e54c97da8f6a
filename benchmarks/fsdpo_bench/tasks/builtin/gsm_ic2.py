"""Hook of GSM-IC2: in some rows, the question starts with a condition of the base problem."""

from collections.abc import Mapping
from typing import Any


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the end of the question, which all problems with one base problem share."""
    question = fields.get("question")
    if not isinstance(question, str):
        return fields
    return {**fields, "base_question": question.rpartition(", ")[2]}
