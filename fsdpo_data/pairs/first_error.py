"""Selection of first errors: in each incorrect solution, the first step with a low reward."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsdpo_data.core.entities import MODEL_FAILURES, Solution
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.parquet_files import read_table_batches
from fsdpo_data.core.sampling import ContinuationSettings, Prompt
from fsdpo_data.steps.first_error import NO_ERROR, find_first_below
from fsdpo_data.steps.rewards import stored_reward

#: Keys of the counts of incorrect solutions: their total, and the reasons that exclude some.
#: :func:`find_first_errors` explains them.
DROP_REASONS = ("incorrect", "truncated", "unscored", "no_error", "repeated", "over_limit")


class StepPairSettings(FileModel):
    """Everything that determines Step-DPO pairs.

    Each error gives one pair if a continuation corrects it, so ``max_pairs`` counts errors.
    """

    style: Literal["step-dpo"]  #: Separates these options from a ``PairSpec``.
    threshold: float  #: Step reward below which a step is an error.
    max_pairs: int | None = None  #: Maximum number of errors per problem.
    allow_unclosed: bool = False  #: Whether solutions whose thinking never ends count.
    continuations: ContinuationSettings  #: The settings of the continuations of prefixes.

    @property
    def stored_threshold(self) -> float:
        """The threshold for step rewards of a dataset."""
        return stored_reward(self.threshold)


@dataclass(frozen=True, slots=True)
class FirstError:
    """The first wrong step of an incorrect solution."""

    solution: Solution  #: The incorrect solution.
    step: int  #: Index of the wrong step, from 0.

    @property
    def prefix(self) -> Prompt:
        """The prompt and the steps before the error."""
        first_steps = "".join(self.solution.completions[: self.step])
        return Prompt(self.solution.prompt, solution_text=first_steps)

    @property
    def reward(self) -> float:
        """The reward of the wrong step."""
        assert self.solution.step_rewards is not None
        return self.solution.step_rewards[self.step]


def find_first_errors(
    file: Path, settings: StepPairSettings, counts: Counter[str] | None = None
) -> Iterator[FirstError]:
    """Yield the distinct first errors in a file of solutions, problem by problem.

    Args:
        file: A parquet file with all solutions of its problems.
        settings: Threshold and maximum number of pairs.
        counts: Counter that receives the number of incorrect solutions. Its keys are:

            - ``incorrect``: all solutions with a wrong answer or without an answer;
            - ``truncated``: the last step may be incomplete;
            - ``unclosed``: the thinking never ends;
            - ``unscored``: the solution has no step rewards;
            - ``no_error``: no reward is below the threshold;
            - ``repeated``: another solution has the same error;
            - ``over_limit``: the problem has more than ``max_pairs`` errors.
    """
    if counts is None:
        counts = Counter[str]()
    for errors in _errors_by_problem(file, settings, counts).values():
        distinct_errors: dict[str, FirstError] = {}
        for error in sorted(errors, key=lambda error: error.reward):
            wrong_step = error.solution.completions[error.step]
            distinct_errors.setdefault(error.prefix.full_text + wrong_step, error)
        selected_errors = list(distinct_errors.values())[: settings.max_pairs]
        counts["repeated"] += len(errors) - len(distinct_errors)
        counts["over_limit"] += len(distinct_errors) - len(selected_errors)
        yield from selected_errors


def _errors_by_problem(
    file: Path, settings: StepPairSettings, counts: Counter[str]
) -> dict[str, list[FirstError]]:
    """Return the first errors of the incorrect solutions in a file, by problem id."""
    errors: dict[str, list[FirstError]] = {}
    rows = (row for batch in read_table_batches(file) for row in batch.to_pylist())
    for row in rows:
        solution = Solution.from_row(row)
        if solution.outcome not in MODEL_FAILURES:
            continue
        counts["incorrect"] += 1
        if solution.finish_reason != "stop":
            counts["truncated"] += 1
            continue
        if solution.thinking_closed is False and not settings.allow_unclosed:
            counts["unclosed"] += 1
            continue
        if not solution.step_rewards:
            counts["unscored"] += 1
            continue
        step = find_first_below(solution.step_rewards, settings.stored_threshold)
        if step == NO_ERROR:
            counts["no_error"] += 1
            continue
        errors.setdefault(solution.problem_id, []).append(FirstError(solution, step))
    return errors
