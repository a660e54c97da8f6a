"""Kill every command that writes, fill its disk, start it again: is anything lost?

    python tests/support/kill_harness.py --kills 200 --seed 0
    python tests/support/kill_harness.py --kills 6 --only build --only 'train dpo'

Each command is run once undisturbed, which gives the result to compare with and the seconds that
its phases take. Then it is killed, by SIGKILL or SIGTERM, some moments into one of them: a third of
all kills fall into the writing of a checkpoint, and are drawn anew until half a checkpoint is what
they leave. After half of the kills it is started on a disk
that is almost full, or read-only: it must say so and stop, without a traceback. Then all is well
again, the same command goes on (with ``--resume`` where it has that option), and the outcome is
compared: sealed bytes, weights, what the Hub shows.

What is counted: ``torn`` (kills that left half a checkpoint), ``resumed`` (the command came to its
end), ``identical`` (to the undisturbed run),
``orphaned`` (kills after which processes were left), ``lost`` (kills after which something was gone
that was there before: a source, or the way to go on), ``rude`` (a full or read-only disk that ended
in a traceback, a signal, or without being named). It exits with 1 if anything is not as it should
be. Mounting the disks takes root. Commands are forked from an interpreter that has imported what
they need: each is a process of its own, and most of its time is its work.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from killing import START, Disk, Moment, Watched, digests, watched
from writing_commands import SAVE_EVERY, STEPS, Case, Inputs, all_cases

#: What befalls the disk between a kill and the last start, and what must be said of it.
TROUBLES = {"full": "the disk is full", "read-only": "the file system is read-only"}
#: Starts until a kill hits: a command may end before its moment comes.
TRIES = 8
#: Where a training run writes a checkpoint before it is one.
WRITING = "checkpoints/writing"
COUNTS = ("kills", "torn", "resumed", "identical", "orphaned", "lost", "rude")


@dataclass
class Reference:
    """An undisturbed run.

    Attributes:
        outcome: What it made.
        windows: The phases, and how many seconds each lasts.
        size: Bytes it wrote and left.
        sources: What it read.
    """

    outcome: dict[str, str]
    windows: dict[str, float]
    size: int
    sources: dict[str, str]


@dataclass
class Kill:
    """One kill, and what came of it."""

    case: str
    phase: str
    signal: str
    trouble: str = ""
    kills: int = 1
    torn: int = 0
    resumed: int = 0
    identical: int = 0
    orphaned: int = 0
    lost: int = 0
    rude: int = 0
    notes: list[str] = field(default_factory=list)


class Harness:
    """Runs the commands on a disk of their own.

    Args:
        inputs: What they read.
        disk: Where they write.
        rng: Draws the moments.
    """

    def __init__(self, inputs: Inputs, disk: Disk, rng: random.Random) -> None:
        self._inputs, self._disk, self._rng = inputs, disk, rng

    def reference(self, case: Case) -> Reference:
        """Run a command undisturbed.

        Raises:
            SystemExit: if it fails.
        """
        out = self._out(case)
        ran = self._start(case, out, first=True)
        if ran.code != 0:
            sys.exit(f"error: {case.name} fails undisturbed:\n{ran.said}")
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        reference = Reference(case.outcome(out), _windows(ran), size, _sources(case))
        self._clear(out)
        return reference

    def kill(self, case: Case, reference: Reference, phase: str, trouble: str) -> Kill:
        """Kill a command in a phase, trouble its disk, let it end, and compare."""
        out = self._out(case)
        how = signal.SIGTERM if self._rng.random() < 0.2 else signal.SIGKILL
        ran = self._killed(case, out, phase, reference.windows[phase], how)
        found = Kill(case.name, phase if ran is None else ran.last, how.name, trouble)
        if ran is None:
            found.kills = 0
            return found
        found.torn = int(_torn(out))
        self._note_orphans(found, ran)
        if not case.again and case.outcome(out) == reference.outcome:
            # It was done, and what takes no --resume says so by refusing to begin again.
            found.resumed = found.identical = 1
            self._clear(out)
            return found
        if trouble:
            self._trouble(case, out, reference, found)
        ended = self._start(case, out, first=not self._begun(out))
        self._note_orphans(found, ended)
        if ended.code == 0:
            found.resumed = 1
            found.identical = int(self._compare(case, out, reference, found))
        else:
            found.lost = 1
            found.notes.append(f"does not go on: {ended.said[-600:]}")
        if _sources(case) != reference.sources:
            found.lost = 1
            found.notes.append("a source was changed")
        self._clear(out)
        return found

    def _killed(
        self, case: Case, out: Path, phase: str, seconds: float, how: signal.Signals
    ) -> Watched | None:
        """Start and kill a command until it has really been hit; None if it is too quick."""
        for _ in range(TRIES):
            moment = Moment(phase, self._rng.uniform(0, seconds), how)
            ran = self._start(case, out, first=True, kill=moment)
            if ran.code != 0 and (_torn(out) or WRITING not in phase):
                return ran
            self._clear(out)
            seconds /= 2
        return None

    def _start(self, case: Case, out: Path, *, first: bool, kill: Moment | None = None) -> Watched:
        line = [*case.line(out), *(() if first else case.again)]
        below = {"below": out, "globs": _globs(case)}
        return watched(line, self._inputs.env, **below, kill=kill, warm=self._inputs.warm)

    def _trouble(self, case: Case, out: Path, reference: Reference, found: Kill) -> None:
        """Go on while the disk is full or read-only."""
        if found.trouble == "full":
            self._disk.fill(self._rng.randrange(reference.size + 1))
        else:
            self._disk.read_only()
        ran = self._start(case, out, first=not self._begun(out))
        self._disk.heal()
        self._note_orphans(found, ran)
        if not ran.graceful or (ran.code and TROUBLES[found.trouble] not in ran.said):
            found.rude = 1
            found.notes.append(f"{found.trouble} disk, rc {ran.code}: {ran.said[-600:]}")

    def _compare(self, case: Case, out: Path, reference: Reference, found: Kill) -> bool:
        outcome = case.outcome(out)
        keys = outcome.keys() | reference.outcome.keys()
        differ = sorted(key for key in keys if outcome.get(key) != reference.outcome.get(key))
        if differ:
            found.notes.append(f"differs: {', '.join(differ)}")
        return not differ

    def _begun(self, out: Path) -> bool:
        return out.exists() and any(out.iterdir())

    def _note_orphans(self, found: Kill, ran: Watched) -> None:
        if ran.orphans:
            found.orphaned = 1
            found.notes.append(f"left behind: {Counter(ran.orphans).most_common(3)}")

    def _out(self, case: Case) -> Path:
        """Return where a command writes: always there, for outcomes may name it."""
        out = self._disk.path / "runs" / case.name.replace(" ", "-")
        out.parent.mkdir(exist_ok=True)
        return out

    def _clear(self, out: Path) -> None:
        """Delete what a run has left, the Hub's side of it too."""
        self._inputs.hub.repos.pop(("dataset", f"org/{out.name}"), None)
        shutil.rmtree(out.parent)
        out.parent.mkdir()


