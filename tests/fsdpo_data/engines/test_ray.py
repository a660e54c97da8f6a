"""Engines as Ray actors: placement of replicas, and equal results with a real Ray."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import sample_all, score_all
from random_model import save_random_prm

from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.choose_engine import select_sampler
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.ray import Placement, ReplicaPool
from fsdpo_data.engines.samplers import SampleResult
from fsdpo_data.models.resolve import resolve
from fsdpo_data.stages.pipeline import BuildOptions

# Ray's imports warn, and its processes leave sockets open.
needs_ray = [pytest.mark.ray, pytest.mark.filterwarnings("default")]


def node(cpu: int, gpu: int = 0, alive: bool = True) -> dict[str, Any]:
    resources: dict[str, float] = {"CPU": float(cpu), "memory": 1e9}
    return {"Alive": alive, "Resources": resources | ({"GPU": float(gpu)} if gpu else {})}


REF = ModelRef("squares", "0")
HEAD = node(8)
EIGHT = node(64, gpu=8)


@pytest.mark.parametrize(
    ("placement", "nodes", "count", "gpus", "cpus"),
    [
        (Placement(), [HEAD, EIGHT, EIGHT], 16, 1, 1),
        (Placement(actors=3), [EIGHT], 3, 1, 1),
        (
            Placement(gpus_per_replica=4),
            [HEAD, EIGHT, node(8, gpu=6)],
            3,
            4,
            1,
        ),  # 6 GPUs have space for one replica
        (Placement(model_count=2), [EIGHT], 4, 1, 1),
        (Placement(gpus_per_replica=0), [HEAD, EIGHT], 2, 0, 8),
        (Placement(), [node(2)], 1, 0, 2),
        (Placement(actors=2), [node(2)], 2, 0, 1),
        (Placement(model_count=2), [node(2)], 1, 0, 1),
        (Placement(actors=3), [node(8), node(16)], 3, 0, 4),
        (Placement(), [HEAD, node(64, gpu=8, alive=False)], 1, 0, 8),
    ],
)
def test_placement_of_replicas(
    placement: Placement, nodes: list[Any], count: int, gpus: float, cpus: float
) -> None:
    options = placement.actor_options(nodes)
    assert options == {"num_gpus": gpus, "num_cpus": cpus}
    assert placement.count(nodes, options) == count


@pytest.mark.parametrize(
    ("placement", "nodes_at_start", "nodes", "count"),
    [
        (Placement(), [HEAD], [], 0),
        (Placement(), [HEAD], [node(0)], 0),  # a head node that runs nothing
        (Placement(), [HEAD], [node(0), node(8)], 1),
        (Placement(), [HEAD], [node(8), node(16)], 2),  # one per node
        (Placement(), [HEAD], [node(4)], 0),  # every replica reserves eight cores
        (Placement(actors=3), [node(3)], [node(2)], 2),
        (Placement(actors=9), [EIGHT, EIGHT], [EIGHT], 8),
        (Placement(), [HEAD, EIGHT], [HEAD], 0),  # GPUs left, and the run stays on GPUs
        (Placement(), [EIGHT], [HEAD, EIGHT], 8),
        (Placement(), [EIGHT], [node(4, gpu=8)], 4),  # a replica needs a core, too
        (Placement(model_count=2), [EIGHT], [HEAD, EIGHT, node(8, gpu=4)], 6),
    ],
)
def test_replicas_that_fit_after_the_nodes_change(
    placement: Placement, nodes_at_start: list[Any], nodes: list[Any], count: int
) -> None:
    assert placement.count(nodes, placement.actor_options(nodes_at_start)) == count


@pytest.mark.parametrize(
    ("placement", "nodes", "message"),
    [
        (
            Placement(actors=9),
            [EIGHT],
            "actors = 9: the Ray cluster has 8 place(s) with 1 GPU(s) and 1 CPU(s), but needs more",
        ),
        (Placement(gpus_per_replica=16), [EIGHT], "the Ray cluster has 0 place(s) with 16 GPU(s)"),
        (Placement(model_count=2), [node(8, gpu=1)], "for 2 model(s) with 1 replica(s) each"),
        (
            Placement(actors=3),
            [node(2)],
            "the Ray cluster has 2 place(s) with 1 CPU(s), but needs more",
        ),
    ],
)
def test_a_cluster_without_capacity_is_refused(
    placement: Placement, nodes: list[Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        placement.actor_options(nodes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"actors": 2},
            "BuildOptions.engine.actors = 2: the option needs `engine=ray`, but the engine is",
        ),
        ({"engine": "ray", "actors": 0}, "BuildOptions.engine.actors = 0: expected at least 1."),
        (
            {"engine": "ray", "engine_arg": ["data_parallel_size=2"]},
            ".engine_arg = 'data_parallel_size=2': `engine=ray` starts one actor per replica",
        ),
    ],
)
def test_conflicting_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        make_options(BuildOptions, options)
    assert message in str(error.value)


def test_scorer_replicas_need_ray() -> None:
    with pytest.raises(InputError, match="needs `engine=ray`"):
        ScorerOptions(engine="vllm", actors=2)


def test_the_error_without_ray_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnavailableError, match=r"pip install -e '.*\[ray\]'"):
        select_sampler(SamplerOptions(engine="ray"))


class SquaresScorer:
    """A scorer whose first replica dies once in a call; every replica writes a log of its items."""

    def __init__(self, folder: str, slow: int = -9) -> None:
        self._folder = Path(folder)
        self._slow = slow

    def score(self, numbers: list[int]) -> Iterable[tuple[int, int]]:
        if 0 in numbers and not (self._folder / "died").exists():
            (self._folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if -1 in numbers:
            raise InputError("-1: expected at least 0.")
        if -2 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._slow in numbers:
            self._slow, self._pause = -9, 0.5  # this replica is the slow one from now on
        for number in numbers:
            time.sleep(getattr(self, "_pause", 0.0))
            with (self._folder / f"by-{os.getpid()}").open("a") as done:
                print(number, file=done)
        return enumerate([number**2 for number in numbers])


class ReversedSampler:
    """A sampler that finishes prompts from the last to the first, and fails at ``!``."""

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        for index in reversed(range(len(prompts))):
            text = prompts[index].text
            if text == "!":
                raise InputError("!: expected a word.")
            yield index, [Completion(text.upper(), "stop", 1)] * spec.n


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Start a local Ray whose workers can import this file."""
    import ray

    folders = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2] / "support")]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([*folders, *sys.path[1:]])}}
    ray.init(
        "local", num_cpus=2, log_to_driver=False, logging_level="ERROR", runtime_env=environment
    )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("local_ray")
