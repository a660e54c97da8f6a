"""Replicas on a Ray cluster whose nodes join and leave during a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import problem_set, sample_settings, small_build

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines import ray as ray_engine
from fsdpo_data.engines.ray import MAX_DEATHS, Placement, ReplicaPool
from fsdpo_data.engines.samplers import SampleResult

# Ray's imports warn, and its processes leave sockets open.
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]
REF = ModelRef("gated", "0")
WAIT_SECONDS = 240


class GatedSampler:
    """A sampler that answers one prompt, and all others when the file ``gate`` exists.

    The text depends only on the prompt. A log of each process has the prompts that it began.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._log = self._folder / f"log-{os.getpid()}"

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        for index, prompt in enumerate(prompt.full_text for prompt in prompts):
            is_first = not self._log.exists()
            with self._log.open("a") as log:
                print(prompt.encode().hex(), file=log)
            while not is_first and not (self._folder / "gate").exists():
                time.sleep(0.02)
            texts = [f"Sample {i} of {len(prompt)}. The answer is: 42" for i in range(spec.n)]
            yield index, [Completion(text, "stop", 9) for text in texts]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of one node without GPUs, whose workers can import this file."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 0})
    folders = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2] / "support")]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([*folders, *sys.path[1:]])}}
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR", runtime_env=environment)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def wait_until(is_true: Callable[[], bool], run: Future[Any]) -> None:
    """Wait until a condition holds while a run goes on, and raise the error of the run."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert not run.done(), run.result()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def log_lines(folder: Path) -> list[int]:
    """Return the number of prompts that each replica has begun."""
    return [len(log.read_text().split()) for log in folder.glob("log-*")]


def parquet_bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.parquet")}


def test_replicas_follow_the_nodes_and_the_bytes_stay_the_same(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes join and leave until none is left, and the resumed run has the bytes of one process."""
    n_replicas = MAX_DEATHS + 1  # of the second node, which all die at the same time
    source, spec = problem_set(60), sample_settings(2)
    out = tmp_path / "elastic"

    def make_pool() -> ReplicaPool:
        return ReplicaPool(REF, partial(GatedSampler, str(tmp_path)), Placement(), batch_size=4)

    one_gpu = cluster.add_node(num_cpus=1, num_gpus=1)
    pool = make_pool()
    threads = ThreadPoolExecutor(max_workers=1)
    run = threads.submit(small_build, out, source, sampling=spec, make_sampler=lambda: pool)
    wait_until(lambda: log_lines(tmp_path) == [2], run)
    assert pool.replica_count == 1
    many_gpus = cluster.add_node(num_cpus=n_replicas, num_gpus=n_replicas)
    wait_until(lambda: log_lines(tmp_path) == [2] * (1 + n_replicas), run)
    assert pool.replica_count == 1 + n_replicas
    cluster.remove_node(many_gpus, allow_graceful=False)
    wait_until(lambda: pool.replica_count == 1, run)
    monkeypatch.setattr(ray_engine, "NODE_TIMEOUT_SECONDS", 2.0)
    cluster.remove_node(one_gpu, allow_graceful=False)  # no GPU is left
    with pytest.raises(UnavailableError, match="no node had space for a replica for 2 seconds"):
        run.result(timeout=WAIT_SECONDS)
    threads.shutdown()
    cluster.add_node(num_cpus=1, num_gpus=1)
    (tmp_path / "gate").touch()
    small_build(out, source, sampling=spec, make_sampler=make_pool, resume=True)
    # Each removed replica had answered one prompt, and had begun another one.
    assert sum(log_lines(tmp_path)) == 60 + 1 + n_replicas
    expected = tmp_path / "expected"
    small_build(expected, source, sampling=spec, make_sampler=lambda: GatedSampler(str(tmp_path)))
    assert parquet_bytes(out) == parquet_bytes(expected)
