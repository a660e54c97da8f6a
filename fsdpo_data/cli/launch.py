"""``--print-launch``: the same command on more machines, as a script to read, change and submit."""

import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.toml_tables import read_toml

NODES = 2  #: Machines, or tasks of an array, that a script asks for until it is changed.

_SCRIPTS = read_toml(__file__)
#: Scripts of commands that train, by what starts them.
TRAIN_SCRIPTS: Mapping[str, str] = _SCRIPTS["train"]
#: Scripts of commands that have shards or spread over a Ray cluster.
DATA_SCRIPTS: Mapping[str, str] = _SCRIPTS["data"]


def launch_script(
    scripts: Mapping[str, str], how: str, program: str, arguments: Sequence[str]
) -> str:
    """Return the script that runs a command line on more machines: one of ``TRAIN`` or ``DATA``.

    Raises:
        InputError: if there is no such script, or it needs ``--out`` and has none.
    """
    if how not in scripts:
        raise InputError(f"`print_launch={how}`: expected {' or '.join(scripts)}.")
    _, kept = _take_flag(arguments, "--print-launch")
    if how == "ray":
        kept = [*_take_flag(kept, "--engine")[1], "--engine", "ray"]
    out, without_out = _take_flag(kept, "--out")
    if scripts is DATA_SCRIPTS and how == "sbatch":
        if not out:
            raise InputError("it needs --out, beside which the shards are written.")
        _, kept = _take_flag(without_out, "--shard")
    module = program.replace("-", "_") if scripts is TRAIN_SCRIPTS else program
    return scripts[how].format(
        command=shlex.join([module, *kept]),
        job=f"{program}-{kept[0]}",
        nodes=NODES,
        head=_SCRIPTS["head"],
        out=shlex.quote(out),
        shards=shlex.quote(f"{out}-shards"),
    )


def _take_flag(arguments: Sequence[str], flag: str) -> tuple[str, list[str]]:
    """Return the value of a flag, empty if it is not given, and the arguments without it."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, dest="value", default="")
    found, kept = parser.parse_known_args(arguments)
    return found.value, kept
