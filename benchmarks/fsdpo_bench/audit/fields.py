"""The values that form a family of disagreements, with their descriptions."""

from collections.abc import Mapping
from types import MappingProxyType

#: The steps at which two graders part, with their descriptions.
STEPS: Mapping[str, str] = MappingProxyType(
    {
        "gold": "The graders used golds that differ.",
        "comparison": "The graders extracted equal answers, and compared them differently.",
        "extraction: other none": "The other grader extracted no answer.",
        "extraction: ours none": "Our grader extracted no answer.",
        "extraction: other shorter": "The answer of the other grader is a part of ours.",
        "extraction: other longer": "The answer of the other grader contains ours.",
        "extraction: different": "The graders extracted different answers.",
        "unknown": "The answer of the other grader is unknown.",
    }
)
#: The values that form a family, with their descriptions.
FAMILY_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "verdicts": "The outcome by the other grader, and ours.",
        "step": "The step at which the graders part.",
        "kind": "The kind of the gold.",
        "rule": "Our rules of extraction and comparison.",
        "group": "The file, model or benchmark.",
    }
)
