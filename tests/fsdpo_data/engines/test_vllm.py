"""The vLLM engine, for real: what it promises, and agreement with the transformers engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from near import TIE, gap

from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import stream
from fsdpo_data.models.resolve import ResolvedModel, resolve
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


def texts(results: list[list[Completion]]) -> list[list[str]]:
    return [[each.text for each in completions] for completions in results]


def test_greedy_agrees_with_transformers_or_was_a_tie(
    engine: Any, tiny: ResolvedModel, prompts: list[str]
) -> None:
    from fsdpo_data.engines.samplers.transformers import TransformersSampler

    spec = SamplingSpec(n=1, temperature=0, max_tokens=256)
    ours = TransformersSampler(tiny, SamplerOptions(device="cpu")).sample(prompts, spec)
    theirs = engine.sample(prompts, spec)
    pairs = [(a, b) for (a,), (b,) in zip(ours, theirs, strict=True)]
    differing = [i for i, (a, b) in enumerate(pairs) if a.text != b.text]
    gaps = [gap(tiny.path, prompts[i], *(each.text for each in pairs[i])) for i in differing]
    print(f"{len(differing)} of {len(prompts)} greedy completions differ; logit gaps {gaps}")
    assert all(each < TIE for each in gaps)
    same = [pair for i, pair in enumerate(pairs) if i not in differing]
    assert all(a.n_tokens == b.n_tokens and a.finish_reason == b.finish_reason for a, b in same)


def test_a_sample_depends_on_seed_prompt_and_index(engine: Any, prompts: list[str]) -> None:
    many = texts(engine.sample(prompts[:20], SamplingSpec(n=8, max_tokens=64)))
    few = texts(engine.sample(prompts[:20][::-1], SamplingSpec(n=3, max_tokens=64)))[::-1]
    same = sum(a[:3] == b for a, b in zip(many, few, strict=True))
    assert same >= 19  # another batch may round a draw on a boundary the other way
    other = texts(engine.sample(prompts[:20], SamplingSpec(n=8, max_tokens=64, seed=1)))
    assert many != other
    assert all(len(set(each)) > 1 for each in many)


def test_thinking_has_its_tokens_and_no_stop_strings(engine: Any, prompts: list[str]) -> None:
    spec = SamplingSpec(n=3, max_tokens=64, max_think_tokens=24, stop=("\n",))
    asked = [f"{prompt}<think>\n" for prompt in prompts[:4]]
    found = [each for _, completions in stream(engine, asked, spec) for each in completions]
    assert len(found) == 12 and all((each.n_tokens or 0) <= 64 for each in found)
    short = [each for each in found if "\n</think>\n\n" in each.text]
    assert short and {each.thinking_tokens for each in short} == {24}
    for each in short:
        thought, _, answer = each.text.partition("\n</think>\n\n")
        assert "\n" not in answer and thought
    for each in (each for each in found if each not in short):  # ended by itself
        assert each.thinking_tokens == each.n_tokens <= 24
    assert any("\n" in each.text.partition("\n</think>")[0] for each in found)


def test_stop_strings_length_and_context(engine: Any, prompts: list[str]) -> None:
    (free,), (stopped,) = (
        engine.sample(prompts[:1], SamplingSpec(n=1, temperature=0, max_tokens=64, stop=stop))[0]
        for stop in ((), ("Step 2",))
    )
    assert stopped.text == free.text.partition("Step 2")[0] and stopped.finish_reason == "stop"
    assert (stopped.stop_string, free.stop_string) == ("Step 2", None)
    (short,) = engine.sample(prompts[:1], SamplingSpec(n=1, max_tokens=3))[0]
    assert (short.n_tokens, short.finish_reason) == (3, "length")
    full, fits = engine.sample(["9" * 5000, prompts[0]], SamplingSpec(n=2, max_tokens=4))
    assert full == [Completion("", "length", 0)] * 2
    assert all(each.n_tokens for each in fits)


def build(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fsdpo_data", "build", "--engine", "vllm"]
    return subprocess.run(
        [*command, "--out", str(out), *arguments], capture_output=True, text=True, check=False
    )


def test_build_on_real_problems(shared: Path, tmp_path: Path) -> None:
    problems = str(shared / "data/train/gsm8k/train.jsonl")
    ran = build(tmp_path / "run", "--problems", problems, "--limit", "200", "--samples", "8")
    assert ran.returncode == 0, ran.stderr
    print(ran.stdout)
    check_dataset(tmp_path / "run", 1600)


def test_build_on_embedded_problems(tmp_path: Path) -> None:
    ran = build(tmp_path / "run", "--limit", "50", "--samples", "4")
    assert ran.returncode == 0, ran.stderr
    check_dataset(tmp_path / "run", 200)


def test_two_copies_of_the_model_draw_what_one_draws(engine: Any, tmp_path: Path) -> None:
    limit = ("--limit", "20", "--samples", "4", "--max-tokens", "64")
    ran = build(tmp_path / "run", *limit, "--data-parallel-size", "2")
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    lines = (tmp_path / "run" / "completions.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    two = [[each["text"] for each in record["completions"]] for record in records]
    spec = SamplingSpec(n=4, max_tokens=64)
    one = texts(engine.sample([record["prompt"] for record in records], spec))
    assert len(two) == 20
    same = sum(a == b for a, b in zip(one, two, strict=True))
    assert same >= 18  # another batch may round a draw on a boundary the other way


def check_dataset(root: Path, rows: int) -> None:
    import datasets

    from fsdpo_data.dataset.validate import validate

    assert validate(root).spec.engine.name == "vllm"
    cache = str(root.parent / "cache")
    assert (
        datasets.load_dataset(str(root), "solutions", split="train", cache_dir=cache).num_rows
        == rows
    )


def test_an_engine_that_cannot_start_says_why(tiny: ResolvedModel, tmp_path: Path) -> None:
    ran = build(tmp_path / "run", "--engine-arg", "max_model_len=10000000", "--limit", "2")
    assert ran.returncode == 1
    assert "error: --engine vllm: vLLM could not load" in ran.stderr
    assert not (tmp_path / "run" / "manifest.json").exists()
