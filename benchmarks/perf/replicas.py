"""Compare our pool of replicas with Ray's own schedulers, on uneven work and after a death.

    python benchmarks/perf/replicas.py [--items 120] [--batches 2] [--load-seconds 3]

Two replicas process batches of items. An item is a wait of a random length, as a GPU waits for a
long solution, so the times hardly depend on the cores. A replica that starts first waits
`--load-seconds`, in place of the weights that it loads.

- `ReplicaPool`: the pool of `--engine ray`;
- `ActorPool`: `ray.util.ActorPool` with actors that Ray restarts, and their calls that Ray repeats;
- `ray.data`: `map_batches` with an actor pool of one to two actors, and one dataset per batch;
- `ray.data, one dataset`: the same with one dataset of all batches.

The work has three kinds. Items of the first kind have similar lengths. In the second kind, a few
items are fifty times as long, and the longest are last. The third kind is the second kind with a
replica that is killed once in the middle of each batch. Both of Ray's schedulers get calls of eight
items, as large as the smallest of the pool.

The script prints the seconds of all batches, the time until the first result, and the number of
items that replicas processed more than once. The ideal time is the sum of the waits, divided by
two, and one start. All schedulers must return the same results in the order of the items.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import ray
import typer

from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.ray import Placement, ReplicaPool
from fsdpo_data.engines.samplers import SampleResult

REPLICAS = 2
CALL_ITEMS = 8  #: Items per call of Ray's schedulers.
MEAN_SECONDS = 0.05  #: Mean wait of an item.


class Item(NamedTuple):
    """A piece of work."""

    index: int  #: Index in the work.
    seconds: float  #: Length of the wait.
    death_file: str = ""  #: If the file does not exist, the replica writes it and dies.

    def encode(self) -> str:
        """Return the item as a prompt."""
        return f"{self.index} {self.seconds} {self.death_file}"


class WaitingSampler:
    """A sampler that waits for each prompt, and writes a log of the prompts.

    Args:
        log_folder: Folder of the logs.
        load_seconds: Wait at the start.
    """

    model = ModelRef("waiting", "0")

    def __init__(self, log_folder: str, load_seconds: float) -> None:
        time.sleep(load_seconds)
        self._log = Path(log_folder) / f"{os.getpid()}-{time.monotonic_ns()}"

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield each prompt after its wait."""
        for position, prompt in enumerate(prompts):
            yield position, [Completion(self.wait(prompt.full_text), "stop", 1)]

    def wait(self, prompt: str) -> str:
        """Wait for a prompt, and return the square of its index."""
        index, seconds, death_file = prompt.split(" ")
        with self._log.open("a") as log:
            print(index, file=log)
        time.sleep(float(seconds))
        if death_file and not Path(death_file).exists():
            Path(death_file).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return str(int(index) ** 2)


class SchedulerTimes(NamedTuple):
    """What a scheduler took for all batches."""

    seconds: float  #: Seconds for all batches, start included.
    first_seconds: float  #: Seconds until the first result.
    n_repeated: int  #: Items that replicas began more than once.


#: Yields the index and the result of each item, in any order.
Scheduler = Callable[[Sequence[Item]], Iterator[tuple[int, str]]]


