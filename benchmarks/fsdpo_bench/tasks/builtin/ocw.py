"""Hook of OCWCourses: some copies lack the label "Subproblem 0:" of questions with one part."""

import re
from collections.abc import Mapping
from typing import Any

_PART_LABEL = re.compile(r"Subproblem \d+: ?")


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove the label of the part if the question has only one part."""
    name = "problem" if "problem" in fields else "question"
    question = fields.get(name)
    if not isinstance(question, str) or len(_PART_LABEL.findall(question)) != 1:
        return fields
    return {**fields, name: _PART_LABEL.sub("", question)}
