"""The transformers sampler against plain loops, and the guarantees of all samplers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from base_model import END_OF_TURN, write_base_model
from fakes import sample_all
from random_model import save_random_model
from transformers import DynamicCache

import fsdpo_data.engines.samplers.transformers as transformers_sampler
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import EngineLoader
from fsdpo_data.engines.samplers.grouped_attention import REGISTERED_NAME, use_grouped_attention
from fsdpo_data.engines.samplers.tokenization import ContextTokens, cut_at_stop, encode_prompt
from fsdpo_data.engines.samplers.transformers import (
    BATCH_SIZE_CPU,
    MAX_BATCH_SIZE_GPU,
    GenerationRequest,
    InverseCdfProcessor,
    TransformersSampler,
    cache_bytes_per_token,
    make_cache,
)
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import ResolvedWeights, resolve_weights
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.load import load_problems

PROMPTS = [
    "Problem: 20 + 22?\nSolution:\n",
    "Problem: 1\n",
    "Problem: a longer one, é 数\nSolution:\n",
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_random_model(tmp_path_factory.mktemp("model")))


def load_sampler(path: str, **options: Any) -> TransformersSampler:
    weights = ResolvedWeights(ModelRef("random", "0"), path)
    return TransformersSampler(weights, SamplerOptions(device="cpu"), **options)


@pytest.fixture(scope="module")
def random_sampler(model_path: str) -> TransformersSampler:
    return load_sampler(model_path)


def completion_texts(results: list[list[Completion]]) -> list[list[str]]:
    return [[completion.text for completion in completions] for completions in results]


@pytest.mark.parametrize("eos_token_id", [{"a": 1}, "x", ["x"], -1, 2**63])
def test_invalid_end_of_sequence_ids_are_refused(
    model_path: str, tmp_path: Path, eos_token_id: Any
) -> None:
    path = shutil.copytree(model_path, tmp_path / "model")
    file = path / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": eos_token_id}))
    with pytest.raises(UnavailableError, match=r"Expected token ids|cannot be loaded"):
        load_sampler(str(path))


def greedy_by_hand(path: str, prompt: str, tokens: int) -> list[int]:
    """Return the greedy token ids, computed without a cache, a batch or ``generate``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    net = AutoModelForCausalLM.from_pretrained(path).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = encode_prompt(tokenizer, Prompt(prompt))
    start = len(ids)
    for _ in range(tokens):
        with torch.inference_mode():
            ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return ids[start:]


