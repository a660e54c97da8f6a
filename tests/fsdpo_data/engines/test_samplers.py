"""The transformers engine against plain loops, and what every sampler promises."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_model import save_random_model

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.tokenization import cut_at_stop, encode_prompt
from fsdpo_data.engines.samplers.transformers import (
    InverseCdfProcessor,
    TransformersSampler,
    make_cache,
)
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights

PROMPTS = [
    "Problem: 20 + 22?\nSolution:\n",
    "Problem: 1\n",
    "Problem: a longer one, é 数\nSolution:\n",
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_random_model(tmp_path_factory.mktemp("model")))


def sampler(path: str, **options: Any) -> TransformersSampler:
    weights = ResolvedWeights(ModelRef("random", "0"), path)
    return TransformersSampler(weights, SamplerOptions(device="cpu"), **options)


@pytest.fixture(scope="module")
def babbler(model_path: str) -> TransformersSampler:
    return sampler(model_path)


def texts(results: list[list[Completion]]) -> list[list[str]]:
    return [[each.text for each in completions] for completions in results]


@pytest.mark.parametrize("told", [{"a": 1}, "x", ["x"], -1, 2**63])
def test_what_ends_a_sequence_is_a_token(model_path: str, tmp_path: Path, told: Any) -> None:
    path = shutil.copytree(model_path, tmp_path / "model")
    file = path / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": told}))
    with pytest.raises(UnavailableError, match=r"Expected token ids|cannot be loaded"):
        sampler(str(path))


def greedy_by_hand(path: str, prompt: str, tokens: int) -> list[int]:
    """The oracle: no cache, no batch, no generate()."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    net = AutoModelForCausalLM.from_pretrained(path).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = encode_prompt(tokenizer, prompt)
    start = len(ids)
    for _ in range(tokens):
        with torch.inference_mode():
            ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return ids[start:]


def test_greedy_is_the_argmax_of_every_step(babbler: TransformersSampler, model_path: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    spec = SamplingSpec(n=1, temperature=0, max_tokens=24)
    for prompt, (found,) in zip(PROMPTS, babbler.sample(PROMPTS, spec), strict=True):
        ids = greedy_by_hand(model_path, prompt, 24)
        assert found.text == tokenizer.decode(ids, skip_special_tokens=True)
        assert found.n_tokens == len(ids)
        ended = ids[-1] == tokenizer.eos_token_id
        assert found.finish_reason == ("stop" if ended else "length")


def test_a_sample_depends_on_nothing_but_seed_prompt_and_index(model_path: str) -> None:
    spec = SamplingSpec(n=6, max_tokens=20, seed=3)
    alone = texts(sampler(model_path, batch_size=1).sample(PROMPTS, spec))
    together = sampler(model_path, batch_size=64)
    assert texts(together.sample(PROMPTS, spec)) == alone
    assert texts(together.sample(PROMPTS[::-1], spec)) == alone[::-1]
    fewer = SamplingSpec(n=2, max_tokens=20, seed=3)
    assert texts(together.sample(PROMPTS[1:2], fewer)) == [alone[1][:2]]
    other = SamplingSpec(n=6, max_tokens=20, seed=4)
    assert texts(together.sample(PROMPTS, other)) != alone
    assert len({text for each in alone for text in each}) > 12


def test_sentencepiece_completions_keep_their_space(tmp_path: Path) -> None:
    """A step cut on length and the one after it join as "12 apples", not as "12apples"."""
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer

    letters = ["<unk>", "<s>", "</s>", "▁", *"abcdelmnoprstwP:12"]
    merges = [("▁", "a"), ("▁", "P"), ("▁a", "p"), ("e", "s"), ("▁", "1")]
    vocab = {piece: i for i, piece in enumerate([*letters, *map("".join, merges)])}
    spaced = LlamaTokenizer(vocab=vocab, merges=merges)
    config = LlamaConfig(
        vocab_size=len(vocab), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    spaced.save_pretrained(tmp_path)
    engine, prompt = sampler(str(tmp_path)), "Problem: 12"
    (free,) = engine.sample([prompt], SamplingSpec(n=8, max_tokens=8, temperature=2, seed=1))
    encoder = StepTokenizer(spaced)
    for each in free:
        ids = encoder.encode(prompt, [each.text], add_eos=False).input_ids if each.text else []
        assert not ids or spaced.decode(ids) == prompt + each.text
    assert any(each.text.startswith(" ") for each in free)


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(babbler: TransformersSampler) -> None:
    free = SamplingSpec(n=8, max_tokens=40, seed=1)
    stop = "a"
    assert any(stop in text for text in texts(babbler.sample(PROMPTS[:1], free))[0])
    held = SamplingSpec(n=8, max_tokens=40, seed=1, stop=(stop,))
    before, after = babbler.sample(PROMPTS[:1], free)[0], babbler.sample(PROMPTS[:1], held)[0]
    for whole, cut in zip(before, after, strict=True):
        assert cut.text == whole.text.partition(stop)[0]
        if stop in whole.text:
            assert cut.finish_reason == "stop" and 0 < cut.n_tokens <= whole.n_tokens
            assert cut.stop_string is not None and cut.text + cut.stop_string in whole.text
        else:
            assert (cut.text, cut.finish_reason) == (whole.text, whole.finish_reason)
            assert cut.stop_string is None


@pytest.mark.parametrize("stop", [(), ("e",)])
def test_rounds_change_no_sample(
    babbler: TransformersSampler, monkeypatch: pytest.MonkeyPatch, stop: tuple[str, ...]
) -> None:
    spec = SamplingSpec(n=6, temperature=1, max_tokens=50, stop=stop)
    at_once = babbler.sample(PROMPTS, spec)
    monkeypatch.setattr("fsdpo_data.engines.samplers.transformers.FIRST_ROUND_TOKENS", 3)
    in_rounds = babbler.sample(PROMPTS, spec)
    pairs = [
        (one, other)
        for group, again in zip(at_once, in_rounds, strict=True)
        for one, other in zip(group, again, strict=True)
    ]
    assert len({one.n_tokens for one, _ in pairs}) > 1 or not stop
    assert all(
        (one.text, one.n_tokens, one.finish_reason)
        == (other.text, other.n_tokens, other.finish_reason)
        for one, other in pairs
    )


@pytest.mark.parametrize("window", [None, 8])
def test_keys_and_values_in_place_are_those_of_transformers(
    model_path: str, window: int | None
) -> None:
    """To the last bit, with padding in front, past the first doubling of the room.

    Layers with a window keep their own cache.
    """
    from transformers import AutoModelForCausalLM, DynamicCache

    last = "sliding_attention" if window else "full_attention"
    net = AutoModelForCausalLM.from_pretrained(
        model_path, sliding_window=window, layer_types=["full_attention", last]
    ).eval()
    ids, mask = torch.randint(5, 200, (3, 20)), torch.ones(3, 20, dtype=torch.long)
    mask[0, :7] = 0
    ours = make_cache(net.config)
    kinds = [type(layer).__name__ for layer in ours.layers]
    assert kinds == [
        "PreallocatedCacheLayer",
        "DynamicSlidingWindowLayer" if window else "PreallocatedCacheLayer",
    ]
    scores = [
        net.generate(
            ids,
            attention_mask=mask,
            past_key_values=cache,
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        ).logits
        for cache in (ours, DynamicCache(config=net.config))
    ]
    assert torch.equal(torch.stack(scores[0]), torch.stack(scores[1]))


def test_the_context_is_a_limit_too(babbler: TransformersSampler) -> None:
    spec = SamplingSpec(n=2, max_tokens=1000)
    full, near = babbler.sample(["x " * 300, "1 " * 120], spec)
    assert full == [Completion("", "length", 0)] * 2
    assert all(each.n_tokens <= 16 for each in near)


def test_seconds_are_shared_out(babbler: TransformersSampler) -> None:
    (completions,) = babbler.sample(PROMPTS[:1], SamplingSpec(n=4, max_tokens=5))
    assert all(each.seconds > 0 for each in completions)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7), (2.0, 0.4)])