def main(items: int = 120, batches: int = 2, load_seconds: float = 3.0) -> None:
    """Time the schedulers on the same work."""
    project = Path(__file__).parents[2]
    environment = {"env_vars": {"PYTHONPATH": f"{project}:{Path(__file__).parent}"}}
    ray.init(
        "local",
        num_cpus=REPLICAS + 1,  # Ray Data also reads and sorts
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env=environment,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    for kind in ("even", "uneven", "uneven, one death per batch"):
        with tempfile.TemporaryDirectory() as folder:
            work = make_batches(kind, items, batches, Path(folder))
            waits = sum(item.seconds for batch in work for item in batch)
            print(f"{kind}: ideal {waits / REPLICAS + load_seconds:.1f} s")
            for name, make_scheduler in SCHEDULERS.items():
                calls = [list(chain.from_iterable(work))] if name == ONE_DATASET else work
                print_times(name, measure(make_scheduler, calls, Path(folder), load_seconds))


def make_batches(kind: str, count: int, batches: int, folder: Path) -> list[list[Item]]:
    """Return the items of each batch."""
    rng = random.Random(0)
    work = []
    for batch in range(batches):
        if kind == "even":
            seconds = [rng.uniform(0.8, 1.2) * MEAN_SECONDS for _ in range(count)]
        else:
            n_long = max(1, count // 60)
            seconds = [rng.uniform(0.2, 1.0) * MEAN_SECONDS for _ in range(count - n_long)]
            seconds += [rng.uniform(30, 50) * MEAN_SECONDS for _ in range(n_long)]
        death_file = str(folder / f"death-{batch}") if "death" in kind else ""
        work.append(
            [
                Item(batch * count + index, wait, death_file if index == count // 2 else "")
                for index, wait in enumerate(seconds)
            ]
        )
    return work


def measure(
    make_scheduler: Callable[[Path, float], Scheduler],
    work: Sequence[Sequence[Item]],
    folder: Path,
    load_seconds: float,
) -> SchedulerTimes:
    """Run all batches with a scheduler, and check the results."""
    for file in folder.glob("death-*"):
        file.unlink()
    with tempfile.TemporaryDirectory(dir=folder) as logs:
        started = time.perf_counter()
        schedule = make_scheduler(Path(logs), load_seconds)
        first_seconds = 0.0
        for batch in work:
            results = {}
            for index, result in schedule(batch):
                first_seconds = first_seconds or time.perf_counter() - started
                results[index] = result
            assert [results[item.index] for item in batch] == [str(item.index**2) for item in batch]
        seconds = time.perf_counter() - started
        n_begun = sum(len(log.read_text().split()) for log in Path(logs).iterdir())
    return SchedulerTimes(seconds, first_seconds, n_begun - sum(map(len, work)))


def make_replica_pool(logs: Path, load_seconds: float) -> Scheduler:
    """Return our pool."""
    load = partial(WaitingSampler, str(logs), load_seconds)
    placement = Placement(actors=REPLICAS, gpus_per_replica=0)
    pool = ReplicaPool(WaitingSampler.model, load, placement, batch_size=64)

    def schedule(batch: Sequence[Item]) -> Iterator[tuple[int, str]]:
        prompts = [Prompt(item.encode()) for item in batch]
        for position, completions in pool.sample(prompts, SamplingSpec(n=1)):
            assert isinstance(completions, list)
            yield batch[position].index, completions[0].text

    return schedule


def split_calls(batch: Sequence[Item]) -> list[list[str]]:
    """Return the prompts of each call of Ray's schedulers."""
    prompts = [item.encode() for item in batch]
    return [prompts[start : start + CALL_ITEMS] for start in range(0, len(prompts), CALL_ITEMS)]


class WaitingActor:
    """The actor of ``ActorPool``."""

    def __init__(self, log_folder: str, load_seconds: float) -> None:
        self._sampler = WaitingSampler(log_folder, load_seconds)

    def process(self, prompts: Sequence[str]) -> list[tuple[int, str]]:
        """Return the index and the result of each prompt."""
        return [(int(prompt.split()[0]), self._sampler.wait(prompt)) for prompt in prompts]


def make_actor_pool(logs: Path, load_seconds: float) -> Scheduler:
    """Return ``ray.util.ActorPool``."""
    actor_class: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(WaitingActor)
    actors = [actor_class.remote(str(logs), load_seconds) for _ in range(REPLICAS)]
    pool = ray.util.ActorPool(actors)

    def schedule(batch: Sequence[Item]) -> Iterator[tuple[int, str]]:
        def process(actor: Any, prompts: Sequence[str]) -> Any:
            return actor.process.remote(prompts)

        for results in pool.map_unordered(process, split_calls(batch)):
            yield from results

    return schedule


class WaitingMapper:
    """The callable class of Ray Data."""

    def __init__(self, log_folder: str, load_seconds: float) -> None:
        self._sampler = WaitingSampler(log_folder, load_seconds)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the index and the result of each prompt."""
        prompts = [str(prompt) for prompt in batch["prompt"]]
        indices = [int(prompt.split()[0]) for prompt in prompts]
        return {"index": indices, "result": [self._sampler.wait(prompt) for prompt in prompts]}


def make_ray_data(logs: Path, load_seconds: float) -> Scheduler:
    """Return Ray Data with an actor pool; each batch is a dataset."""

    def schedule(batch: Sequence[Item]) -> Iterator[tuple[int, str]]:
        rows = [{"prompt": item.encode()} for item in batch]
        dataset = ray.data.from_items(rows, override_num_blocks=len(split_calls(batch)))
        results = dataset.map_batches(
            WaitingMapper,
            fn_constructor_args=(str(logs), load_seconds),
            batch_size=CALL_ITEMS,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=REPLICAS),
            num_cpus=1,
        )
        for row in results.iter_rows():
            yield int(row["index"]), str(row["result"])

    return schedule


ONE_DATASET = "ray.data, one dataset"  #: The scheduler that gets all batches at once.
SCHEDULERS: dict[str, Callable[[Path, float], Scheduler]] = {
    "ReplicaPool": make_replica_pool,
    "ActorPool": make_actor_pool,
    "ray.data": make_ray_data,
    ONE_DATASET: make_ray_data,
}


def print_times(name: str, times: SchedulerTimes) -> None:
    """Print a row."""
    print(
        f"  {name:<21} {times.seconds:6.1f} s   first result after "
        f"{times.first_seconds:5.1f} s   {times.n_repeated:3d} items repeated",
        flush=True,
    )


if __name__ == "__main__":
    typer.run(main)
