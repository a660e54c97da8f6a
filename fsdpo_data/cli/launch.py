"""Launch scripts of ``--print-launch``, which run the same command on several machines.

The scripts are templates in ``launch.toml``.
"""

import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.engines.registry import SAMPLERS

NODES = 2  #: Number of machines, or of array tasks, in a new script.

_SCRIPTS = read_toml(__file__)
#: Scripts for training commands, by launcher.
TRAIN_SCRIPTS: Mapping[str, str] = _SCRIPTS["train"]
#: Scripts for commands with shards or Ray, by launcher.
DATA_SCRIPTS: Mapping[str, str] = _SCRIPTS["data"]


def launch_script(
    scripts: Mapping[str, str], launcher: str, program: str, arguments: Sequence[str]
) -> str:
    """Return a script that runs a command line on several machines.

    Args:
        scripts: :data:`TRAIN_SCRIPTS` or :data:`DATA_SCRIPTS`.
        launcher: Name of the script, such as ``sbatch``.
        program: Name of the program, such as ``fsdpo-train``.
        arguments: The command line after the name of the program.

    Raises:
        InputError: If the script does not exist, or if the script needs ``--out`` and the command
            line has no ``--out``.
    """
    if launcher not in scripts:
        raise InputError(f"`print_launch={launcher}`: expected {' or '.join(scripts)}.")
    _, command = _remove_flag(arguments, "--print-launch")
    if launcher in SAMPLERS:  # the script starts a cluster for the engine with its name
        _, command = _remove_flag(command, "--engine")
        command += ["--engine", launcher]
    out, command_without_out = _remove_flag(command, "--out")
    if scripts is DATA_SCRIPTS and launcher == "sbatch":  # the script adds --out and --shard
        if not out:
            raise InputError(
                "the script needs --out, because it writes the shards next to that directory. "
                "Add --out."
            )
        _, command = _remove_flag(command_without_out, "--shard")
    # torchrun -m takes the name of the package instead of the program.
    executable = program.replace("-", "_") if scripts is TRAIN_SCRIPTS else program
    return scripts[launcher].format(
        command=shlex.join([executable, *command]),
        job=f"{program}-{command[0]}",
        nodes=NODES,
        head=_SCRIPTS["head"],  # sets $HEAD to the first machine
        out=shlex.quote(out),
        shards=shlex.quote(f"{out}-shards"),
    )


def _remove_flag(arguments: Sequence[str], flag: str) -> tuple[str, list[str]]:
    """Return the value of a flag, empty if it is missing, and the arguments without the flag."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, dest="value", default="")
    namespace, remainder = parser.parse_known_args(arguments)
    return namespace.value, remainder
