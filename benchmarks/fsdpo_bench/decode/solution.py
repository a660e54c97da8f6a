"""Solutions as decoders see them: drawn from a sampler, rewarded by a scorer, at a cost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fsdpo_data.core.sampling import FinishReason, SamplingSpec, add_tokens
from fsdpo_data.engines.samplers import Sampler, stream
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.thinking import split_solution
from fsdpo_data.steps.rewards import aggregate

#: Is told how many prompts a decoder has finished since it last said so, and their tokens.
OnFinished = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class DecodedSolution:
    """One solution of one problem."""

    text: str
    steps: tuple[str, ...]
    finish_reason: FinishReason
    n_tokens: int | None
    seconds: float = 0.0  #: Its share of the sampler's time.
    #: One reward per step; None where no scorer was asked, or it could not read it.
    rewards: tuple[float, ...] | None = None
    scoring_seconds: float = 0.0  #: Its share of the scorer's time.


@dataclass(frozen=True, slots=True)
class DecodingCost:
    """What one decoder spent on one problem."""

    tokens: int | None = 0  #: Tokens generated, dropped ones too; None where nobody has counted.
    prm_calls: int = 0  #: Solutions, or beginnings of one, that the reward model was asked about.
    seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            add_tokens(self.tokens, other.tokens),
            self.prm_calls + other.prm_calls,
            self.seconds + other.seconds,
        )


def aggregate_rewards(rewards: Sequence[float] | None, how: str) -> float | None:
    """Return one number for the rewards of a solution; None where there is no reward."""
    return aggregate(rewards, how) if rewards else None


def sample_solutions(
    prompts: Sequence[str],
    sampler: Sampler,
    sampling: SamplingSpec,
    segmenter: str,
    finished: OnFinished = lambda prompts, tokens: None,
) -> list[list[DecodedSolution]]:
    """Sample ``sampling.n`` solutions for each prompt, and cut them into steps."""
    found = {}
    for place, completions in stream(sampler, prompts, sampling):
        found[place] = [
            DecodedSolution(
                e.text,
                tuple(split_solution(prompts[place], e.text, segmenter)),
                e.finish_reason,
                e.n_tokens,
                e.seconds,
            )
            for e in completions
        ]
        finished(1, sum(each.n_tokens or 0 for each in completions))
    return [found[place] for place in range(len(prompts))]


def greedy_sampling(sampling: SamplingSpec) -> SamplingSpec:
    """Return how to draw the most likely solution, token by token."""
    return replace(sampling, n=1, temperature=0.0)


def add_rewards(
    prompts: Sequence[str],
    solutions: Sequence[Sequence[DecodedSolution]],
    scorer: Scorer,
    questions: Sequence[str | None] | None = None,
) -> list[list[DecodedSolution]]:
    """Return the solutions of each prompt with the reward of every step."""
    asked = zip(prompts, questions or [None] * len(prompts), solutions, strict=True)
    items = [
        ScorerInput(prompt, each.steps, question)
        for prompt, question, group in asked
        for each in group
    ]
    found, share = timed_scores(scorer, items)
    rewards = iter(found)
    return [
        [replace(each, rewards=next(rewards), scoring_seconds=share) for each in group]
        for group in solutions
    ]


def timed_scores(
    scorer: Scorer, items: Sequence[ScorerInput]
) -> tuple[list[tuple[float, ...] | None], float]:
    """Return the rewards of solutions, and each one's share of the seconds it took."""
    started = time.perf_counter()
    rewards = scorer.score(items)
    share = (time.perf_counter() - started) / max(1, len(items))
    return [None if each is None else tuple(each) for each in rewards], share