def test_greedy_is_the_argmax_of_every_step(
    random_sampler: TransformersSampler, model_path: str
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    spec = SamplingSpec(n=1, temperature=0, max_tokens=24)
    for prompt, (completion,) in zip(
        PROMPTS, sample_all(random_sampler, PROMPTS, spec), strict=True
    ):
        ids = greedy_by_hand(model_path, prompt, 24)
        assert completion.text == tokenizer.decode(ids, skip_special_tokens=True)
        assert completion.n_tokens == len(ids)
        ended = ids[-1] == tokenizer.eos_token_id
        assert completion.finish_reason == ("stop" if ended else "length")


def test_a_sample_depends_only_on_seed_prompt_and_index(model_path: str) -> None:
    spec = SamplingSpec(n=6, max_tokens=20, seed=3)
    one_by_one = completion_texts(sample_all(load_sampler(model_path, batch_size=1), PROMPTS, spec))
    together = load_sampler(model_path, batch_size=64)
    assert completion_texts(sample_all(together, PROMPTS, spec)) == one_by_one
    assert completion_texts(sample_all(together, PROMPTS[::-1], spec)) == one_by_one[::-1]
    fewer = SamplingSpec(n=2, max_tokens=20, seed=3)
    assert completion_texts(sample_all(together, PROMPTS[1:2], fewer)) == [one_by_one[1][:2]]
    other = SamplingSpec(n=6, max_tokens=20, seed=4)
    assert completion_texts(sample_all(together, PROMPTS, other)) != one_by_one
    assert len({text for prompt_texts in one_by_one for text in prompt_texts}) > 12


def test_sentencepiece_completions_keep_their_space(tmp_path: Path) -> None:
    """A truncated step and its continuation join as "12 apples", not as "12apples"."""
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
    engine, prompt = load_sampler(str(tmp_path)), "Problem: 12"
    (free,) = sample_all(engine, [prompt], SamplingSpec(n=8, max_tokens=8, temperature=2, seed=1))
    encoder = StepTokenizer(spaced)
    for completion in free:
        ids = (
            encoder.encode(Prompt(prompt), [completion.text], add_eos=False).input_ids.tolist()
            if completion.text
            else []
        )
        assert not ids or spaced.decode(ids) == prompt + completion.text
    assert any(completion.text.startswith(" ") for completion in free)


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(
    random_sampler: TransformersSampler,
) -> None:
    free = SamplingSpec(n=8, temperature=0.8, max_tokens=40, seed=1)
    stop = "a"
    assert any(
        stop in text for text in completion_texts(sample_all(random_sampler, PROMPTS[:1], free))[0]
    )
    stopping = free.replace(stop=(stop,))
    free_completions, stopped_completions = (
        sample_all(random_sampler, PROMPTS[:1], free)[0],
        sample_all(random_sampler, PROMPTS[:1], stopping)[0],
    )
    for full, cut in zip(free_completions, stopped_completions, strict=True):
        assert cut.text == full.text.partition(stop)[0]
        if stop in full.text:
            assert cut.finish_reason == "stop" and 0 < cut.n_tokens <= full.n_tokens
            assert cut.stop_string is not None and cut.text + cut.stop_string in full.text
        else:
            assert (cut.text, cut.finish_reason) == (full.text, full.finish_reason)
            assert cut.stop_string is None


def test_a_stop_string_that_begins_in_the_prompt_ends_nothing(
    random_sampler: TransformersSampler,
) -> None:
    """The last character of the prompt and the first of the text form the stop string."""
    free_results = sample_all(random_sampler, PROMPTS, SamplingSpec(n=4, max_tokens=12, seed=1))
    tested = 0
    for prompt, free_completions in zip(PROMPTS, free_results, strict=True):
        for index, free in enumerate(free_completions):
            stop = prompt[-1] + free.text[:1]
            if len(stop) < 2 or stop in free.text:
                continue
            spec = SamplingSpec(n=4, max_tokens=12, seed=1, stop=(stop,))
            completion = sample_all(random_sampler, [prompt], spec)[0][index]
            assert completion.text == free.text and completion.stop_string is None
            assert completion.finish_reason == free.finish_reason
            assert completion.n_tokens == free.n_tokens
            tested += 1
    assert tested > 4


def test_a_stop_string_that_is_a_special_token_ends_the_sequence(tmp_path: Path) -> None:
    """As in a base model whose end-of-sequence token is not the end of a turn of its template."""
    model = write_base_model(tmp_path / "base")
    template = get_template("problem")
    problems = load_problems(["embedded"], split="test", limit=4).problems
    prompts = [template.render(problem.question) for problem in problems]
    spec = SamplingSpec(n=2, temperature=0.8, max_tokens=120)
    stopping = spec.replace(stop=(END_OF_TURN,))
    expected, free, stopped = (
        [
            (completion.text, completion.finish_reason, completion.n_tokens)
            for completions in sample_all(load_sampler(str(path)), prompts, run_spec)
            for completion in completions
        ]
        for path, run_spec in ((CHECKPOINT, spec), (model, spec), (model, stopping))
    )
    assert stopped == expected
    assert [reason for _, reason, _ in stopped] == ["stop"] * 8
    assert [reason for _, reason, _ in free] == ["length"] * 8


@pytest.mark.parametrize("stop", [(), ("e",)])
def test_rounds_do_not_change_the_samples(
    random_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch, stop: tuple[str, ...]
) -> None:
    spec = SamplingSpec(n=6, temperature=1, max_tokens=50, stop=stop)
    at_once = sample_all(random_sampler, PROMPTS, spec)
    monkeypatch.setattr("fsdpo_data.engines.samplers.transformers.FIRST_ROUND_TOKENS", 3)
    in_rounds = sample_all(random_sampler, PROMPTS, spec)
    pairs = [
        (first, second)
        for group, again in zip(at_once, in_rounds, strict=True)
        for first, second in zip(group, again, strict=True)
    ]
    assert len({first.n_tokens for first, _ in pairs}) > 1 or not stop
    assert all(
        (first.text, first.n_tokens, first.finish_reason)
        == (second.text, second.n_tokens, second.finish_reason)
        for first, second in pairs
    )


def greedy_logits(net: Any, ids: torch.Tensor, mask: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the logits of 24 greedy tokens, [24, B, V]."""
    generated = net.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )
    return torch.stack(generated.logits)


@pytest.mark.parametrize("window", [None, 8])
def test_the_preallocated_cache_equals_the_cache_of_transformers(
    model_path: str, window: int | None
) -> None:
    """The logits are equal with left padding.

    Sliding-window layers keep the cache of transformers.
    """
    from transformers import AutoModelForCausalLM, DynamicCache

    last = "sliding_attention" if window else "full_attention"
    net = AutoModelForCausalLM.from_pretrained(
        model_path, sliding_window=window, layer_types=["full_attention", last]
    ).eval()
    ids, mask = torch.randint(5, 200, (3, 20)), torch.ones(3, 20, dtype=torch.long)
    mask[0, :7] = 0
    ours = make_cache(net.config, 44)
    kinds = [type(layer).__name__ for layer in ours.layers]
    assert kinds == [
        "PreallocatedCacheLayer",
        "DynamicSlidingWindowLayer" if window else "PreallocatedCacheLayer",
    ]
    scores = [
        greedy_logits(net, ids, mask, past_key_values=cache)
        for cache in (ours, DynamicCache(config=net.config))
    ]
    assert torch.equal(*scores)


def test_contexts_in_chunks_do_not_change_the_samples(
    random_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are shorter than the padding of the shortest context."""
    spec = SamplingSpec(n=2, temperature=1, max_tokens=30)
    expected = sample_all(random_sampler, PROMPTS, spec)
    monkeypatch.setattr(transformers_sampler, "MAX_PREFILL_TOKENS", 2 * len(PROMPTS) * spec.n)
    monkeypatch.setattr(transformers_sampler, "MAX_PROBABILITIES", 700)
    in_chunks = sample_all(random_sampler, PROMPTS, spec)
    assert completion_texts(in_chunks) == completion_texts(expected)


@pytest.mark.parametrize("window", [None, 8])
def test_grouped_attention_equals_the_attention_of_transformers(
    tmp_path: Path, window: int | None
) -> None:
    from transformers import AutoModelForCausalLM

    shape = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16}
    path = save_random_model(tmp_path, **shape)
    net = AutoModelForCausalLM.from_pretrained(path, sliding_window=window).eval()
    ids, mask = torch.randint(5, 200, (3, 20)), torch.ones(3, 20, dtype=torch.long)
    for n_padded in (7, 0):  # without padding, there is no mask
        mask[0, :] = 1
        mask[0, :n_padded] = 0
        scores = []
        for name in ("sdpa", REGISTERED_NAME):
            net.set_attn_implementation("sdpa")
            if name == REGISTERED_NAME:
                use_grouped_attention(net)
            assert net.config._attn_implementation == name
            scores.append(greedy_logits(net, ids, mask))
        torch.testing.assert_close(*scores)


def test_the_cache_bytes_are_those_of_the_cache(random_sampler: TransformersSampler) -> None:
    net = random_sampler._net
    cache = DynamicCache(config=net.config)
    net(torch.ones((1, 7), dtype=torch.long), past_key_values=cache)
    stored_bytes = sum(
        tensor.numel() * tensor.itemsize
        for layer in cache.layers
        for tensor in (layer.keys, layer.values)
    )
    assert 7 * cache_bytes_per_token(net.config, net.dtype) == stored_bytes


@pytest.mark.parametrize(
    ("free_caches", "batch_size"), [(10_000, MAX_BATCH_SIZE_GPU), (40, 10), (1, 1)]
)
def test_the_caches_of_a_batch_take_a_quarter_of_the_free_gpu_memory(
    random_sampler: TransformersSampler,
    free_caches: int,
    batch_size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = random_sampler._net
    context = ContextTokens([1] * 20, [], "")
    requests = [GenerationRequest(0, context, 0, max_new_tokens=30)]
    free_bytes = free_caches * 50 * cache_bytes_per_token(net.config, net.dtype)
    assert random_sampler._choose_batch_size(requests) == BATCH_SIZE_CPU
    monkeypatch.setattr(random_sampler, "_device", "cuda")
    monkeypatch.setattr(
        "fsdpo_data.engines.samplers.transformers.free_gpu_memory", lambda _: free_bytes
    )
    assert random_sampler._choose_batch_size(requests) == batch_size


def test_the_context_length_limits_completions(random_sampler: TransformersSampler) -> None:
    spec = SamplingSpec(n=2, max_tokens=1000)
    full, near = sample_all(random_sampler, ["x " * 300, "1 " * 120], spec)
    assert full == [Completion("", "length", 0)] * 2
    assert all(completion.n_tokens <= 16 for completion in near)


def test_the_seconds_of_a_batch_are_divided_among_its_samples(
    random_sampler: TransformersSampler,
) -> None:
    (completions,) = sample_all(random_sampler, PROMPTS[:1], SamplingSpec(n=4, max_tokens=5))
    assert all(completion.seconds > 0 for completion in completions)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7), (2.0, 0.4)])
