"""The commands that make a dataset or a model again, read off their specs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsdpo_cards.model import Run

#: Options by name, or pairs where one is given several times.
Options = Mapping[str, Any] | list[tuple[str, Any]]

_COMMIT = re.compile(r"[0-9a-f]{40}")


#: Where the commands put what each stage makes, in their order.
_OUT = {
    "label": "runs/labelled",
    "score": "runs/scored",
    "pair": "runs/pairs",
    "decontaminate": "runs/checked",
}


def rebuild(spec: Mapping[str, Any]) -> list[str]:
    """Return one command line for each stage that made the dataset."""
    lines, at = [_build(spec)], "runs/built"
    for stage, out in _OUT.items():
        if stage in spec:
            options = _STAGE_OPTIONS[stage](spec[stage])
            lines.append(command_line(f"fsdpo-data {stage} {at}", options, out))
            at = out
    return lines


def train(run: Run) -> str:
    """Return the command line that trained a model, on what :func:`rebuild` makes if it was that.

    Only options that are not the defaults are told.
    """
    every, local = run.processes
    start = f"fsdpo-train {run.stage}"
    if every > 1:
        nodes = f"--nnodes {every // local} " if every > local else ""
        start = f"torchrun {nodes}--nproc-per-node {local} -m fsdpo_train {run.stage}"
    data = run.data if run.manifest is None else _made_in(run.manifest["spec"])
    model = {"model": run.model} if run.model else {}  # random weights have none
    flags = dict(_flag(name, value) for name, value in run.changed.items())
    return command_line(f"{start} {shlex.quote(data)}", {**model, **flags}, f"runs/{run.stage}")


def _made_in(spec: Mapping[str, Any]) -> str:
    return next((out for stage, out in reversed(_OUT.items()) if stage in spec), "runs/built")


def _flag(name: str, value: Any) -> tuple[str, Any]:
    """Return an option as typed; a switch has no value."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return (option if value else f"no-{option}"), None
    return option, value


def _build(spec: Mapping[str, Any]) -> str:
    problems = [("problems", pinned(source)) for source in spec["sources"]]
    options = {
        "split": spec["sources"][0]["split"],
        "limit": spec["problems"]["count"],
        "samples": spec["sampling"]["n"],
        **sampling_options(spec["sampling"]),
        "template": spec["template"]["name"],
        "segmenter": spec["segmenter"],
        "engine": spec["engine"]["name"],
        "dtype": spec["engine"]["dtype"],
    }
    every = [("model", pinned(spec["model"])), *problems, *options.items()]
    return command_line("fsdpo-data build", every, "runs/built")


def sampling_options(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return how samples are drawn, as options; how many has another name in each command."""
    names = ("temperature", "top_p", "max_tokens", "seed")
    return {name.replace("_", "-"): sampling[name] for name in names}


def _label(label: Mapping[str, Any]) -> Options:
    sampling = label["sampling"]
    return {
        "model": pinned(label["model"]),
        "rollouts": sampling["n"],
        **sampling_options(sampling),
    }


def _score(score: Mapping[str, Any]) -> Options:
    return {"prm": pinned(score["prm"])}


def _pair(pair: Mapping[str, Any]) -> Options:
    if pair.get("style") == "step-dpo":
        return _step_pair(pair)
    options: dict[str, Any] = {"top": pair["top"], "aggregate": pair["aggregate"]}
    if not pair["require_outcome"]:
        options["no-require-outcome"] = None
    for name in ("max_pairs", "min_margin"):
        if pair[name] is not None:
            options[name.replace("_", "-")] = pair[name]
    return options


def pinned(ref: Mapping[str, Any]) -> str:
    """Return a model or source with its commit; what is local has none, and goes by its name."""
    name, revision = str(ref["name"]), str(ref["revision"])
    if not _COMMIT.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"


def command_line(start: str, options: Options, out: str) -> str:
    """Return a command with an option a line; None is a switch."""
    pairs = options.items() if isinstance(options, Mapping) else options
    words = [f"--{key}" + _argument(value) for key, value in pairs]
    return " \\\n  ".join([start, *words, f"--out {out}"])


def _argument(value: Any) -> str:
    return "" if value is None else f" {shlex.quote(str(value))}"


def _step_pair(pair: Mapping[str, Any]) -> Options:
    return {
        "style": "step-dpo",
        "threshold": pair["threshold"],
        "resamples": pair["sampling"]["n"],
        "model": pinned(pair["model"]),
        **sampling_options(pair["sampling"]),
        **({} if pair["max_pairs"] is None else {"max-pairs": pair["max_pairs"]}),
    }


def _decontaminate(spec: Mapping[str, Any]) -> Options:
    against = [("against", f"{each['name']}=FILE") for each in spec["benchmarks"]]
    return [*against, ("ngram", spec["n"]), ("overlap", spec["share"])]


_STAGE_OPTIONS: dict[str, Callable[[Mapping[str, Any]], Options]] = {
    "label": _label,
    "score": _score,
    "pair": _pair,
    "decontaminate": _decontaminate,
}
