"""The first error of a solution: the first step whose reward falls below a threshold."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.entities import MODEL_FAILURES, Solution
from fsdpo_data.core.lazy import pq
from fsdpo_data.core.options import Option, Options

#: What becomes of incorrect solutions; see :func:`first_errors`.
DROP_REASONS = ("incorrect", "truncated", "unscored", "no_error", "repeated", "over_limit")


@dataclass(frozen=True, slots=True)
class StepPairSpec(Options):
    """How pairs of steps are chosen.

    Attributes:
        threshold: A step whose reward is below it is an error.
        max_pairs: Pairs per problem at most, those of the lowest rewards; None for all.
    """

    threshold: Annotated[float, Option(exclusive_min=0, max=1)] = 0.5
    max_pairs: Annotated[int | None, Option(min=1)] = None


@dataclass(frozen=True, slots=True)
class FirstError:
    """A wrong step to be put right."""

    solution: Solution
    step: int

    @property
    def prefix(self) -> str:
        """The prompt and the steps before the error."""
        return self.solution.prompt + "".join(self.solution.completions[: self.step])

    @property
    def reward(self) -> float:
        """The reward of the error."""
        assert self.solution.step_rewards is not None
        return self.solution.step_rewards[self.step]


def find_first_errors(
    file: Path, spec: StepPairSpec, counts: Counter[str] | None = None
) -> Iterator[FirstError]:
    """Yield the different first errors in a file of solutions, problem by problem.

    ``counts`` gets ``incorrect`` solutions, and of them those that are ``truncated`` (a step may
    have been cut), ``unscored`` or without an error (``no_error``), and those whose error is
    another's too (``repeated``) or beyond the limit (``over_limit``).
    """
    found = counts if counts is not None else Counter[str]()
    problems: dict[str, list[FirstError]] = {}
    for row in pq.read_table(file).to_pylist():
        solution = Solution(**row)
        if solution.outcome not in MODEL_FAILURES:
            continue
        found["incorrect"] += 1
        if solution.finish_reason != "stop":
            found["truncated"] += 1
        elif solution.step_rewards is None:
            found["unscored"] += 1
        else:
            low = (k for k, reward in enumerate(solution.step_rewards) if reward < spec.threshold)
            if (step := next(low, None)) is None:
                found["no_error"] += 1
            else:
                errors = problems.setdefault(solution.problem_id, [])
                errors.append(FirstError(solution, step))
    for errors in problems.values():
        different: dict[str, FirstError] = {}
        for error in sorted(errors, key=lambda each: each.reward):
            different.setdefault(error.prefix + error.solution.completions[error.step], error)
        kept = list(different.values())[: spec.max_pairs]
        found["repeated"] += len(errors) - len(different)
        found["over_limit"] += len(different) - len(kept)
        yield from kept
