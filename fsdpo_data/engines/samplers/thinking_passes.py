"""Samplers with stop strings after the thinking, on any engine.

A pass sends the text so far to the engine and appends the tokens that come back. Stop strings
apply only after the thinking, so they may need more than one pass. A pass that starts inside the
thinking stops at its end marker. If a stop string ends a pass inside the thinking, the next pass
continues.

An engine that cannot continue a text, such as a chat server or a recording, samples in one pass.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from fsdpo_data.answers.thinking import ThinkingSpan, find_thinking
from fsdpo_data.core.errors import ItemError
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec, add_tokens
from fsdpo_data.engines.item_errors import process_by_bisection
from fsdpo_data.engines.samplers.base import Sampler, SampleResult, close_engine

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
        """Yield the completions or the error of each prompt as the prompts finish."""
        if self._can_continue and spec.stop:
            return _sample_in_passes(self._sample_pass, prompts, spec)
        return self._sample_pass(prompts, spec)

    def _sample_pass(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Sample in one pass, in which the stop strings also apply inside the thinking."""
        return process_by_bisection(lambda batch: self._engine.sample(batch, spec), prompts)

    def close(self) -> None:
        """Free the memory of the engine."""
        close_engine(self._engine)


@dataclass(slots=True, eq=False)
class _PartialCompletion:
    """A completion that may need further passes."""

    prompt: Prompt  #: The prompt that the completion continues.
    completion: Completion  #: The text and the tokens so far.
    is_capped: bool = False  #: Whether the current pass may generate fewer tokens than are left.

    def _find_thinking(self) -> ThinkingSpan:
        return find_thinking(self.prompt.full_text, self.completion.text)

    def next_pass_spec(self, spec: SamplingSpec) -> SamplingSpec:
        """Return how to sample the next pass of this completion."""
        thinking = self._find_thinking()
        is_thinking = thinking.closed is False
        tokens_left = max(1, spec.max_tokens - (self.completion.n_tokens or 0))
        pass_tokens = tokens_left
        if self.completion.text:
            # Powers of two, so that completions with different numbers of tokens left share a
            # pass. A completion that does not finish gets another pass.
            pass_tokens = 2 ** (pass_tokens.bit_length() - 1)
        self.is_capped = pass_tokens < tokens_left
        stop = (thinking.markers.end,) if is_thinking and thinking.markers else spec.stop
        return spec.replace(n=1, stop=stop, max_tokens=pass_tokens)

    def add(self, new: Completion, spec: SamplingSpec) -> bool:
        """Append the result of a pass; return whether the completion is finished."""
        old = self.completion
        was_thinking = self._find_thinking().closed is False
        n_tokens = add_tokens(old.n_tokens, new.n_tokens)
        self.completion = replace(
            new,
            text=old.text + new.text,
            n_tokens=n_tokens,
            seconds=old.seconds + new.seconds,
        )
        appended_text = self._text_before_next_pass(new, was_thinking=was_thinking)
        if appended_text is None:
            return True
        self.completion = replace(
            self.completion,
            text=self.completion.text + appended_text,
            finish_reason="length",
            stop_string=None,
        )
        return (n_tokens or 0) >= spec.max_tokens

    def _text_before_next_pass(self, new: Completion, *, was_thinking: bool) -> str | None:
        """Return the text to append before the next pass; None if the completion is finished."""
        is_thinking = self._find_thinking().closed is False
        if new.stop_string and (was_thinking or is_thinking):
            return new.stop_string
        if new.finish_reason != "length" or not self.is_capped or not new.text:
            return None
        # Without token counts, the number of tokens left is unknown.
        return None if self.completion.n_tokens is None else ""


class _PassItem(NamedTuple):
    """Completions of a prompt that share their text, and so one entry of a pass."""

    prompt_index: int  #: Index of the prompt.
    drafts: list[_PartialCompletion]  #: The completions; the pass samples one result for each.

    @property
    def context(self) -> Prompt:
        """The prompt and the common text so far, which the pass continues."""
        draft = self.drafts[0]
        return draft.prompt.extend(draft.completion.text, draft.completion.token_ids)


def _sample_in_passes(
    sample_pass: PassSampler, prompts: Sequence[Prompt], spec: SamplingSpec
) -> Iterator[SampleResult]:
    """Yield ``spec.n`` completions of each prompt when the last of them is finished.

    A prompt fails if one of its passes fails.
    """
    empty = Completion("", "length", 0)
    drafts_by_prompt = [
        [_PartialCompletion(prompt, empty) for _ in range(spec.n)] for prompt in prompts
    ]
    pending = {index: list(drafts) for index, drafts in enumerate(drafts_by_prompt)}
    while pending:
        for pass_spec, items in _group_into_passes(pending, spec).items():
            contexts = [item.context for item in items]
            for item_index, completions in sample_pass(contexts, pass_spec):
                prompt_index, drafts = items[item_index]
                if prompt_index not in pending:  # another completion of the prompt has failed
                    continue
                if isinstance(completions, ItemError):
                    del pending[prompt_index]
                    yield prompt_index, completions
                    continue
                for draft, completion in zip(drafts, completions, strict=True):
                    if draft.add(completion, spec):
                        pending[prompt_index].remove(draft)
                if not pending[prompt_index]:
                    finished = [draft.completion for draft in drafts_by_prompt[prompt_index]]
                    yield prompt_index, finished
        pending = {index: drafts for index, drafts in pending.items() if drafts}


def _group_into_passes(
    pending: dict[int, list[_PartialCompletion]], spec: SamplingSpec
) -> dict[SamplingSpec, list[_PassItem]]:
    """Group unfinished completions by the spec of their next pass.

    Completions of a prompt with the same text become one item with ``n`` samples. Separate items
    would draw the same sample several times.
    """
    passes: defaultdict[SamplingSpec, list[_PassItem]] = defaultdict(list)
    for prompt_index, drafts in pending.items():
        by_text: defaultdict[tuple[str, SamplingSpec], list[_PartialCompletion]] = defaultdict(list)
        for draft in drafts:
            by_text[draft.completion.text, draft.next_pass_spec(spec)].append(draft)
        for (_, pass_spec), same_text in by_text.items():
            item = _PassItem(prompt_index, same_text)
            passes[pass_spec.replace(n=len(same_text))].append(item)
    return passes
