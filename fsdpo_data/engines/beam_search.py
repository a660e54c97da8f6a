"""Step-wise beam search, a sampler: Algorithm 1 of Full-Step-DPO (Xu et al. 2025).

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
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.options import Options
from fsdpo_data.core.sampling import (
    Completion,
    Prompt,
    SamplingSpec,
    SearchCost,
    add_tokens,
)
from fsdpo_data.engines.samplers import (
    Sampler,
    SampleResult,
    check_stop_is_known,
    close_engine,
)
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.steps.segment import (
    SEGMENTERS,
    segmenter_name,
    split_solution,
    step_ending,
    step_stops,
)

#: Maximum number of tokens per generation; the next generation continues a longer step.
MAX_STEP_TOKENS = 256


class BeamSpec(Options):
    """Settings of a beam search, without the sampling settings."""

    b1: Annotated[int, Field(ge=1)] = 5
    """Next steps to sample for each solution in the beam."""
    b2: Annotated[int, Field(ge=1)] = 1
    """Solutions to keep after each step (the beam size)."""
    max_steps: Annotated[int, Field(ge=1)] = 32
    """Maximum number of generations per solution. A generation adds one step, or
    a part of a step that is longer than 256 tokens.
    """
    first_keep: Literal["b1", "b2"] = "b1"
    """Solutions to keep after the first step: ``b1`` as in the algorithm of Full-Step-DPO, or
    ``b2`` as in its text.
    """

    def check_sampling(self, sampling: SamplingSpec) -> None:
        """Check that a search with these settings can return ``sampling.n`` solutions.

        Raises:
            InputError: if the beam is smaller, or all next steps would be the same.
        """
        beam_size = min(self.b1, self.b2)
        if sampling.n > beam_size:
            raise sampling.field_error(
                "n",
                f"a beam search with `b1={self.b1}` and `b2={self.b2}` returns at most "
                f"{beam_size} per problem. Use `n={beam_size}`, or a larger beam.",
            )
        if sampling.temperature == 0 and self.b1 > 1:
            raise sampling.field_error(
                "temperature",
                "all next steps of a solution would be the same. Use a temperature above 0, or "
                "`b1=1`.",
            )


@dataclass(frozen=True, slots=True)
class _PartialSolution:
    """The first steps of a solution: S^(1:t) in the algorithm."""

    text: str = ""  #: All steps joined.
    steps: tuple[str, ...] = ()  #: The steps so far.
    #: Number of tokens of the text, and of the stop string after it; None if unknown.
    n_tokens: int | None = 0
    #: Number of generated tokens, including the tokens of dropped steps; None if unknown.
    n_generated_tokens: int | None = 0
    #: Ids of the generated tokens, which may reach beyond the text; None if the engine has no ids.
    token_ids: tuple[int, ...] | None = ()
    is_finished: bool = False  #: Whether the model ended the solution.
    is_stuck: bool = False  #: Whether no tokens are left for another step.
    reward: float = -math.inf  #: The reward of the newest step; -inf without step rewards.
    rewards: tuple[float, ...] | None = None  #: One reward per step; None before scoring.

    @property
    def is_complete(self) -> bool:
        """Whether the solution gets no further step."""
        return self.is_finished or self.is_stuck


@dataclass(slots=True)
class _BeamState:
    """The state of the search for one problem."""

    prompt_index: int  #: Index of the prompt in the batch.
    prompt: Prompt  #: The prompt of the policy.
    #: The partial solutions of the beam (S in the algorithm), the best one first.
    beam: list[_PartialSolution] = field(default_factory=lambda: [_PartialSolution()])
    tokens: int | None = 0  #: Generated tokens so far; None if unknown.
    prm_calls: int = 0  #: Solutions and prefixes that the scorer has read.
    seconds: float = 0.0  #: Part of the sampler's and the scorer's wall-clock time.
    error: ItemError | None = None  #: The reason why an engine refuses a text of the search.

    @property
    def is_done(self) -> bool:
        """Whether all solutions of the beam are complete, or the search has failed."""
        is_failed = self.error is not None
        return is_failed or all(solution.is_complete for solution in self.beam)

    def continued_prompt(self, solution: _PartialSolution, segmenter: str) -> Prompt:
        """Return the prompt that continues a partial solution, with its tokens if it has any."""
        return Prompt(
            self.prompt.full_text,
            self.prompt.question,
            solution.text,
            solution.token_ids,
            thinking_stops=_thinking_stops(segmenter),
        )


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

    search: _BeamState  #: The search of the candidate.
    candidates: list[_PartialSolution]  #: All candidates of the search.
    candidate_index: int  #: Index of the candidate in ``candidates``.


class BeamSampler:
    """A sampler that searches with a policy and a reward model.

    ``SamplingSpec.n`` is the number of solutions to return: the best of the beam, the best one
    first. ``max_tokens`` limits the tokens that are generated for a solution, with the tokens of
    dropped steps; the last step may exceed it by fewer than ``MAX_STEP_TOKENS`` tokens. Prompts
    have the question if the reward model has its own prompt.
    """

    def __init__(self, sampler: Sampler, scorer: Scorer, segmenter: str, spec: BeamSpec) -> None:
        """Combine the models.

        Args:
            sampler: Samples the next steps.
            scorer: Rewards the steps.
            segmenter: Full name of the segmenter.
            spec: Settings of the search.
        """
        self.model = sampler.model
        self._sampler = sampler
        self._scorer = scorer
        self._segmenter = segmenter
        self._spec = spec

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the ``spec.n`` best solutions of each prompt, or the error of one of its texts.

        Raises:
            InputError: if the beam is too small, all next steps would be the same, or a server does
                not name the stop strings of the steps.
        """
        self._spec.check_sampling(spec)
        batch = _BatchSearch(self._sampler, self._scorer, spec, self._segmenter, self._spec)
        return batch.run(prompts)

    def close(self) -> None:
        """Free the memory of both models."""
        close_engine(self._sampler)
        close_engine(self._scorer)


