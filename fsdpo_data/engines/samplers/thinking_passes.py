"""Samplers with stop strings after the thinking, on any engine.

A pass sends the text so far to the engine and appends the tokens that come back. Stop strings
apply only after the thinking, so they may need more than one pass. A pass that starts inside the
thinking stops at its end marker. If a stop string ends a pass inside the thinking, the next pass
continues. :attr:`Prompt.thinking_stops` apply inside the thinking, too: they end its steps.

An engine that cannot continue a text, such as a chat server or a recording, samples in one pass.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from fsdpo_data.answers.thinking import ThinkingSpan, find_thinking
from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec, add_tokens
from fsdpo_data.engines.item_errors import process_by_bisection
from fsdpo_data.engines.samplers.base import (
    Sampler,
    SampleResult,
    check_stop_is_known,
    close_engine,
)

#: Samples the prompts of one pass.
PassSampler: TypeAlias = Callable[[Sequence[Prompt], SamplingSpec], Iterable[SampleResult]]


class LoadedSampler:
    """A sampler that applies stop strings after the thinking.

    If the engine raises an error for a prompt that it refuses, the other prompts are sampled again.
    """

    def __init__(self, engine: Sampler, *, can_continue: bool = True) -> None:
        """Wrap the sampler of an engine.

        Args:
            engine: Samples one pass.
            can_continue: Whether the engine can continue a text that it has started.
        """
        self.model = engine.model
        self._engine = engine
        self._can_continue = can_continue

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the completions or the error of each prompt as the prompts finish.

        Raises:
            InputError: if a server does not name the stop string at the end of a thinking.
        """
        if self._can_continue and spec.stop:
            return _sample_in_passes(self._sample_pass, prompts, spec)
        return self._sample_pass(prompts, spec)

    def _sample_pass(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Sample in one pass, in which the stop strings also apply inside the thinking."""
        return process_by_bisection(lambda batch: self._engine.sample(batch, spec), prompts)

    def close(self) -> None:
        """Free the memory of the engine."""
        close_engine(self._engine)


_EMPTY = Completion("", "length", n_tokens=0)  #: A completion before its first pass.


@dataclass(slots=True, eq=False)
class _Draft:
    """A completion that is sampled pass by pass.

    Two ends of a pass need another pass:

    - A stop string inside the thinking, or the end marker of the thinking. The string is a part of
      the text.
    - The token limit of the pass, if more tokens are left.
    """

    prompt: Prompt  #: The prompt that the completion continues.
    completion: Completion = _EMPTY  #: The text and the tokens so far.
    is_finished: bool = False  #: Whether the completion needs no further pass.

    @property
    def context(self) -> Prompt:
        """The prompt and the text so far, which the next pass continues."""
        return self.prompt.extend(self.completion.text, self.completion.token_ids)

    def make_pass_spec(self, spec: SamplingSpec) -> SamplingSpec:
        """Return how to sample the next pass."""
        pass_tokens = self._count_tokens_left(spec)
        if self.completion.text:
            # Powers of two, so that completions with different numbers of tokens left share a pass.
            pass_tokens = 2 ** (pass_tokens.bit_length() - 1)
        thinking = self._find_thinking()
        stop = spec.stop
        if thinking.closed is False and thinking.markers:
            stop = (thinking.markers.end, *self.prompt.thinking_stops)
        return spec.replace(n=1, stop=stop, max_tokens=pass_tokens)

    def add_pass(self, new: Completion, pass_spec: SamplingSpec, spec: SamplingSpec) -> None:
        """Append the result of a pass.

        Args:
            new: The result.
            pass_spec: How the pass was sampled.
            spec: How to sample the completion.

        Raises:
            InputError: if the engine does not state whether a stop string ended the pass inside
                the thinking.
        """
        was_thinking = self._find_thinking().closed is False
        is_pass_shorter = pass_spec.max_tokens < self._count_tokens_left(spec)
        n_tokens = add_tokens(self.completion.n_tokens, new.n_tokens)
        self.completion = replace(
            new,
            text=self.completion.text + new.text,
            n_tokens=n_tokens,
            seconds=self.completion.seconds + new.seconds,
        )
        is_thinking = self._find_thinking().closed is False
        if was_thinking or is_thinking:
            check_stop_is_known(new)
        stopped_in_thinking = (
            bool(new.stop_string)
            and (was_thinking or is_thinking)
            and new.stop_string not in self.prompt.thinking_stops
        )
        # Without token counts, the number of tokens left is unknown.
        stopped_at_limit = (
            new.finish_reason == "length"
            and is_pass_shorter
            and bool(new.text)
            and n_tokens is not None
        )
        if not stopped_in_thinking and not stopped_at_limit:
            self.is_finished = True
            return
        self.completion = replace(
            self.completion,
            text=self.completion.text + (new.stop_string or ""),
            finish_reason="length",
            stop_string=None,
        )
        self.is_finished = (n_tokens or 0) >= spec.max_tokens

    def _find_thinking(self) -> ThinkingSpan:
        return find_thinking(self.prompt.text, self.prompt.solution_text + self.completion.text)

    def _count_tokens_left(self, spec: SamplingSpec) -> int:
        return max(1, spec.max_tokens - (self.completion.n_tokens or 0))


class _PassItem(NamedTuple):
    """Completions of a prompt that share their text, and so one entry of a pass."""

    prompt_index: int  #: Index of the prompt.
    drafts: list[_Draft]  #: The completions; the pass samples one result for each.


def _sample_in_passes(
    sample_pass: PassSampler, prompts: Sequence[Prompt], spec: SamplingSpec
) -> Iterator[SampleResult]:
    """Yield ``spec.n`` completions of each prompt when the last of them is finished.

    A prompt fails if one of its passes fails.
    """
    drafts_by_prompt = {
        index: [_Draft(prompt) for _ in range(spec.n)] for index, prompt in enumerate(prompts)
    }
    while drafts_by_prompt:
        for pass_spec, items in _group_into_passes(drafts_by_prompt, spec).items():
            contexts = [item.drafts[0].context for item in items]
            for item_index, completions in sample_pass(contexts, pass_spec):
                prompt_index, drafts = items[item_index]
                if prompt_index not in drafts_by_prompt:  # another completion has failed
                    continue
                if isinstance(completions, ItemError):
                    del drafts_by_prompt[prompt_index]
                    yield prompt_index, completions
                    continue
                for draft, completion in zip(drafts, completions, strict=True):
                    draft.add_pass(completion, pass_spec, spec)
                if all(draft.is_finished for draft in drafts_by_prompt[prompt_index]):
                    finished = drafts_by_prompt.pop(prompt_index)
                    yield prompt_index, [draft.completion for draft in finished]


def _group_into_passes(
    drafts_by_prompt: Mapping[int, Sequence[_Draft]], spec: SamplingSpec
) -> dict[SamplingSpec, list[_PassItem]]:
    """Group unfinished completions by the spec of their next pass.

    Completions of a prompt with the same text become one item with ``n`` samples. Separate items
    would draw the same sample several times.
    """
    passes: defaultdict[SamplingSpec, list[_PassItem]] = defaultdict(list)
    for prompt_index, drafts in drafts_by_prompt.items():
        by_text: defaultdict[tuple[str, SamplingSpec], list[_Draft]] = defaultdict(list)
        for draft in drafts:
            if not draft.is_finished:
                by_text[draft.completion.text, draft.make_pass_spec(spec)].append(draft)
        for (_, pass_spec), same_text in by_text.items():
            item = _PassItem(prompt_index, same_text)
            passes[pass_spec.replace(n=len(same_text))].append(item)
    return passes
