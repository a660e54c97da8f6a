"""Fakes of engines."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.item_errors import collect_results, process_by_bisection
from fsdpo_data.engines.samplers import Sampler, SampleResult
from fsdpo_data.engines.samplers.tokenization import cut_at_stop
from fsdpo_data.engines.scorers import Scorer, ScoreResult, ScorerInput

#: Thinking of :class:`ThinkingSampler`, and its answer.
THOUGHT = "Hm.\n\nLet me see.\n\nIt is 4."
ANSWER = "It is 4.\n\nMore follows."


_LAST_STEP = "Step 2: So it is {}. The answer is: {}"


def sample_all(
    sampler: Sampler, prompts: Sequence[str | Prompt], spec: SamplingSpec
) -> list[list[Completion]]:
    """Return the completions of all prompts, in the order of the prompts."""
    records = [prompt if isinstance(prompt, Prompt) else Prompt(prompt) for prompt in prompts]
    return collect_results(sampler.sample(records, spec))


def score_all(scorer: Scorer, items: Sequence[ScorerInput]) -> list[list[float] | None]:
    """Return the rewards of all items, in the order of the items."""
    return collect_results(scorer.score(items))


class TextSampler:
    """Base class of samplers that complete a batch of texts, or raise an error for a bad one.

    As in a sampler that was loaded, a failed prompt does not stop the others.
    """

    model = ModelRef("texts", "0")

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        texts = [prompt.full_text for prompt in prompts]
        return process_by_bisection(
            lambda batch: enumerate(self.complete_texts(batch, spec)), texts
        )

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        raise NotImplementedError


class BatchScorer:
    """Base class of scorers that return the rewards of a batch, or raise an error for a bad item.

    As in a scorer that was loaded, a failed item does not stop the others.
    """

    model = ModelRef("rewards", "0")

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        return process_by_bisection(lambda batch: enumerate(self.compute_rewards(batch)), items)

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        raise NotImplementedError


class ThinkingSampler:
    """A sampler whose tokens are characters; it thinks and then answers, from any prefix.

    Args:
        thinking: The text of the thinking.
        counts: Whether the sampler counts tokens.
        opens: Text with which the sampler opens its thinking; "" if the prompt opens it.
    """

    model = ModelRef("thinker", "0")

    def __init__(self, thinking: str = THOUGHT, *, counts: bool = True, opens: str = "") -> None:
        self.thinking = thinking
        self.counts_tokens = counts
        self.opening = opens
        self.requests: list[tuple[list[str], SamplingSpec]] = []

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        contexts = [prompt.full_text for prompt in prompts]
        self.requests.append((contexts, spec))
        for index, context in enumerate(contexts):
            yield index, [self.complete(context, spec, i) for i in range(spec.n)]

    def complete(self, context: str, spec: SamplingSpec, index: int) -> Completion:
        generated = context.partition("2+2?")[2]
        text_before, end_marker, text_after = generated.partition("</think>")
        script = f"{self.opening}{self.thinking}"
        label = re.match(r"\s*(\d):", text_after if end_marker else generated)
        index = int(label[1]) if label else index  # a continued answer keeps its label
        if not generated.lstrip("\n").startswith("<think>") and not self.opening:
            ahead = f"{index}: {ANSWER}".removeprefix(generated)  # without thinking
        elif end_marker:
            ahead = f"\n\n{index}: {ANSWER}".removeprefix(text_after)
        else:
            written = text_before if self.opening else text_before.partition("<think>\n")[2]
            ahead = f"{script.removeprefix(written)}</think>\n\n{index}: {ANSWER}"
        text, stop = cut_at_stop(ahead[: spec.max_tokens], spec.stop)
        is_finished = stop is not None or len(ahead) <= spec.max_tokens
        count = len(text) + len(stop or "")
        n_tokens = count if self.counts_tokens else None
        return Completion(text, "stop" if is_finished else "length", n_tokens, 0.5, stop)


class FixedSampler(TextSampler):
    """Completes prompts from a table of their completions."""

    model = ModelRef("fixed", "0")

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Return the first ``spec.n`` texts of each prompt, a token per word."""
        cut = [
            [cut_at_stop(text, spec.stop) for text in self._texts[prompt][: spec.n]]
            for prompt in prompts
        ]
        return [
            [Completion(text, "stop", len(text.split()), stop_string=stop) for text, stop in text]
            for text in cut
        ]


class TableScorer(BatchScorer):
    """Rewards solutions from a table of texts, one per step."""

    model = ModelRef("table", "0")

    def __init__(self, rewards: Mapping[str, Sequence[float] | None]) -> None:
        self._rewards = rewards

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the first rewards of the item's text, as many as it has steps."""
        results: list[list[float] | None] = []
        for item in items:
            rewards = self._rewards["".join(item.steps)]
            results.append(None if rewards is None else list(rewards[: len(item.steps)]))
        return results


class Writer(TextSampler):
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

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
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


class Judge(BatchScorer):
    """Scorer of random rewards that depend on the steps; few values, so that there are ties."""

    model = ModelRef("judge", "0")

    def __init__(self, seed: int, levels: int = 4, unread: float = 0.0) -> None:
        self.seed, self.levels, self.unread = seed, levels, unread
        self.calls = 0

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
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


class PartlyRightSampler(TextSampler):
    """A sampler with 3 of 4 right answers after a right step, and 1 of 4 after a wrong one.

    Args:
        dies_after: Calls answered before the engine dies.
    """

    model = ModelRef("continues", "0")

    def __init__(self, dies_after: int | None = None) -> None:
        self.prompts: list[str] = []
        self.remaining_calls = dies_after

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if self.remaining_calls == 0:
            raise UnavailableError("the engine died")
        self.remaining_calls = None if self.remaining_calls is None else self.remaining_calls - 1
        self.prompts += prompts
        return [self._completions(prompt)[: spec.n] for prompt in prompts]

    def _completions(self, prompt: str) -> list[Completion]:
        right = 3 if "= 42" in prompt else 1
        answers = [42] * right + [7] * (4 - right)
        return [Completion(_LAST_STEP.format(a, a), "stop", 10, 0.5) for a in answers]
