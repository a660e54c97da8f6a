"""The command that measures a model again, read off the config of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsdpo_cards.commands import command_line, pinned, sampling_options

#: Decoders that choose among samples.
_OF_SAMPLES = ("sc", "weighted", "bon")


def measure(run: Mapping[str, Any]) -> str:
    """Return the ``fsdpo-bench run`` of a run's config.

    Benchmarks come from the Hub, or from ``--data``; a recording is called ``FILE``.
    """
    options = [
        ("model", pinned(run["model"])),
        *_tasks(run["tasks"]),
        *_decoders(run["decoders"]),
        *({} if run["beam"] is None else _beam(run["beam"])).items(),
        *([] if run["prm"] is None else [("prm", pinned(run["prm"]))]),
        ("template", run["template"]["name"]),
        *sampling_options(run["sampling"]).items(),
        ("segmenter", run["segmenter"]),
        *_engine(run["engine"]),
    ]
    return command_line("fsdpo-bench run", options, "runs/bench")


def _tasks(tasks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = [("task", name) for name in tasks]
    cut = {each["problems"] for each in tasks.values() if each["problems"] < each["rows"]}
    return [*names, *(("limit", count) for count in sorted(cut)[-1:])]


def _decoders(names: list[str]) -> list[tuple[str, Any]]:
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


def _beam(beam: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "first-keep": beam["first_keep"],
        "beam-aggregate": beam["aggregate"],
        "max-steps": beam["max_steps"],
        "step-tokens": beam["step_tokens"],
    }


def _engine(engine: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if engine["name"] == "scripted":
        return [("engine", "scripted"), ("replay", "FILE")]
    return [("engine", engine["name"]), ("dtype", engine["dtype"])]
