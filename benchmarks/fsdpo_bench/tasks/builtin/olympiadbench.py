"""Hook of OlympiadBench: golds are lists of one string, with dollar signs around each answer."""

from collections.abc import Mapping
from typing import Any


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the context before the question, and join the answers to one list without dollars."""
    golds = fields.get("final_answer")
    if not isinstance(golds, list):
        return fields
    question_parts = [text for text in (fields.get("context"), fields.get("question")) if text]
    answers = ", ".join(str(gold) for gold in golds).replace("$", "")
    return {**fields, "question": "\n".join(question_parts), "final_answer": answers}
