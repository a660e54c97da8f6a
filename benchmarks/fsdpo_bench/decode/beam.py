"""Step-wise beam search: Algorithm 1 of the paper, for many problems at once.

The comments name the lines of the algorithm. What it leaves open:

- A finished solution in the beam has no next step, so it stands for itself, once, with the reward
  of its last step. One that stopped on length is not finished: it goes on in the next round.
- Solutions of one problem that are equal to the character are sampled together, so that their
  next steps are different samples.
- Among equal rewards the earlier sample comes first. A solution that the scorer cannot read (it is
  too long, or blank) comes last.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from fsdpo_bench.decode.solution import (
    DecodedSolution,
    DecodingCost,
    OnFinished,
    aggregate_rewards,
    timed_scores,
)
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import Completion, FinishReason, SamplingSpec, add_tokens
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.thinking import split_solution
from fsdpo_data.steps.rewards import AGGREGATES
from fsdpo_data.steps.segment import line_ends_of_stop, segmenter_name, step_stops


@dataclass(frozen=True, slots=True)
class BeamSpec(Options):
    """Everything that decides what a search finds, sampling aside.

    Attributes:
        b1: Next steps sampled for each solution in the beam.
        b2: Solutions kept of them.
        max_steps: Steps of a solution at most (the algorithm's C).
        step_tokens: Tokens of one step at most; a longer one goes on in the next round.
        first_keep: First steps kept: ``b1`` as in the algorithm, or ``b2`` as in the paper's text.
        aggregate: What of the step rewards ranks a solution; ``last`` is the step just made.
    """

    b1: Annotated[int, Option(min=1)] = 5
    b2: Annotated[int, Option(min=1)] = 1
    max_steps: Annotated[int, Option(min=1)] = 32
    step_tokens: Annotated[int, Option(min=1)] = 256
    first_keep: Literal["b1", "b2"] = "b1"
    aggregate: Annotated[str, Option(choices=AGGREGATES)] = "last"


@dataclass(frozen=True, slots=True)
class PartialSolution:
    """A solution up to some step: an S^(1:t) of the algorithm."""

    text: str = ""
    steps: tuple[str, ...] = ()
    n_tokens: int | None = 0
    finished: bool = False
    stuck: bool = False  #: Whether it cannot go on: no room is left.
    reward: float = -math.inf  #: The r^(1:t); below every number if there is none.
    rewards: tuple[float, ...] | None = None

    @property
    def complete(self) -> bool:
        """Whether there is nothing to add to it."""
        return self.finished or self.stuck


@dataclass(slots=True)
class _BeamState:
    """The search for one problem: how it is asked, its beam (the algorithm's S), its cost."""

    prompt: str
    question: str | None
    beam: list[PartialSolution] = field(default_factory=lambda: [PartialSolution()])
    cost: DecodingCost = field(default_factory=DecodingCost)


def beam_search(
    prompts: Sequence[str],
    sampler: Sampler,
    scorer: Scorer,
    sampling: SamplingSpec,
    segmenter: str,
    spec: BeamSpec,
    finished: OnFinished = lambda prompts, tokens: None,
    questions: Sequence[str | None] | None = None,
) -> list[tuple[DecodedSolution, DecodingCost]]:
    """Search for one solution of each prompt.

    ``sampling`` has temperature, nucleus, seed, and the most tokens a solution may have;
    ``segmenter`` is the full name of the one that says what a step is; ``questions`` are those in
    the prompts, for scorers that ask in words of their own.

    Of each prompt come the solution found, with its step rewards, and what the search cost.
    """
    rounds = _BeamSearcher(sampler, scorer, sampling, segmenter, spec)
    asked = zip(prompts, questions or [None] * len(prompts), strict=True)
    searches = [_BeamState(prompt, question) for prompt, question in asked]  # line 5
    rounds.advance(searches, spec.b1 if spec.first_keep == "b1" else spec.b2)  # lines 6-8
    owed = searches
    for _ in range(1, spec.max_steps):  # lines 9, 10 and 26
        before = len(owed)
        owed = [each for each in owed if not all(one.complete for one in each.beam)]
        finished(before - len(owed), 0)
        if not owed:  # line 11
            break
        rounds.advance(owed, spec.b2)  # lines 14-25
    finished(len(owed), sum(each.cost.tokens or 0 for each in searches))
    return [(_best(each.beam), each.cost) for each in searches]  # line 28


@dataclass(frozen=True, slots=True)
class _BeamSearcher:
    """One round of the algorithm after the other, for all problems that are not done yet."""

    sampler: Sampler
    scorer: Scorer
    sampling: SamplingSpec
    segmenter: str
    spec: BeamSpec

    def advance(self, searches: Sequence[_BeamState], keep: int) -> None:
        """Give every beam its candidates for the next step, and keep the best of them."""
        candidates = self._candidates(searches)  # lines 6, 16-18
        self._score(searches, candidates)  # lines 7, 19
        for search, found in zip(searches, candidates, strict=True):
            ranked = sorted(found, key=lambda each: -each.reward)  # a stable sort
            search.beam = ranked[:keep]  # lines 8, 24, 25

    def _candidates(self, searches: Sequence[_BeamState]) -> list[list[PartialSolution]]:
        """Return S_new of every search: b1 next steps of each solution, in the beam's order."""
        drawn = self._draw(searches)
        found: list[list[PartialSolution]] = []
        for number, search in enumerate(searches):
            found.append([])
            for each in search.beam:
                if each.complete:
                    found[-1].append(each)
                    continue
                completions = itertools.islice(drawn[number, each.text], self.spec.b1)
                found[-1] += [self._extend(searches[number].prompt, each, it) for it in completions]
        return found

    def _draw(self, searches: Sequence[_BeamState]) -> dict[tuple[int, str], Iterator[Completion]]:
        """Sample as many continuations of each text as the beams that hold it need.

        Texts that need equally many, with the same stop strings, go to the sampler together.
        """
        needs: Counter[tuple[int, str]] = Counter()
        for number, search in enumerate(searches):
            for each in search.beam:
                if not each.complete:
                    needs[number, each.text] += self.spec.b1
        batches: dict[tuple[int, tuple[str, ...]], list[tuple[int, str]]] = defaultdict(list)
        for key, n in needs.items():
            batches[n, step_stops(segmenter_name(self.segmenter), key[1])].append(key)
        drawn = {}
        most = min(self.spec.step_tokens, self.sampling.max_tokens)
        for (n, stops), keys in batches.items():
            prompts = [searches[number].prompt + text for number, text in keys]
            step = replace(self.sampling, n=n, max_tokens=most, stop=(*self.sampling.stop, *stops))
            for key, found in zip(keys, self.sampler.sample(prompts, step), strict=True):
                drawn[key] = iter(found)
                for completion in found:
                    searches[key[0]].cost += DecodingCost(
                        completion.n_tokens, 0, completion.seconds
                    )
        return drawn

    def _extend(
        self, prompt: str, partial: PartialSolution, completion: Completion
    ) -> PartialSolution:
        """Return the solution with the step that the model wrote, as the segmenter cuts it."""
        text = partial.text + completion.text
        stop = completion.stop_string
        paused = stop is not None and stop not in self.sampling.stop
        if stop is not None and paused:
            text += line_ends_of_stop(stop)
        steps = split_solution(prompt, text, self.segmenter)
        finished = completion.finish_reason == "stop" and not paused
        most = len(partial.steps) + 1
        if len(steps) > most:  # it ran on into steps that are not to be made yet
            steps, finished = steps[:most], False
            text = "".join(steps)
        n_tokens = add_tokens(partial.n_tokens, completion.n_tokens)
        no_room = completion.finish_reason == "length" and not completion.text
        stuck = no_room or (n_tokens is not None and n_tokens >= self.sampling.max_tokens)
        return PartialSolution(text, tuple(steps), n_tokens, finished, stuck)

    def _score(
        self, searches: Sequence[_BeamState], candidates: list[list[PartialSolution]]
    ) -> None:
        """Fill the rewards of new candidates in; those of finished solutions are there already."""
        owed = [
            (search, found, place)
            for search, found in zip(searches, candidates, strict=True)
            for place, each in enumerate(found)
            if not any(each is kept for kept in search.beam)
        ]
        items = [
            ScorerInput(search.prompt, found[place].steps, search.question)
            for search, found, place in owed
        ]
        rewards, share = timed_scores(self.scorer, items)
        for (search, found, place), given in zip(owed, rewards, strict=True):
            reward = aggregate_rewards(given, self.spec.aggregate)
            rank = -math.inf if reward is None else reward
            found[place] = replace(found[place], reward=rank, rewards=given)
            search.cost += DecodingCost(prm_calls=1, seconds=share)


def _best(beam: Sequence[PartialSolution]) -> DecodedSolution:
    """Return the solution with the highest final reward, the earliest of equals."""
    found = max(beam, key=lambda each: each.reward)
    reason: FinishReason = "stop" if found.finished else "length"
    return DecodedSolution(found.text, found.steps, reason, found.n_tokens, rewards=found.rewards)
