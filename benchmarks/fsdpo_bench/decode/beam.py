"""Step-wise beam search: Algorithm 1 of Full-Step-DPO (Xu et al. 2025), for many problems at once.

The comments name the lines of the algorithm. It leaves three points open:

- A finished solution in the beam has no next step. It stays in the candidates once, with the
  reward of its last step. A solution that stopped on length is not finished; the next round
  continues it.
- Identical partial solutions of one problem are sampled together, so their next steps are
  different samples.
- Among equal rewards, the earlier sample comes first. A solution that the scorer cannot read
  (too long, or blank) comes last.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from fsdpo_bench.decode.solution import (
    DecodedSolution,
    DecodingCost,
    OnFinished,
    OwnSolution,
    aggregate_rewards,
    ignore_finished,
    timed_scores,
)
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import (
    Completion,
    ContinuedPrompt,
    FinishReason,
    SamplingSpec,
    add_tokens,
)
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.thinking import split_solution
from fsdpo_data.steps.rewards import AGGREGATES
from fsdpo_data.steps.segment import segmenter_name, step_ending, step_stops


@dataclass(frozen=True, slots=True)
class BeamSpec(Options):
    """Settings of a beam search, without the sampling settings.

    Attributes:
        b1: Next steps to sample for each solution in the beam.
        b2: Solutions to keep after each step (the beam size).
        max_steps: Maximum number of generations per solution (C in the algorithm); a step longer
            than ``step_tokens`` takes several generations.
        step_tokens: Maximum number of tokens per generation; the next generation continues a longer
            step.
        first_keep: Solutions to keep after the first step: ``b1`` as in the algorithm, or ``b2`` as
            in the text of the paper.
        aggregate: Function from step rewards to the reward that ranks solutions; ``last`` takes the
            reward of the newest step.
    """

    b1: Annotated[int, Option(min=1)] = 5
    b2: Annotated[int, Option(min=1)] = 1
    max_steps: Annotated[int, Option(min=1)] = 32
    step_tokens: Annotated[int, Option(min=1)] = 256
    first_keep: Literal["b1", "b2"] = "b1"
    aggregate: Annotated[str, Option(choices=AGGREGATES)] = "last"


@dataclass(frozen=True, slots=True)
class PartialSolution:
    """The first steps of a solution: S^(1:t) in the algorithm."""

    text: str = ""  #: All steps joined.
    steps: tuple[str, ...] = ()  #: The steps so far.
    #: Number of generated tokens, including the tokens of dropped steps; None if unknown.
    n_tokens: int | None = 0
    #: Ids of the generated tokens, which may reach beyond the text; None if the engine has no ids.
    token_ids: tuple[int, ...] | None = ()
    is_finished: bool = False  #: Whether the model ended the solution.
    is_stuck: bool = False  #: Whether no tokens are left for another step.
    reward: float = -math.inf  #: The aggregated reward r^(1:t); -inf without step rewards.
    rewards: tuple[float, ...] | None = None  #: One reward per step; None before scoring.

    @property
    def is_complete(self) -> bool:
        """Whether the solution gets no further step."""
        return self.is_finished or self.is_stuck


@dataclass(slots=True)
class _BeamState:
    """The state of the search for one problem."""

    prompt: str  #: The prompt of the policy.
    question: str | None  #: The question, for scorers with their own prompt.
    #: The partial solutions of the beam (S in the algorithm).
    beam: list[PartialSolution] = field(default_factory=lambda: [PartialSolution()])
    cost: DecodingCost = field(default_factory=DecodingCost)  #: Cost of the search so far.

    @property
    def is_done(self) -> bool:
        """Whether all solutions of the beam are complete."""
        return all(solution.is_complete for solution in self.beam)


class _PrefixKey(NamedTuple):
    """A partial solution by its content; equal ones of a problem share their continuations."""

    search_index: int  #: Index of the search of the problem.
    text: str  #: Text of the partial solution.


class _SamplingGroup(NamedTuple):
    """The settings that continuations have in common when they are sampled together."""

    n: int  #: Continuations per prefix.
    stop_strings: tuple[str, ...]  #: Strings that end a step.


class _CandidateSlot(NamedTuple):
    """The location of a candidate that needs a reward."""

    state: _BeamState  #: The search of the candidate.
    candidates: list[PartialSolution]  #: All candidates of the search.
    candidate_index: int  #: Index of the candidate in ``candidates``.


def beam_search(
    prompts: Sequence[str],
    sampler: Sampler,
    scorer: Scorer,
    sampling: SamplingSpec,
    segmenter: str,
    spec: BeamSpec,
    on_finished: OnFinished = ignore_finished,
    questions: Sequence[str | None] | None = None,
) -> list[OwnSolution]:
    """Search for one solution of each prompt.

    Args:
        prompts: Rendered prompts of the policy.
        sampler: Samples the next steps.
        scorer: Rewards the steps.
        sampling: Temperature, nucleus, seed and maximum tokens per solution; ``n`` has no effect.
            The last step may exceed the maximum by fewer than ``step_tokens`` tokens.
        segmenter: Full name of the segmenter.
        spec: Settings of the search.
        on_finished: Called when searches finish.
        questions: The question of each prompt, for scorers with their own prompt.

    Returns:
        For each prompt, the best solution with its step rewards, and the cost of the search.
    """
    searcher = _BeamSearcher(
        sampler=sampler, scorer=scorer, sampling=sampling, segmenter=segmenter, spec=spec
    )
    prompt_questions = zip(prompts, questions or [None] * len(prompts), strict=True)
    searches = [_BeamState(prompt, question) for prompt, question in prompt_questions]  # line 5
    first_size = spec.b1 if spec.first_keep == "b1" else spec.b2
    searcher.advance(searches, first_size)  # lines 6-8
    active = searches
    for _ in range(1, spec.max_steps):  # lines 9, 10 and 26
        n_active = len(active)
        active = [search for search in active if not search.is_done]
        on_finished(n_active - len(active), 0)
        if not active:  # line 11
            break
        searcher.advance(active, spec.b2)  # lines 14-25
    on_finished(len(active), sum(search.cost.tokens or 0 for search in searches))
    return [OwnSolution(_best_solution(search.beam), search.cost) for search in searches]  # line 28


@dataclass(frozen=True, slots=True)
class _BeamSearcher:
    """Extends the beams of many problems by one step per round."""

    sampler: Sampler  #: Samples the next steps.
    scorer: Scorer  #: Rewards the steps.
    sampling: SamplingSpec  #: Sampling settings of a solution.
    segmenter: str  #: Full name of the segmenter.
    spec: BeamSpec  #: Settings of the search.

    def advance(self, searches: Sequence[_BeamState], beam_size: int) -> None:
        """Extend every beam by one step, and keep its ``beam_size`` best candidates."""
        all_candidates = self._extend_beams(searches)  # lines 6, 16-18
        self._score_candidates(searches, all_candidates)  # lines 7, 19
        for search, candidates in zip(searches, all_candidates, strict=True):
            # The sort is stable, so the earlier of equal candidates comes first.
            ranked = sorted(candidates, key=lambda candidate: -candidate.reward)
            search.beam = ranked[:beam_size]  # lines 8, 24, 25

    def _extend_beams(self, searches: Sequence[_BeamState]) -> list[list[PartialSolution]]:
        """Return the candidates S_new of every search: b1 next steps per solution of the beam.

        Complete solutions stay in the candidates. The candidates are in the order of the beam.
        """
        completions_by_prefix = self._sample_steps(searches)
        all_candidates: list[list[PartialSolution]] = []
        for search_index, search in enumerate(searches):
            candidates: list[PartialSolution] = []
            for solution in search.beam:
                if solution.is_complete:
                    candidates.append(solution)
                    continue
                completions = completions_by_prefix[_PrefixKey(search_index, solution.text)]
                candidates += [
                    self._extend(search.prompt, solution, completion)
                    for completion in itertools.islice(completions, self.spec.b1)
                ]
            all_candidates.append(candidates)
        return all_candidates

    def _sample_steps(
        self, searches: Sequence[_BeamState]
    ) -> dict[_PrefixKey, Iterator[Completion]]:
        """Sample b1 continuations for each incomplete solution, and add their cost.

        A text that is in a beam k times gets k·b1 different continuations. Texts with equal
        settings (:class:`_SamplingGroup`) go to the sampler in one call.
        """
        needed: Counter[_PrefixKey] = Counter()
        solutions: dict[_PrefixKey, PartialSolution] = {}
        for search_index, search in enumerate(searches):
            for solution in search.beam:
                if not solution.is_complete:
                    key = _PrefixKey(search_index, solution.text)
                    needed[key] += self.spec.b1
                    solutions[key] = solution
        groups: dict[_SamplingGroup, list[_PrefixKey]] = defaultdict(list)
        for key, n in needed.items():
            stop_strings = step_stops(segmenter_name(self.segmenter), key.text)
            groups[_SamplingGroup(n, stop_strings)].append(key)
        completions_by_prefix = {}
        for group, keys in groups.items():
            prompts = [
                _continued_prompt(searches[key.search_index].prompt, solutions[key]) for key in keys
            ]
            step_sampling = replace(
                self.sampling,
                n=group.n,
                max_tokens=min(self.spec.step_tokens, self.sampling.max_tokens),
                stop=(*self.sampling.stop, *group.stop_strings),
            )
            results = self.sampler.sample(prompts, step_sampling)
            for key, completions in zip(keys, results, strict=True):
                completions_by_prefix[key] = iter(completions)
                for completion in completions:
                    searches[key.search_index].cost += DecodingCost(
                        tokens=completion.n_tokens, prm_calls=0, seconds=completion.seconds
                    )
        return completions_by_prefix

    def _extend(
        self, prompt: str, partial: PartialSolution, completion: Completion
    ) -> PartialSolution:
        """Return the partial solution with one more step, as the segmenter splits the text."""
        text = partial.text + completion.text
        stop = completion.stop_string
        is_step_end = stop is not None and stop not in self.sampling.stop
        if stop is not None and is_step_end:
            ending = step_ending(stop)
            # Words contain the space before them. Without ids, the next completion has the space.
            text += ending if completion.token_ids is not None else ending.rstrip(" ")
        n_tokens = add_tokens(partial.n_tokens, completion.n_tokens)
        is_context_full = completion.finish_reason == "length" and not completion.text
        is_budget_spent = n_tokens is not None and n_tokens >= self.sampling.max_tokens
        is_stuck = is_context_full or is_budget_spent
        if completion.finish_reason == "length" and completion.token_ids and not is_stuck:
            text = text.rstrip(
                "\N{REPLACEMENT CHARACTER}"
            )  # the next tokens complete the character
        steps = split_solution(prompt, text, self.segmenter)
        is_finished = completion.finish_reason == "stop" and not is_step_end
        n_allowed_steps = len(partial.steps) + 1
        if len(steps) > n_allowed_steps:  # the completion contains later steps; drop them
            steps = steps[:n_allowed_steps]
            is_finished = False
            text = "".join(steps)
        return PartialSolution(
            text=text,
            steps=tuple(steps),
            n_tokens=n_tokens,
            token_ids=completion.token_ids,
            is_finished=is_finished,
            is_stuck=is_stuck,
        )

    def _score_candidates(
        self, searches: Sequence[_BeamState], all_candidates: list[list[PartialSolution]]
    ) -> None:
        """Replace new candidates by candidates with rewards, and add the cost.

        Complete solutions from the previous round keep their rewards.
        """
        slots = []
        for search, candidates in zip(searches, all_candidates, strict=True):
            for index, candidate in enumerate(candidates):
                if not any(candidate is solution for solution in search.beam):
                    slots.append(_CandidateSlot(search, candidates, index))
        items = [
            ScorerInput(
                prompt=slot.state.prompt,
                steps=slot.candidates[slot.candidate_index].steps,
                question=slot.state.question,
            )
            for slot in slots
        ]
        all_rewards, seconds_per_item = timed_scores(self.scorer, items)
        for slot, rewards in zip(slots, all_rewards, strict=True):
            reward = aggregate_rewards(rewards, self.spec.aggregate)
            slot.candidates[slot.candidate_index] = replace(
                slot.candidates[slot.candidate_index],
                reward=-math.inf if reward is None else reward,
                rewards=rewards,
            )
            slot.state.cost += DecodingCost(prm_calls=1, seconds=seconds_per_item)


def _continued_prompt(prompt: str, solution: PartialSolution) -> str:
    """Return the prompt that continues a partial solution, with its tokens if they are known."""
    if solution.token_ids is None:
        return prompt + solution.text
    return ContinuedPrompt(prompt, solution.text, solution.token_ids)


def _best_solution(beam: Sequence[PartialSolution]) -> DecodedSolution:
    """Return the solution with the highest reward; the earliest of equal ones."""
    best = max(beam, key=lambda solution: solution.reward)
    reason: FinishReason = "stop" if best.is_finished else "length"
    return DecodedSolution(
        text=best.text,
        steps=best.steps,
        finish_reason=reason,
        n_tokens=best.n_tokens,
        rewards=best.rewards,
    )
