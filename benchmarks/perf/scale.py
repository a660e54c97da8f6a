"""Measure how the memory and time of every dataset stage grow with the number of solutions.

    python benchmarks/perf/scale.py --solutions 100000 1000000 --folder DIR

Each stage runs as a command of its own on datasets of the given sizes. The script prints rows per
second and the peak private memory of the command's processes. From the second size on, it also
prints the exponent of the memory growth. The `score` stage uses synthetic rewards without a model,
and `push` stops before it uploads. Datasets of more than one million solutions are not built: the
script repeats a dataset of one million.
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import measure_stages


def main() -> None:
    """Measure every stage at every size and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solutions", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="Folder for the datasets; they stay there.")
    options = parser.parse_args()
    #: The last size of a stage and its peak memory in bytes.
    previous: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for size in options.solutions:
            for stage, usage in measure_stages(folder / str(size), size):
                line = f"{size:>12,}  {stage:<12}{size / usage.seconds:>10,.0f}/s"
                line += f"{usage.peak_bytes / 1e9:>8.2f} GB"
                if stage in previous:
                    previous_size, previous_peak = previous[stage]
                    memory_ratio = usage.peak_bytes / previous_peak
                    exponent = math.log(memory_ratio) / math.log(size / previous_size)
                    line += f"  memory grows with exponent {exponent:.2f}"
                print(line, flush=True)
                previous[stage] = (size, usage.peak_bytes)


if __name__ == "__main__":
    main()
