"""Graders by their full names, e.g. ``math@6``."""

import re

from fsdpo_data.answers import Grader
from fsdpo_data.core.errors import SchemaError

_TOLERANCE = re.compile(r"0(\.\d+)?")


def get_grader(version: str | None = None) -> Grader:
    """Return the grader with a full name such as ``math@6+tolerance=0.01``.

    Without a name, the strict grader of this release is returned.

    Raises:
        SchemaError: This release does not contain the grader.
    """
    # Imported here, because the grading rules take long to load.
    from fsdpo_data.answers.grader import MathGrader

    strict = MathGrader()
    name, plus, tolerance = (version or strict.version).partition("+tolerance=")
    if name != strict.version or (plus and not _TOLERANCE.fullmatch(tolerance)):
        raise SchemaError(
            f"grader {version!r} is not in this release. The release has {strict.version} and, for "
            f"numbers within 1 %, {strict.version}+tolerance=0.01. Datasets of an older grader "
            "stay readable. To process such a dataset further, grade it again with "
            "`fsdpo-data grade`."
        )
    return MathGrader(float(tolerance)) if plus else strict