def _globs(case: Case) -> list[str]:
    """Return the files that begin phases: a checkpoint's first, then itself once it is whole."""
    steps = range(SAVE_EVERY, STEPS + 1, SAVE_EVERY) if case.checkpoints else ()
    writing = (f"{WRITING}/checkpoint-{step}/*" for step in steps)
    return [*case.globs, *writing, *(f"checkpoints/checkpoint-{step}" for step in steps)]


def _torn(out: Path) -> bool:
    """Whether a run has left half a checkpoint."""
    return any((out / WRITING).glob("*/*"))


def _sources(case: Case) -> dict[str, str]:
    return {
        f"{root}/{name}": value for root in case.sources for name, value in digests(root).items()
    }


def _windows(ran: Watched) -> dict[str, float]:
    """Return the seconds of each phase, until the next begins."""
    times = sorted(ran.seen.items(), key=lambda each: each[1])
    return {name: after - at for (name, at), (_, after) in pairwise(times)}


def planned(
    cases: Sequence[Case], references: dict[str, Reference], kills: int, rng: random.Random
) -> list[tuple[Case, str, str]]:
    """Return (command, phase, trouble) of each kill: all phases in turn, a third on checkpoints."""
    writing, other = [], []
    for case in cases:
        for phase in references[case.name].windows:
            (writing if WRITING in phase else other).append((case, phase))
    rng.shuffle(writing)
    rng.shuffle(other)
    # Every command has its turn before one has its second.
    other = _by_turns(other)
    plan = []
    for index in range(kills):
        pool = writing if writing and (index % 3 == 2 or not other) else other
        case, phase = pool[(index // 3 if pool is writing else index - index // 3) % len(pool)]
        trouble = "" if index % 2 == 0 else list(TROUBLES)[index // 2 % len(TROUBLES)]
        plan.append((case, phase, trouble))
    return plan


def _by_turns(pool: list[tuple[Case, str]]) -> list[tuple[Case, str]]:
    """Order (command, phase) so that the commands alternate."""
    turn: Counter[str] = Counter()
    keyed = []
    for place, (case, phase) in enumerate(pool):
        keyed.append((turn[case.name], place, case, phase))
        turn[case.name] += 1
    return [(case, phase) for _, _, case, phase in sorted(keyed, key=lambda each: each[:2])]


def table(kills: Sequence[Kill]) -> str:
    """Return the counts by command, and of them all."""
    lines = [f"{'command':<18}" + "".join(f"{name:>11}" for name in COUNTS) + "  phases"]
    for name in dict.fromkeys(kill.case for kill in kills):
        of_case = [kill for kill in kills if kill.case == name]
        phases = Counter(kill.phase for kill in of_case)
        told = ", ".join(f"{phase} {count}" for phase, count in phases.most_common())
        lines.append(f"{name:<18}{_counted(of_case)}  {told}")
    return "\n".join([*lines, f"{'all':<18}{_counted(kills)}"])


def _counted(kills: Sequence[Kill]) -> str:
    return "".join(f"{sum(getattr(kill, name) for kill in kills):>11}" for name in COUNTS)


def main() -> None:
    """Make the inputs, run the references, kill, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a command; may be given several times")
    parser.add_argument("--problems", type=int, default=6000, help="of the large build")
    parser.add_argument("--log", type=Path, help="write every kill here, as JSON lines")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name), options.problems)
        inputs.make()
        cases = list(all_cases(inputs).values())
        cases = [case for case in cases if not options.only or case.name in options.only]
        disk = Disk(Path(name) / "disk")
        with disk.mounted():
            kills = carried_out(Harness(inputs, disk, rng), cases, options.kills, rng, options.log)
        inputs.stop()
    print(table(kills))
    sys.exit(any(not kill.resumed or not kill.identical or kill.notes for kill in kills))


def carried_out(
    harness: Harness, cases: Sequence[Case], count: int, rng: random.Random, log: Path | None
) -> list[Kill]:
    """Run the references, then kill so many times; tell stderr of every kill."""
    references = {}
    for case in cases:
        references[case.name] = harness.reference(case)
        print(f"{case.name}: {references[case.name].windows}", file=sys.stderr, flush=True)
    kills = []
    for case, phase, trouble in planned(cases, references, count, rng):
        found = harness.kill(case, references[case.name], phase, trouble)
        if not found.kills:
            found = harness.kill(case, references[case.name], START, trouble)
        kills.append(found)
        print(json.dumps(asdict(found)), file=sys.stderr, flush=True)
        if log:
            with log.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
    return kills


if __name__ == "__main__":
    main()
