"""Fakes of engines."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers.tokenization import cut_at_stop
from fsdpo_data.engines.scorers import ScorerInput


class FixedSampler:
    """Completes prompts from a table of their completions."""

    model = ModelRef("fixed", "0")

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Return the first ``spec.n`` texts of each prompt, a token per word."""
        cut = [
            [cut_at_stop(text, spec.stop) for text in self._texts[prompt][: spec.n]]
            for prompt in prompts
        ]
        return [
            [Completion(text, "stop", len(text.split()), stop_string=stop) for text, stop in text]
            for text in cut
        ]


class TableScorer:
    """Rewards solutions from a table of texts, one per step."""

    model = ModelRef("table", "0")

    def __init__(self, rewards: Mapping[str, Sequence[float] | None]) -> None:
        self._rewards = rewards

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the first rewards of the item's text, as many as it has steps."""
        results: list[list[float] | None] = []
        for item in items:
            rewards = self._rewards["".join(item.steps)]
            results.append(None if rewards is None else list(rewards[: len(item.steps)]))
        return results


class Writer:
    """Sampler of random lines; sample i of a prompt depends only on the prompt, i and the seed.

    Args:
        seed: Selects the random texts, as a different model would.
        separator: Text between steps.
        mark: Text at the start of a step, with ``{}`` for its number.
        limit: Maximal number of words of a completion.
    """

    model = ModelRef("writer", "0")

    def __init__(
        self, seed: int, separator: str = "\n", mark: str = "", limit: int | None = None
    ) -> None:
        self.seed, self.separator, self.mark, self.limit = seed, separator, mark, limit
        self.requests: list[tuple[str, int]] = []

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        self.requests += [(prompt, spec.n) for prompt in prompts]
        return [[self.one(prompt, i, spec) for i in range(spec.n)] for prompt in prompts]

    def one(self, prompt: str, index: int, spec: SamplingSpec) -> Completion:
        draw = random.Random(f"{self.seed}/{prompt}/{index}")
        done = prompt.count(self.separator)
        steps = [
            self.mark.format(done + i) + draw.choice(["a b", "c", "d e f", "the answer is 7"])
            for i in range(draw.randint(1, 4))
        ]
        text, stop = cut_at_stop(self.separator.join(steps), spec.stop)
        limit = min(spec.max_tokens, self.limit or spec.max_tokens)
        words = text.split(" ")
        if len(words) > limit:
            return Completion(" ".join(words[:limit]), "length", limit)
        return Completion(text, "stop", len(words), stop_string=stop)


class Judge:
    """Scorer of random rewards that depend on the steps; few values, so that there are ties."""

    model = ModelRef("judge", "0")

    def __init__(self, seed: int, levels: int = 4, unread: float = 0.0) -> None:
        self.seed, self.levels, self.unread = seed, levels, unread
        self.calls = 0

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self.calls += len(items)
        return [self.one(item.prompt, tuple(item.steps)) for item in items]

    def one(self, prompt: str, steps: Sequence[str]) -> list[float] | None:
        steps = tuple(steps)
        draw = random.Random(f"{self.seed}/{prompt}/{steps}")
        if draw.random() < self.unread:
            return None
        rewards = []
        for end in range(len(steps)):
            step = random.Random(f"{self.seed}/{prompt}/{steps[: end + 1]}")
            rewards.append(step.randrange(self.levels) / self.levels)
        return rewards
