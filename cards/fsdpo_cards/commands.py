"""The commands that make a dataset again, read off its specs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

_COMMIT = re.compile(r"[0-9a-f]{40}")


def rebuild(spec: Mapping[str, Any]) -> list[str]:
    """Return one command line for each stage that made the dataset."""
    lines, at = [_build(spec)], "runs/built"
    if "label" in spec:
        label = spec["label"]
        options = {
            "model": _pinned(label["model"]),
            "rollouts": label["sampling"]["n"],
            **_sampling(label["sampling"]),
        }
        lines.append(_command(f"fsdpo-data label {at}", options, "runs/labelled"))
        at = "runs/labelled"
    if "score" in spec:
        options = {"prm": _pinned(spec["score"]["prm"])}
        lines.append(_command(f"fsdpo-data score {at}", options, "runs/scored"))
        at = "runs/scored"
    if "pair" in spec:
        lines.append(_command(f"fsdpo-data pair {at}", _pair(spec["pair"]), "runs/pairs"))
    return lines


def _build(spec: Mapping[str, Any]) -> str:
    problems = [("problems", _pinned(source)) for source in spec["sources"]]
    options = {
        "split": spec["sources"][0]["split"],
        "limit": spec["problems"]["count"],
        "samples": spec["sampling"]["n"],
        **_sampling(spec["sampling"]),
        "template": spec["template"]["name"],
        "segmenter": spec["segmenter"],
        "engine": spec["engine"]["name"],
        "dtype": spec["engine"]["dtype"],
    }
    every = [("model", _pinned(spec["model"])), *problems, *options.items()]
    return _command("fsdpo-data build", every, "runs/built")


def _sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    names = ("temperature", "top_p", "max_tokens", "seed")
    return {name.replace("_", "-"): sampling[name] for name in names}


def _pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    if pair.get("style") == "step-dpo":
        options = {
            "style": "step-dpo",
            "threshold": pair["threshold"],
            "resamples": pair["sampling"]["n"],
            "model": _pinned(pair["model"]),
            **_sampling(pair["sampling"]),
        }
        return options | ({} if pair["max_pairs"] is None else {"max-pairs": pair["max_pairs"]})
    options = {"top": pair["top"], "aggregate": pair["aggregate"]}
    if not pair["require_outcome"]:
        options["no-require-outcome"] = None
    for name in ("max_pairs", "min_margin"):
        if pair[name] is not None:
            options[name.replace("_", "-")] = pair[name]
    return options


def _pinned(ref: Mapping[str, Any]) -> str:
    """Return a model or source with its commit; what is local has none, and goes by its name."""
    name, revision = str(ref["name"]), str(ref["revision"])
    if not _COMMIT.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"


def _command(start: str, options: Mapping[str, Any] | list[tuple[str, Any]], out: str) -> str:
    pairs = options.items() if isinstance(options, Mapping) else options
    words = [f"--{key}" + _argument(value) for key, value in pairs]
    return " \\\n  ".join([start, *words, f"--out {out}"])


def _argument(value: Any) -> str:
    return "" if value is None else f" {shlex.quote(str(value))}"
