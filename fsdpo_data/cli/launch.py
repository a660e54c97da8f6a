"""``--print-launch``: the same command on more machines, as a script to read, change and submit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.tables import read_table

#: Machines, or tasks of an array, that a script asks for until it is changed.
NODES = 2

_SCRIPTS = read_table(__file__)
#: Scripts of commands that train, by what starts them.
TRAIN: Mapping[str, str] = _SCRIPTS["train"]
#: Scripts of commands that have shards or spread over a Ray cluster.
DATA: Mapping[str, str] = _SCRIPTS["data"]


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
        raise InputError(f"`print_launch={how}`: expected {' or '.join(scripts)}.")
    kept = _without(arguments, "--print-launch")
    if how == "ray":
        kept = [*_without(kept, "--engine"), "--engine", "ray"]
    out = _value(kept, "--out")
    if scripts is DATA and how == "sbatch":
        if not out:
            raise InputError("it needs --out, beside which the shards are written.")
        kept = _without(_without(kept, "--out"), "--shard")
    module = program.replace("-", "_") if scripts is TRAIN else program
    return scripts[how].format(
        command=shlex.join([module, *kept]),
        job=f"{program}-{kept[0]}",
        nodes=NODES,
        head=_SCRIPTS["head"],
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
