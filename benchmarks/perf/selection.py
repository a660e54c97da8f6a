"""Measure the time and memory of `fsdpo-data select`.

    python benchmarks/perf/selection.py --solutions 100000 1000000 --folder DIR

The script builds 100,000 solutions with 32 samples per problem, and repeats them with new ids for
larger datasets. Each command runs as a process of its own. The script prints solutions per second
and the peak private memory of the process. From the second size on, it also prints the growth of
the memory. It extrapolates the memory to 10 million solutions with this growth per solution.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scaling import (
    BUILD_ARGUMENTS,
    SAMPLES_PER_PROBLEM,
    ResourceUse,
    remove,
    repeat_dataset,
    run,
    write_inputs,
)

BASE_SOLUTIONS = 100_000  #: Solutions of the dataset that is built.
TARGET_SOLUTIONS = 10_000_000  #: Solutions of the dataset whose memory is extrapolated.
#: The arguments of the measured commands, by name.
COMMANDS = {
    "select": (
        *("select", "data", "--pass-rate", "0.2..0.9", "--unique", "--per-problem", 8),
        *("--filter", "array_length(completions) > 1", "--sample", 0.5),
        *("--split", "validation=0.1"),
    ),
    "select all": ("select", "data"),
    "plan": ("select", "data", "--mixed", "--unique", "--per-problem", 8, "--dry-run"),
}


def make_dataset(folder: Path, base: Path, solutions: int) -> None:
    """Write the dataset ``data``."""
    remove(folder)
    folder.mkdir(parents=True)
    repeat_dataset(base, folder / "data", max(1, solutions // BASE_SOLUTIONS))


def print_usage(name: str, size: int, usage: ResourceUse, earlier: tuple[int, int] | None) -> int:
    """Print one line; return the peak memory in bytes."""
    line = f"{size:>12,}  {name:<16}{usage.seconds:>8.1f} s{size / usage.seconds:>11,.0f}/s"
    line += f"{usage.peak_bytes / 1e9:>8.2f} GB"
    if earlier is not None:
        earlier_size, earlier_bytes = earlier
        per_solution = (usage.peak_bytes - earlier_bytes) / (size - earlier_size)
        target_bytes = usage.peak_bytes + per_solution * (TARGET_SOLUTIONS - size)
        line += f"  {per_solution:>6.0f} bytes per further solution"
        line += f", {target_bytes / 1e9:.1f} GB at {TARGET_SOLUTIONS:,}"
    print(line, flush=True)
    return usage.peak_bytes


def main() -> None:
    """Measure every command at every size, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solutions", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="Folder for the datasets; they stay there.")
    parser.add_argument("--only", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    options = parser.parse_args()
    peaks: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        base = folder / "base"
        if not (base / "built" / "manifest.json").exists():
            remove(base)
            base.mkdir(parents=True)
            write_inputs(base, BASE_SOLUTIONS // SAMPLES_PER_PROBLEM)
            usage = run(base, BUILD_ARGUMENTS, out="built")
            print(f"built {BASE_SOLUTIONS:,} solutions in {usage.seconds:.0f} s", flush=True)
        for size in options.solutions:
            make_dataset(folder / str(size), base / "built", size)
            for name in options.only:
                words = COMMANDS[name]
                out = "" if "--dry-run" in words else "new"
                remove(folder / str(size) / "new-validation")
                usage = run(folder / str(size), words, out=out)
                peak = print_usage(name, size, usage, peaks.get(name))
                peaks[name] = (size, peak)


if __name__ == "__main__":
    main()