def test_tokens_are_drawn_from_the_nucleus_in_proportion(temperature: float, top_p: float) -> None:
    rows, scores = 40_000, torch.tensor([0.3, 2.0, -1.0, 1.5, 0.0, -torch.inf, 1.2])
    uniforms = np.random.default_rng(0).random((rows, 1))
    draw = InverseCdfProcessor(2, uniforms, SamplingSpec(temperature=temperature, top_p=top_p))
    left = draw(torch.zeros(rows, 2, dtype=torch.long), scores.expand(rows, -1))
    assert ((left > -torch.inf).sum(-1) == 1).all()
    found = torch.bincount(left.argmax(-1), minlength=7).double() / rows
    expected = (scores.double() / temperature).softmax(-1)
    order = expected.argsort(descending=True)
    kept = int((expected[order].cumsum(0) < top_p - 1e-12).sum()) + 1
    expected[order[kept:]] = 0
    expected /= expected.sum()
    # Five standard errors: one false alarm in a million runs, were the draw not seeded.
    error = 5 * (expected * (1 - expected) / rows).sqrt()
    assert ((found - expected).abs() <= error).all()


def test_encode_prompt_adds_no_second_bos(tmp_path: Path) -> None:
    from small_tokenizer import save_tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    assert encode_prompt(tokenizer, "user") == encode_prompt(tokenizer, "<s>user") == [0, 3]


def test_cut_at_stop_takes_the_earliest() -> None:
    assert cut_at_stop("a b c", ("c", "b")) == ("a ", "b")
    assert cut_at_stop("a b c", ("b", "b c")) == ("a ", "b c")
    assert cut_at_stop("a b c", ("d",)) == ("a b c", None)
    assert cut_at_stop("a b c", ()) == ("a b c", None)


def test_a_directory_that_is_no_language_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UnavailableError, match="cannot be loaded"):
        sampler(str(tmp_path))


def test_a_gpu_that_is_not_there(model_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UnavailableError, match="torch sees no GPU here"):
        TransformersSampler(resolve_weights(model_path), SamplerOptions(device="cuda"))


@pytest.mark.parametrize(
    "wrong",
    [{"n": 0}, {"temperature": -0.1}, {"top_p": 1.1}, {"max_tokens": 0}, {"temperature": 0.0}],
)
def test_specs_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SamplingSpec(**wrong)
