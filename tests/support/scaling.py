"""Datasets of any size, and what every stage over them takes; see `benchmarks/perf/scale.py`."""

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

import orjson
import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hub_server import TOKEN, HubServer

from fsdpo_data.core.files import write_atomic
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion
from fsdpo_data.dataset.manifest import files_digest, read_manifest
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.run import MANIFEST_FILE
from fsdpo_data.dataset.schema import write_parquet
from fsdpo_data.dataset.stage import derive_dataset
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution
from fsdpo_data.stages.score import ScoreStage

SAMPLES = 32
#: Different problems; the others repeat them under another number.
DIFFERENT = 500
#: Solutions that are built one by one.
BUILT = 1_000_000
BUILD = (
    *("build", "--problems", "problems.jsonl", "--samples", SAMPLES),
    *("--engine", "replay", "--replay", "recorded.jsonl"),
)


@dataclass(frozen=True)
class Measured:
    """What a command took: wall-clock seconds, and bytes at the peak over its processes."""

    seconds: float
    peak: int


def measured(folder: Path, solutions: int) -> Iterator[tuple[str, Measured]]:
    """Run every stage on a dataset of so many solutions.

    One of more than :data:`BUILT` is one of that many, several times over: it is not built, and is
    graded last, for that takes the longest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if solutions <= BUILT:
        write_inputs(folder, solutions // SAMPLES)
        yield "build", run(folder, *BUILD, out="built")
    else:
        once = folder.parent / str(BUILT)
        if not (once / "built" / MANIFEST_FILE).exists():
            next(measured(once, BUILT))
        fresh(folder / "built")
        repeat(once / "built", folder / "built", solutions // BUILT)
    yield "score", run(folder, "built", out="scored", line=(__file__,))
    yield "pair", run(folder, "pair", "scored", out="paired")
    yield "validate", run(folder, "validate", "paired")
    yield "diff", run(folder, "diff", "built", "paired")
    yield "inspect", run(folder, "inspect", "paired")
    yield "export", run(folder, "export", "paired", "--to", "trl-preference", out="exported")
    hub = HubServer()
    hub.start()
    there = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    yield "push", run(folder, "push", "paired", "org/scale", "--dry-run", env=there)
    hub.stop()
    yield "grade", run(folder, "grade", "scored", "--workers", 2, out="graded")


def repeat(source: Path, out: Path, times: int) -> None:
    """Write a sealed dataset several times over, each time as other problems."""
    manifest = read_manifest(source)
    files = []
    for config in ("problems", "solutions"):
        entries = manifest.config_files(config)
        (out / config).mkdir(parents=True)
        for part in range(times * len(entries)):
            turn, place = divmod(part, len(entries))
            path = f"{config}/train-{part:05d}-of-{times * len(entries):05d}.parquet"
            table = pq.read_table(source / entries[place].path)
            for name in {"problem_id", "solution_id"} & set(table.column_names):
                index = table.schema.get_field_index(name)
                rest = pc.utf8_slice_codeunits(table[name], 1)
                ids = pc.binary_join_element_wise(f"{turn:x}", rest, "")
                table = table.set_column(index, table.schema.field(index), ids)
            write_parquet(table, out / path)
            text_sha256 = entries[place].text_sha256
            files.append(FileEntry.from_file(out, path, table.num_rows, text_sha256))
    for counts in (manifest.outcomes, manifest.labels, manifest.grader_rules):
        counts.update({name: times * count for name, count in counts.items()})
    manifest.rows.problems *= times
    manifest.rows.solutions *= times
    manifest.files, manifest.digest = files, files_digest(files)
    write_atomic(out / MANIFEST_FILE, manifest.to_json().encode())


def write_inputs(folder: Path, problems: int) -> None:
    """Write problems and their recorded solutions, each solution another text."""
    rng = random.Random(0)
    told = {}
    for problem in make_problems("train", min(DIFFERENT, problems)):
        texts = ["".join(write_solution(problem, rng, error_rate=0.2)) for _ in range(SAMPLES)]
        told[problem.question] = problem.answer, texts
    write_recorded(
        folder,
        (
            (question, gold, [f"Step 0: Try {index}-{i}.\n{each}" for i, each in enumerate(texts)])
            for index, (question, (gold, texts)) in enumerate(islice(cycle(told.items()), problems))
        ),
    )


def write_recorded(folder: Path, told: Iterable[tuple[str, str, Sequence[str]]]) -> None:
    """Write problems, which may repeat, with gold and responses, as a build replays them."""
    template = get_template("problem")
    with (
        (folder / "problems.jsonl").open("wb") as questions,
        (folder / "recorded.jsonl").open("wb") as recorded,
    ):
        for index, (question, gold, texts) in enumerate(told):
            asked = {"question": f"{question} ({index})", "answer": gold}
            questions.write(orjson.dumps(asked) + b"\n")
            made = [Completion(text, "stop", len(text) // 4, 0.01) for text in texts]
            record = {"prompt": template.render(asked["question"]), "completions": made}
            recorded.write(orjson.dumps(record) + b"\n")


class FreeScorer:
    """Rewards steps at no cost: a model's memory is another matter."""

    model = ModelRef("free", "0")

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return what the lengths of a text and its step make up."""
        lengths = [(sum(map(len, item.steps)), map(len, item.steps)) for item in items]
        return [[(7 * whole + each) % 101 / 101 for each in steps] for whole, steps in lengths]


def score(source: Path, out: Path) -> None:
    """Score a dataset with the stage itself, as ``fsdpo-data score`` does with a model."""
    scorer = FreeScorer()
    stage = ScoreStage(scorer.model, {"name": "free", "dtype": "float32"}, lambda: scorer)
    derive_dataset(source, out, [stage], progress=LineProgress())


def fresh(path: Path) -> None:
    """Remove what an earlier run has left."""
    shutil.rmtree(path, ignore_errors=True)


def run(
    folder: Path,
    *words: object,
    out: str = "",
    line: Sequence[str] = ("-m", "fsdpo_data"),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Measured:
    """Run a command of ``fsdpo-data``, or what Python is told by ``line``, in ``folder``."""
    if out:
        fresh(folder / out)
        words = (*words, "--out", out)
    command = [sys.executable, *line, *map(str, words)]
    started = time.perf_counter()
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=os.environ | env)
        peak = [0]
        watcher = threading.Thread(target=watch, args=(child, peak))
        watcher.start()
        code = child.wait()
        watcher.join()
    if code != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-2000:]}")
    return Measured(time.perf_counter() - started, peak[0])


def watch(child: subprocess.Popen[bytes], peak: list[int]) -> None:
    """Keep the greatest sum of the private memory of a process and its children."""
    while child.poll() is None:
        total = 0
        try:
            parent = psutil.Process(child.pid)
            for process in (parent, *parent.children(recursive=True)):
                memory = process.memory_info()
                total += memory.rss - memory.shared
        except psutil.Error:
            continue
        peak[0] = max(peak[0], total)
        time.sleep(0.05)


if __name__ == "__main__":  # the stage in a process of its own
    score(Path(sys.argv[1]), Path(sys.argv[3]))
