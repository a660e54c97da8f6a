"""Time to hold the training problems of GSM8K and MATH against all benchmarks in a directory.

python benchmarks/perf/decontaminate.py TRAIN_FILES... --against BENCHMARK_FILES...
"""

import argparse
import time

from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.overlap import Text, overlaps
from fsdpo_data.stages.decontaminate import read_benchmark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", nargs="+")
    parser.add_argument("--against", nargs="+", required=True)
    options = parser.parse_args()
    problems = load_problems(options.train).problems
    training = [Text(each.source, 0, each.question, each.answer) for each in problems]
    start = time.perf_counter()
    benchmarks = [text for name in options.against for text in read_benchmark(name).texts]
    read = time.perf_counter()
    pairs = overlaps(training, benchmarks)
    end = time.perf_counter()
    print(f"{len(training):,} problems, {len(benchmarks):,} questions, {pairs.height:,} pairs")
    print(f"read the benchmarks {read - start:.2f} s, compared {end - read:.2f} s")


if __name__ == "__main__":
    main()
