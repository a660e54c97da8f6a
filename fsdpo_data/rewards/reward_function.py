"""The base class of reward functions: the form of TRL, on top of one method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.rewards.messages import Conversation


class Rollout(NamedTuple):
    """A completion to reward, with its prompt and the fields of its problem."""

    prompt: Conversation  #: The prompt of the policy; empty if the trainer does not pass it.
    completion: Conversation  #: The completion of the policy.
    columns: Mapping[str, Any]  #: The fields that the reward function reads, by name.


class RewardFunction:
    """A reward function, callable as TRL's ``reward_funcs``.

    Subclasses implement :meth:`score`. Instances can be pickled, because TRL sends reward functions
    to the processes of asynchronous rollouts.

    Attributes:
        gold_column: Name of the field with the gold answer; None if the function reads no gold.
    """

    #: The name in the logs of trainers, which read it from the instance.
    __name__ = "reward"
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields that the function reads."""
        raise NotImplementedError

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Return the reward of each rollout, in order; None without a reward."""
        raise NotImplementedError

    def __call__(
        self, prompts: Sequence[Conversation], completions: Sequence[Conversation], **columns: Any
    ) -> list[Any]:
        """Return one reward per completion, in the form of TRL.

        Args:
            prompts: The prompts, as texts or as lists of messages.
            completions: The completions, in the same form.
            **columns: One list per column of the dataset, and the other arguments of TRL. If
                ``log_metric`` is one of them, the share of completions without a reward is logged.

        Raises:
            InputError: if a column that the function reads is missing.
        """
        rewards = self.score(self.make_rollouts(prompts, completions, columns))
        log_metric = columns.get("log_metric")
        if callable(log_metric) and rewards:
            n_undecided = sum(reward is None for reward in rewards)
            log_metric(f"rewards/{self.__name__}/undecided", n_undecided / len(rewards))
        return rewards

    def make_rollouts(
        self,
        prompts: Sequence[Conversation],
        completions: Sequence[Conversation],
        columns: Mapping[str, Any],
    ) -> list[Rollout]:
        """Return the rollouts of a batch, each with the fields that the function reads."""
        if len(prompts) != len(completions):
            raise InputError(
                f"expected one prompt per completion, but there are {len(prompts)} prompts.",
                field="completions",
                value=f"{len(completions)} completions",
            )
        values = {
            name: prompts if name == "prompt" else _column_values(columns, name, len(completions))
            for name in self.columns
        }
        return [
            Rollout(prompt, completion, {name: values[name][index] for name in values})
            for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]


def _column_values(columns: Mapping[str, Any], name: str, n_rows: int) -> Sequence[Any]:
    """Return the values of a column, one per row.

    Raises:
        InputError: if there is no such column, or it has another number of values.
    """
    values = columns.get(name)
    if values is None:
        raise missing_column_error(name, columns)
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != n_rows:
        raise InputError(
            f"expected a list of {n_rows} values, one per completion.", field=name, value=values
        )
    return values  # type: ignore[no-any-return]


def missing_column_error(name: str, columns: Mapping[str, Any]) -> InputError:
    """Return the error for a field that the trainer did not pass."""
    return InputError(
        "the reward function reads this column, but the trainer did not pass it. Add the column to "
        "the dataset, or name another column with `gold_column` or `question_column`."
        + suggest_names(name, columns),
        field="column",
        value=name,
    )
