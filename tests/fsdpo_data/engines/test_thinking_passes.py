"""Stop strings act behind the thinking, and thinking may be cut short, whatever the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from random_model import save_random_model

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler, stream
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, cut_at_stop
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.thinking import THINKING_MARKERS
from fsdpo_data.stages.pipeline import BuildOptions, run_build

THOUGHT = "Hm.\n\nLet me see.\n\nIt is 4."
ANSWER = "It is 4.\n\nMore follows."


class Thinker(StreamingSampler):
    """A model whose tokens are characters; it thinks, closes, and answers, from wherever it is."""

    model = ModelRef("thinker", "0")

    def __init__(self, thought: str = THOUGHT, *, counts: bool = True, opens: str = "") -> None:
        self.thought, self.counts, self.opens = thought, counts, opens
        self.asked: list[tuple[list[str], SamplingSpec]] = []

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        self.asked.append((list(prompts), spec))
        for place, context in enumerate(prompts):
            yield PromptResult(place, [self.complete(context, spec, i) for i in range(spec.n)])

    def complete(self, context: str, spec: SamplingSpec, index: int) -> Completion:
        said = context.partition("2+2?")[2]
        before, closed, behind = said.partition("</think>")
        script = f"{self.opens}{self.thought}"
        begun = re.match(r"\s*(\d):", behind if closed else said)
        index = int(begun[1]) if begun else index  # goes on as it began
        if not said.lstrip("\n").startswith("<think>") and not self.opens:
            ahead = f"{index}: {ANSWER}".removeprefix(said)  # without thinking
        elif closed:
            ahead = f"\n\n{index}: {ANSWER}".removeprefix(behind)
        else:
            told = before if self.opens else before.partition("<think>\n")[2]
            ahead = f"{script.removeprefix(told)}</think>\n\n{index}: {ANSWER}"
        text, stop = cut_at_stop(ahead[: spec.max_tokens], spec.stop)
        whole = stop is not None or len(ahead) <= spec.max_tokens
        count = len(text) + len(stop or "")
        counted = count if self.counts else None
        return Completion(text, "stop" if whole else "length", counted, 0.5, stop)


def solve(model: Thinker, prompt: str = "2+2?<think>\n", **how: Any) -> list[Completion]:
    [(_, found)] = stream(model, [prompt], SamplingSpec(**{"n": 2, "max_tokens": 100, **how}))
    return list(found)


def test_stop_strings_act_behind_thinking_that_the_prompt_opens() -> None:
    model = Thinker()
    found = solve(model, stop=("\n\nMore",))
    closed = f"{THOUGHT}</think>"
    for i, each in enumerate(found):
        assert each.text == f"{closed}\n\n{i}: It is 4."
        assert (each.finish_reason, each.stop_string) == ("stop", "\n\nMore")
        assert each.n_tokens == len(each.text) + len("\n\nMore")
        assert each.thinking_tokens == len(closed)
        assert each.seconds == 1.0
    # equal thoughts are answered by different samples, in one request of two
    assert [(len(prompts), spec.n) for prompts, spec in model.asked] == [(1, 2), (1, 2)]
    assert [spec.stop for _, spec in model.asked] == [("</think>",), ("\n\nMore",)]


def test_stop_strings_act_behind_thinking_that_the_model_opens() -> None:
    model = Thinker(opens="<think>\n")
    for each in solve(model, "2+2?", stop=("\n\n", "never")):
        # What comes right behind the thinking belongs to it, and stops nothing there.
        assert each.text == f"<think>\n{THOUGHT}</think>"
        assert each.stop_string == "\n\n"
    found = solve(model, "2+2?", stop=("\n\nMore",))
    assert [each.text[-8:] for each in found] == ["It is 4."] * 2
    assert len(model.asked) == 3 + 1  # which does not stop inside, so one pass is enough


def test_thinking_is_cut_short() -> None:
    for counts in (True, False):
        model = Thinker(THOUGHT * 9, counts=counts)
        for i, each in enumerate(solve(model, max_think_tokens=20)):
            assert each.text == f"{(THOUGHT * 9)[:20]}\n</think>\n\n{i}: {ANSWER}"
            assert (each.finish_reason, each.stop_string) == ("stop", None)
            answered = len(f"{i}: {ANSWER}")
            assert each.n_tokens == (20 + answered if counts else None)
            assert each.thinking_tokens == (20 if counts else None)
    model = Thinker(THOUGHT * 9, opens="<think>\n")
    (each, _) = solve(model, "2+2?", max_think_tokens=20)
    assert each.text.startswith(f"<think>\n{THOUGHT[:12]}\n</think>\n\n0: It")


def test_thinking_that_ends_in_time_is_left_alone() -> None:
    for opens, prompt in (("", "2+2?<think>\n"), ("<think>\n", "2+2?")):
        model = Thinker(opens=opens)
        free = [each.text for each in solve(model, prompt)]
        assert len(model.asked) == 1
        assert [each.text for each in solve(model, prompt, max_think_tokens=60)] == free


def test_an_answer_has_what_is_left() -> None:
    (each, _) = solve(Thinker(THOUGHT * 9), max_tokens=30, max_think_tokens=20)
    assert each.text.endswith("</think>\n\n0: It is 4") and len(ANSWER) > 10
    assert (each.finish_reason, each.n_tokens) == ("length", 30)


def test_what_does_not_think_is_sampled_as_ever() -> None:
    model = Thinker()
    spec = SamplingSpec(n=2, max_tokens=100, stop=("\n\n",))
    found = dict(stream(model, ["a 2+2?", "b 2+2?"], spec))
    assert [each.text for each in found[1]] == ["0: It is 4.", "1: It is 4."]
    assert model.asked == [(["a 2+2?", "b 2+2?"], spec)]
    (each, _) = solve(model, "2+2?", max_think_tokens=5)
    assert each.text == f"0: {ANSWER}"


def test_a_prompt_that_fills_the_context_has_an_end() -> None:
    class Full(Thinker):
        def complete(self, context: str, spec: SamplingSpec, index: int) -> Completion:
            return Completion("", "length", 0)

    (each, _) = solve(Full(), stop=("\n\n",), max_think_tokens=5)
    assert (each.text, each.finish_reason) == ("", "length")


def test_limits_of_thinking_are_checked(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"max_think_tokens = 8: expected less than `max_tokens=8`"
    ):
        SamplingSpec(max_tokens=8, max_think_tokens=8)
    assert "max_think_tokens" not in SamplingSpec().to_json_values()
    recorded = tmp_path / "completions.jsonl"
    recorded.write_text("{}")
    for how in (
        {"engine": "replay", "replay": recorded},
        {"engine": "openai", "base_url": "http://localhost/v1", "api": "chat", "model": "m"},
    ):
        options = BuildOptions(max_think_tokens=5, **how)  # type: ignore[arg-type]
        with pytest.raises(
            InputError,
            match="max_think_tokens = 5: the limit needs a sampler that continues a text",
        ):
            run_build(options, NO_PROGRESS)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model that babbles, whose chat template opens its thinking."""
    path = save_random_model(tmp_path_factory.mktemp("model"), context=4096)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}\n<think>\n"
    (path / "chat_template.jinja").write_text(template)
    return path


