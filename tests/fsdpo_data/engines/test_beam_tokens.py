"""Beam search with one candidate and temperature 0 is greedy decoding, for every segmenter."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import real_tokenizers
from fakes import Judge, TextSampler, sample_all

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.beam_search import BeamSampler, BeamSpec
from fsdpo_data.engines.load import load_sampler
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import LoadedSampler, Sampler
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.steps.segment import SEGMENTERS, Segmenter, _split_at_offsets

BUILTIN_SEGMENTERS = tuple(SEGMENTERS)
#: Sentence segmenters, by their stop string.
SENTENCES = {"sentence@1": ". ", "dot@1": ".", "dash@1": " -", "digit@1": "8"}
GREEDY = SamplingSpec(n=1, temperature=0, max_tokens=400)

PROMPT = "Question: 2+2?\nSolution:\n"
SOLUTIONS = (
    "Two and two. The sum  is 3.5 - or 4.\n\nStep 2: We check.\n\n\nIt works. So the answer is 4.",
    "We count: 1. 2. 3. 4.\nStep 1: 日本語。 é𝒳 done. \nThat is all.\n",
    "<think>\nOne. Two.\n\nThree. </think>\n\nThe end. The answer is 4.",
)


@pytest.fixture(autouse=True)
def sentence_segmenters(monkeypatch: pytest.MonkeyPatch) -> None:
    def split_at_sentences(text: str) -> list[str]:
        ends = [match.end() for match in re.finditer(r"\.\s+(?=\S)", text)]
        return _split_at_offsets(text, ends)

    monkeypatch.setattr(SEGMENTERS, "data", dict(SEGMENTERS.data))
    for name, stop in SENTENCES.items():
        segmenter = Segmenter(name, "after each sentence", split_at_sentences, stops=(stop,))
        SEGMENTERS.register(segmenter)


def search(
    prompts: Sequence[str], sampler: Sampler, segmenter: str, *, step_tokens: int
) -> list[str]:
    spec = BeamSpec(b1=1, b2=1, max_steps=300)
    searcher = BeamSampler(sampler, Judge(0), segmenter, spec)
    with patch("fsdpo_data.engines.beam_search.MAX_STEP_TOKENS", step_tokens):
        results = sample_all(searcher, prompts, GREEDY)
    assert all(solution.finish_reason == "stop" for [solution] in results)
    return [solution.text for [solution] in results]


def test_the_embedded_model_writes_its_greedy_solutions() -> None:
    template = get_template("problem")
    prompts = [template.render(problem.question) for problem in make_problems("test", 2)]
    sampler = load_sampler("tiny", SamplerOptions(engine="transformers"))
    greedy = [completion.text for [completion] in sample_all(sampler, prompts, GREEDY)]
    for segmenter in (*BUILTIN_SEGMENTERS, *SENTENCES):
        assert search(prompts, sampler, segmenter, step_tokens=256) == greedy, segmenter
    assert search(prompts[:1], sampler, "sentence@1", step_tokens=9) == greedy[:1]


class ScriptedNet:
    """A model that continues the exact tokens of its scripts, and breaks off after other tokens."""

    def __init__(self, scripts: Sequence[list[int]], eos_id: int) -> None:
        self.scripts = scripts
        self.eos_id = eos_id

    def next_id(self, ids: list[int]) -> int:
        for script in self.scripts:
            if len(ids) < len(script) and script[: len(ids)] == ids:
                return script[len(ids)]
        return self.eos_id

    def generate(self, inputs: Any, **arguments: Any) -> Any:
        import torch

        mask, config = arguments["attention_mask"], arguments["generation_config"]
        ids = inputs
        unfinished = torch.ones(len(inputs), dtype=torch.bool)
        for _ in range(config.max_new_tokens):
            rows = [row[-n:].tolist() for row, n in zip(ids, mask.sum(-1), strict=True)]
            new = torch.tensor([[self.next_id(row)] for row in rows])
            new[~unfinished] = config.pad_token_id
            ids = torch.cat([ids, new], dim=1)
            mask = torch.cat([mask, torch.ones_like(new)], dim=1)
            unfinished &= new[:, 0] != self.eos_id
            if len(arguments["stopping_criteria"]):
                unfinished &= ~arguments["stopping_criteria"](ids, None)
            if not unfinished.any():
                break
        return ids


class SlowStopCriteria:
    """A criterion that reads the text of all rows, and needs no table of a large vocabulary."""

    def __init__(self, tokenizer: Any, stop: Any, context_tokens: int, has_stop: Any) -> None:
        self.context_tokens = context_tokens
        self.has_stop = has_stop

    def __call__(self, ids: Any, scores: Any) -> Any:
        import torch

        rows = enumerate(ids[:, self.context_tokens :].tolist())
        return torch.tensor([self.has_stop(index, row) for index, row in rows])


@pytest.mark.parametrize("name", ["qwen2", "mistral"])
def test_real_tokenizers_keep_the_tokens(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from fsdpo_data.engines.samplers import transformers
    from fsdpo_data.engines.samplers.text_encoders import CompletionEncoder
    from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, encode_prompt

    tokenizer = real_tokenizers.load(shared / "tokenizers" / name)
    prompts = [f"{index} {PROMPT}" for index in range(len(SOLUTIONS))]
    encoder = CompletionEncoder(tokenizer)
    solutions = [encoder.encode(solution).ids for solution in SOLUTIONS]
    eos_id = tokenizer.eos_token_id
    scripts = [
        [*encode_prompt(tokenizer, Prompt(prompt)), *ids, eos_id]
        for prompt, ids in zip(prompts, solutions, strict=True)
    ]
    monkeypatch.setattr(transformers, "make_cache", lambda *_: None)
    monkeypatch.setattr(transformers, "NewStopCriteria", SlowStopCriteria)
    engine = transformers.TransformersSampler.__new__(transformers.TransformersSampler)
    vars(engine).update(
        model=ModelRef("script", "0"),
        _device="cpu",
        _batch_size=32,
        _tokenizer=tokenizer,
        _decoder=CompletionDecoder(tokenizer),
        _net=type("Net", (ScriptedNet,), {"config": None})(scripts, eos_id),
        _context_length=4096,
        _eos_ids=[eos_id],
        _pad_id=eos_id,
    )
    sampler = LoadedSampler(engine)
    greedy = [completion.text for [completion] in sample_all(sampler, prompts, GREEDY)]
    assert greedy == [*SOLUTIONS]
    for segmenter in ("newline@1", "both@2", "sentence@1", "dot@1"):
        assert search(prompts, sampler, segmenter, step_tokens=256) == greedy, segmenter
    for segmenter in ("thinking@2", "sentence@1"):  # steps end inside characters
        assert search(prompts, sampler, segmenter, step_tokens=2) == greedy, segmenter


class TextEngine(TextSampler):
    """An engine without token ids, whose words contain the space before them."""

    model = ModelRef("text", "0")

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        return [[self._continue(prompt, spec)] for prompt in prompts]

    def _continue(self, prompt: str, spec: SamplingSpec) -> Completion:
        words = re.findall(r" ?\w+|\W", "One two. Three four. The end.")
        starts = ["p:" + "".join(words[:index]) for index in range(len(words) + 1)]
        text = "".join(words[starts.index(prompt) :])
        [stop] = spec.stop
        if stop in text:
            return Completion(text[: text.index(stop)], "stop", 3, stop_string=stop)
        return Completion(text, "stop", 3)


@pytest.mark.parametrize("segmenter", ["sentence@1", "dot@1"])
def test_an_engine_with_text_alone_gets_no_space_at_the_end(segmenter: str) -> None:
    [text] = search(["p:"], LoadedSampler(TextEngine()), segmenter, step_tokens=50)
    assert text == "One two. Three four. The end."


def test_a_continued_prompt_travels_to_other_processes() -> None:
    prompt = Prompt("p:", "2+2?", "a", (1, 2)).extend("b", (1, 2, 3))
    assert prompt == Prompt("p:", "2+2?", "ab", (1, 2, 3)) and prompt.full_text == "p:ab"
    assert pickle.loads(pickle.dumps(prompt)) == prompt
    # A caller without ids does not continue from ids.
    assert Prompt("p:", "2+2?").extend("a", (1,)) == Prompt("p:", "2+2?", "a")
    assert SamplingSpec().prompt_seed(prompt) == SamplingSpec().prompt_seed(Prompt("p:ab"))
