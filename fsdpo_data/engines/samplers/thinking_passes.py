"""Solutions that think, sampled in passes, by every engine alike.

Stop strings act behind the thinking alone: a pass that begins inside of it ends at its closing
mark, and one that a stop string ends there goes on. Thinking that has had its tokens is closed by
what the family writes, and answered in another pass; what was not generated is not counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fsdpo_data.core.sampling import Completion, SamplingSpec, add_tokens
from fsdpo_data.models.thinking import ThinkingSpan, find_thinking

_Finished = tuple[int, list[Completion]]


@dataclass(slots=True, eq=False)
class _PartialCompletion:
    """A solution on its way."""

    prompt: str
    completion: Completion  #: So far.
    capped: bool = False  #: Whether the pass under way may end before the solution does.

    def _thought(self) -> ThinkingSpan:
        return find_thinking(self.prompt, self.completion.text)

    def next_pass_spec(self, spec: SamplingSpec) -> SamplingSpec:
        """Return what is asked of the next pass."""
        thought, spent = self._thought(), self.completion.n_tokens or 0
        inside, first = thought.closed is False, not self.completion.text
        left = room = max(1, spec.max_tokens - spent)
        if spec.max_think_tokens and (inside or first):
            room = max(1, spec.max_think_tokens - spent)
        # Not one pass for each number of tokens that is left: what does not end goes on.
        size = room if first else 2 ** (room.bit_length() - 1)
        self.capped = size < left
        stop = (thought.markers.end,) if inside and thought.markers else spec.stop
        return replace(spec, n=1, stop=stop, max_tokens=size, max_think_tokens=None)

    def add(self, new: Completion, spec: SamplingSpec) -> bool:
        """Take what a pass has made; return whether the solution is finished."""
        before, inside, most = (
            self.completion,
            self._thought().closed is False,
            spec.max_think_tokens,
        )
        counted = before.thinking_tokens if before.text else new.thinking_tokens
        n_tokens = add_tokens(before.n_tokens, new.n_tokens)
        made = self.completion = replace(
            new,
            text=before.text + new.text,
            n_tokens=n_tokens,
            seconds=before.seconds + new.seconds,
            thinking_tokens=n_tokens if inside else counted,
        )
        thought = self._thought()
        thinks = thought.closed is False
        if new.stop_string and (inside or thinks):
            more = new.stop_string
        elif new.finish_reason == "length" and self.capped and new.text:
            more = ""
            if thinks and thought.markers and most and (n_tokens is None or n_tokens >= most):
                more = thought.markers.closing_text or f"\n{thought.markers.end}\n\n"
            elif n_tokens is None:
                return True  # nobody knows how much is left
        else:
            return True
        self.completion = replace(
            made, text=made.text + more, finish_reason="length", stop_string=None
        )
        return (n_tokens or 0) >= spec.max_tokens


def sample_in_passes(
    one_pass: Callable[[Sequence[str], SamplingSpec], Iterable[_Finished]],
    prompts: Sequence[str],
    spec: SamplingSpec,
) -> Iterator[_Finished]:
    """Yield ``spec.n`` completions of each prompt when the last of them is finished."""
    nothing = Completion("", "length", 0)
    drafts = [[_PartialCompletion(each, nothing) for _ in range(spec.n)] for each in prompts]
    owed = {place: list(some) for place, some in enumerate(drafts)}
    while owed:
        # Of one text as many are asked for as there are drafts: each is another sample of it.
        passes: defaultdict[SamplingSpec, list[tuple[int, list[_PartialCompletion]]]] = defaultdict(
            list
        )
        for place, some in owed.items():
            alike: defaultdict[tuple[str, SamplingSpec], list[_PartialCompletion]] = defaultdict(
                list
            )
            for each in some:
                alike[each.completion.text, each.next_pass_spec(spec)].append(each)
            for (_, asked), same in alike.items():
                passes[replace(asked, n=len(same))].append((place, same))
        for asked, group in passes.items():
            contexts = [same[0].prompt + same[0].completion.text for _, same in group]
            for at, completions in one_pass(contexts, asked):
                place, same = group[at]
                for each, new in zip(same, completions, strict=True):
                    if each.add(new, spec):
                        owed[place].remove(each)
                if not owed[place]:
                    yield place, [each.completion for each in drafts[place]]
        owed = {place: some for place, some in owed.items() if some}
