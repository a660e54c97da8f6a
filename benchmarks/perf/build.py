"""Everything `fsdpo-data build` does besides generation, timed on recorded completions.

    python benchmarks/perf/build.py --outputs DIR [--problems 10000] [--samples 32]

Replays recorded completions through `fsdpo-data build --engine scripted` (read, segment, grade,
label, write parquet, validate, seal) and prints the time of each phase and the peak of the
processes' private memory. The texts are real ones, repeated: DIR is a directory of published model
outputs (`openai_gsm8k/`, `qwen_math_cot/`). `scale.py` builds demonstrations of the embedded world.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated

import orjson
import typer
from fsdpo_bench.recorded.outputs import read_outputs
from typer import Option

from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import watch

Base = tuple[str, str, list[str]]  # question, gold, responses


def main(outputs: Annotated[Path, Option()], problems: int = 10_000, samples: int = 32) -> None:
    """Time a build of recorded completions, by phases."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = list(real(outputs))
        write_inputs(folder, base, problems, samples)
        raw = (folder / "recorded.jsonl").stat().st_size
        seconds, peak, phases = timed_build(folder, samples)
        solutions = problems * samples
        print(f"{solutions:,} solutions, {raw / 1e6:.0f} MB, {len(base)} different problems")
        for phase, spent in phases.items():
            print(f"  {phase:<10} {spent:6.1f} s")
        print(f"  {'all':<10} {seconds:6.1f} s   {solutions / seconds:,.0f} solutions/s")
        print(f"  peak private memory {peak / 1e9:.2f} GB over all processes")


def real(outputs: Path) -> Iterator[Base]:
    """Yield published problems with the responses of several models."""
    files = ("openai_gsm8k/example_model_solutions.jsonl", "qwen_math_cot/math_cot_100.jsonl")
    for file in files:
        for _, row in groupby(read_outputs(outputs / file), lambda each: each.row):
            found = list(row)
            yield found[0].question, found[0].gold, [each.response for each in found]


def write_inputs(folder: Path, base: list[Base], problems: int, samples: int) -> None:
    """Write problems and their recorded completions, repeating the base as often as needed."""
    template = resolve("tiny").template
    with (
        (folder / "problems.jsonl").open("wb") as questions,
        (folder / "recorded.jsonl").open("wb") as recorded,
    ):
        for index in range(problems):
            question, gold, responses = base[index % len(base)]
            question = f"{question} ({index // len(base)})"
            problem = Problem(question, gold, "perf", "train")
            questions.write(orjson.dumps({"question": question, "answer": gold}) + b"\n")
            texts = [responses[i % len(responses)] for i in range(samples)]
            record = {
                "problem_id": problem.id,
                "prompt": template.render(question),
                "completions": [asdict(Completion(text, "stop", len(text) // 4)) for text in texts],
            }
            recorded.write(orjson.dumps(record) + b"\n")


def timed_build(folder: Path, samples: int) -> tuple[float, int, dict[str, float]]:
    """Run the build in a child process; return seconds, peak bytes and seconds by phase."""
    command = [sys.executable, "-m", "fsdpo_data", "build", "--problems"]
    command += [str(folder / "problems.jsonl"), "--samples", str(samples)]
    command += ["--engine", "scripted", "--replay", str(folder / "recorded.jsonl")]
    command += ["--out", str(folder / "out")]
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    memory = [0]
    watcher = threading.Thread(target=watch, args=(child, memory))
    watcher.start()
    marks = [("start", started)]
    assert child.stderr is not None
    for line in child.stderr:
        print("    " + line.rstrip(), file=sys.stderr)
        name, colon, _ = line.partition(":")
        if colon and name in ("load", "sample", "annotate", "validate") and name != marks[-1][0]:
            marks.append((name, time.perf_counter()))
    if child.wait() != 0:
        raise SystemExit("the build failed")
    ended = time.perf_counter()
    watcher.join()
    marks.append(("end", ended))
    phases = {name: after - at for (name, at), (_, after) in pairwise(marks)}
    return ended - started, memory[0], phases


if __name__ == "__main__":
    typer.run(main)
