"""Make datasets of any size and measure every stage on them; see `benchmarks/perf/scale.py`."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import orjson
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fakes import BatchScorer
from helpers import reward_model
from hub_server import TOKEN, HubServer

from fsdpo_data.core.files import write_atomic
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import FileEntry, files_digest, read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.schema import write_parquet
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution
from fsdpo_data.stages.score import ScoreStage

SAMPLES_PER_PROBLEM = 32
#: Different problems; further problems repeat them with another number.
MAX_DISTINCT_PROBLEMS = 500
#: The largest dataset that is built; larger datasets repeat it.
MAX_BUILT_SOLUTIONS = 1_000_000
#: The build of :func:`write_recorded`'s files.
BUILD_ARGUMENTS = (
    *("build", "--problems", "problems.jsonl", "--samples", SAMPLES_PER_PROBLEM),
    *("--engine", "replay", "--replay", "recorded.jsonl"),
)


@dataclass(frozen=True)
class ResourceUse:
    """Time and memory of a command."""

    seconds: float  #: Wall-clock seconds.
    peak_bytes: int  #: Peak of the private memory, summed over the command's processes.


class RecordedProblem(NamedTuple):
    """A problem with its recorded responses."""

    question: str  #: The problem's text.
    gold: str  #: Its gold answer.
    responses: Sequence[str]  #: Recorded responses of models.


def measure_stages(folder: Path, solutions: int) -> Iterator[tuple[str, ResourceUse]]:
    """Run every stage on a dataset with so many solutions, and yield its name and resource use.

    A dataset with more than :data:`MAX_BUILT_SOLUTIONS` is not built: it repeats one of that size.
    Grading comes last, because it takes the longest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if solutions <= MAX_BUILT_SOLUTIONS:
        write_inputs(folder, solutions // SAMPLES_PER_PROBLEM)
        yield "build", run(folder, BUILD_ARGUMENTS, out="built")
    else:
        base = folder.parent / str(MAX_BUILT_SOLUTIONS)
        if not (base / "built" / MANIFEST_FILE).exists():
            next(measure_stages(base, MAX_BUILT_SOLUTIONS))
        remove(folder / "built")
        repeat_dataset(base / "built", folder / "built", solutions // MAX_BUILT_SOLUTIONS)
    yield "score", run(folder, ["built"], out="scored", program=(__file__,))
    yield "pair", run(folder, ["pair", "scored"], out="paired")
    yield "validate", run(folder, ["validate", "paired"])
    yield "diff", run(folder, ["diff", "built", "paired"])
    yield "inspect", run(folder, ["inspect", "paired"])
    yield "export", run(folder, ["export", "paired", "--to", "trl-preference"], out="exported")
    hub = HubServer()
    hub.start()
    hub_env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    yield "push", run(folder, ["push", "paired", "o/scale", "--dry-run"], env=hub_env)
    hub.stop()
    yield "grade", run(folder, ["grade", "scored", "--workers", 2], out="graded")


def repeat_dataset(source: Path, out: Path, times: int) -> None:
    """Write a sealed dataset that repeats another one, each time with new problem ids."""
    manifest = read_manifest(source)
    files = []
    for config in ("problems", "solutions"):
        entries = manifest.config_files(config)
        (out / config).mkdir(parents=True)
        for part in range(times * len(entries)):
            repetition, index = divmod(part, len(entries))
            path = f"{config}/train-{part:05d}-of-{times * len(entries):05d}.parquet"
            table = pq.read_table(source / entries[index].path)
            for name in {"problem_id", "solution_id"} & set(table.column_names):
                table = replace_first_character(table, name, f"{repetition:x}")
            write_parquet(table, out / path)
            text_sha256 = entries[index].text_sha256
            files.append(FileEntry.from_file(out, path, table.num_rows, text_sha256))
    manifest.files = files
    manifest.digest = files_digest(files)
    write_atomic(out / MANIFEST_FILE, manifest.to_json().encode())


def replace_first_character(table: pa.Table, name: str, character: str) -> pa.Table:
    """Replace the first character of every id in one column."""
    column = table.schema.get_field_index(name)
    remainders = pc.utf8_slice_codeunits(table[name], 1)
    ids = pc.binary_join_element_wise(character, remainders, "")
    return table.set_column(column, table.schema.field(column), ids)


def write_inputs(folder: Path, problems: int) -> None:
    """Write problems and recorded solutions, with a different text for each solution."""
    rng = random.Random(0)
    distinct_problems = []
    for problem in make_problems("train", min(MAX_DISTINCT_PROBLEMS, problems)):
        texts = [
            "".join(write_solution(problem, rng, error_rate=0.2))
            for _ in range(SAMPLES_PER_PROBLEM)
        ]
        distinct_problems.append(RecordedProblem(problem.question, problem.answer, texts))
    write_recorded(folder, number_responses(islice(cycle(distinct_problems), problems)))


def number_responses(problems: Iterable[RecordedProblem]) -> Iterator[RecordedProblem]:
    """Yield problems whose responses start with a line that occurs only once."""
    for index, (question, gold, texts) in enumerate(problems):
        responses = [f"Step 0: Try {index}-{i}.\n{text}" for i, text in enumerate(texts)]
        yield RecordedProblem(question, gold, responses)


def write_recorded(folder: Path, problems: Iterable[RecordedProblem]) -> None:
    """Write `problems.jsonl` and `recorded.jsonl` for a build with the engine replay.

    Problems may repeat: their number is added to the question.
    """
    template = get_template("problem")
    with (
        (folder / "problems.jsonl").open("wb") as problem_file,
        (folder / "recorded.jsonl").open("wb") as recorded_file,
    ):
        for index, problem in enumerate(problems):
            row = {"question": f"{problem.question} ({index})", "answer": problem.gold}
            problem_file.write(orjson.dumps(row) + b"\n")
            completions = [
                Completion(text, "stop", len(text) // 4, 0.01) for text in problem.responses
            ]
            record = {"prompt": template.render(row["question"]), "completions": completions}
            recorded_file.write(orjson.dumps(record) + b"\n")


class SyntheticScorer(BatchScorer):
    """A scorer that computes rewards from text lengths, without the memory of a model."""

    model = ModelRef("free", "0")

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return step rewards that depend on the lengths of the solution and the step."""
        rewards: list[list[float] | None] = []
        for item in items:
            solution_length = sum(map(len, item.steps))
            rewards.append([(7 * solution_length + len(step)) % 101 / 101 for step in item.steps])
        return rewards


def score(source: Path, out: Path) -> None:
    """Score a dataset with synthetic rewards, by the stage of ``fsdpo-data score``."""
    scorer = SyntheticScorer()
    stage = ScoreStage(reward_model(scorer.model, lambda: scorer, "free"))
    derive_dataset(source, out, [stage], progress=LineProgress())


def remove(path: Path) -> None:
    """Remove the output of an earlier run, if there is one."""
    shutil.rmtree(path, ignore_errors=True)


def run(
    folder: Path,
    arguments: Sequence[object],
    *,
    out: str = "",
    program: Sequence[str] = ("-m", "fsdpo_data"),
    env: Mapping[str, str] = MappingProxyType({}),
) -> ResourceUse:
    """Run a command in ``folder`` and measure it.

    Args:
        folder: Working directory of the command.
        arguments: Arguments of the command, without ``--out``.
        out: Output directory of the command; it is removed first.
        program: Arguments of Python before the command's arguments.
        env: Additional environment variables.
    """
    command = [sys.executable, *program, *map(str, arguments)]
    if out:
        remove(folder / out)
        command += ["--out", out]
    started = time.perf_counter()
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=os.environ | env)
        peak_bytes = [0]
        watcher = threading.Thread(target=watch_memory, args=(child, peak_bytes))
        watcher.start()
        code = child.wait()
        watcher.join()
    if code != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-2000:]}")
    return ResourceUse(time.perf_counter() - started, peak_bytes[0])


def watch_memory(child: subprocess.Popen[bytes], peak_bytes: list[int]) -> None:
    """Keep the maximal private memory of a process and its children in ``peak_bytes[0]``."""
    while child.poll() is None:
        total = 0
        try:
            parent = psutil.Process(child.pid)
            for process in (parent, *parent.children(recursive=True)):
                memory = process.memory_info()
                total += memory.rss - memory.shared
        except psutil.Error:
            continue
        peak_bytes[0] = max(peak_bytes[0], total)
        time.sleep(0.05)


if __name__ == "__main__":  # `run` starts the score stage in a process of its own
    score(Path(sys.argv[1]), Path(sys.argv[3]))