@dataclass(frozen=True, slots=True)
class _BatchSearch:
    """Extends the beams of a batch of problems by one step per round."""

    sampler: Sampler  #: Samples the next steps.
    scorer: Scorer  #: Rewards the steps.
    sampling: SamplingSpec  #: Sampling settings of a solution.
    segmenter: str  #: Full name of the segmenter.
    spec: BeamSpec  #: Settings of the search.

    def run(self, prompts: Sequence[Prompt]) -> Iterator[SampleResult]:
        """Yield the result of each prompt as soon as its search is done."""
        active = [_BeamState(index, prompt) for index, prompt in enumerate(prompts)]  # line 5
        first_size = self.spec.b1 if self.spec.first_keep == "b1" else self.spec.b2
        for step_index in range(self.spec.max_steps):  # lines 9, 10 and 26
            is_first = step_index == 0
            self._advance(active, first_size if is_first else self.spec.b2)  # lines 6-8, 14-25
            yield from (self._result(search) for search in active if search.is_done)
            active = [search for search in active if not search.is_done]
            if not active:  # line 11
                return
        yield from map(self._result, active)

    def _result(self, search: _BeamState) -> SampleResult:
        """Return the best solutions of a search, or its failure."""
        if search.error is not None:
            return search.prompt_index, search.error
        best_solutions = search.beam[: self.sampling.n]  # line 28
        seconds = search.seconds / len(best_solutions)
        completions = [_make_completion(solution, search, seconds) for solution in best_solutions]
        return search.prompt_index, completions

    def _advance(self, searches: Sequence[_BeamState], beam_size: int) -> None:
        """Extend every beam by one step, and keep its ``beam_size`` best candidates."""
        all_candidates = self._extend_beams(searches)  # lines 6, 16-18
        self._score_candidates(searches, all_candidates)  # lines 7, 19
        for search, candidates in zip(searches, all_candidates, strict=True):
            # The sort is stable, so the earlier of equal candidates comes first.
            ranked = sorted(candidates, key=lambda candidate: -candidate.reward)
            search.beam = ranked[:beam_size]  # lines 8, 24, 25

    def _extend_beams(self, searches: Sequence[_BeamState]) -> list[list[_PartialSolution]]:
        """Return the candidates S_new of every search: b1 next steps per solution of the beam.

        Complete solutions stay in the candidates. The candidates are in the order of the beam. A
        failed search has none.
        """
        completions_by_prefix = self._sample_steps(searches)
        all_candidates: list[list[_PartialSolution]] = []
        for search_index, search in enumerate(searches):
            candidates: list[_PartialSolution] = []
            for solution in search.beam if search.error is None else ():
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
        solutions: dict[_PrefixKey, _PartialSolution] = {}
        for search_index, search in enumerate(searches):
            for solution in search.beam:
                if not solution.is_complete:
                    key = _PrefixKey(search_index, solution.text)
                    needed[key] += self.spec.b1
                    solutions[key] = solution
        groups: dict[_SamplingGroup, list[_PrefixKey]] = defaultdict(list)
        for key, n in needed.items():
            prompt = searches[key.search_index].prompt
            answer = key.text[find_thinking(prompt.full_text, key.text).end :]
            stop_strings = step_stops(segmenter_name(self.segmenter), answer)
            groups[_SamplingGroup(n, stop_strings)].append(key)
        completions_by_prefix = {}
        for group, keys in groups.items():
            prompts = [
                searches[key.search_index].continued_prompt(solutions[key], self.segmenter)
                for key in keys
            ]
            step_sampling = self.sampling.replace(
                n=group.n,
                max_tokens=min(MAX_STEP_TOKENS, self.sampling.max_tokens),
                stop=(*self.sampling.stop, *group.stop_strings),
            )
            for index, completions in self.sampler.sample(prompts, step_sampling):
                key = keys[index]
                search = searches[key.search_index]
                if isinstance(completions, ItemError):
                    search.error = search.error or completions
                    continue
                completions_by_prefix[key] = iter(completions)
                for completion in completions:
                    if step_sampling.stop:
                        check_stop_is_known(completion)
                    search.tokens = add_tokens(search.tokens, completion.n_tokens)
                    search.seconds += completion.seconds
        return completions_by_prefix

    def _extend(
        self, prompt: Prompt, solution: _PartialSolution, completion: Completion
    ) -> _PartialSolution:
        """Return the partial solution with one more step, as the segmenter splits the text."""
        text = solution.text + completion.text
        stop = completion.stop_string
        is_step_end = stop is not None and stop not in self.sampling.stop
        if stop is not None and is_step_end:
            ending = step_ending(stop)
            # Words contain the space before them. Without ids, the next completion has the space.
            text += ending if completion.token_ids is not None else ending.rstrip(" ")
        n_generated_tokens = add_tokens(solution.n_generated_tokens, completion.n_tokens)
        is_context_full = completion.finish_reason == "length" and not completion.text
        is_budget_spent = (
            n_generated_tokens is not None and n_generated_tokens >= self.sampling.max_tokens
        )
        is_stuck = is_context_full or is_budget_spent
        if completion.finish_reason == "length" and completion.token_ids and not is_stuck:
            text = text.rstrip(
                "\N{REPLACEMENT CHARACTER}"
            )  # the next tokens complete the character
        steps = split_solution(prompt.full_text, text, self.segmenter)
        is_finished = completion.finish_reason == "stop" and not is_step_end
        n_tokens = _count_tokens(solution, completion)
        n_allowed_steps = len(solution.steps) + 1
        if len(steps) > n_allowed_steps:  # the completion contains later steps; drop them
            steps = steps[:n_allowed_steps]
            is_finished = False
            n_chars = len(text)
            text = "".join(steps)
            if n_tokens is not None:
                # An estimate. The ids of the next generation, if the engine has ids, correct it.
                n_tokens = math.ceil(n_tokens * len(text) / n_chars)
        return _PartialSolution(
            text=text,
            steps=tuple(steps),
            n_tokens=n_tokens,
            n_generated_tokens=n_generated_tokens,
            token_ids=completion.token_ids,
            is_finished=is_finished,
            is_stuck=is_stuck,
        )

    def _score_candidates(
        self, searches: Sequence[_BeamState], all_candidates: list[list[_PartialSolution]]
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
                prompt=slot.search.prompt.full_text,
                steps=slot.candidates[slot.candidate_index].steps,
                question=slot.search.prompt.question,
            )
            for slot in slots
        ]
        started = time.perf_counter()
        results = dict(self.scorer.score(items))
        seconds_per_item = (time.perf_counter() - started) / max(1, len(items))
        for index, slot in enumerate(slots):
            rewards = results[index]
            slot.search.prm_calls += 1
            slot.search.seconds += seconds_per_item
            if isinstance(rewards, ItemError):
                slot.search.error = slot.search.error or rewards
                continue
            slot.candidates[slot.candidate_index] = replace(
                slot.candidates[slot.candidate_index],
                reward=rewards[-1] if rewards else -math.inf,
                rewards=None if rewards is None else tuple(rewards),
            )


