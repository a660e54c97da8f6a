"""How memory and time of every stage over a dataset grow with its solutions.

    python benchmarks/perf/scale.py --solutions 100000 1000000 --folder DIR

Runs each stage on datasets of so many solutions as a command of its own, and prints rows per second
and the peak of its processes' private memory; of several sizes, the exponent of the growth. Rewards
are made up at no cost by the stage that scores, and a push stops before it sends. Ten million
solutions are one million several times over, which nobody builds.
"""

import argparse
import math
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import Measured, measured


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--solutions", type=int, nargs="+", default=[100_000, 1_000_000])
    arguments.add_argument("--folder", type=Path, help="Where datasets are made, and kept.")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        table = {size: told(folder, size) for size in options.solutions}
    print(f"{'stage':<12}" + "".join(f"{size:>24,}" for size in table) + "   exponents")
    for stage in table[options.solutions[0]]:
        found = {size: took[stage] for size, took in table.items() if stage in took}
        cells = "".join(
            cell(size, found[size]) if size in found else f"{'-':>21}   " for size in table
        )
        growth = [
            math.log(after.peak / before.peak) / math.log(large / small)
            for (small, before), (large, after) in pairwise(found.items())
        ]
        print(f"{stage:<12}{cells}  {', '.join(f'{each:.2f}' for each in growth)}", flush=True)


def told(folder: Path, size: int) -> dict[str, Measured]:
    """Run every stage at a size; tell stderr of each."""
    took = {}
    for stage, found in measured(folder / str(size), size):
        print(f"{size:,} {stage}: {cell(size, found)}", file=sys.stderr, flush=True)
        took[stage] = found
    return took


def cell(size: int, found: Measured) -> str:
    """Say how fast a stage was, and what it took."""
    return f"{size / found.seconds:>10,.0f}/s {found.peak / 1e9:>6.2f} GB   "


if __name__ == "__main__":
    main()
