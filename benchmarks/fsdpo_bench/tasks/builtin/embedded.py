"""The embedded world's benchmark: problems whose numbers occur in no training problem."""

from dataclasses import replace

from fsdpo_data.core.entities import Problem
from fsdpo_data.problems.embedded.generator import make_problems


def make() -> list[Problem]:
    """Make the problems; their level is their steps."""
    return [
        replace(each, metadata={**each.metadata, "level": len(each.metadata["nodes"])})
        for each in make_problems("test", 500)
    ]
