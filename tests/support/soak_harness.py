"""Build, kill, go on, validate, over and over: does anything wear out?

    python tests/support/soak_harness.py --minutes 30

Two workers annotate. In every cycle one build is killed once to three times, by SIGKILL or SIGTERM,
at any moment of the seconds that it takes undisturbed; then it goes on to its end, is validated and
compared with the first, file by file. Counted are cycles, kills, builds that did not end, datasets
that differ or are not valid, and runs that left processes behind. It exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from killing import START, Moment, Watched, digests, watched
from writing_commands import Case, Inputs, all_cases

#: What must stay 0.
FAULTS = ("failed", "differing", "invalid", "orphaned")


def cycle(
    case: Case, inputs: Inputs, out: Path, seconds: float, rng: random.Random
) -> Counter[str]:
    """Kill a build a few times, let it end, validate it; return what was counted."""
    counted: Counter[str] = Counter(cycles=1)
    runs = []
    for _ in range(rng.randint(1, 3)):
        how = signal.SIGTERM if rng.random() < 0.2 else signal.SIGKILL
        moment = Moment(START, rng.uniform(0, seconds), how)
        runs.append(_start(case, inputs, out, moment))
        counted["kills"] += runs[-1].code != 0
    runs.append(_start(case, inputs, out))
    counted["failed"] += runs[-1].code != 0
    line = [sys.executable, "-m", "fsdpo_data", "validate", str(out)]
    counted["invalid"] += watched(line, inputs.env, below=out).code != 0
    counted["orphaned"] += sum(bool(ran.orphans) for ran in runs)
    return counted


def _start(case: Case, inputs: Inputs, out: Path, kill: Moment | None = None) -> Watched:
    line = [*case.line(out), *(case.again if out.exists() else ())]
    ran = watched(line, inputs.env, below=out, kill=kill)
    if not kill and ran.code != 0:
        print(ran.said, file=sys.stderr)
    return ran


def soak(
    case: Case, inputs: Inputs, folder: Path, minutes: float, cycles: int, seed: int
) -> Counter[str]:
    """Run cycles for so many minutes, and so many at least; tell of them on stderr."""
    rng, out, total = random.Random(seed), folder / "soaked", Counter[str]()
    started = time.monotonic()
    whole = _start(case, inputs, out)
    first, seconds = digests(out), whole.seen["end"]
    while total["cycles"] < cycles or time.monotonic() - started < 60 * minutes:
        shutil.rmtree(out)
        total += cycle(case, inputs, out, seconds, rng)
        total["differing"] += digests(out) != first
        said = ", ".join(f"{count} {name}" for name, count in total.items())
        print(f"{(time.monotonic() - started) / 60:.1f} min: {said}", file=sys.stderr, flush=True)
    return total


def main() -> None:
    """Make the inputs, soak, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--cycles", type=int, default=1, help="At least so many.")
    parser.add_argument("--problems", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name), options.problems)
        inputs.record("many", options.problems)
        case = all_cases(inputs)["build"]
        total = soak(case, inputs, Path(name), options.minutes, options.cycles, options.seed)
        inputs.stop()
    counts = {"cycles": 0, "kills": 0, **dict.fromkeys(FAULTS, 0), **total}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    sys.exit(any(total[name] for name in FAULTS))


if __name__ == "__main__":
    main()
