"""OlympiadBench: golds are lists of one string, with dollars around each of its answers."""

from collections.abc import Mapping
from typing import Any


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the context before the question, and the answers into one list."""
    golds = fields.get("final_answer")
    asked = [text for text in (fields.get("context"), fields.get("question")) if text]
    if not isinstance(golds, list):
        return fields
    answers = ", ".join(str(gold) for gold in golds).replace("$", "")
    return {**fields, "question": "\n".join(asked), "final_answer": answers}
