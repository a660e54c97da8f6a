"""Stop strings apply after the thinking, and thinking can be limited, with every sampler."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import ANSWER, THOUGHT, ThinkingSampler
from random_model import save_random_model

import fsdpo_data as fd
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.thinking import THINKING_MARKERS
from fsdpo_data.stages.pipeline import BuildOptions, run_build


def solve(
    model: ThinkingSampler, prompt: str = "2+2?<think>\n", **spec_fields: Any
) -> list[Completion]:
    spec = SamplingSpec(**{"n": 2, "max_tokens": 100, **spec_fields})
    [(_, completions)] = LoadedSampler(model).stream([prompt], spec)
    n_requests = len(model.requests)
    assert LoadedSampler(model).sample([prompt], spec) == [completions]
    del model.requests[n_requests:]  # the tests count the requests of one call
    return list(completions)


def test_stop_strings_apply_after_thinking_opened_by_the_prompt() -> None:
    model = ThinkingSampler()
    completions = solve(model, stop=("\n\nMore",))
    closed = f"{THOUGHT}</think>"
    for i, completion in enumerate(completions):
        assert completion.text == f"{closed}\n\n{i}: It is 4."
        assert (completion.finish_reason, completion.stop_string) == ("stop", "\n\nMore")
        assert completion.n_tokens == len(completion.text) + len("\n\nMore")
        assert completion.thinking_tokens == len(closed)
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


def test_long_thinking_is_truncated() -> None:
    for counts in (True, False):
        model = ThinkingSampler(THOUGHT * 9, counts=counts)
        for i, completion in enumerate(solve(model, max_think_tokens=20)):
            assert completion.text == f"{(THOUGHT * 9)[:20]}\n</think>\n\n{i}: {ANSWER}"
            assert (completion.finish_reason, completion.stop_string) == ("stop", None)
            answered = len(f"{i}: {ANSWER}")
            assert completion.n_tokens == (20 + answered if counts else None)
            assert completion.thinking_tokens == (20 if counts else None)
    model = ThinkingSampler(THOUGHT * 9, opens="<think>\n")
    (completion, _) = solve(model, "2+2?", max_think_tokens=20)
    assert completion.text.startswith(f"<think>\n{THOUGHT[:12]}\n</think>\n\n0: It")


def test_short_thinking_is_not_changed() -> None:
    for opens, prompt in (("", "2+2?<think>\n"), ("<think>\n", "2+2?")):
        model = ThinkingSampler(opens=opens)
        free = [completion.text for completion in solve(model, prompt)]
        assert len(model.requests) == 1
        assert [completion.text for completion in solve(model, prompt, max_think_tokens=60)] == free


def test_the_answer_has_the_remaining_tokens() -> None:
    (completion, _) = solve(ThinkingSampler(THOUGHT * 9), max_tokens=30, max_think_tokens=20)
    assert completion.text.endswith("</think>\n\n0: It is 4") and len(ANSWER) > 10
    assert (completion.finish_reason, completion.n_tokens) == ("length", 30)


def test_models_without_thinking_are_sampled_in_one_pass() -> None:
    model = ThinkingSampler()
    spec = SamplingSpec(n=2, max_tokens=100, stop=("\n\n",))
    completions = dict(LoadedSampler(model).stream(["a 2+2?", "b 2+2?"], spec))
    assert [completion.text for completion in completions[1]] == ["0: It is 4.", "1: It is 4."]
    assert model.requests == [(["a 2+2?", "b 2+2?"], spec)]
    (completion, _) = solve(model, "2+2?", max_think_tokens=5)
    assert completion.text == f"0: {ANSWER}"


def test_a_prompt_that_fills_the_context_is_truncated() -> None:
    class Full(ThinkingSampler):
        def complete(self, context: str, spec: SamplingSpec, index: int) -> Completion:
            return Completion("", "length", 0)

    (completion, _) = solve(Full(), stop=("\n\n",), max_think_tokens=5)
    assert (completion.text, completion.finish_reason) == ("", "length")


def test_the_limit_applies_to_the_rest_of_open_thinking() -> None:
    """The prompt of a continuation can end inside the thinking."""
    model = ThinkingSampler(THOUGHT * 9)
    start = (THOUGHT * 9)[:25]
    (completion, _) = solve(model, f"2+2?<think>\n{start}", max_think_tokens=20, stop=("\n\nMore",))
    assert completion.text == f"{(THOUGHT * 9)[25:45]}\n</think>\n\n0: It is 4."
    assert (completion.thinking_tokens, completion.stop_string) == (20, "\n\nMore")
    closed = f"2+2?<think>\n{THOUGHT}</think>\n\n"
    (completion, _) = solve(ThinkingSampler(), closed, max_think_tokens=5)
    assert completion.text == f"0: {ANSWER}"  # no limit without thinking


def test_an_engine_that_cannot_continue_a_text_samples_in_one_pass() -> None:
    model = ThinkingSampler()
    spec = SamplingSpec(n=2, max_tokens=100, stop=("\n\nMore",))
    LoadedSampler(model, can_continue=False).sample(["2+2?<think>\n"], spec)
    assert model.requests == [(["2+2?<think>\n"], spec)]
    limited = SamplingSpec(n=1, max_tokens=100, max_think_tokens=5)
    with pytest.raises(InputError, match="max_think_tokens = 5: the limit needs a sampler that"):
        LoadedSampler(model, can_continue=False).sample(["2+2?<think>\n"], limited)


def test_limits_of_thinking_are_checked(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"max_think_tokens = 8: expected less than `max_tokens=8`"
    ):
        SamplingSpec(max_tokens=8, max_think_tokens=8)
    assert "max_think_tokens" not in SamplingSpec().to_json_values()
    recorded = tmp_path / "completions.jsonl"
    recorded.write_text("{}")
    for fields in (
        {"engine": "replay", "replay": recorded},
        {"engine": "openai", "base_url": "http://localhost/v1", "api": "chat", "model": "m"},
    ):
        with pytest.raises(
            InputError,
            match="max_think_tokens = 5: the limit needs a sampler that continues a text",
        ):
            make_options(BuildOptions, {"max_think_tokens": 5, **fields})


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a random model whose chat template opens the thinking."""
    path = save_random_model(tmp_path_factory.mktemp("model"), context=4096)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}\n<think>\n"
    (path / "chat_template.jinja").write_text(template)
    return path


