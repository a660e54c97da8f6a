"""Executables ``sbatch`` and ``srun`` that run jobs here, in the order of their submission.

They know the options that Slurm's manual has and our scripts use, and refuse others. Each task of
an array runs as its own process. A job that depends on a job with a failed task is cancelled.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

#: Folder of the log of jobs.
JOBS_VARIABLE = "SLURM_TEST_JOBS"


def install_slurm(folder: Path) -> None:
    """Write the executables into a folder, which then contains the log of the jobs as well."""
    for name in ("sbatch", "srun"):
        executable = folder / name
        executable.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        executable.chmod(0o755)


def read_jobs(folder: Path) -> dict[str, dict[str, str]]:
    """Return the state of each task (``COMPLETED`` or ``FAILED``) by job and task.

    A cancelled job has no tasks.
    """
    file = folder / "jobs.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def sbatch(arguments: list[str], folder: Path) -> int:
    """Run the job script of stdin, and print the number of the job."""
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--parsable", action="store_true")
    parser.add_argument("--requeue", action="store_true")
    for flag in ("export", "array", "dependency", "kill-on-invalid-dep", "job-name"):
        parser.add_argument(f"--{flag}")
    for flag in ("ntasks", "gpus-per-task", "cpus-per-task"):
        parser.add_argument(f"--{flag}", type=int)
    script = sys.stdin.read()
    assert script.startswith("#!/bin/bash\n"), "sbatch needs a script with an interpreter"
    directives = re.findall(r"^#SBATCH (.+)$", script, re.MULTILINE)
    options = parser.parse_args(directives + arguments)
    jobs = read_jobs(folder)
    job = str(len(jobs) + 1)
    states: dict[str, str] = {}
    if not options.dependency or _is_met(options, jobs):
        environment = dict(os.environ) if options.export == "ALL" else {}
        for task in _task_numbers(options.array):
            variables = {"SLURM_JOB_ID": job}
            if options.array:
                variables["SLURM_ARRAY_TASK_ID"] = task
            ran = subprocess.run(
                ["bash", "-s"],
                input=script,
                text=True,
                env=environment | variables,
                stdout=sys.stderr,
            )
            states[task] = "FAILED" if ran.returncode else "COMPLETED"
    (folder / "jobs.json").write_text(json.dumps({**jobs, job: states}))
    print(f"{job};cluster" if options.parsable else f"Submitted batch job {job}")
    return 0


def _is_met(options: object, jobs: dict[str, dict[str, str]]) -> bool:
    """Return whether all tasks of the job that ``afterok`` names are complete."""
    kind, number = options.dependency.split(":")  # type: ignore[attr-defined]
    assert kind == "afterok" and options.kill_on_invalid_dep == "yes"  # type: ignore[attr-defined]
    return set(jobs[number].values()) == {"COMPLETED"}


def _task_numbers(array: str | None) -> list[str]:
    """Return the numbers of an array such as ``1-4``; one task without an array."""
    if array is None:
        return ["1"]
    first, last = map(int, array.split("-"))
    return [str(number) for number in range(first, last + 1)]


if __name__ == "__main__":
    if sys.argv[1] == "srun":
        os.execvp(sys.argv[2], sys.argv[2:])
    raise SystemExit(sbatch(sys.argv[2:], Path(os.environ[JOBS_VARIABLE])))