def test_a_build_with_a_limit(policy: Path, tmp_path: Path) -> None:
    """A real engine closes the thinking of a model that babbles, the same in any batch."""
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(f'{{"question": "{i}+2?", "answer": "4"}}\n' for i in range(3)))
    how: dict[str, Any] = {
        "model": str(policy),
        "problems": [str(file)],
        "samples": 3,
        "max_tokens": 40,
        "max_think_tokens": 15,
        "template": "chat",
        "device": "cpu",
        "engine": "transformers",
    }
    found = []
    for size in (1, 32):
        out, _ = run_build(
            BuildOptions(out=tmp_path / str(size), batch_size=size, **how), NO_PROGRESS
        )
        manifest = validate(out)
        assert manifest.spec.sampling.to_dict()["max_think_tokens"] == 15
        assert "--max-think-tokens 15" in (out / "README.md").read_text()
        found.append(pl.read_parquet(out / "solutions/*.parquet").drop("solution_id"))
        assert manifest.thinking is not None and manifest.thinking.closed > 5
    assert found[0].equals(found[1])
    assert found[0]["prompt"].str.ends_with("<think>").all()
    rows = found[0].filter("thinking_closed")  # the others ended by themselves
    assert rows["completions"].list.join("").str.contains("\n</think>\n\n", literal=True).all()
    assert set(rows["thinking_tokens"]) == {15} and rows["n_tokens"].max() == 40
    ended = found[0].filter(~pl.col("thinking_closed"))
    assert ended["n_tokens"].equals(ended["thinking_tokens"]) and ended["n_tokens"].max() <= 15
    # what the sampler is told not to do, it cannot be resumed with
    again = how | {"max_think_tokens": None}
    with pytest.raises(RunMismatchError, match="max_think_tokens: 15 in the run, None now"):
        run_build(BuildOptions(out=tmp_path / "1", resume=True, **again), NO_PROGRESS)


def test_tokens_of_thinking_are_counted(policy: Path) -> None:
    tokenizer = load_tokenizer(str(policy))
    decoder = CompletionDecoder(tokenizer)

    def count(prompt: str, *parts: str) -> tuple[int | None, int]:
        ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts]
        joined = [*chain(*ids), tokenizer.eos_token_id]
        return decoder.thinking_tokens(prompt, joined, "".join(parts)), len(ids[0])

    for thought in ("<think>\nHm, 数数.\n\nÉ.\n</think>\n\n", "<think>a</think>"):
        for answer in ("It is 4.", "é 数 4", "\\boxed{4}", "4" * 500):
            assert len(set(count("2+2?", thought, answer))) == 1
    assert count("2+2?", "It is 4.") == (None, len(tokenizer("It is 4.")["input_ids"]))
    counted, length = count("<think>\n", "It is 4, 4")
    assert counted == length + 1


@pytest.mark.parametrize("name", ["magistral", "harmony"])
def test_special_tokens_that_mark_thinking_stay_in_the_text(policy: Path, name: str) -> None:
    tokenizer, marks = load_tokenizer(str(policy)), THINKING_MARKERS[name]
    plain = CompletionDecoder(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks.tokens, "<|other|>"]})
    said = f"{marks.start}Hm.{marks.end}It is 4."
    text = f"<|other|>{said}{tokenizer.eos_token}"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoder = CompletionDecoder(tokenizer)
    assert decoder(ids, skip_special=True) == said and decoder(ids) == text
    answer = tokenizer("It is 4.", add_special_tokens=False)["input_ids"]
    assert decoder.thinking_tokens("", ids, said) == len(ids) - len(answer) - 1
    assert not plain.hidden_ids  # before it had them, and for most models: as the tokenizer does it
