"""``--print-launch``: the same command on more machines, as a script to read, change and submit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fsdpo_data.core.errors import InputError

_TORCHRUN = """\
# On each of {nodes} nodes; HEAD is the name of one of them, GPUS are those of a node.
HEAD=node-1 GPUS=8
torchrun --nnodes {nodes} --nproc-per-node "$GPUS" --rdzv-backend c10d --rdzv-id fsdpo \\
  --rdzv-endpoint "$HEAD:29500" -m {command}
"""

_HEAD = """\
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""

_TRAIN = """\
#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --requeue
{head}# A job that was requeued goes on from its newest checkpoint.
RESUME=; [ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ] || RESUME=--resume
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$SLURM_GPUS_ON_NODE" \\
  --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$HEAD:29500" \\
  -m {command} $RESUME
"""

_ARRAY = """\
#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --array=1-{nodes}
#SBATCH --ntasks=1
#SBATCH --gpus-per-task=1
#SBATCH --requeue
# When every task has ended, on any machine: fsdpo-data merge {shards}/* --out {out}
RESUME=; [ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ] || RESUME=--resume
srun {command} \\
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \\
  --out {shards}/"$SLURM_ARRAY_TASK_ID" $RESUME
"""

_RAY = """\
#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
{head}srun --nodes=1 --ntasks=1 --nodelist="$HEAD" ray start --head --port=6379 --block &
sleep 20  # until the head answers
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$HEAD" \\
  ray start --address="$HEAD:6379" --block &
sleep 20  # until the others have joined
RAY_ADDRESS="$HEAD:6379" {command}
"""

#: Machines, or tasks of an array, that a script asks for until it is changed.
NODES = 2

#: Scripts of commands that train, by what starts them.
TRAIN: Mapping[str, str] = {"torchrun": _TORCHRUN, "sbatch": _TRAIN}
#: Scripts of commands that have shards or spread over a Ray cluster.
DATA: Mapping[str, str] = {"sbatch": _ARRAY, "ray": _RAY}


def launch_script(
    scripts: Mapping[str, str], how: str, program: str, arguments: Sequence[str]
) -> str:
    """Return the script that runs a command on more machines.

    Args:
        scripts: ``TRAIN`` or ``DATA``.
        how: Which of them.
        program: The command line, e.g. ``fsdpo-train``.
        arguments: What follows it.

    Raises:
        InputError: if there is no such script, or it needs ``--out`` and has none.
    """
    if how not in scripts:
        raise InputError(f"expected {' or '.join(scripts)}.", field="print_launch", value=how)
    kept = _without(arguments, "--print-launch")
    if scripts[how] is _RAY:
        kept = [*_without(kept, "--engine"), "--engine", "ray"]
    out = _value(kept, "--out")
    if scripts[how] is _ARRAY:
        if not out:
            raise InputError("it needs --out, beside which the shards are written.")
        kept = _without(_without(kept, "--out"), "--shard")
    module = program.replace("-", "_") if scripts is TRAIN else program
    return scripts[how].format(
        command=shlex.join([module, *kept]),
        job=f"{program}-{kept[0]}",
        nodes=NODES,
        head=_HEAD,
        out=shlex.quote(out),
        shards=shlex.quote(f"{out}-shards"),
    )


def _value(arguments: Sequence[str], flag: str) -> str:
    """Return the value of a flag; empty if it is not given."""
    for at, each in enumerate(arguments):
        if each.startswith(f"{flag}="):
            return each.partition("=")[2]
        if each == flag and at + 1 < len(arguments):
            return arguments[at + 1]
    return ""


def _without(arguments: Sequence[str], flag: str) -> list[str]:
    """Return arguments without a flag and its value."""
    kept, skip = [], False
    for each in arguments:
        if not skip and each != flag and not each.startswith(f"{flag}="):
            kept.append(each)
        skip = each == flag and not skip
    return kept