def test_token_frequencies_are_the_probabilities_of_the_nucleus(
    temperature: float, top_p: float
) -> None:
    rows, scores = 40_000, torch.tensor([0.3, 2.0, -1.0, 1.5, 0.0, -torch.inf, 1.2])
    uniforms = np.random.default_rng(0).random((rows, 1))
    draw = InverseCdfProcessor(2, uniforms, SamplingSpec(temperature=temperature, top_p=top_p))
    left = draw(torch.zeros(rows, 2, dtype=torch.long), scores.expand(rows, -1))
    assert ((left > -torch.inf).sum(-1) == 1).all()
    frequencies = torch.bincount(left.argmax(-1), minlength=7).double() / rows
    expected = (scores.double() / temperature).softmax(-1)
    order = expected.argsort(descending=True)
    nucleus_size = int((expected[order].cumsum(0) < top_p - 1e-12).sum()) + 1
    expected[order[nucleus_size:]] = 0
    expected /= expected.sum()
    # Five standard errors: an unseeded test would fail once in a million runs.
    error = 5 * (expected * (1 - expected) / rows).sqrt()
    assert ((frequencies - expected).abs() <= error).all()


def test_encode_prompt_does_not_add_a_second_bos(tmp_path: Path) -> None:
    from small_tokenizer import save_tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    assert (
        encode_prompt(tokenizer, Prompt("user"))
        == encode_prompt(tokenizer, Prompt("<s>user"))
        == [0, 3]
    )


