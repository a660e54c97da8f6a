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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import measured


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--solutions", type=int, nargs="+", default=[100_000, 1_000_000])
    arguments.add_argument("--folder", type=Path, help="Where datasets are made, and kept.")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, before = options.folder or Path(temporary), {}
        for size in options.solutions:
            for stage, found in measured(folder / str(size), size):
                told = f"{size:>12,}  {stage:<12}{size / found.seconds:>10,.0f}/s"
                told += f"{found.peak / 1e9:>8.2f} GB"
                if stage in before:
                    small, least = before[stage]
                    growth = math.log(found.peak / least) / math.log(size / small)
                    told += f"  memory grows with exponent {growth:.2f}"
                print(told, flush=True)
                before[stage] = size, found.peak


if __name__ == "__main__":
    main()
