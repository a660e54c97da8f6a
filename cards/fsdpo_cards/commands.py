"""The commands that make a dataset, a model or a benchmark run again, read off their specs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsdpo_cards.render import render

if TYPE_CHECKING:
    from fsdpo_cards.model import Run

#: A revision of the Hub; files have none there.
COMMIT = re.compile(r"[0-9a-f]{40}")
#: Decoders that choose among samples.
_OF_SAMPLES = ("sc", "weighted", "bon")


def rebuild(spec: Mapping[str, Any]) -> list[str]:
    """Return one command line for each stage that made the dataset."""
    return _lines("rebuild.txt", spec=spec)


def train(run: Run) -> str:
    """Return the command line that trained a model, on what :func:`rebuild` makes if it was that.

    Only options that are not the defaults are told.
    """
    every, local = run.processes
    start = f"fsdpo-train {run.stage}"
    if every > 1:
        nodes = f"--nnodes {every // local} " if every > local else ""
        start = f"torchrun {nodes}--nproc-per-node {local} -m fsdpo_train {run.stage}"
    data = run.data
    if run.manifest is not None:
        data = rebuild(run.manifest["spec"])[-1].rpartition(" ")[2]
    # Random weights have no model to start from.
    given = {**({"model": run.model} if run.model else {}), **run.changed}
    words = [f"{start} {shlex.quote(data)}", *(_flag(*each) for each in given.items())]
    return _joined([*words, f"--out runs/{run.stage}"])


def measure(run: Mapping[str, Any]) -> str:
    """Return the ``fsdpo-bench run`` of a run's config.

    Benchmarks come from the Hub, or from ``--data``; a recording is called ``FILE``.
    """
    cut = [each["problems"] for each in run["tasks"].values() if each["problems"] < each["rows"]]
    limit, decoders = max(cut, default=0), _decoders(run["decoders"])
    return _lines("measure.txt", run=run, limit=limit, decoders=decoders)[0]


def pinned(ref: Mapping[str, Any]) -> str:
    """Return a model or source with its commit; what is local has none, and goes by its name."""
    name, revision = str(ref["name"]), str(ref["revision"])
    if not COMMIT.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"


def policy(spec: Mapping[str, Any]) -> str:
    """Return the model to train on a dataset as typed: its own, unless only words name that."""
    by_words = spec["sampling"]["seed"] == "unknown" and "author" not in spec["engine"]
    return "BASE_MODEL" if by_words else _quoted(pinned(spec["model"]))


def _lines(template: str, **fields: Any) -> list[str]:
    """Return the commands of a template: an option a line, a blank line between two commands."""
    filters = {"quoted": _quoted, "pinned": lambda ref: _quoted(pinned(ref))}
    commands = render(template, filters, **fields).strip().split("\n\n")
    return [_joined(command.splitlines()) for command in commands]


def _quoted(value: object) -> str:
    return shlex.quote(str(value))


def _joined(words: list[str]) -> str:
    return " \\\n  ".join(words)


def _flag(name: str, value: Any) -> str:
    """Return an option as typed; a switch has no value."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {_quoted(value)}"


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
