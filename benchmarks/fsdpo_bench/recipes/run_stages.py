"""Run the stages of recipes within their time limits, and measure the time and memory of each."""

import csv
import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from fsdpo_bench.metrics.result_records import read_results
from fsdpo_bench.recipes.peak_memory import PeakMemory, process_tree
from fsdpo_bench.recipes.recipe import RecipeStage, measured_cost
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.workers import start_child

POLL_SECONDS = 0.2  #: Time between two looks at the memory of a stage.
DONE = "done"  #: Status of a complete stage.


class StageMeasurement(NamedTuple):
    """A row of the file with the time and memory of the stages."""

    stage: str  #: Name of the stage.
    status: str  #: ``done``, or why the stage is not complete.
    seconds: float  #: Time from the start to the end of the command.
    tokens: int  #: Sampled tokens; 0 for a stage that samples none.
    peak_mb: int  #: Largest memory of the command and its child processes; 0 if not measured.
    gpu_mb: int  #: The same of the GPUs; 0 for a stage on the CPU.
    command: str  #: The command line.
    purpose: str  #: Purpose of the stage.

    def describe(self) -> str:
        """Return the time, rate and memory in words."""
        texts = [f"{self.seconds:,.1f} s"]
        if self.tokens:
            texts.append(f"{self.tokens / self.seconds:,.0f} tokens/s")
        if self.peak_mb:
            texts.append(f"{self.peak_mb:,} MB")
        if self.gpu_mb:
            texts.append(f"GPU {self.gpu_mb:,} MB")
        return ", ".join(texts)

    def cells(self) -> list[str]:
        """Return the cells of the row; a number that was not measured is empty."""
        numbers = (str(number or "") for number in (self.tokens, self.peak_mb, self.gpu_mb))
        return [
            self.stage,
            self.status,
            f"{self.seconds:.1f}",
            *numbers,
            self.command,
            self.purpose,
        ]

    @classmethod
    def from_cells(cls, cells: Mapping[str, str]) -> Self:
        """Return the measurement of a row."""
        return cls(
            stage=cells["stage"],
            status=cells["status"],
            seconds=float(cells["seconds"]),
            tokens=int(cells["tokens"] or 0),
            peak_mb=int(cells["peak_mb"] or 0),
            gpu_mb=int(cells["gpu_mb"] or 0),
            command=cells["command"],
            purpose=cells["purpose"],
        )


