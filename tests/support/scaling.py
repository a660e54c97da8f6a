"""Datasets of any size, and what every stage over them takes; see `benchmarks/perf/scale.py`."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
import pyarrow as pa

from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import Draft, derive
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded.solutions import demonstration
from fsdpo_data.problems.embedded.world import make_problems
from fsdpo_data.stages.score import reward_statistics

SAMPLES = 32
#: Different problems; the others repeat them under another number.
DIFFERENT = 500


@dataclass(frozen=True)
class Measured:
    """What a command took: wall-clock seconds, and bytes at the peak over its processes."""

    seconds: float
    peak: int


def measured(folder: Path, solutions: int) -> Iterator[tuple[str, Measured]]:
    """Run every stage on a dataset of so many solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(folder, solutions // SAMPLES)
    replay = ["--engine", "scripted", "--replay", "recorded.jsonl"]
    yield (
        "build",
        run(
            folder,
            "build",
            "--problems",
            "problems.jsonl",
            "--samples",
            SAMPLES,
            *replay,
            out="built",
        ),
    )
    fresh(folder / "scored")
    derive(folder / "built", folder / "scored", [MadeUpRewards()], progress=LineProgress())
    yield "pair", run(folder, "pair", "scored", out="paired")
    yield "grade", run(folder, "grade", "scored", "--workers", 2, out="graded")
    yield "validate", run(folder, "validate", "paired")
    yield "diff", run(folder, "diff", "built", "paired")
    yield "inspect", run(folder, "inspect", "paired")
    yield "export", run(folder, "export", "paired", "--to", "trl-preference", out="exported")


def write_inputs(folder: Path, problems: int) -> None:
    """Write problems and their recorded solutions, each solution another text."""
    rng = random.Random(0)
    template = get_template("problem")
    base = [
        (problem, [demonstration(problem, rng, error_rate=0.2).text for _ in range(SAMPLES)])
        for problem in make_problems("train", min(DIFFERENT, problems))
    ]
    with (
        (folder / "problems.jsonl").open("wb") as questions,
        (folder / "recorded.jsonl").open("wb") as recorded,
    ):
        for index in range(problems):
            problem, texts = base[index % len(base)]
            named = Problem(f"{problem.question} ({index})", problem.answer, "scale", "train")
            questions.write(
                orjson.dumps({"question": named.question, "answer": named.answer}) + b"\n"
            )
            completions = [
                {
                    "text": f"Step 0: Try {index}-{i}.\n{text}",
                    "finish_reason": "stop",
                    "n_tokens": len(text) // 4,
                    "seconds": 0.01,
                }
                for i, text in enumerate(texts)
            ]
            prompt = template.render(named.question)
            recorded.write(orjson.dumps({"prompt": prompt, "completions": completions}) + b"\n")


class MadeUpRewards:
    """A stage that makes rewards up: scoring takes a model, whose memory is another matter."""

    part = "score"

    def spec(self) -> dict[str, object]:
        """Return what a score stage says of its model."""
        engine = {"dtype": "float32", "name": "none"}
        return {"prm": {"name": "made-up", "revision": "0"}, "engine": engine}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Accept any dataset."""

    def run(self, draft: Draft) -> None:
        """Write rewards between 0 and 1."""
        draft.rewrite("solutions", "score", self._rewarded)
        draft.manifest.rewards = reward_statistics(draft.files("solutions"))

    def _rewarded(self, table: pa.Table) -> pa.Table:
        rng = random.Random(table.num_rows)
        counts = [len(steps) for steps in table["completions"].to_pylist()]
        rewards = [[rng.random() for _ in range(count)] for count in counts]
        index = table.schema.get_field_index("step_rewards")
        field = table.schema.field(index)
        return table.set_column(index, field, pa.array(rewards, type=field.type))


def fresh(path: Path) -> None:
    """Remove what an earlier run has left."""
    shutil.rmtree(path, ignore_errors=True)


def run(folder: Path, *words: object, out: str = "") -> Measured:
    """Run a command of ``fsdpo-data`` in ``folder``."""
    if out:
        fresh(folder / out)
        words = (*words, "--out", out)
    line = [sys.executable, "-m", "fsdpo_data", *map(str, words)]
    started = time.perf_counter()
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(line, cwd=folder, stdout=log, stderr=log)
        peak = [0]
        watcher = threading.Thread(target=watch, args=(child, peak))
        watcher.start()
        code = child.wait()
        watcher.join()
    if code != 0:
        sys.exit(f"{' '.join(line)} failed:\n{(folder / 'log').read_text()[-2000:]}")
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
