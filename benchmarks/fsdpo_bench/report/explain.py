"""Why a verdict is what it is, in words."""

from __future__ import annotations

_EXTRACTED = {
    "boxed": "from the last box",
    "boxed-list": "from several boxes, as one answer",
    "hash": "after ####",
    "final-answer": "after “final answer”",
    "answer-is": "after “the answer is”",
    "choice": "as the letter of a choice",
    "label": "after “Answer:”",
    "boxed-truncated": "from a box that was never closed",
    "whole": "as the whole response",
    "last-maths": "as the last formula (the response marks no answer)",
    "last-number": "as the last number (the response marks no answer)",
    "last-sentence": "as the last sentence (the response marks no answer)",
}
_COMPARED = {
    "text": "as text: the two are spelled alike",
    "sentence": "with the words of the last sentence, which states the gold",
    "budget": "for as long as one pair may take",
    "number": "as numbers",
    "quantity": "as quantities with units",
    "ratio": "as ratios",
    "base": "as digits in a base",
    "matrix": "as matrices",
    "list": "as lists in any order",
    "set": "as sets",
    "tuple": "as tuples, in order",
    "equation": "as equations",
    "inequality": "as inequalities",
    "time": "as dates or times",
    "words": "as words",
    "expression": "as expressions, symbolically",
}
_STATUS = {
    "correct": "They agree.",
    "incorrect": "They differ.",
    "timed_out": "No decision within the budget; it counts as wrong.",
}


def explain(status: str, rule: str) -> str:
    """Explain a verdict by its status and rule, e.g. ``correct`` and ``boxed/number``."""
    extraction, _, comparison = rule.partition("/")
    if status == "gold_unparsed":
        return "The gold answer is empty or unreadable, so the problem does not count."
    if status == "no_answer":
        return "No answer was found in the response."
    how = _EXTRACTED.get(extraction, f"by the rule “{extraction}”")
    compared = _COMPARED.get(comparison, f"by the rule “{comparison}”" if comparison else "")
    told = f", compared with the gold {compared}" if compared else ""
    return f"The answer was read {how}{told}. {_STATUS.get(status, status)}"
