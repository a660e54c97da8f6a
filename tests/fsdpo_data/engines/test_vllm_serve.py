"""The openai engine with a real ``vllm serve`` of the embedded model."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import sample_all
from helpers import statistics_of

from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.engines.samplers.openai import OpenAiSampler
from fsdpo_data.models.resolve import resolve, served_weights
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.stages.pipeline import BuildOptions, run_build

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

#: Seconds that the server may need to start on a busy machine.
START_TIMEOUT_SECONDS = 400


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = free_socket.getsockname()[1]
    line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)]
    line += ["--model", resolve("tiny").path, "--served-model-name", "tiny", "--dtype", "float32"]
    # The vllm sampler has the same settings on CPUs; its comments give the reasons.
    line += ["--enforce-eager", "--no-enable-chunked-prefill"]
    log = tmp_path_factory.mktemp("serve") / "log"
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as file:
        server = subprocess.Popen(line, stdout=file, stderr=file, env=os.environ | settings)
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_TIMEOUT_SECONDS
    try:
        while True:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.short_proof
def test_greedy_completions_equal_those_of_transformers(url: str) -> None:
    from fsdpo_data.engines.samplers.transformers import TransformersSampler

    tiny = resolve("tiny")
    prompts = [tiny.template.render(problem.question) for problem in make_problems("test", 12)]
    spec = SamplingSpec(n=1, temperature=0, max_tokens=64)
    transformers_completions = sample_all(
        TransformersSampler(tiny, SamplerOptions(device="cpu")), prompts, spec
    )
    sampler = OpenAiSampler(
        served_weights("tiny"), SamplerOptions(engine="openai", server=ServerOptions(base_url=url))
    )
    server_completions = sample_all(sampler, prompts, spec)
    expected = [
        (completion.text, completion.finish_reason, completion.n_tokens)
        for (completion,) in transformers_completions
    ]
    assert [
        (completion.text, completion.finish_reason, completion.n_tokens)
        for (completion,) in server_completions
    ] == expected
    spec_of_four = SamplingSpec(n=4, max_tokens=64)
    first, second = (
        sample_all(sampler, prompts[:4], spec_of_four),
        sample_all(sampler, prompts[:4][::-1], spec_of_four),
    )
    assert [[completion.text for completion in completions] for completions in first] == [
        [completion.text for completion in completions] for completions in second[::-1]
    ]


def test_a_build_with_a_vllm_server_is_valid(url: str, tmp_path: Path) -> None:
    options = BuildOptions(
        engine=SamplerOptions(engine="openai", server=ServerOptions(base_url=url)),
        sampling=SamplingSpec(n=4, max_tokens=128),
        limit=20,
        out=tmp_path / "run",
    )
    out, _ = run_build(options, NO_PROGRESS)
    assert validate(out).rows.solutions == 80
    assert statistics_of(out).solutions.outcomes["correct"] > 20
