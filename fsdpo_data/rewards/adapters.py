"""Reward functions in the forms of verl, verifiers and NeMo-Gym.

Each adapter converts the arguments of the trainer, and calls :meth:`RewardFunction.score`.

These trainers need a number for every completion. A completion without a reward gets the number
``undecided``, and a field or a metric next to the number tells it from a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.rewards.messages import Conversation
from fsdpo_data.rewards.reward_function import RewardFunction, Rollout, missing_column_error

#: The result for one completion in verl: its ``score`` and other numbers that verl logs.
VerlScore = dict[str, float]


def verl_compute_score(
    reward: RewardFunction, *, undecided: float = 0.0
) -> Callable[..., VerlScore]:
    """Return verl's ``compute_score``, which the reward managers ``naive`` and ``dapo`` call.

    Put it into a file, and name the file in ``reward.custom_reward_function.path``, before verl 0.7
    in ``custom_reward_function.path``:

        compute_score = rewards.verl_compute_score(rewards.outcome())

    The gold is verl's ``ground_truth``. Other columns, such as the question, come from
    ``extra_info``. The result has the ``score``, and ``undecided``, which is 1.0 for a completion
    without a reward.

    Args:
        reward: The reward function.
        undecided: The score of a completion without a reward.
    """

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> VerlScore:
        rollout = _verl_rollout(reward, solution_str, ground_truth, extra_info)
        return _verl_score(reward.score([rollout])[0], undecided)

    return compute_score


def verl_batch_compute_score(
    reward: RewardFunction, *, undecided: float = 0.0
) -> Callable[..., list[VerlScore]]:
    """Return the ``compute_score`` of verl's reward manager ``batch``, which verl has up to 0.8.

    See :func:`verl_compute_score`; the arguments are lists, with names in the plural.
    """

    def compute_score(
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Mapping[str, Any] | None] | None = None,
        **_: Any,
    ) -> list[VerlScore]:
        if extra_infos is None:
            extra_infos = [None] * len(solution_strs)
        rollouts = [
            _verl_rollout(reward, solution, gold, extra_info)
            for solution, gold, extra_info in zip(
                solution_strs, ground_truths, extra_infos, strict=True
            )
        ]
        return [_verl_score(score, undecided) for score in reward.score(rollouts)]

    return compute_score


def _verl_rollout(
    reward: RewardFunction, solution: str, gold: Any, extra_info: Mapping[str, Any] | None
) -> Rollout:
    fields = dict(extra_info or {})
    if reward.gold_column is not None:
        fields[reward.gold_column] = gold
    return _make_rollout(reward, fields.get("prompt", ""), solution, fields)


def _verl_score(score: float | None, undecided: float) -> VerlScore:
    # verl stacks the values of a key over the batch, so every result has the same keys.
    is_undecided = score is None
    return {"score": undecided if score is None else score, "undecided": float(is_undecided)}


def verifiers_reward(
    reward: RewardFunction, *, undecided: float = 0.0
) -> Callable[..., Awaitable[float]]:
    """Return a reward function for verifiers.

    The ``Rubric`` of releases before 0.4 calls the function:

        rubric = vf.Rubric(funcs=[rewards.verifiers_reward(rewards.outcome())])

    The function is asynchronous and scores in a thread, so the rollouts of a group share batches.
    It reads the prompt, the completion and the columns of the dataset. In a task of
    ``verifiers.v1``, call it with the texts:

        await reward(prompt=..., completion=trace.last_reply, answer=...)

    Args:
        reward: The reward function.
        undecided: The number for a completion without a reward, because verifiers accepts only
            numbers.
    """

    async def score_rollout(
        prompt: Conversation, completion: Conversation, **columns: Any
    ) -> float:
        rollout = _make_rollout(reward, prompt, completion, columns)
        (score,) = await asyncio.to_thread(reward.score, [rollout])
        return undecided if score is None else score

    # verifiers uses the name for the metric.
    score_rollout.__name__ = reward.__name__
    return score_rollout


def nemo_gym_verify(
    reward: RewardFunction, *, undecided: float = 0.0
) -> Callable[[Any], dict[str, Any]]:
    """Return a function for the method ``verify`` of a NeMo-Gym resources server.

        async def verify(self, body: MyVerifyRequest) -> MyVerifyResponse:
            return MyVerifyResponse(**await asyncio.to_thread(verify, body))

    The function reads the texts of the response, the input of the request as the prompt, and the
    columns from the fields of the body. It returns these fields, the ``reward``, and
    ``undecided``, which is true for a completion without a reward.

    Args:
        reward: The reward function.
        undecided: The reward of a completion without a reward.
    """

    def verify(body: Any) -> dict[str, Any]:
        fields: dict[str, Any] = dict(body) if isinstance(body, Mapping) else body.model_dump()
        try:
            prompt = fields["responses_create_params"]["input"]
            completion = _response_text(fields["response"]["output"])
        except (KeyError, TypeError):
            raise InputError(
                "expected the body of a verify request, with `responses_create_params` and "
                "`response`.",
                field="body",
                value=sorted(fields),
            ) from None
        rollout = _make_rollout(reward, prompt, completion, fields)
        (score,) = reward.score([rollout])
        return {
            **fields,
            "reward": undecided if score is None else score,
            "undecided": score is None,
        }

    return verify


def _response_text(output: Sequence[Mapping[str, Any]]) -> str:
    """Return the joined texts of a response; reasoning and tool calls are other items."""
    return "".join(
        block["text"]
        for item in output
        if item.get("type") == "message"
        for block in item["content"]
        if block.get("type") == "output_text"
    )


def _make_rollout(
    reward: RewardFunction,
    prompt: Conversation,
    completion: Conversation,
    fields: Mapping[str, Any],
) -> Rollout:
    """Return a rollout with the columns that a reward function reads.

    Raises:
        InputError: if a column is missing.
    """
    fields = {**fields, "prompt": prompt}
    for name in reward.columns:
        if name not in fields:
            raise missing_column_error(name, fields)
    return Rollout(prompt, completion, {name: fields[name] for name in reward.columns})
