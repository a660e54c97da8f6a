"""The commands that make a dataset or a benchmark run again, read off their specs."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fsdpo_cards.render import render

COMMIT = re.compile(r"[0-9a-f]{40}")  #: A revision of the Hub; files have none there.
_OF_SAMPLES = ("sc", "weighted", "bon")  #: Decoders that choose among samples.


def rebuild_commands(spec: Mapping[str, Any]) -> list[str]:
    """Return one command line for each stage that made the dataset."""
    return _lines("rebuild.txt", spec=spec)


def measure_command(run: Mapping[str, Any]) -> str:
    """Return the ``fsdpo-bench run`` of a run's config.

    Benchmarks come from the Hub, or from ``--data``; a recording is called ``FILE``.
    """
    cut = [each["problems"] for each in run["tasks"].values() if each["problems"] < each["rows"]]
    limit, decoders = max(cut, default=0), _decoders(run["decoders"])
    return _lines("measure.txt", run=run, limit=limit, decoders=decoders)[0]


def train_command(run: Any, made: Sequence[str]) -> str:
    """Return the ``fsdpo-train`` of a :class:`~.model.TrainingRun` on what the last command ``made``."""
    data = made[-1].rpartition(" ")[2] if made else run.data
    return _lines("train.txt", run=run, data=data)[0]


def pinned_name(ref: Mapping[str, Any]) -> str:
    """Return a model or source with its commit; what is local has none, and goes by its name."""
    name, revision = str(ref["name"]), str(ref["revision"])
    if not COMMIT.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"


def policy(spec: Mapping[str, Any]) -> str:
    """Return the model to train on a dataset as typed: its own, unless only words name that."""
    by_words = spec["sampling"]["seed"] == "unknown" and "author" not in spec["engine"]
    return "BASE_MODEL" if by_words else shell_quote(pinned_name(spec["model"]))


def _lines(template: str, **fields: Any) -> list[str]:
    """Return the commands of a template: an option a line, a blank line between two commands."""
    filters = {"quoted": shell_quote, "pinned": lambda ref: shell_quote(pinned_name(ref))}
    commands = render(template, filters, **fields).strip().split("\n\n")
    return [" \\\n  ".join(command.splitlines()) for command in commands]


def shell_quote(value: object) -> str:
    """Return a value as typed."""
    return shlex.quote(str(value))


def _decoders(names: list[str]) -> list[tuple[str, str]]:
    """Read options off names such as ``greedy``, ``sc@5``, ``bon@5:min`` and ``sbs@5,1``."""
    parts = [name.partition("@")[::2] for name in names]
    kinds = dict.fromkeys(kind for kind, _ in parts)
    sizes = [size.partition(":")[::2] for kind, size in parts if kind in _OF_SAMPLES]
    widths = [size.split(",") for kind, size in parts if kind == "sbs"]
    return [
        ("decoder", ",".join(kinds)),
        *(("k", k) for k in dict.fromkeys(k for k, _ in sizes)),
        *(("aggregate", each) for each in dict.fromkeys(each for _, each in sizes if each)),
        *(("b1", b1) for b1 in dict.fromkeys(b1 for b1, _ in widths)),
        *(("b2", b2) for _, b2 in widths),
    ]