def _thinking_stops(segmenter: str) -> tuple[str, ...]:
    """Return the stop strings of steps of the thinking; none if a segmenter keeps it whole."""
    return step_stops(segmenter, "") if SEGMENTERS.find(segmenter).splits_thinking else ()


def _count_tokens(solution: _PartialSolution, completion: Completion) -> int | None:
    """Return the number of tokens of a partial solution with a completion.

    The ids of a completion do not include the tokens that an earlier generation dropped.
    """
    if completion.token_ids is not None:
        return len(completion.token_ids)
    return add_tokens(solution.n_tokens, completion.n_tokens)


def _make_completion(solution: _PartialSolution, search: _BeamState, seconds: float) -> Completion:
    """Return a solution of a search as a completion, with its steps and their rewards."""
    discarded_tokens = None
    if search.tokens is not None and solution.n_tokens is not None:
        discarded_tokens = search.tokens - solution.n_tokens
    return Completion(
        text=solution.text,
        finish_reason="stop" if solution.is_finished else "length",
        n_tokens=solution.n_tokens,
        seconds=seconds,
        # A blank text has no steps.
        step_chars=tuple(map(len, solution.steps)) if solution.steps else None,
        step_rewards=solution.rewards if solution.steps else None,
        search_cost=SearchCost(discarded_tokens, search.prm_calls),
    )
