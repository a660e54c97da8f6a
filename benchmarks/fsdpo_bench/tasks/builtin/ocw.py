"""OCWCourses: part of its copies have dropped "Subproblem 0:" where there is only one."""

import re
from collections.abc import Mapping
from typing import Any

_PART = re.compile(r"Subproblem \d+: ?")


def row(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop the label of a lone part."""
    name = "problem" if "problem" in fields else "question"
    asked = fields.get(name)
    if not isinstance(asked, str) or len(_PART.findall(asked)) != 1:
        return fields
    return {**fields, name: _PART.sub("", asked)}
