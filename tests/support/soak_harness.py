"""Build, kill, resume and validate in cycles, to find faults that accumulate.

    python tests/support/soak_harness.py --minutes 30

Two workers annotate. In every cycle one build is killed one to three times, by SIGKILL or SIGTERM,
at a random time of its undisturbed duration. Then the build resumes and finishes. The dataset is
validated and compared with the first one, file by file. The script counts cycles, kills, failed
builds, datasets that differ or are invalid, and runs that left processes. It exits with 1 if there
are any faults.
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
from killing import START, CommandResult, KillMoment, file_digests, run_watched
from writing_commands import Inputs, WritingCommand, list_commands

#: The counts that must stay 0.
FAULTS = ("failed", "differing", "invalid", "orphaned")


def run_cycle(
    command: WritingCommand, inputs: Inputs, out: Path, seconds: float, rng: random.Random
) -> Counter[str]:
    """Kill a build a few times, let it finish, validate it, and return the counts."""
    counts: Counter[str] = Counter(cycles=1)
    results = []
    for _ in range(rng.randint(1, 3)):
        kill_signal = signal.SIGTERM if rng.random() < 0.2 else signal.SIGKILL
        moment = KillMoment(START, rng.uniform(0, seconds), kill_signal)
        results.append(_start(command, inputs, out, moment))
        counts["kills"] += results[-1].code != 0
    results.append(_start(command, inputs, out))
    counts["failed"] += results[-1].code != 0
    validation = [sys.executable, "-m", "fsdpo_data", "validate", str(out)]
    counts["invalid"] += run_watched(validation, inputs.env, folder=out).code != 0
    counts["orphaned"] += sum(bool(result.orphans) for result in results)
    return counts


def _start(
    command: WritingCommand, inputs: Inputs, out: Path, kill: KillMoment | None = None
) -> CommandResult:
    arguments = command.arguments(out)
    if out.exists():
        arguments = [*arguments, *command.resume_options]
    result = run_watched(arguments, inputs.env, folder=out, kill=kill)
    if not kill and result.code != 0:
        print(result.stderr, file=sys.stderr)
    return result


def soak(
    command: WritingCommand,
    inputs: Inputs,
    folder: Path,
    *,
    minutes: float,
    cycles: int,
    seed: int,
) -> Counter[str]:
    """Run cycles for so many minutes, but at least ``cycles``; print the counts to stderr."""
    rng = random.Random(seed)
    out = folder / "soaked"
    total: Counter[str] = Counter()
    started = time.monotonic()
    undisturbed = _start(command, inputs, out)
    expected_digests = file_digests(out)
    build_seconds = undisturbed.phase_starts["end"]
    while total["cycles"] < cycles or time.monotonic() - started < 60 * minutes:
        shutil.rmtree(out)
        total += run_cycle(command, inputs, out, build_seconds, rng)
        total["differing"] += file_digests(out) != expected_digests
        counts = ", ".join(f"{count} {name}" for name, count in total.items())
        print(f"{(time.monotonic() - started) / 60:.1f} min: {counts}", file=sys.stderr, flush=True)
    return total


def main() -> None:
    """Make the inputs, run the cycles, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--cycles", type=int, default=1, help="Minimal number of cycles.")
    parser.add_argument("--problems", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name), options.problems)
        inputs.record("many", options.problems)
        total = soak(
            list_commands(inputs)["build"],
            inputs,
            Path(name),
            minutes=options.minutes,
            cycles=options.cycles,
            seed=options.seed,
        )
        inputs.stop()
    counts = {"cycles": 0, "kills": 0, **dict.fromkeys(FAULTS, 0), **total}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    sys.exit(any(total[name] for name in FAULTS))


if __name__ == "__main__":
    main()
