"""Compare vLLM's tokens per second through `fsdpo-data build` with a bare `LLM.generate`.

    .venv-vllm/bin/python benchmarks/perf/sampler.py [--problems 256] [--samples 32] [--rounds 3]
        [--base-url URL]

The script loads one engine. Each round measures two things, in alternating order:

- the sampling of a build, without its grading: render, tokenize, sample, detokenize, and append to
  disk with fsync, one durable batch at a time;
- a bare `LLM.generate` of all prompts at once, with the same sampling parameters.

Prefix caches are cleared before each measurement. The result is the rate of
the build divided by the rate of the bare engine.

With `--base-url` the engine is openai. The other side is then a client that posts the same requests
with the same concurrency, and reads only the token counts. The server must not have a prefix cache,
which would speed up the second measurement:
`vllm serve CHECKPOINT --served-model-name tiny --no-enable-prefix-caching`.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import typer

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.dataset.stage_records import GradeSettings, SampleSettings
from fsdpo_data.engines.load import ResolvedPolicy
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.engines.registry import SAMPLERS
from fsdpo_data.engines.samplers import EngineLoader
from fsdpo_data.engines.samplers.openai import OpenAiSampler
from fsdpo_data.engines.samplers.tokenization import encode_prompt
from fsdpo_data.engines.samplers.vllm import VllmSampler
from fsdpo_data.models.resolve import resolve, served_weights
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.stages.sample import BuildJob, BuildSettings, sample_problems
from fsdpo_data.steps.rewards import OUTCOME_LABELS

#: A function that samples with an engine and returns its tokens per second.
Measurement = Callable[[Any, SampleSettings, ProblemSet], float]


def main(
    problems: int = 256,
    samples: int = 32,
    batch: int = SAMPLERS["vllm"].batch_size,
    rounds: int = 3,
    base_url: str = "",
) -> None:
    """Measure the sampling of a build and the bare engine in alternating order."""
    model = resolve("tiny")
    source = load_problems(["embedded"], limit=problems)
    spec = SampleSettings(
        model=model.ref,
        template=model.template.ref,
        sampling=SamplingSpec(n=samples, max_tokens=256),
        engine=EngineRef(name="openai" if base_url else "vllm", dtype="auto"),
        segmenter="auto@1",
    )
    sampler: Any
    measure_bare: Measurement
    if base_url:
        options = SamplerOptions(engine="openai", server=ServerOptions(base_url=base_url))
        sampler = OpenAiSampler(served_weights("tiny"), options)
        measure_bare = partial(measure_bare_client, options)
    else:
        sampler = VllmSampler(model, SamplerOptions())
        measure_bare = measure_bare_engine
    measurements = {"bare": measure_bare, "build": partial(measure_build, batch)}
    measure_bare(sampler, spec, source)  # warm up
    ratios = []
    for round_index in range(rounds):
        names = ["bare", "build"] if round_index % 2 else ["build", "bare"]
        rates = {}
        for name in names:
            if not base_url:
                sampler._llm.reset_prefix_cache()
            rates[name] = measurements[name](sampler, spec, source)
        ratios.append(rates["build"] / rates["bare"])
        print(
            f"round {round_index + 1}: bare {rates['bare']:,.0f} tokens/s, "
            f"build {rates['build']:,.0f} tokens/s, ratio {ratios[-1]:.3f}"
        )
    print(f"build / bare, median of {len(ratios)}: {statistics.median(ratios):.3f}")


async def post_requests(options: SamplerOptions, bodies: Sequence[dict[str, Any]]) -> int:
    """Post the requests concurrently and return the number of sampled tokens."""
    semaphore = asyncio.Semaphore(options.server.concurrency)
    async with httpx2.AsyncClient(timeout=options.timeout) as client:

        async def post(body: dict[str, Any]) -> int:
            """Return the number of tokens that the server sampled for one request."""
            async with semaphore:
                response = await client.post(f"{options.server.base_url}/completions", json=body)
            return int(response.json()["usage"]["completion_tokens"])

        return sum(await asyncio.gather(*(post(body) for body in bodies)))


def render_prompts(source: ProblemSet) -> list[Prompt]:
    """Return the prompts of the problems."""
    render = resolve("tiny").template.render
    return [Prompt(render(problem.question)) for problem in source.problems]


def measure_bare_client(
    options: SamplerOptions, sampler: OpenAiSampler, spec: SampleSettings, source: ProblemSet
) -> float:
    """Return the tokens per second of the same requests, reading only the token counts."""
    prompts = render_prompts(source)
    bodies = [
        sampler._request_body(prompt, spec.sampling, first_sample=0, sample_count=spec.sampling.n)
        for prompt in prompts
    ]
    started = time.perf_counter()
    tokens = asyncio.run(post_requests(options, bodies))
    return tokens / (time.perf_counter() - started)


def measure_bare_engine(sampler: VllmSampler, spec: SampleSettings, source: ProblemSet) -> float:
    """Return the tokens per second of one `LLM.generate` call."""
    prompts = render_prompts(source)
    params = [sampler._sampling_params(prompt, spec.sampling) for prompt in prompts]
    ids = [{"prompt_token_ids": encode_prompt(sampler._tokenizer, prompt)} for prompt in prompts]
    started = time.perf_counter()
    outputs = sampler._llm.generate(ids, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(completion.token_ids) for output in outputs for completion in output.outputs)
    return tokens / seconds


def measure_build(batch: int, sampler: Any, spec: SampleSettings, source: ProblemSet) -> float:
    """Return the tokens per second of the sampling half of a build."""
    policy = ResolvedPolicy(
        model=resolve("tiny"),
        author=spec.model,
        engine=spec.engine,
        unknown_fields=(),
        batch_size=batch,
        make_sampler=EngineLoader(lambda: sampler),
    )
    grade = GradeSettings(grader=get_grader().version, labels=OUTCOME_LABELS)
    job = BuildJob(
        spec=BuildSettings(sample=spec, grade=grade),
        source=source,
        policy=policy,
    )
    with (
        tempfile.TemporaryDirectory() as out,
        job.spec.open_run(Path(out) / "run", job.config, resume=False) as run,
    ):
        started = time.perf_counter()
        sample_problems(run, job, source.problems, LineProgress())
        seconds = time.perf_counter() - started
        records = run.read_records(run.line_spans)
        tokens = sum(
            completion.n_tokens or 0 for record in records for completion in record.completions
        )
        return tokens / seconds


if __name__ == "__main__":
    typer.run(main)
