"""Stop strings apply after the thinking, with every sampler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import THOUGHT, ThinkingSampler, sample_all
from random_model import save_random_model

from fsdpo_data.answers.thinking import THINKING_MARKERS
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder
from fsdpo_data.models.prompts import load_tokenizer


def solve(
    model: ThinkingSampler, prompt: str | Prompt = "2+2?<think>\n", **spec_fields: Any
) -> list[Completion]:
    spec = SamplingSpec(**{"n": 2, "max_tokens": 100, **spec_fields})
    [completions] = sample_all(LoadedSampler(model), [prompt], spec)
    return completions


@pytest.mark.parametrize("counts", [True, False])
def test_stop_strings_apply_after_thinking_opened_by_the_prompt(counts: bool) -> None:
    model = ThinkingSampler(counts=counts)
    completions = solve(model, stop=("\n\nMore",))
    closed = f"{THOUGHT}</think>"
    for i, completion in enumerate(completions):
        assert completion.text == f"{closed}\n\n{i}: It is 4."
        assert (completion.finish_reason, completion.stop_string) == ("stop", "\n\nMore")
        n_tokens = len(completion.text) + len("\n\nMore")
        assert completion.n_tokens == (n_tokens if counts else None)
        assert completion.seconds == 1.0
    # Both samples have equal thinking, so one request with n=2 samples both answers.
    assert [(len(prompts), spec.n) for prompts, spec in model.requests] == [(1, 2), (1, 2)]
    assert [spec.stop for _, spec in model.requests] == [("</think>",), ("\n\nMore",)]


def test_stop_strings_apply_after_thinking_opened_by_the_model() -> None:
    model = ThinkingSampler(opens="<think>\n")
    for completion in solve(model, "2+2?", stop=("\n\n", "never")):
        # The line breaks directly after the thinking belong to it and match no stop string.
        assert completion.text == f"<think>\n{THOUGHT}</think>"
        assert completion.stop_string == "\n\n"
    completions = solve(model, "2+2?", stop=("\n\nMore",))
    assert [completion.text[-8:] for completion in completions] == ["It is 4."] * 2
    assert len(model.requests) == 3 + 1  # "\n\nMore" is not in the thinking, so one pass is enough


@pytest.mark.parametrize(("opens", "question"), [("<think>\n", "2+2?"), ("", "2+2?<think>\n")])
def test_stop_strings_apply_after_thinking_that_a_prefix_has_started(
    opens: str, question: str
) -> None:
    prefix = f"{opens}Hm.\n\n"
    prompt = Prompt(question, solution_text=prefix)
    for completion in solve(ThinkingSampler(opens=opens), prompt, stop=("\n\n",)):
        assert prefix + completion.text == f"{opens}{THOUGHT}</think>"
        assert completion.stop_string == "\n\n"
    # The thinking of this prefix has ended.
    prompt = Prompt(question, solution_text=f"{opens}{THOUGHT}</think>\n\n1: ")
    for completion in solve(ThinkingSampler(opens=opens), prompt, stop=("\n\n",)):
        assert (completion.text, completion.stop_string) == ("It is 4.", "\n\n")


def test_the_answer_has_the_remaining_tokens() -> None:
    for answer in ("0: It is 4", "0: I"):
        text = f"{THOUGHT}</think>\n\n{answer}"
        (completion, _) = solve(ThinkingSampler(), max_tokens=len(text), stop=("never",))
        assert completion.text == text
        assert (completion.finish_reason, completion.n_tokens) == ("length", len(text))


def test_models_without_thinking_are_sampled_in_one_pass() -> None:
    model = ThinkingSampler()
    spec = SamplingSpec(n=2, max_tokens=100, stop=("\n\n",))
    completions = sample_all(LoadedSampler(model), ["a 2+2?", "b 2+2?"], spec)
    assert [completion.text for completion in completions[1]] == ["0: It is 4.", "1: It is 4."]
    assert model.requests == [(["a 2+2?", "b 2+2?"], spec)]


def test_a_prompt_that_fills_the_context_is_truncated() -> None:
    class Full(ThinkingSampler):
        def complete(self, context: str, spec: SamplingSpec, index: int) -> Completion:
            return Completion("", "length", 0)

    (completion, _) = solve(Full(), stop=("\n\n",))
    assert (completion.text, completion.finish_reason) == ("", "length")


def test_an_engine_that_cannot_continue_a_text_samples_in_one_pass() -> None:
    model = ThinkingSampler()
    spec = SamplingSpec(n=2, max_tokens=100, stop=("\n\nMore",))
    sample_all(LoadedSampler(model, can_continue=False), ["2+2?<think>\n"], spec)
    assert model.requests == [(["2+2?<think>\n"], spec)]


@pytest.mark.parametrize("name", ["magistral", "harmony"])
def test_special_tokens_that_mark_thinking_stay_in_the_text(tmp_path: Path, name: str) -> None:
    model = save_random_model(tmp_path / "model", context=4096)
    tokenizer, marks = load_tokenizer(str(model)), THINKING_MARKERS[name]
    plain = CompletionDecoder(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks.tokens, "<|other|>"]})
    completion = f"{marks.start}Hm.{marks.end}It is 4."
    text = f"<|other|>{completion}{tokenizer.eos_token}"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoder = CompletionDecoder(tokenizer)
    assert decoder(ids, skip_special=True) == completion and decoder(ids) == text
    assert not plain.hidden_ids  # without such tokens, the tokenizer decides
