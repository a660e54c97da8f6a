"""Everything `fsdpo-data build` does besides generation, timed on recorded completions.

    python benchmarks/perf/build.py --outputs DIR [--problems 10000]

Replays recorded completions through `fsdpo-data build --engine replay` (read, segment, grade,
label, write parquet, validate, seal) and prints its time and the peak of the processes' private
memory. The texts are real ones, repeated, 32 for each problem: DIR is a directory of published
model outputs (`openai_gsm8k/`, `qwen_math_cot/`). `scale.py` builds made-up ones of any number.
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Annotated

import typer
from fsdpo_bench.recorded.outputs import read_outputs
from typer import Option

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import BUILD, SAMPLES, run, write_recorded

FILES = ("openai_gsm8k/example_model_solutions.jsonl", "qwen_math_cot/math_cot_100.jsonl")


def main(outputs: Annotated[Path, Option()], problems: int = 10_000) -> None:
    """Time a build of recorded completions."""
    told = list(real(outputs))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recorded(folder, islice(cycle(told), problems))
        size = (folder / "recorded.jsonl").stat().st_size
        found = run(folder, *BUILD, out="built")
    solutions = problems * SAMPLES
    print(f"{solutions:,} solutions, {size / 1e6:.0f} MB, of {len(told)} different problems")
    print(f"{found.seconds:.1f} s, {solutions / found.seconds:,.0f} solutions/s")
    print(f"peak private memory {found.peak / 1e9:.2f} GB over all processes")


def real(outputs: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield published problems with gold and the responses of several models."""
    for file in FILES:
        for _, row in groupby(read_outputs(outputs / file), lambda each: each.row):
            found = list(row)
            texts = [found[i % len(found)].response for i in range(SAMPLES)]
            yield found[0].question, found[0].gold, texts


if __name__ == "__main__":
    typer.run(main)