def test_a_build_with_a_limit(policy: Path, tmp_path: Path) -> None:
    """The sampler closes the thinking of a random model, with equal results in all batch sizes."""
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(f'{{"question": "{i}+2?", "answer": "4"}}\n' for i in range(3)))
    build_options: dict[str, Any] = {
        "model": str(policy),
        "problems": [str(file)],
        "samples": 3,
        "max_tokens": 40,
        "max_think_tokens": 15,
        "template": "chat",
        "device": "cpu",
        "engine": "transformers",
    }
    tables = []
    for size in (1, 32):
        out, _ = run_build(
            make_options(
                BuildOptions, {"out": tmp_path / str(size), "batch_size": size} | build_options
            ),
            NO_PROGRESS,
        )
        manifest = validate(out)
        assert manifest.spec.sampling.to_dict()["max_think_tokens"] == 15
        tables.append(pl.read_parquet(out / "solutions/*.parquet").drop("solution_id"))
        assert manifest.thinking is not None and manifest.thinking.closed > 5
    assert tables[0].equals(tables[1])
    assert tables[0]["prompt"].str.ends_with("<think>").all()
    rows = tables[0].filter("thinking_closed")  # the others ended before the limit
    assert rows["completions"].list.join("").str.contains("\n</think>\n\n", literal=True).all()
    assert set(rows["thinking_tokens"]) == {15} and rows["n_tokens"].max() == 40
    ended = tables[0].filter(~pl.col("thinking_closed"))
    assert ended["n_tokens"].equals(ended["thinking_tokens"]) and ended["n_tokens"].max() <= 15
    # A run cannot be resumed with another limit.
    again = build_options | {"max_think_tokens": None}
    with pytest.raises(RunMismatchError, match="max_think_tokens: 15 in the run, None now"):
        run_build(
            make_options(BuildOptions, {"out": tmp_path / "1", "resume": True} | again), NO_PROGRESS
        )


def test_a_loaded_sampler_closes_the_thinking(policy: Path) -> None:
    spec = SamplingSpec(n=4, max_tokens=40, max_think_tokens=15)
    sampler = fd.load_sampler(str(policy), engine="transformers", device="cpu")
    (completions,) = sampler.sample(["2+2?\n<think>\n"], spec)
    texts = [completion.text for completion in completions if (completion.n_tokens or 0) > 15]
    assert texts and all("\n</think>\n\n" in text for text in texts)
    assert all((completion.thinking_tokens or 0) <= 15 for completion in completions)


def test_a_replayed_recording_takes_no_limit(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    completion = {"text": "4", "finish_reason": "stop"}
    file.write_text(json.dumps({"prompt": "2+2?", "completions": [completion]}))
    sampler = fd.load_sampler(str(policy), engine="replay", replay=file)
    assert sampler.sample(["2+2?"], SamplingSpec(n=1, stop=("\n",)))[0][0].text == "4"
    with pytest.raises(InputError, match="max_think_tokens = 5: the limit needs a sampler"):
        sampler.sample(["2+2?"], SamplingSpec(n=1, max_think_tokens=5))


def test_tokens_of_thinking_are_counted(policy: Path) -> None:
    tokenizer = load_tokenizer(str(policy))
    decoder = CompletionDecoder(tokenizer)

    def count(prompt: str, *parts: str) -> tuple[int | None, int]:
        ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts]
        joined = [*chain(*ids), tokenizer.eos_token_id]
        return decoder.thinking_tokens(prompt, joined, "".join(parts)), len(ids[0])

    for thinking in ("<think>\nHm, 数数.\n\nÉ.\n</think>\n\n", "<think>a</think>"):
        for answer in ("It is 4.", "é 数 4", "\\boxed{4}", "4" * 500):
            assert len(set(count("2+2?", thinking, answer))) == 1
    assert count("2+2?", "It is 4.") == (None, len(tokenizer("It is 4.")["input_ids"]))
    n_tokens, length = count("<think>\n", "It is 4, 4")
    assert n_tokens == length + 1


@pytest.mark.parametrize("name", ["magistral", "harmony"])
def test_special_tokens_that_mark_thinking_stay_in_the_text(policy: Path, name: str) -> None:
    tokenizer, marks = load_tokenizer(str(policy)), THINKING_MARKERS[name]
    plain = CompletionDecoder(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks.tokens, "<|other|>"]})
    completion = f"{marks.start}Hm.{marks.end}It is 4."
    text = f"<|other|>{completion}{tokenizer.eos_token}"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoder = CompletionDecoder(tokenizer)
    assert decoder(ids, skip_special=True) == completion and decoder(ids) == text
    answer = tokenizer("It is 4.", add_special_tokens=False)["input_ids"]
    assert decoder.thinking_tokens("", ids, completion) == len(ids) - len(answer) - 1
    assert not plain.hidden_ids  # without such tokens, the tokenizer decides
