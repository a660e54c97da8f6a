"""vLLM tokens per second through `build`, against a bare `LLM.generate` on the same prompts.

    .venv-vllm/bin/python benchmarks/perf/sampler.py [--problems 256] [--samples 32] [--rounds 3]
        [--base-url URL]

One engine is loaded once. Each round runs the sampling half of a build (render, tokenise, sample,
detokenise, append to disk with fsync, a durable batch at a time) and a bare `LLM.generate` of all
prompts at once, with the same sampling parameters, in alternating order. Prefix caches are cleared
before each. The ratio of the two rates is what counts.

With `--base-url` it is the engine openai, against a client that posts the same requests, as many at
a time, and reads nothing but the usage. The server is to have no prefix cache, which would help
whoever comes second: `vllm serve CHECKPOINT --served-model-name tiny --no-enable-prefix-caching`.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import typer

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.registry import ENGINES
from fsdpo_data.engines.samplers.openai import OpenAiSampler
from fsdpo_data.engines.samplers.tokenization import encode_prompt
from fsdpo_data.engines.samplers.vllm import VllmSampler
from fsdpo_data.models.resolve import resolve, served_weights
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.stages.sample import BuildJob, BuildSpec, sample_problems


def main(
    problems: int = 256,
    samples: int = 32,
    batch: int = ENGINES["vllm"].batch_size,
    rounds: int = 3,
    base_url: str = "",
) -> None:
    """Time a build's sampling, and the engine alone, in turns."""
    model = resolve("tiny")
    source = load_problems(["embedded"], limit=problems)
    spec = BuildSpec(
        model=model.ref,
        sources=tuple(source.source_refs),
        template=model.template,
        sampling=SamplingSpec(n=samples, max_tokens=256),
        engine={"name": "vllm", "dtype": "auto"},
        segmenter="auto@1",
        grader=get_grader().version,
    )
    sampler: Any = None
    if base_url:
        options = SamplerOptions(engine="openai", base_url=base_url)
        sampler, bare = (
            OpenAiSampler(served_weights("tiny"), options),
            partial(bare_client, options),
        )
    else:
        sampler, bare = VllmSampler(model, SamplerOptions()), bare_engine
    bare(sampler, spec, source)  # warm up
    ratios = []
    for number in range(rounds):
        pair = [("bare", bare), ("build", partial(through_build, batch))]
        rates = {}
        for name, measure in pair if number % 2 else reversed(pair):
            if not base_url:
                sampler._llm.reset_prefix_cache()
            rates[name] = measure(sampler, spec, source)
        ratios.append(rates["build"] / rates["bare"])
        print(
            f"round {number + 1}: bare {rates['bare']:,.0f} tokens/s, "
            f"build {rates['build']:,.0f} tokens/s, ratio {ratios[-1]:.3f}"
        )
    print(f"build / bare, median of {len(ratios)}: {statistics.median(ratios):.3f}")


async def post_requests(options: SamplerOptions, bodies: Sequence[dict[str, Any]]) -> int:
    """Tokens that the answers to some requests have."""
    free = asyncio.Semaphore(options.concurrency)
    async with httpx2.AsyncClient(timeout=options.timeout) as client:

        async def one(body: dict[str, Any]) -> int:
            async with free:
                answer = await client.post(f"{options.base_url}/completions", json=body)
            return int(answer.json()["usage"]["completion_tokens"])

        return sum(await asyncio.gather(*map(one, bodies)))


def bare_client(
    options: SamplerOptions, sampler: OpenAiSampler, spec: BuildSpec, source: ProblemSet
) -> float:
    """Tokens per second of the same requests, posted and forgotten."""
    prompts = [spec.template.render(problem.question) for problem in source.problems]
    how = spec.sampling
    bodies = [sampler._body(prompt, how, 0, how.n) for prompt in prompts]
    started = time.perf_counter()
    return asyncio.run(post_requests(options, bodies)) / (time.perf_counter() - started)


def bare_engine(sampler: VllmSampler, spec: BuildSpec, source: ProblemSet) -> float:
    """Tokens per second of one `LLM.generate` call."""
    prompts = [spec.template.render(problem.question) for problem in source.problems]
    params = [sampler._sampling_params(prompt, spec.sampling) for prompt in prompts]
    ids = [{"prompt_token_ids": encode_prompt(sampler._tokenizer, prompt)} for prompt in prompts]
    started = time.perf_counter()
    outputs = sampler._llm.generate(ids, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    return sum(len(each.token_ids) for output in outputs for each in output.outputs) / seconds


def through_build(batch: int, sampler: Any, spec: BuildSpec, source: ProblemSet) -> float:
    """Tokens per second of the sampling half of a build."""
    with (
        tempfile.TemporaryDirectory() as out,
        RunDir.open(Path(out) / "run", spec.config(source.problems), resume=False) as run,
    ):
        started = time.perf_counter()
        job = BuildJob(spec, source, lambda: sampler, batch)
        sample_problems(run, job, source.problems, LineProgress())
        seconds = time.perf_counter() - started
        sampled = (
            each for record in run.read_records(run.line_spans) for each in record["completions"]
        )
        return sum(each["n_tokens"] for each in sampled) / seconds


if __name__ == "__main__":
    typer.run(main)
