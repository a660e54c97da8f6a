"""Kill every command that writes, fill its disk, resume it, and compare the outcome.

    python tests/support/kill_harness.py --kills 200 --seed 0
    python tests/support/kill_harness.py --kills 6 --only build --only 'train dpo'
    python tests/support/kill_harness.py --table kills.jsonl    # of one or several runs with --log

Each command first runs undisturbed, for the expected outcome and the duration of each phase. Then
the command is killed at a random time in a phase, by SIGKILL or SIGTERM. A third of all kills fall
into the writing of a checkpoint, and are repeated until they leave an incomplete checkpoint. After
half of the kills, the command starts on a disk that is almost full or read-only. It must end with a
message and without a traceback. Finally the same command runs on a good disk (with ``--resume`` if
it has that option), and its outcome is compared: sealed bytes, weights, or the files on the Hub.

The table counts:

- ``incomplete``: kills that left an incomplete checkpoint;
- ``resumed``: the command finished after the kill;
- ``identical``: the outcome is equal to the undisturbed run;
- ``orphaned``: kills after which processes remained;
- ``lost``: kills after which the command could not finish, or a source had changed;
- ``unreported``: runs on a full or read-only disk that ended in a traceback or a signal, or whose
  message did not name the fault.

The exit code is 1 if anything went wrong. Mounting the disks needs root.
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
from typing import NamedTuple

from killing import START, CommandResult, Disk, KillMoment, file_digests, run_watched
from writing_commands import SAVE_EVERY, STEPS, Inputs, WritingCommand, list_commands

#: Faults of the disk after a kill, with the words that the command's message must contain.
DISK_FAULTS = {"full": "the disk is full", "read-only": "the file system is read-only"}
#: Maximal number of starts per kill, because a command may end before the kill.
MAX_STARTS = 8
#: Where a training run writes a checkpoint until it is complete.
WRITING_FOLDER = "checkpoints/writing"
COUNTS = ("kills", "incomplete", "resumed", "identical", "orphaned", "lost", "unreported")


@dataclass
class Reference:
    """An undisturbed run.

    Attributes:
        outcome: Digests of its output.
        phase_seconds: Duration of each phase.
        size: Bytes of its output.
        sources: Digests of the files that it read.
    """

    outcome: dict[str, str]
    phase_seconds: dict[str, float]
    size: int
    sources: dict[str, str]


@dataclass
class KillReport:
    """One kill and its consequences.

    Attributes:
        case: Name of the command.
        phase: Phase in which the command was killed.
        signal: Name of the signal.
        trouble: Fault of the disk after the kill, or empty.
        kills: 1, or 0 if the command always ended before the kill.
        notes: Explanations of the faults.

    The other fields are 0 or 1; the module docstring explains them.
    """

    case: str
    phase: str
    signal: str
    trouble: str = ""
    kills: int = 1
    incomplete: int = 0
    resumed: int = 0
    identical: int = 0
    orphaned: int = 0
    lost: int = 0
    unreported: int = 0
    notes: list[str] = field(default_factory=list)


class PlannedKill(NamedTuple):
    """A kill that is still to be done."""

    command: WritingCommand  #: The command to kill.
    phase: str  #: The phase to kill it in.
    disk_fault: str  #: A key of ``DISK_FAULTS``, or empty.


class KillHarness:
    """Runs and kills commands on a disk of their own.

    Args:
        inputs: Inputs of the commands.
        disk: The disk of their outputs.
        rng: Draws the moments and the signals.
    """

    def __init__(self, inputs: Inputs, disk: Disk, rng: random.Random) -> None:
        self._inputs = inputs
        self._disk = disk
        self._rng = rng

    def run_reference(self, command: WritingCommand) -> Reference:
        """Run a command undisturbed.

        Raises:
            SystemExit: if the command fails.
        """
        out = self._output_path(command)
        result = self._start(command, out, resume=False)
        if result.code != 0:
            sys.exit(f"error: {command.name} fails undisturbed:\n{result.stderr}")
        reference = Reference(
            outcome=command.outcome(out),
            phase_seconds=_phase_seconds(result),
            size=sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
            sources=_source_digests(command),
        )
        self._clear(out)
        return reference

    def kill(
        self, command: WritingCommand, reference: Reference, phase: str, disk_fault: str
    ) -> KillReport:
        """Kill a command in a phase, disturb its disk, let it finish, and compare."""
        out = self._output_path(command)
        kill_signal = signal.SIGTERM if self._rng.random() < 0.2 else signal.SIGKILL
        seconds = reference.phase_seconds[phase]
        result = self._start_and_kill(command, out, phase, seconds, kill_signal)
        report = KillReport(command.name, phase, kill_signal.name, disk_fault)
        if result is None:
            report.kills = 0
            return report
        report.phase = result.last_phase
        report.incomplete = int(_has_incomplete_checkpoint(out))
        self._note_orphans(report, result)
        if not command.resume_options and command.outcome(out) == reference.outcome:
            # The command finished before the kill; without --resume it would refuse to start.
            report.resumed = report.identical = 1
            self._clear(out)
            return report
        if disk_fault:
            self._run_on_bad_disk(command, out, reference, report)
        result = self._start(command, out, resume=any(out.glob("*")))
        self._note_orphans(report, result)
        if result.code == 0:
            report.resumed = 1
            report.identical = int(self._compare(command, out, reference, report))
        else:
            report.lost = 1
            report.notes.append(f"does not resume: {result.stderr[-600:]}")
        if _source_digests(command) != reference.sources:
            report.lost = 1
            report.notes.append("a source was changed")
        self._clear(out)
        return report

    def _start_and_kill(
        self,
        command: WritingCommand,
        out: Path,
        phase: str,
        seconds: float,
        kill_signal: signal.Signals,
    ) -> CommandResult | None:
        """Start a command until a kill hits it; return None if it always ends before the kill."""
        for _ in range(MAX_STARTS):
            moment = KillMoment(phase, self._rng.uniform(0, seconds), kill_signal)
            result = self._start(command, out, resume=False, kill=moment)
            is_hit = WRITING_FOLDER not in phase or _has_incomplete_checkpoint(out)
            if result.code != 0 and is_hit:
                return result
            self._clear(out)
            seconds /= 2
        return None

    def _start(
        self,
        command: WritingCommand,
        out: Path,
        *,
        resume: bool,
        kill: KillMoment | None = None,
    ) -> CommandResult:
        arguments = command.arguments(out)
        if resume:
            arguments = [*arguments, *command.resume_options]
        return run_watched(
            arguments,
            self._inputs.env,
            folder=out,
            globs=_phase_globs(command),
            kill=kill,
            interpreter=self._inputs.interpreter,
        )

    def _run_on_bad_disk(
        self, command: WritingCommand, out: Path, reference: Reference, report: KillReport
    ) -> None:
        """Start the command while the disk is full or read-only, and check its message."""
        if report.trouble == "full":
            self._disk.fill(self._rng.randrange(reference.size + 1))
        else:
            self._disk.make_read_only()
        result = self._start(command, out, resume=any(out.glob("*")))
        self._disk.heal()
        self._note_orphans(report, result)
        is_named = DISK_FAULTS[report.trouble] in result.stderr
        if not result.ended_cleanly or (result.code and not is_named):
            report.unreported = 1
            report.notes.append(f"{report.trouble} disk, rc {result.code}: {result.stderr[-600:]}")

    def _compare(
        self, command: WritingCommand, out: Path, reference: Reference, report: KillReport
    ) -> bool:
        """Return whether the outcome is equal to the undisturbed run; note the differences."""
        outcome = command.outcome(out)
        keys = outcome.keys() | reference.outcome.keys()
        differing = sorted(key for key in keys if outcome.get(key) != reference.outcome.get(key))
        if differing:
            report.notes.append(f"differs: {', '.join(differing)}")
        return not differing

    def _note_orphans(self, report: KillReport, result: CommandResult) -> None:
        if result.orphans:
            report.orphaned = 1
            report.notes.append(f"left behind: {Counter(result.orphans).most_common(3)}")

    def _output_path(self, command: WritingCommand) -> Path:
        """Return the output path of a command; it is always the same, as outcomes may name it."""
        out = self._disk.path / "runs" / command.name.replace(" ", "-")
        out.parent.mkdir(exist_ok=True)
        return out

    def _clear(self, out: Path) -> None:
        """Delete the output of a run, also on the Hub."""
        self._inputs.hub.repos.pop(("dataset", f"org/{out.name}"), None)
        shutil.rmtree(out.parent)
        out.parent.mkdir()


def _phase_globs(command: WritingCommand) -> list[str]:
    """Return the globs that start phases: an incomplete checkpoint, then the complete one."""
    steps = range(SAVE_EVERY, STEPS + 1, SAVE_EVERY) if command.checkpoints else ()
    incomplete = [f"{WRITING_FOLDER}/checkpoint-{step}/*" for step in steps]
    complete = [f"checkpoints/checkpoint-{step}" for step in steps]
    return [*command.globs, *incomplete, *complete]


def _has_incomplete_checkpoint(out: Path) -> bool:
    return any((out / WRITING_FOLDER).glob("*/*"))


def _source_digests(command: WritingCommand) -> dict[str, str]:
    return {
        f"{root}/{name}": digest
        for root in command.sources
        for name, digest in file_digests(root).items()
    }


def _phase_seconds(result: CommandResult) -> dict[str, float]:
    """Return the duration of each phase, until the next one starts."""
    starts = sorted(result.phase_starts.items(), key=lambda item: item[1])
    return {name: end - start for (name, start), (_, end) in pairwise(starts)}


def plan_kills(
    commands: Sequence[WritingCommand],
    references: dict[str, Reference],
    n_kills: int,
    rng: random.Random,
) -> list[PlannedKill]:
    """Return the kills: all phases in turn, and a third of the kills in checkpoint writing."""
    writing_phases = []
    other_phases = []
    for command in commands:
        for phase in references[command.name].phase_seconds:
            phases = writing_phases if WRITING_FOLDER in phase else other_phases
            phases.append((command, phase))
    rng.shuffle(writing_phases)
    rng.shuffle(other_phases)
    # Every command is killed once before any command is killed twice.
    other_phases = _alternate_commands(other_phases)
    plan = []
    for index in range(n_kills):
        if writing_phases and (index % 3 == 2 or not other_phases):
            command, phase = writing_phases[index // 3 % len(writing_phases)]
        else:
            command, phase = other_phases[(index - index // 3) % len(other_phases)]
        disk_fault = "" if index % 2 == 0 else list(DISK_FAULTS)[index // 2 % len(DISK_FAULTS)]
        plan.append(PlannedKill(command, phase, disk_fault))
    return plan


def _alternate_commands(
    phases: list[tuple[WritingCommand, str]],
) -> list[tuple[WritingCommand, str]]:
    """Order (command, phase) tuples so that the commands alternate."""
    turns: Counter[str] = Counter()
    keyed = []
    for index, (command, phase) in enumerate(phases):
        keyed.append((turns[command.name], index, command, phase))
        turns[command.name] += 1
    keyed.sort(key=lambda entry: entry[:2])
    return [(command, phase) for _, _, command, phase in keyed]


def format_table(reports: Sequence[KillReport]) -> str:
    """Return the counts by command, and the total."""
    header = "".join(f"{name:>11}" for name in COUNTS)
    lines = [f"{'command':<18}{header}  phases"]
    for name in dict.fromkeys(report.case for report in reports):
        command_reports = [report for report in reports if report.case == name]
        phases = Counter(report.phase for report in command_reports)
        phase_counts = ", ".join(f"{phase} {count}" for phase, count in phases.most_common())
        lines.append(f"{name:<18}{_format_counts(command_reports)}  {phase_counts}")
    return "\n".join([*lines, f"{'all':<18}{_format_counts(reports)}"])


def _format_counts(reports: Sequence[KillReport]) -> str:
    return "".join(f"{sum(getattr(report, name) for report in reports):>11}" for name in COUNTS)


def main() -> None:
    """Make the inputs, run the references, kill, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a command; may be repeated")
    parser.add_argument("--problems", type=int, default=6000, help="of the large build")
    parser.add_argument("--log", type=Path, help="append a JSON line for every kill to this file")
    parser.add_argument("--table", type=Path, help="print only the table of such a file")
    options = parser.parse_args()
    if options.table:
        lines = options.table.read_text().splitlines()
        print(format_table([KillReport(**json.loads(line)) for line in lines]))
        return
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name), options.problems)
        inputs.make()
        commands = [
            command
            for command in list_commands(inputs).values()
            if not options.only or command.name in options.only
        ]
        disk = Disk(Path(name) / "disk")
        with disk.mount():
            harness = KillHarness(inputs, disk, rng)
            reports = run_kills(harness, commands, options.kills, rng=rng, log=options.log)
        inputs.stop()
    print(format_table(reports))
    sys.exit(any(not report.resumed or not report.identical or report.notes for report in reports))


def run_kills(
    harness: KillHarness,
    commands: Sequence[WritingCommand],
    n_kills: int,
    *,
    rng: random.Random,
    log: Path | None,
) -> list[KillReport]:
    """Run the references and the kills; print every report to stderr."""
    references = {}
    for command in commands:
        reference = harness.run_reference(command)
        references[command.name] = reference
        print(f"{command.name}: {reference.phase_seconds}", file=sys.stderr, flush=True)
    reports = []
    for command, phase, disk_fault in plan_kills(commands, references, n_kills, rng):
        reference = references[command.name]
        report = harness.kill(command, reference, phase, disk_fault)
        if not report.kills:
            report = harness.kill(command, reference, START, disk_fault)
        reports.append(report)
        print(json.dumps(asdict(report)), file=sys.stderr, flush=True)
        if log:
            with log.open("a") as file:
                file.write(json.dumps(asdict(report)) + "\n")
    return reports


if __name__ == "__main__":
    main()
