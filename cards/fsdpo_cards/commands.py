"""Write the command lines that reproduce a dataset, a model or a benchmark run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fsdpo_cards.render import render

COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")  #: A commit on the Hub; local files have a digest.
#: The input of a stage in a stored command line: its parent dataset.
_PARENT = re.compile(r"dataset@[0-9a-f]+")
_SAMPLE_DECODERS = ("sc", "weighted", "bon")  #: Decoders that choose among samples.


def rebuild_commands(commands: Sequence[str]) -> list[str]:
    """Return the command lines of a dataset, each with an output directory, for the shell.

    The output directory of a command is the input of the next command.
    """
    lines: list[str] = []
    directories: list[str] = []
    for command in commands:
        words = [
            directories[-1] if directories and _PARENT.fullmatch(word) else word
            for word in shlex.split(command)
        ]
        directories.append(_output_directory(words[1], directories))
        lines.append(break_line([*words, "--out", directories[-1]]))
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


def measure_command(run: Mapping[str, Any]) -> str:
    """Return the ``fsdpo-bench run`` command for the config of a run.

    The benchmarks come from the Hub or from ``--data``. A file of recorded responses is called
    ``FILE``.
    """
    limits = [task["problems"] for task in run["tasks"].values() if task["problems"] < task["rows"]]
    commands = _render_commands(
        "measure.txt",
        run=run,
        limit=max(limits, default=0),
        decoder_options=_decoder_options(run["decoders"]),
    )
    return commands[0]


def train_command(run: Any, data_commands: Sequence[str]) -> str:
    """Return the ``fsdpo-train`` command of a :class:`~fsdpo_cards.model.TrainingRun`.

    The training data are the output of the last of ``data_commands``, or the ``data`` of the run
    if there are no commands.
    """
    data = data_commands[-1].rpartition(" ")[2] if data_commands else run.data
    words = shlex.split(run.command)
    # The data may have the name of the stage or of the model, so only one word is replaced: the
    # first one after the name of the stage.
    words[words.index(run.data, 2)] = data
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
    return "BASE_MODEL" if has_only_title else shell_quote(pinned_name(spec["model"]))


def _render_commands(template: str, **fields: Any) -> list[str]:
    """Return the commands of a template: one option per line, commands apart by a blank line."""
    filters = {"quoted": shell_quote, "pinned": lambda ref: shell_quote(pinned_name(ref))}
    commands = render(template, filters, **fields).strip().split("\n\n")
    return [" \\\n  ".join(command.splitlines()) for command in commands]


def shell_quote(value: object) -> str:
    """Quote a value for the shell."""
    return shlex.quote(str(value))


def _decoder_options(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (option, value) pairs of decoders such as ``sc@5``, ``bon@5:min``, ``sbs@5,1``."""
    kinds: dict[str, None] = {}  # dictionaries serve as ordered sets
    sample_sizes: dict[str, None] = {}
    aggregates: dict[str, None] = {}
    b1_values: dict[str, None] = {}
    b2_values: list[str] = []
    for name in names:
        kind, _, size = name.partition("@")
        kinds[kind] = None
        if kind in _SAMPLE_DECODERS:
            k, _, aggregate = size.partition(":")
            sample_sizes[k] = None
            if aggregate:
                aggregates[aggregate] = None
        elif kind == "sbs":
            b1, b2 = size.split(",")
            b1_values[b1] = None
            b2_values.append(b2)
    options = [("decoder", ",".join(kinds))]
    options += [("k", k) for k in sample_sizes]
    options += [("aggregate", aggregate) for aggregate in aggregates]
    options += [("b1", b1) for b1 in b1_values]
    options += [("b2", b2) for b2 in b2_values]
    return options
