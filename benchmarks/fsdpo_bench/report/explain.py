"""Why a verdict is what it is, in words."""

from __future__ import annotations

from fsdpo_data.core.tables import read_table

_WORDS = read_table(__file__)


def explain(status: str, rule: str) -> str:
    """Explain a verdict by its status and rule, e.g. ``correct`` and ``boxed/number``."""
    extraction, _, comparison = rule.partition("/")
    if status == "gold_unparsed":
        return "The gold answer is empty or unreadable, so the problem does not count."
    if status == "no_answer":
        return "No answer was found in the response."
    how = _WORDS["extracted"].get(extraction, f"by the rule “{extraction}”")
    compared = _WORDS["compared"].get(
        comparison, f"by the rule “{comparison}”" if comparison else ""
    )
    told = f", compared with the gold {compared}" if compared else ""
    return f"The answer was read {how}{told}. {_WORDS['status'].get(status, status)}"
