"""Time `fsdpo-data build` without generation, on recorded completions.

    python benchmarks/perf/build.py --outputs DIR [--problems 10000]

The script replays recorded completions through `fsdpo-data build --engine replay`: read, segment,
grade, label, write parquet, validate and seal. It prints the time and the peak private memory of
all processes. DIR is a directory of published model outputs (`openai_gsm8k/`, `qwen_math_cot/`).
Their responses are repeated until each problem has 32. `scale.py` does the same with synthetic
solutions in any number.
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from fsdpo_data.exchange.outputs import read_outputs

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import BUILD_ARGUMENTS, SAMPLES_PER_PROBLEM, RecordedProblem, run, write_recorded

FILES = ("openai_gsm8k/example_model_solutions.jsonl", "qwen_math_cot/math_cot_100.jsonl")


def main(outputs: Annotated[Path, Option()], problems: int = 10_000) -> None:
    """Time a build of recorded completions."""
    published_problems = list(read_published(outputs))
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write_recorded(folder, islice(cycle(published_problems), problems))
        size = (folder / "recorded.jsonl").stat().st_size
        usage = run(folder, BUILD_ARGUMENTS, out="built")
    solutions = problems * SAMPLES_PER_PROBLEM
    print(
        f"{solutions:,} solutions, {size / 1e6:.0f} MB, "
        f"of {len(published_problems)} different problems"
    )
    print(f"{usage.seconds:.1f} s, {solutions / usage.seconds:,.0f} solutions/s")
    print(f"peak private memory {usage.peak_bytes / 1e9:.2f} GB over all processes")


def read_published(outputs: Path) -> Iterator[RecordedProblem]:
    """Yield the published problems, each with the responses of several models."""
    for file in FILES:
        for _, group in groupby(read_outputs(outputs / file), lambda output: output.row):
            row_outputs = list(group)
            responses = [
                row_outputs[index % len(row_outputs)].completion.text
                for index in range(SAMPLES_PER_PROBLEM)
            ]
            first = row_outputs[0]
            yield RecordedProblem(question=first.question, gold=first.gold, responses=responses)


if __name__ == "__main__":
    typer.run(main)
