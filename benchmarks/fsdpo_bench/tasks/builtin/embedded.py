"""Hook of the embedded benchmark: generate problems whose numbers occur in no training problem."""

from dataclasses import replace

from fsdpo_data.core.entities import Problem
from fsdpo_data.problems.embedded.generator import make_problems

N_PROBLEMS = 500


def make() -> list[Problem]:
    """Generate the problems; the level of a problem is its number of steps."""
    problems = []
    for problem in make_problems("test", N_PROBLEMS):
        level = len(problem.metadata["nodes"])
        problems.append(replace(problem, metadata={**problem.metadata, "level": level}))
    return problems