def test_cut_at_stop_takes_the_earliest() -> None:
    assert cut_at_stop("a b c", ("c", "b")) == ("a ", "b")
    assert cut_at_stop("a b c", ("b", "b c")) == ("a ", "b c")
    assert cut_at_stop("a b c", ("d",)) == ("a b c", None)
    assert cut_at_stop("a b c", ()) == ("a b c", None)


def test_a_directory_without_a_language_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UnavailableError, match="cannot be loaded"):
        load_sampler(str(tmp_path))


def test_a_missing_gpu_is_refused(model_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UnavailableError, match="torch sees no GPU here"):
        TransformersSampler(resolve_weights(model_path), SamplerOptions(device="cuda"))


@pytest.mark.parametrize(
    "wrong",
    [{"n": 0}, {"temperature": -0.1}, {"top_p": 1.1}, {"max_tokens": 0}, {"temperature": 0.0}],
)
def test_invalid_sampling_specs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SamplingSpec(**wrong)


def test_an_engine_loader_loads_once_until_it_is_closed() -> None:
    events: list[str] = []

    class Engine:
        def __init__(self) -> None:
            events.append("load")

        def close(self) -> None:
            events.append("close")

    loader = EngineLoader(Engine)
    loader.close()
    assert loader() is loader() and events == ["load"]
    loader.close()
    loader.close()
    loader()
    assert events == ["load", "close", "load"]