def read_measurements(file: Path) -> list[StageMeasurement]:
    """Return the rows of the file; none if it does not exist."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return [StageMeasurement.from_cells(cells) for cells in csv.DictReader(lines)]


def _append_measurement(file: Path, measurement: StageMeasurement) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    is_new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if is_new:
            writer.writerow(StageMeasurement._fields)
        writer.writerow(measurement.cells())


def pending_command(stage: RecipeStage) -> list[str] | None:
    """Return the command that completes a stage; None if it is complete.

    A stage with an existing output directory gets ``--resume``, except scripts, which start again.
    """
    if stage.done_file and Path(stage.done_file).exists():
        return None
    argv = stage.argv
    if argv[0] == "python" and argv[1].endswith(".py"):
        return argv
    is_started = "--out" in argv and Path(argv[argv.index("--out") + 1]).is_dir()
    return [*argv, "--resume"] if is_started else argv


def run_stages(
    stages: Sequence[RecipeStage],
    print_line: Callable[[str], None],
    *,
    environment: Mapping[str, str] | None = None,
    stages_file: Path | None = None,
) -> None:
    """Run the incomplete stages in order.

    A stage that fails or takes too long does not stop the stages that do not read its output.

    Args:
        stages: The stages; inputs come before the stages that read them.
        print_line: Prints a line.
        environment: Environment variables of the commands, in addition to those of this process.
        stages_file: CSV file that gets a row per ended stage.

    Raises:
        InputError: if the program of a stage is not installed, or results in the output of a stage
            are not of this release.
        FsdpoError: if a stage fails or takes too long.
    """
    for stage in stages:
        if stage.has_results:
            read_results(Path(stage.done_file))  # refuses other versions before hours of work
    measurements = read_measurements(stages_file) if stages_file else []
    incomplete_stages: list[RecipeStage] = []
    failures: list[str] = []
    for index, stage in enumerate(stages):
        command = pending_command(stage)
        if command is None:
            print_line(f"{stage.name}: done ({stage.done_file})")
            continue
        missing = [other.name for other in incomplete_stages if stage.reads(other)]
        if missing:
            print_line(f"{stage.name}: not run, because it reads the output of {missing[0]}")
            incomplete_stages.append(stage)
            continue
        print_line(f"{stage.name}: {shlex.join(command)}")
        measurement = _run_stage(stage, command, environment or {})
        measurements.append(measurement)
        if stages_file:
            _append_measurement(stages_file, measurement)
        print_line(f"{stage.name}: {measurement.status}, {measurement.describe()}")
        if measurement.status != DONE:
            incomplete_stages.append(stage)
            failures.append(f"stage {stage.name} {measurement.status}")
        if estimate := estimate_time(stages, stages[index + 1 :], measurements):
            print_line(estimate)
    if failures:
        raise FsdpoError(
            f"{'; '.join(failures)}. Fix the errors above, and repeat the command to continue."
        )


def estimate_time(
    stages: Sequence[RecipeStage],
    next_stages: Sequence[RecipeStage],
    measurements: Sequence[StageMeasurement],
) -> str:
    """Return the estimated time of the next stages in words; empty if no stage states its work.

    The time per unit of work is that of the last measured stage with the same command.
    """
    by_name = {stage.name: stage for stage in stages if stage.work}
    seconds_per_unit: dict[tuple[str, ...], float] = {}
    for measurement in measurements:
        stage = by_name.get(measurement.stage)
        # The file of measurements may have rows of another machine, whose outputs are not here.
        if stage is not None and measurement.status == DONE and pending_command(stage) is None:
            seconds = _sampling_seconds(stage) or measurement.seconds
            seconds_per_unit[stage.program] = seconds / stage.work
    pending = [stage for stage in next_stages if stage.work and pending_command(stage)]
    if not pending:
        return ""
    rated = [stage for stage in pending if stage.program in seconds_per_unit]
    unknown = {" ".join(stage.program): None for stage in pending if stage not in rated}
    if not rated:
        return f"not measured yet: the time of {', '.join(unknown)}"
    minutes = sum(stage.work * seconds_per_unit[stage.program] for stage in rated) / 60
    duration = f"{minutes / 60:.1f} hours" if minutes >= 60 else f"{minutes:.0f} minutes"
    text = f"estimated time of the next {len(rated)} long stages: {duration}"
    return f"{text}, without {', '.join(unknown)}, not measured yet" if unknown else text


def _sampling_seconds(stage: RecipeStage) -> float | None:
    """Return the time of sampling, without the loading of the model; None for other stages."""
    cost = measured_cost(stage)
    return cost.gpu_hours * 3600 / max(1, stage.gpus) if cost and cost.gpu_hours else None


def _with_this_python(command: Sequence[str]) -> list[str]:
    """Return a command whose `python` is the running one; some systems have only `python3`."""
    program, *arguments = command
    return [sys.executable if program == "python" else program, *arguments]


def _run_stage(
    stage: RecipeStage, command: Sequence[str], environment: Mapping[str, str]
) -> StageMeasurement:
    """Run the command of a stage to its end or its time limit.

    Raises:
        InputError: if the program is not installed.
    """
    # The programs are in the folder of this Python, which need not be in PATH.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    start = time.monotonic()
    try:
        process = start_child(
            _with_this_python(command), {**os.environ, **environment, "PATH": path}
        )
    except FileNotFoundError:
        raise InputError(
            f"stage {stage.name}: the program {command[0]!r} is not installed. Install "
            "fsdpo; torchrun needs its extra `train`."
        ) from None
    with process:
        memory = PeakMemory(process.pid, has_gpu=stage.gpus > 0)
        status = _wait(process, stage, memory)
    seconds = time.monotonic() - start
    cost = measured_cost(stage) if status == DONE else None
    return StageMeasurement(
        stage=stage.name,
        status=status,
        seconds=seconds,
        tokens=round(cost.tokens) if cost and cost.tokens else 0,
        peak_mb=round(memory.peak_bytes / 1e6),
        gpu_mb=round(memory.peak_gpu_bytes / 1e6),
        command=shlex.join(command),
        purpose=stage.purpose,
    )


def _wait(process: subprocess.Popen[bytes], stage: RecipeStage, memory: PeakMemory) -> str:
    """Wait for a command, kill it at its time limit, and return the status of the stage."""
    end = time.monotonic() + (60 * stage.minutes or float("inf"))
    try:
        while time.monotonic() < end:
            memory.update()
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(POLL_SECONDS)
                return f"ended with exit code {code}" if code else DONE
        return f"was stopped after {stage.minutes:g} minutes"
    finally:
        if process.poll() is None:  # the time limit, or Ctrl-C
            for child in process_tree(process.pid):
                with suppress(psutil.NoSuchProcess):  # it ended with its parent
                    child.kill()
            process.kill()
