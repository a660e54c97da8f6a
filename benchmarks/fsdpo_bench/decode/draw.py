"""Whole solutions from a sampler, and their rewards from a scorer: what most decoders share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from fsdpo_bench.decode.solution import Solution
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer, SteppedText
from fsdpo_data.steps.segment import Segmenter


def draw(
    prompts: Sequence[str], sampler: Sampler, sampling: SamplingSpec, segment: Segmenter
) -> list[list[Solution]]:
    """Sample ``sampling.n`` solutions for each prompt, and cut them into steps."""
    return [
        [
            Solution(
                each.text,
                tuple(segment(each.text)),
                each.finish_reason,
                each.n_tokens,
                each.seconds,
            )
            for each in completions
        ]
        for completions in sampler.sample(prompts, sampling)
    ]


def greedy(
    prompts: Sequence[str], sampler: Sampler, sampling: SamplingSpec, segment: Segmenter
) -> list[Solution]:
    """Return the most likely solution of each prompt, token by token."""
    once = replace(sampling, n=1, temperature=0.0)
    return [solution for [solution] in draw(prompts, sampler, once, segment)]


def with_rewards(
    prompts: Sequence[str], solutions: Sequence[Sequence[Solution]], scorer: Scorer
) -> list[list[Solution]]:
    """Return the solutions of each prompt with the reward of every step."""
    started = time.perf_counter()
    items = [
        SteppedText(prompt, each.steps)
        for prompt, group in zip(prompts, solutions, strict=True)
        for each in group
    ]
    rewards = iter(scorer.score(items))
    share = (time.perf_counter() - started) / max(1, len(items))
    return [
        [
            replace(
                each,
                rewards=None if found is None else tuple(found),
                scoring_seconds=share,
            )
            for each, found in zip(group, rewards, strict=False)
        ]
        for group in solutions
    ]
