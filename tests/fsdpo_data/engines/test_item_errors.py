"""Errors of single items, and errors of engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest

from fsdpo_data.core.errors import InputError, ItemError, UnavailableError
from fsdpo_data.core.failures import parse_max_failed
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.item_errors import (
    MAX_FIRST_FAILURES,
    ItemResult,
    collect_results,
    is_item_error,
    process_by_bisection,
)
from fsdpo_data.engines.samplers import LoadedSampler, SampleResult
from fsdpo_data.engines.scorers import LoadedScorer, ScoreResult, ScorerInput
from fsdpo_data.engines.server_client import RejectedError

BAD = {3, 4, 17}


@pytest.mark.parametrize("n", [0, 1, 20])
def test_every_item_gets_its_result_or_its_error(n: int) -> None:
    sizes = []

    def double(batch: Sequence[int]) -> Iterator[tuple[int, int]]:
        sizes.append(len(batch))
        for index, item in enumerate(batch):
            if item in BAD:
                raise KeyError(item)
            yield index, 2 * item

    outcomes = dict(process_by_bisection(double, range(n)))
    assert outcomes.keys() == set(range(n))
    for item, outcome in outcomes.items():
        assert isinstance(outcome, ItemError) if item in BAD else outcome == 2 * item
    assert sum(sizes) < 4 * n or n < 2  # items that finished are not processed again


def test_an_engine_that_fails_for_all_items_stops() -> None:
    calls = []

    def fail(batch: Sequence[int]) -> Iterator[tuple[int, int]]:
        calls.append(len(batch))
        raise KeyError("always")
        yield 0, 0

    with pytest.raises(KeyError):
        list(process_by_bisection(fail, range(10_000)))
    assert calls.count(1) == MAX_FIRST_FAILURES and len(calls) < 40


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad token"), True),
        (RuntimeError("shape mismatch"), True),
        (ItemError("too long"), True),
        (RejectedError("400"), True),
        (InputError("no such model"), False),
        (UnavailableError("no server"), False),
        (MemoryError(), False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), False),
        (ConnectionResetError(), False),
        (OSError("disk"), False),
    ],
)
def test_errors_of_items_and_of_engines(error: Exception, expected: bool) -> None:
    assert is_item_error(error) == expected
    if not expected:

        def fail(batch: Sequence[int]) -> Iterator[tuple[int, int]]:
            yield 0, 0
            raise error

        with pytest.raises(type(error)):
            list(process_by_bisection(fail, range(9)))


class FussySampler:
    """A sampler in two passes that refuses the second pass of a prompt."""

    model = ModelRef("fussy", "0")

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        for index, prompt in enumerate(prompt.full_text for prompt in prompts):
            if "bad" in prompt and "</think>" in prompt:
                raise ValueError(f"cannot continue {prompt!r}")
            text = "so the answer is 4" if "</think>" in prompt else "<think>\nhm</think>"
            is_first = "</think>" not in prompt
            stop = "</think>" if is_first else None
            completion = Completion(text.removesuffix("</think>"), "stop", 4, 0.1, stop)
            yield index, [completion] * spec.n


def test_a_prompt_fails_if_one_of_its_passes_fails() -> None:
    """Stop strings need a second pass after the thinking."""
    spec = SamplingSpec(n=2, stop=("\n\n",))
    sampler = LoadedSampler(FussySampler())
    prompts = [Prompt("good?<think>\n"), Prompt("bad?<think>\n"), Prompt("fine?")]
    results = list(sampler.sample(prompts, spec))
    assert sorted(index for index, _ in results) == [0, 1, 2]
    [(index, error)] = [result for result in results if isinstance(result[1], ItemError)]
    assert index == 1 and "cannot continue" in str(error)
    with pytest.raises(ItemError, match="cannot continue"):
        collect_results(results)


def test_a_sampler_that_raises_an_error_for_a_batch_goes_on() -> None:
    class FussyWriter:
        model = ModelRef("fussy", "0")

        def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterable[SampleResult]:
            if Prompt("b") in prompts:
                raise ValueError("no b")
            return enumerate([[Completion(prompt.text, "stop", 1)] * spec.n for prompt in prompts])

    sampler = LoadedSampler(FussyWriter())
    outcomes = dict(sampler.sample([*map(Prompt, "abc")], SamplingSpec(n=2)))
    assert isinstance(outcomes.pop(1), ItemError)
    assert outcomes == {0: [Completion("a", "stop", 1)] * 2, 2: [Completion("c", "stop", 1)] * 2}


def test_a_scorer_goes_on_after_an_item() -> None:
    class FussyScorer:
        model = ModelRef("fussy", "0")

        def score(self, items: Sequence[ScorerInput]) -> Iterable[ScoreResult]:
            if any("bad" in item.prompt for item in items):
                raise ItemError("bad")
            return enumerate([[0.5] * len(item.steps) if item.steps else None for item in items])

    items = [ScorerInput(prompt, steps) for prompt in ("good", "bad") for steps in ("a", "", "bc")]
    outcomes = dict(LoadedScorer(FussyScorer()).score(items))
    assert [outcomes[index] for index in range(3)] == [[0.5], None, [0.5, 0.5]]
    assert all(isinstance(outcomes[index], ItemError) for index in range(3, 6))


def test_an_engine_may_yield_the_errors_of_items() -> None:
    """Then nothing is processed again, and each item that failed has its own error."""
    batches = []

    def process(batch: Sequence[int]) -> Iterator[ItemResult[int]]:
        batches.append(batch)
        for index, item in enumerate(batch):
            yield index, ItemError(str(item)) if item in BAD else item

    outcomes = dict(process_by_bisection(process, range(20)))
    assert len(batches) == 1
    failed = {index: str(outcome) for index, outcome in outcomes.items() if index in BAD}
    assert failed == {index: str(index) for index in BAD}
    with pytest.raises(ItemError, match="3"):
        collect_results(outcomes.items())
    assert collect_results([(1, "b"), (0, "a")]) == ["a", "b"]


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1%", 0.01), ("2.5%", 0.025), ("100%", 1)])
def test_percentages_are_exact(text: str, value: float) -> None:
    assert float(parse_max_failed(text)) == value


@pytest.mark.parametrize("text", ["1", "-1%", "101%", "1 %", "one", "", "0.01"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_max_failed(text)
