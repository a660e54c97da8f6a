"""The vLLM sampler with a real vLLM: its guarantees and its agreement with transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from base_model import END_OF_TURN, write_base_model
from fakes import sample_all
from helpers import read_sample_settings
from near import TIE, gap

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.models.resolve import ResolvedModel, ResolvedWeights, resolve
from fsdpo_data.problems.load import load_problems

# vLLM's own imports warn.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def tiny() -> ResolvedModel:
    return resolve("tiny")


@pytest.fixture(scope="module")
def engine(tiny: ResolvedModel) -> Any:
    from fsdpo_data.engines.samplers.vllm import VllmSampler

    return VllmSampler(tiny, SamplerOptions())


@pytest.fixture(scope="module")
def prompts(tiny: ResolvedModel) -> list[str]:
    problems = load_problems(["embedded"], split="test", limit=200).problems
    return [tiny.template.render(problem.question) for problem in problems]


def completion_texts(results: list[list[Completion]]) -> list[list[str]]:
    return [[completion.text for completion in completions] for completions in results]


@pytest.mark.short_proof
def test_greedy_completions_equal_those_of_transformers_except_at_ties(
    engine: Any, tiny: ResolvedModel, prompts: list[str]
) -> None:
    from fsdpo_data.engines.samplers.transformers import TransformersSampler

    spec = SamplingSpec(n=1, temperature=0, max_tokens=256)
    ours = sample_all(TransformersSampler(tiny, SamplerOptions(device="cpu")), prompts, spec)
    theirs = sample_all(engine, prompts, spec)
    pairs = [(a, b) for (a,), (b,) in zip(ours, theirs, strict=True)]
    differing = [i for i, (a, b) in enumerate(pairs) if a.text != b.text]
    gaps = [
        gap(tiny.path, prompts[i], *(completion.text for completion in pairs[i])) for i in differing
    ]
    print(f"{len(differing)} of {len(prompts)} greedy completions differ; logit gaps {gaps}")
    assert all(logit_gap < TIE for logit_gap in gaps)
    equal_pairs = [pair for i, pair in enumerate(pairs) if i not in differing]
    assert all(
        a.n_tokens == b.n_tokens and a.finish_reason == b.finish_reason for a, b in equal_pairs
    )


@pytest.mark.short_proof
def test_a_sample_depends_on_seed_prompt_and_index(engine: Any, prompts: list[str]) -> None:
    many = completion_texts(sample_all(engine, prompts[:20], SamplingSpec(n=8, max_tokens=64)))
    few = completion_texts(
        sample_all(engine, prompts[:20][::-1], SamplingSpec(n=3, max_tokens=64))
    )[::-1]
    n_equal = sum(a[:3] == b for a, b in zip(many, few, strict=True))
    assert n_equal >= 19  # rounding in another batch may change a sample
    other = completion_texts(
        sample_all(engine, prompts[:20], SamplingSpec(n=8, max_tokens=64, seed=1))
    )
    assert many != other
    assert all(len(set(prompt_texts)) > 1 for prompt_texts in many)


def test_thinking_ignores_stop_strings(engine: Any, prompts: list[str]) -> None:
    spec = SamplingSpec(n=3, max_tokens=64, stop=("\n",))
    thinking_prompts = [f"{prompt}<think>\n" for prompt in prompts[:4]]
    completions = [
        completion
        for prompt_completions in sample_all(LoadedSampler(engine), thinking_prompts, spec)
        for completion in prompt_completions
    ]
    assert len(completions) == 12 and all(
        (completion.n_tokens or 0) <= 64 for completion in completions
    )
    assert any("\n" in completion.text.partition("\n</think>")[0] for completion in completions)


@pytest.mark.short_proof
def test_stop_strings_length_and_context(engine: Any, prompts: list[str]) -> None:
    (free,), (stopped,) = (
        sample_all(engine, prompts[:1], SamplingSpec(n=1, temperature=0, max_tokens=64, stop=stop))[
            0
        ]
        for stop in ((), ("Step 2",))
    )
    assert stopped.text == free.text.partition("Step 2")[0] and stopped.finish_reason == "stop"
    assert (stopped.stop_string, free.stop_string) == ("Step 2", None)
    (short,) = sample_all(engine, prompts[:1], SamplingSpec(n=1, max_tokens=3))[0]
    assert (short.n_tokens, short.finish_reason) == (3, "length")
    full, fits = sample_all(engine, ["9" * 5000, prompts[0]], SamplingSpec(n=2, max_tokens=4))
    assert full == [Completion("", "length", 0)] * 2
    assert all(completion.n_tokens for completion in fits)


def test_a_stop_string_that_is_a_special_token_ends_the_sequence(
    engine: Any, prompts: list[str], tmp_path: Path
) -> None:
    from fsdpo_data.engines.samplers.vllm import VllmSampler

    model = ResolvedWeights(ModelRef("base", "0"), str(write_base_model(tmp_path / "base")))
    sampler = VllmSampler(model, SamplerOptions())
    spec = SamplingSpec(n=2, temperature=0.8, max_tokens=300)
    expected, stopped = (
        [
            (completion.text, completion.finish_reason, completion.n_tokens)
            for completions in sampled
            for completion in completions
        ]
        for sampled in (
            sample_all(engine, prompts[:4], spec),
            sample_all(sampler, prompts[:4], spec.replace(stop=(END_OF_TURN,))),
        )
    )
    sampler.close()
    assert stopped == expected
    assert {reason for _, reason, _ in stopped} == {"stop"}


def build(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fsdpo_data", "build", "--engine", "vllm"]
    return subprocess.run(
        [*command, "--out", str(out), *arguments], capture_output=True, text=True, check=False
    )


def test_build_on_real_problems(shared: Path, tmp_path: Path) -> None:
    problems = str(shared / "data/train/gsm8k/train.jsonl")
    ran = build(tmp_path / "run", "--problems", problems, "--limit", "60", "--samples", "8")
    assert ran.returncode == 0, ran.stderr
    print(ran.stdout)
    check_dataset(tmp_path / "run", 480)


def test_build_on_embedded_problems(tmp_path: Path) -> None:
    ran = build(tmp_path / "run", "--limit", "50", "--samples", "4")
    assert ran.returncode == 0, ran.stderr
    check_dataset(tmp_path / "run", 200)


def test_two_replicas_sample_the_completions_of_one(engine: Any, tmp_path: Path) -> None:
    limit = ("--limit", "20", "--samples", "4", "--max-tokens", "64")
    ran = build(tmp_path / "run", *limit, "--engine-arg", "data_parallel_size=2")
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    lines = (tmp_path / "run" / "completions.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    replica_texts = [
        [completion["text"] for completion in record["completions"]] for record in records
    ]
    spec = SamplingSpec(n=4, max_tokens=64)
    single_texts = completion_texts(
        sample_all(engine, [record["prompt"] for record in records], spec)
    )
    assert len(replica_texts) == 20
    n_equal = sum(a == b for a, b in zip(single_texts, replica_texts, strict=True))
    assert n_equal >= 18  # rounding in another batch may change a sample


def check_dataset(root: Path, rows: int) -> None:
    import datasets

    from fsdpo_data.dataset.validate import validate

    assert read_sample_settings(validate(root)).engine.name == "vllm"
    cache = str(root.parent / "cache")
    assert (
        datasets.load_dataset(str(root), "solutions", split="train", cache_dir=cache).num_rows
        == rows
    )


def test_the_error_of_a_failed_start_gives_the_reason(tiny: ResolvedModel, tmp_path: Path) -> None:
    ran = build(tmp_path / "run", "--engine-arg", "max_model_len=10000000", "--limit", "2")
    assert ran.returncode == 1
    assert "error: --engine vllm: vLLM could not load" in ran.stderr
    assert not (tmp_path / "run" / "manifest.json").exists()
