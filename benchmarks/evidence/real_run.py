"""Run stages within their time limits, and measure the time and memory of each."""

import csv
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from real_results import STAGES_FILE
from real_stages import DONE_FILES, EvidenceStage, Sizes

from fsdpo_data.dataset.manifest import read_manifest

POLL_SECONDS = 0.2  #: Time between two looks at the memory of the stages.
GPU_POLL_SECONDS = 2.0  #: The same for the memory of the GPU, which starts a program.
ERROR_CHARS = 3_000  #: Characters of the log of a failed stage to print.
STAGE_COLUMNS = ("stage", "status", "seconds", "tokens", "peak_mb", "gpu_mb", "command")


@dataclass
class RunningStage:
    """A stage with its process, and the largest memory so far in bytes."""

    stage: EvidenceStage
    process: subprocess.Popen[bytes]
    command: str
    log: Path
    started: float = field(default_factory=time.monotonic)
    peak_bytes: int = 0
    gpu_bytes: int = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def look_at_memory(self, gpu_bytes_by_process: dict[int, int]) -> None:
        """Update the peaks with the memory of the process and of its child processes."""
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.process.pid)
            processes = [program, *program.children(recursive=True)]
            resident_bytes = 0
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    resident_bytes += process.memory_info().rss
            self.peak_bytes = max(self.peak_bytes, resident_bytes)
            gpu_bytes = sum(gpu_bytes_by_process.get(process.pid, 0) for process in processes)
            self.gpu_bytes = max(self.gpu_bytes, gpu_bytes)

    def stop(self) -> None:
        """Kill the process and its child processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class StageRunner:
    """Runs stages, several at a time, in the order of the list where their inputs allow it."""

    def __init__(self, sizes: Sizes, run: Path, results: Path) -> None:
        """Take the sizes, the folder for the outputs and the folder for the numbers."""
        self._sizes = sizes
        self._run = run
        self._stages_file = results / STAGES_FILE
        self._environment = os.environ | sizes.environment
        self._gpu_bytes: dict[int, int] = {}
        self._next_gpu_look = 0.0

    def run(self, stages: Sequence[EvidenceStage], only: Sequence[str]) -> int:
        """Run the stages that are not complete.

        Args:
            stages: All stages; inputs come before the stages that need them.
            only: Names of stages to run, with the stages that they need; all if empty.

        Returns:
            The number of stages that failed, took too long, or lack an input.
        """
        chosen = select_stages(stages, only) if only else stages
        waiting = list(chosen)
        done: set[str] = set()
        running: list[RunningStage] = []
        try:
            while waiting or running:
                for stage in [stage for stage in waiting if stage.is_done(self._run)]:
                    waiting.remove(stage)
                    done.add(stage.name)
                    if stage.record:
                        stage.record()
                while stage := self._next_stage(waiting, running, done):
                    waiting.remove(stage)
                    running.append(self._start(stage))
                if not running:
                    break
                time.sleep(POLL_SECONDS)
                for job in list(running):
                    if self._has_ended(job):
                        running.remove(job)
                        self._finish(job, done)
        finally:
            for job in running:
                job.stop()
        for stage in waiting:
            print(f"{stage.name}: not run, because an input is missing")
        return len(chosen) - len(done)

    def _next_stage(
        self,
        waiting: Sequence[EvidenceStage],
        running: Sequence[RunningStage],
        done: set[str],
    ) -> EvidenceStage | None:
        """Return the first stage that may start now; None without one."""
        if len(running) >= self._sizes.jobs:
            return None
        n_trainings = sum(job.stage.kind == "train" for job in running)
        may_train = n_trainings < self._sizes.trainings
        for stage in waiting:
            if done.issuperset(stage.needs) and (may_train or stage.kind != "train"):
                return stage
        return None

    def _start(self, stage: EvidenceStage) -> RunningStage:
        """Start the command of a stage; continue it if its output exists."""
        out = self._run / stage.name
        words = [*stage.command, "--out", str(out)]
        if stage.can_resume and out.exists():
            words.append("--resume")
        command = shlex.join(word.removeprefix(f"{Path.cwd()}/") for word in words)
        print(f"$ {command}", flush=True)
        if words[0] in DONE_FILES:
            words[:1] = [sys.executable, "-m", words[0].replace("-", "_")]
        log = self._run / f"{stage.name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                words,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        return RunningStage(stage, process, command, log)

    def _has_ended(self, job: RunningStage) -> bool:
        """Look at the memory of a stage, and return whether it ended or took too long."""
        if time.monotonic() >= self._next_gpu_look:
            self._gpu_bytes = gpu_bytes_by_process()
            self._next_gpu_look = time.monotonic() + GPU_POLL_SECONDS
        job.look_at_memory(self._gpu_bytes)
        if job.process.poll() is not None:
            return True
        return job.seconds > 60 * self._sizes.minutes[job.stage.kind]

    def _finish(self, job: RunningStage, done: set[str]) -> None:
        """Record an ended stage, or print why it failed."""
        stage = job.stage
        seconds = job.seconds
        status = "done"
        if job.process.poll() is None:
            status = f"stopped after {self._sizes.minutes[stage.kind]:g} minutes"
        elif job.process.returncode:
            status = f"failed with exit code {job.process.returncode}"
        job.stop()  # also child processes that outlive the command
        tokens = sampled_tokens(stage, self._run) if status == "done" else 0
        cells = {
            "stage": stage.name,
            "status": status,
            "seconds": f"{seconds:.1f}",
            "tokens": tokens or "",
            "peak_mb": round(job.peak_bytes / 1e6),
            "gpu_mb": round(job.gpu_bytes / 1e6) or "",
            "command": job.command,
        }
        append_row(self._stages_file, STAGE_COLUMNS, cells)
        rate = f", {tokens / seconds:.0f} tokens/s" if tokens else ""
        gpu = f", GPU {job.gpu_bytes / 1e6:,.0f} MB" if job.gpu_bytes else ""
        peak = f"{job.peak_bytes / 1e6:,.0f} MB"
        print(f"{stage.name}: {status}, {seconds:.1f} s{rate}, {peak}{gpu}", flush=True)
        if status != "done":
            print(job.log.read_text(errors="replace")[-ERROR_CHARS:], file=sys.stderr, flush=True)
            return
        done.add(stage.name)
        if stage.record:
            stage.record()


def select_stages(stages: Sequence[EvidenceStage], names: Sequence[str]) -> list[EvidenceStage]:
    """Return the named stages and the stages that they need, in their order."""
    by_name = {stage.name: stage for stage in stages}
    unknown_names = [name for name in names if name not in by_name]
    if unknown_names:
        raise SystemExit(f"no stage {unknown_names[0]}: expected one of {', '.join(by_name)}")
    chosen: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in chosen:
            chosen.add(name)
            pending += by_name[name].needs
    return [stage for stage in stages if stage.name in chosen]


def sampled_tokens(stage: EvidenceStage, run: Path) -> int:
    """Return the tokens that a stage with a complete dataset sampled; 0 for other stages."""
    if stage.kind not in ("sample", "label") or stage.is_shard:
        return 0
    tokens = read_manifest(run / stage.name).cost.tokens
    assert isinstance(tokens, int), tokens
    # The cost of a dataset contains the cost of the dataset that it continues.
    if stage.kind == "label":
        parent_tokens = read_manifest(run / stage.needs[0]).cost.tokens
        assert isinstance(parent_tokens, int), parent_tokens
        tokens -= parent_tokens
    return tokens


def gpu_bytes_by_process() -> dict[int, int]:
    """Return the GPU memory of each process in bytes; nothing without `nvidia-smi`."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        rows = subprocess.run(query, check=True, capture_output=True, text=True).stdout
        cells = [row.split(",") for row in rows.splitlines()]
        return {int(pid): int(megabytes) * 2**20 for pid, megabytes in cells}
    return {}


def append_row(file: Path, columns: Sequence[str], cells: dict[str, object]) -> None:
    """Append a row to a CSV file, with the names of the columns if the file is new."""
    file.parent.mkdir(parents=True, exist_ok=True)
    is_new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(cells)
