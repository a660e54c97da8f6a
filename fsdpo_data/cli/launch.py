"""Files of ``--print-launch``, which run the same command on several machines.

The files are templates in ``launch.toml``: scripts for bash and Slurm, and YAML for SkyPilot and
KubeRay.
"""

import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.toml_tables import read_toml

NODES = 2  #: Number of machines, or of shards, in a new file.


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """A file that runs a command on several machines: a table of ``launch.toml``."""

    text: str  #: The file, with fields of :meth:`str.format`.
    engine: str = ""  #: Engine that the file starts a cluster for; empty for the command's own.
    has_shards: bool = False  #: Whether jobs write shards, which a last job merges.


_TABLES = read_toml(__file__)


def _read_templates(group: str) -> Mapping[str, LaunchTemplate]:
    """Return the templates of a group by the name of their launcher."""
    return {launcher: LaunchTemplate(**table) for launcher, table in _TABLES[group].items()}


#: Templates for training commands, by launcher.
TRAIN_SCRIPTS: Mapping[str, LaunchTemplate] = _read_templates("train")
#: Templates for commands with shards or Ray, by launcher.
DATA_SCRIPTS: Mapping[str, LaunchTemplate] = _read_templates("data")


def find_template(scripts: Mapping[str, LaunchTemplate], launcher: str) -> LaunchTemplate:
    """Return the template of a launcher.

    Args:
        scripts: :data:`TRAIN_SCRIPTS` or :data:`DATA_SCRIPTS`.
        launcher: Name of the launcher, such as ``sbatch``.

    Raises:
        InputError: If there is no such launcher.
    """
    if launcher not in scripts:
        raise InputError(f"`print_launch={launcher}`: expected {' or '.join(scripts)}.")
    return scripts[launcher]


def launch_script(
    scripts: Mapping[str, LaunchTemplate], launcher: str, program: str, arguments: Sequence[str]
) -> str:
    """Return a file that runs a command line on several machines.

    Args:
        scripts: :data:`TRAIN_SCRIPTS` or :data:`DATA_SCRIPTS`.
        launcher: Name of the file's template, such as ``sbatch``.
        program: Name of the program, such as ``fsdpo-train``.
        arguments: The command line after the name of the program.

    Raises:
        InputError: If there is no such template, or if the jobs write shards and the command line
            has no ``--out``.

    Examples:
        >>> arguments = ["build", "--out", "runs/array"]
        >>> script = launch_script(DATA_SCRIPTS, "sbatch", "fsdpo-data", arguments)
        >>> "fsdpo-data merge runs/array-shards/* --out runs/array" in script
        True
    """
    template = find_template(scripts, launcher)
    _, command = _remove_flag(arguments, "--print-launch")
    command = [word for word in command if word != "--resume"]  # the templates add it
    plugins, _ = _remove_flag(command, "--plugin")
    workers, _ = _remove_flag(command, "--workers")
    outs, command_without_out = _remove_flag(command, "--out")
    if template.engine:
        _, command = _remove_flag(command, "--engine")
        command += ["--engine", template.engine]
    if template.has_shards:  # the template adds --out and --shard
        if not outs:
            raise InputError(
                "the script needs --out, because it writes the shards next to that directory. "
                "Add --out."
            )
        _, command = _remove_flag(command_without_out, "--shard")
    # torchrun -m takes the name of the package instead of the program.
    executable = program.replace("-", "_") if scripts is TRAIN_SCRIPTS else program
    out = outs[-1] if outs else ""
    shards = quote_word(f"{out}-shards")
    merge_options = [word for plugin in plugins for word in ("--plugin", plugin)]
    merge_options += [word for number in workers[-1:] for word in ("--workers", number)]
    merge_words = [program, "merge", *merge_options]
    return template.text.format(
        command=_join_words([executable, *command]),
        merge_command=f"{_join_words(merge_words)} {shards}/* --out {quote_word(out)}",
        job=f"{program}-{command[0]}",
        nodes=NODES,
        head=_TABLES["head"]["text"],
        shards=shards,
    )


def quote_word(word: str) -> str:
    r"""Return a word as one line that bash reads as this word.

    Other characters than printable ones are escaped, because they could end a line of the file, or
    are not allowed in YAML.

    Examples:
        >>> print(quote_word("runs/a b[1]"), quote_word("a\nb"))
        'runs/a b[1]' $'a\x0ab'
    """
    if word.isprintable():
        return shlex.quote(word)
    characters = [
        character if character.isprintable() and character not in "\\'" else _escape(character)
        for character in word
    ]
    return f"$'{''.join(characters)}'"


def _escape(character: str) -> str:
    """Return the escapes of bash for the bytes of a character."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def _join_words(words: Sequence[str]) -> str:
    """Return a command line for bash, in one line."""
    return " ".join(map(quote_word, words))


def _remove_flag(arguments: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """Return the values of a flag, and the arguments without the flag."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, dest="values", action="append", default=[])
    namespace, remainder = parser.parse_known_args(arguments)
    return namespace.values, remainder