class TestReplicas:
    pytestmark = needs_ray

    def test_an_address_without_a_cluster_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import ray

        from fsdpo_data.engines.ray import start_ray

        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
        with pytest.raises(UnavailableError, match="no Ray cluster at RAY_ADDRESS='127"):
            start_ray()

    @pytest.mark.short_proof
    def test_a_dead_replica_is_replaced(self, tmp_path: Path) -> None:
        replicas = ReplicaPool(
            REF, partial(SquaresScorer, str(tmp_path)), Placement(actors=2), batch_size=32
        )
        assert score_all(replicas, range(7)) == [0, 1, 4, 9, 16, 25, 36]
        assert (tmp_path / "died").exists()
        assert score_all(replicas, [3]) == [9]  # fewer items than replicas
        assert score_all(replicas, []) == []
        with pytest.raises(InputError, match="-1: expected at least 0"):
            score_all(replicas, [1, 2, -1])
        with pytest.raises(
            UnavailableError, match=r"a replica of the model died [4-9] times in a row"
        ) as error:
            score_all(replicas, [1, 2, -2])
        assert "resume the run" in str(error.value)
        assert score_all(replicas, [4]) == [16]  # the dead replicas were replaced
        replicas.close()

    def test_replicas_that_cannot_start_are_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "only_here.py").write_text("def load():\n    return None\n")
        monkeypatch.syspath_prepend(tmp_path)
        load = importlib.import_module("only_here").load
        replicas = ReplicaPool(REF, load, Placement(actors=2), batch_size=32)
        with pytest.raises(UnavailableError, match=r"died 4 times in a row .*only_here") as error:
            score_all(replicas, [1, 2, 3])
        assert "resume the run" in str(error.value)
        replicas.close()

    def test_fast_replicas_take_the_items_of_a_slow_one(self, tmp_path: Path) -> None:
        (tmp_path / "died").touch()
        load = partial(SquaresScorer, str(tmp_path), slow=0)
        replicas = ReplicaPool(REF, load, Placement(actors=2), batch_size=32)
        assert score_all(replicas, range(100)) == [number**2 for number in range(100)]
        counts = sorted(len(file.read_text().split()) for file in tmp_path.glob("by-*"))
        assert (
            counts[0] == 25 and counts[1] == 75
        )  # the slow replica's first chunk, and all other items
        replicas.close()

    def test_prompts_arrive_as_soon_as_they_are_finished(self) -> None:
        replicas = ReplicaPool(REF, ReversedSampler, Placement(actors=2), batch_size=32)
        results = list(replicas.sample([*map(Prompt, "abc")], SamplingSpec(n=2)))
        assert sorted(index for index, _ in results) == [0, 1, 2]
        indices = [index for index, _ in results]
        assert indices.index(1) < indices.index(0)  # before its replica finished
        samples = sample_all(replicas, ["a", "b", "c"], SamplingSpec(n=2))
        assert [[completion.text for completion in completions] for completions in samples] == [
            ["A"] * 2,
            ["B"] * 2,
            ["C"] * 2,
        ]
        assert (
            sample_all(replicas, ["a"], SamplingSpec(n=1))[0][0].text == "A"
        )  # fewer prompts than replicas
        with pytest.raises(InputError, match="!: expected a word"):
            sample_all(replicas, ["a", "!"], SamplingSpec(n=1))
        replicas.close()


