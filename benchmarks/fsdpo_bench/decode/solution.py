"""Solutions of decoders: sampled completions with their steps, step rewards and cost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field

from fsdpo_data.core.sampling import Completion, FinishReason, SamplingSpec, add_tokens
from fsdpo_data.engines.samplers import Sampler, stream
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.thinking import split_solution
from fsdpo_data.steps.rewards import aggregate
from fsdpo_data.steps.segment import split_at_lengths

#: Callback for progress: number of prompts that finished since the last call, and their tokens.
OnFinished = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class DecodedSolution:
    """One solution of one problem."""

    text: str  #: The complete text.
    steps: tuple[str, ...]  #: The steps; joined they are the text.
    finish_reason: FinishReason  #: ``stop``, or ``length`` for a truncated solution.
    n_tokens: int | None  #: Number of generated tokens; None if unknown.
    seconds: float = 0.0  #: Part of the sampler's wall-clock time for this solution.
    #: One reward per step; None without a scorer, or if the scorer cannot read the solution.
    rewards: tuple[float, ...] | None = None
    scoring_seconds: float = 0.0  #: Part of the scorer's wall-clock time for this solution.


@dataclass(frozen=True, slots=True)
class DecodingCost:
    """The cost of one decoder on one problem."""

    #: Generated tokens, discarded ones included; None if unknown.
    tokens: Annotated[int, Field(ge=0)] | None = 0
    #: Number of solutions and prefixes that the reward model scored.
    prm_calls: Annotated[int, Field(ge=0)] = 0
    #: Time of the sampler and the scorer.
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            tokens=add_tokens(self.tokens, other.tokens),
            prm_calls=self.prm_calls + other.prm_calls,
            seconds=self.seconds + other.seconds,
        )

    def round_seconds(self) -> Self:
        """Return the cost as records contain it, with microseconds."""
        return replace(self, seconds=round(self.seconds, 6))

    def to_json(self) -> dict[str, Any]:
        """Return the cost as plain JSON."""
        return {"tokens": self.tokens, "prm_calls": self.prm_calls, "seconds": self.seconds}


class OwnSolution(NamedTuple):
    """The solution of a decoder that does not choose from samples, with its cost."""

    solution: DecodedSolution  #: The solution.
    cost: DecodingCost  #: The cost of the decoder.


def aggregate_rewards(rewards: Sequence[float] | None, aggregate_name: str) -> float | None:
    """Return the reward of a solution from its step rewards; None without step rewards."""
    return aggregate(rewards, aggregate_name) if rewards else None


def ignore_finished(prompts: int, tokens: int) -> None:
    """Report no progress."""


def sample_solutions(
    prompts: Sequence[str],
    sampler: Sampler,
    sampling: SamplingSpec,
    segmenter: str,
    on_finished: OnFinished = ignore_finished,
) -> list[list[DecodedSolution]]:
    """Sample ``sampling.n`` solutions for each prompt, and split them into steps.

    Args:
        prompts: Rendered prompts.
        sampler: Samples the completions.
        sampling: Sampling settings.
        segmenter: Full name of the segmenter.
        on_finished: Called once per prompt, in the order in which the prompts finish.
    """
    solutions_by_prompt = {}
    for prompt_index, completions in stream(sampler, prompts, sampling):
        prompt = prompts[prompt_index]
        solutions_by_prompt[prompt_index] = [
            DecodedSolution(
                text=completion.text,
                steps=tuple(split_solution(prompt, completion.text, segmenter)),
                finish_reason=completion.finish_reason,
                n_tokens=completion.n_tokens,
                seconds=completion.seconds,
            )
            for completion in completions
        ]
        on_finished(1, sum(completion.n_tokens or 0 for completion in completions))
    return [solutions_by_prompt[prompt_index] for prompt_index in range(len(prompts))]


def greedy_sampling(sampling: SamplingSpec) -> SamplingSpec:
    """Return the sampling settings of greedy decoding."""
    return sampling.replace(n=1, temperature=0.0)


def searched_solution(completion: Completion) -> OwnSolution:
    """Return the solution that a search found, with the cost of the complete search."""
    assert completion.search is not None  # only searches give such completions
    solution = DecodedSolution(
        text=completion.text,
        steps=tuple(split_at_lengths(completion.text, completion.step_chars or ())),
        finish_reason=completion.finish_reason,
        n_tokens=completion.n_tokens,
        rewards=completion.step_rewards,
    )
    cost = DecodingCost(
        tokens=add_tokens(completion.n_tokens, completion.search.discarded_tokens),
        prm_calls=completion.search.prm_calls,
        seconds=completion.seconds,
    )
    return OwnSolution(solution, cost)


def add_rewards(
    prompts: Sequence[str],
    solutions: Sequence[Sequence[DecodedSolution]],
    scorer: Scorer,
    questions: Sequence[str | None] | None = None,
) -> list[list[DecodedSolution]]:
    """Return the solutions of each prompt with step rewards.

    Args:
        prompts: Rendered prompts.
        solutions: The solutions of each prompt.
        scorer: Rewards the steps; all solutions go to the scorer in one call.
        questions: The question of each prompt, for scorers with their own prompt.
    """
    groups = zip(prompts, questions or [None] * len(prompts), solutions, strict=True)
    items = [
        ScorerInput(prompt=prompt, steps=solution.steps, question=question)
        for prompt, question, prompt_solutions in groups
        for solution in prompt_solutions
    ]
    all_rewards, seconds_per_item = timed_scores(scorer, items)
    rewards = iter(all_rewards)
    return [
        [
            replace(solution, rewards=next(rewards), scoring_seconds=seconds_per_item)
            for solution in prompt_solutions
        ]
        for prompt_solutions in solutions
    ]


def timed_scores(
    scorer: Scorer, items: Sequence[ScorerInput]
) -> tuple[list[tuple[float, ...] | None], float]:
    """Return the step rewards of all items, and the scorer's seconds per item."""
    started = time.perf_counter()
    all_rewards = scorer.score(items)
    seconds_per_item = (time.perf_counter() - started) / max(1, len(items))
    rewards_of_items = [None if rewards is None else tuple(rewards) for rewards in all_rewards]
    return rewards_of_items, seconds_per_item
