"""Graders by their full names; which rules those stand for is loaded when one is asked for."""

import re

from fsdpo_data.answers import Grader
from fsdpo_data.core.errors import SchemaError

_TOLERANCE = re.compile(r"0(\.\d+)?")


def get_grader(version: str | None = None) -> Grader:
    """Return the grader called e.g. ``math@2+tolerance=0.01``; SchemaError if there is none."""
    from fsdpo_data.answers.grader import MathGrader

    strict = MathGrader()
    name, plus, tolerance = (version or strict.version).partition("+tolerance=")
    if name != strict.version or (plus and not _TOLERANCE.fullmatch(tolerance)):
        raise SchemaError(
            f"grader {version!r} is not in this release, which has {strict.version} and, for "
            f"numbers within 1 %, {strict.version}+tolerance=0.01. What an older one graded can be "
            "read as it is; to go on from it, grade it again, with `fsdpo-data grade`."
        )
    return MathGrader(float(tolerance)) if plus else strict