def fsdpo(tool: str, *line: object, **environment: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", tool, *map(str, line)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=600,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def solutions(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "solutions/*.parquet").sort("solution_id")


class TestCommands:
    pytestmark = needs_ray
    build = ("build", "--limit", 12, "--samples", 4, "--max-tokens", 128)

    @pytest.mark.short_proof
    def test_two_replicas_give_the_same_dataset(self, tmp_path: Path) -> None:
        prm = save_random_prm(tmp_path / "prm", Path(resolve("tiny").path))
        line = [*self.build, "--device", "cpu", "--prm", prm]
        two = ["--engine", "ray", "--actors", 2, "--out", tmp_path / "copies"]
        replicas = fsdpo("fsdpo_data", *line, *two)
        assert replicas.returncode == 0, replicas.stderr
        one_process = ["--engine", "transformers", "--out", tmp_path / "alone"]
        assert fsdpo("fsdpo_data", *line, *one_process).returncode == 0
        replicated, expected = solutions(tmp_path / "copies"), solutions(tmp_path / "alone")
        assert replicated.drop("step_rewards").equals(expected.drop("step_rewards"))
        rewards = [table["step_rewards"].explode().to_numpy() for table in (replicated, expected)]
        assert abs(rewards[0] - rewards[1]).max() < 1e-5
        # The manifest has the engine but not the number of replicas, so either can resume the run.
        one_process[-1] = tmp_path / "copies"
        again = fsdpo("fsdpo_data", *line, *one_process, "--resume")
        assert again.returncode == 0, again.stderr

    def test_vllm_in_an_actor_of_a_running_cluster(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        start = [Path(sys.executable).with_name("ray"), "start", "--head", "--block"]
        start += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
        start += ["--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
        head = subprocess.Popen(
            start,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for(address)
            line = [*self.build, "--temperature", 0, "--samples", 1]
            on_ray = ["--engine", "ray", "--out", tmp_path / "copies"]
            ran = fsdpo("fsdpo_data", *line, *on_ray, RAY_ADDRESS=address)
            assert ran.returncode == 0, ran.stderr
            assert "tiny (vllm)" in ran.stdout
        finally:
            os.killpg(head.pid, signal.SIGTERM)
            head.wait()
        one_process = ["--engine", "transformers", "--out", tmp_path / "alone"]
        assert fsdpo("fsdpo_data", *line, *one_process).returncode == 0
        # The solution ids contain the engine, so only the texts are equal.
        texts = [
            pl.read_parquet(tmp_path / name / "solutions/*.parquet")["completions"].to_list()
            for name in ("copies", "alone")
        ]
        assert texts[0] == texts[1]

    def test_a_policy_and_its_reward_model_share_the_cluster(self, tmp_path: Path) -> None:
        prm = save_random_prm(tmp_path / "prm", Path(resolve("tiny").path))
        line = ["run", "--model", "tiny", "--task", "embedded", "--limit", 4, "--k", 4]
        line += ["--decoder", "bon,sbs", "--b1", 2, "--b2", 1, "--max-tokens", 96]
        line += ["--prm", prm, "--engine", "ray"]
        ran = fsdpo("fsdpo_bench", *line, "--device", "cpu", "--out", tmp_path / "run")
        assert ran.returncode == 0, ran.stderr
        assert "bon@4" in ran.stdout and "sbs@2,1" in ran.stdout
        refused = fsdpo(
            "fsdpo_bench", *line, "--device", "cpu", "--actors", 9999, "--out", tmp_path / "two"
        )
        assert refused.returncode == 1
        assert "for 2 model(s) with 9999 replica(s) each" in refused.stderr


def wait_for(address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                time.sleep(5)  # Ray accepts connections before it knows its resources
                return
        time.sleep(0.2)
    raise AssertionError(f"no Ray cluster at {address}")
