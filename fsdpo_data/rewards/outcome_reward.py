"""Outcome rewards: 1 for a correct answer, 0 for a wrong one, None for an undecided one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.problems.golds import GoldReading, gold_text, means_no_gold, read_gold
from fsdpo_data.rewards.messages import completion_text, has_separate_reasoning
from fsdpo_data.rewards.reward_function import RewardFunction, Rollout

#: The verdict on a response without a readable gold.
NO_GOLD_VERDICT = Verdict("gold_unparsed", None, "no-gold")


class OutcomeReward(RewardFunction):
    """A reward function that grades the answer; see :func:`outcome`."""

    __name__ = "outcome_reward"

    def __init__(self, gold_column: str, gold: GoldReading, grader: str | None) -> None:
        self.gold_column: str = gold_column
        self._gold_reading = gold
        self._grader = grader

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the gold answers."""
        return (self.gold_column,)

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Return 1.0 for correct and 0.0 for wrong answers; None for undecided ones."""
        return [verdict_reward(verdict) for verdict in self.grade(rollouts)]

    def grade(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """Return the verdict on each rollout, with the rule that decided."""
        golds = [self._read_gold(rollout.columns[self.gold_column]) for rollout in rollouts]
        requests = [
            _grading_request(gold, rollout)
            for gold, rollout in zip(golds, rollouts, strict=True)
            if gold is not None
        ]
        verdicts = iter(get_grader(self._grader).grade(requests))
        return [NO_GOLD_VERDICT if gold is None else next(verdicts) for gold in golds]

    def _read_gold(self, value: Any) -> str | None:
        """Return the gold answer of a row; None if the row has none, or does not mark it.

        Raises:
            InputError: if the value is neither a text nor a number.
        """
        value = _plain_value(value)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            gold_text(value)
        except UnusableRowError as error:
            raise InputError(
                f"{error}. Give texts or numbers.", field=self.gold_column, value=value
            ) from None
        try:
            gold = read_gold(value, self._gold_reading)
        except UnusableRowError:
            return None
        return None if means_no_gold(gold) else gold


def _plain_value(value: Any) -> Any:
    """Return a value of numpy, as verl passes it, as a plain one."""
    if not hasattr(value, "tolist"):
        return value
    if str(getattr(value, "dtype", "")) in ("float16", "float32"):
        # Convert through text: a 32-bit 0.1 stays 0.1 and does not become 0.10000000149011612.
        return np.asarray(value).astype(str).astype(float).tolist()
    return value.tolist()


def _grading_request(gold: str, rollout: Rollout) -> GradingRequest:
    """Return the request to grade a rollout; only the text after its thinking is graded."""
    response = completion_text(rollout.completion)
    thinking = find_thinking(
        rollout.prompt if isinstance(rollout.prompt, str) else "",
        response,
        has_separate_reasoning=has_separate_reasoning(rollout.completion),
    )
    return GradingRequest(gold, response, thinking=thinking)


def verdict_reward(verdict: Verdict) -> float | None:
    """Return the reward of a verdict: 1.0, 0.0, or None if the grader decided nothing."""
    if verdict.status not in GRADED_OUTCOMES:
        return None
    return 0.0 if verdict.status in MODEL_FAILURES else 1.0


def outcome(
    gold_column: str = "answer", *, gold: GoldReading = "auto", grader: str | None = None
) -> OutcomeReward:
    r"""Return a reward function that grades the final answer of each completion.

    The reward is 1.0 for a correct answer. It is 0.0 for an incorrect answer, and for a completion
    without an answer. It is None if the grader left the answer undecided, and if the row has no
    readable gold.

    >>> reward = outcome()
    >>> reward(prompts=["1/2 + 1/4?"], completions=[r"It is \\boxed{0.75}."], answer=["3/4"])
    [1.0]

    Args:
        gold_column: Name of the column with the gold answers, which are texts or numbers.
        gold: How to read golds. ``auto`` takes the answer that a gold marks, as in GSM8K and MATH,
            and other golds as they are. ``extract`` also gives no reward for a complete solution
            that marks no answer. ``as-given`` takes every gold as it is.
        grader: Full name of the grader; the default of this release if None.

    Raises:
        SchemaError: if this release does not have the grader.
    """
    if grader is not None:
        get_grader(grader)
    return OutcomeReward(gold_column, gold, grader)
