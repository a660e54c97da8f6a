"""Print the stored command lines of a dataset, a model or a benchmark run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")  #: A commit on the Hub; local files have a digest.
#: An input of a stored command line that an earlier command line creates.
_PARENT = re.compile(r"(?:dataset|run)@[0-9a-f]+")
#: The comment at the end of a stored command line: the release whose defaults it uses.
_RELEASE = re.compile(r"  # (fsdpo [\w.+-]+)$")


def rebuild_commands(commands: Sequence[str]) -> list[str]:
    """Return stored command lines, each with an output directory, for the shell.

    A command with n inputs reads the outputs of the last n commands whose output no other command
    reads. The release of a command line is a comment on the line before; the next command lines of
    the same release omit it.
    """
    lines: list[str] = []
    directories: list[str] = []
    unread: list[str] = []  # outputs that are inputs of a later command
    last_release = ""
    for command in commands:
        words = shlex.split(command, comments=True)
        positions = [index for index, word in enumerate(words) if _PARENT.fullmatch(word)]
        if len(positions) <= len(unread):
            inputs = unread[len(unread) - len(positions) :]
            del unread[len(unread) - len(positions) :]
            for index, directory in zip(positions, inputs, strict=True):
                words[index] = directory
        directories.append(_output_directory(words[1], directories))
        unread.append(directories[-1])
        line = break_line([*words, "--out", directories[-1]])
        release_match = _RELEASE.search(command)
        release = release_match[1] if release_match else ""
        lines.append(line if release in ("", last_release) else f"# {release}\n{line}")
        last_release = release
    return lines


def _output_directory(command: str, directories: Sequence[str]) -> str:
    """Return an output directory with the name of a command, which no earlier command uses."""
    directory = f"runs/{command}"
    number = 1
    while directory in directories:
        number += 1
        directory = f"runs/{command}-{number}"
    return directory


def break_line(words: Sequence[str]) -> str:
    """Return a command line for the shell, with one option per line."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(line) for line in lines)


def train_command(run: Any, data_commands: Sequence[str]) -> str:
    """Return the ``fsdpo-train`` command of a :class:`~fsdpo_cards.model.TrainingRun`.

    Args:
        run: The run.
        data_commands: The commands that make the datasets, dataset by dataset. The training data
            are the outputs of the last command of each dataset. A source without commands has its
            name.
    """
    words = shlex.split(run.command)
    # The data may have the name of the stage or of the model, so only the words after the name of
    # the stage are replaced.
    position = words.index(run.sources[0].name, 2)
    n_commands = 0
    for offset, source in enumerate(run.sources):
        n_commands += len(source.commands)
        if source.commands:
            words[position + offset] = data_commands[n_commands - 1].rpartition(" ")[2]
    line = break_line([*words, "--out", f"runs/{run.stage}"])
    all_processes, local_processes = run.processes
    if all_processes == 1:
        return line
    launcher = f"torchrun --nproc-per-node {local_processes} -m fsdpo_train"
    if all_processes > local_processes:
        n_machines = all_processes // local_processes
        launcher = launcher.replace("torchrun", f"torchrun --nnodes {n_machines}")
    return line.replace("fsdpo-train", launcher, 1)


def pinned_name(ref: Mapping[str, Any]) -> str:
    """Return the name of a model or source with its commit; a local path has no commit."""
    name = str(ref["name"])
    revision = str(ref["revision"])
    if not COMMIT_PATTERN.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"


def policy_argument(spec: Mapping[str, Any]) -> str:
    """Return the model to train on a dataset, as an argument for the shell.

    If the dataset records only a title for its model, the argument is ``BASE_MODEL``.
    """
    has_only_title = spec["sampling"]["seed"] == "unknown" and "author" not in spec["engine"]
    return "BASE_MODEL" if has_only_title else shlex.quote(pinned_name(spec["model"]))
