"""The cards of trained models: fine-tuned and preference-trained policies, step reward models."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_cards import commands
from fsdpo_cards.render import TABLES, front_matter, hub_metadata, render


@dataclass(frozen=True, slots=True)
class Run:
    """A training run, as far as its card tells of it."""

    stage: str
    name: str
    model: str  #: What it started from: a name, or ``org/name@commit`` of the Hub.
    data: str  #: What it was trained on: a name, or ``org/name@commit`` of the Hub.
    report: Mapping[str, Any]
    options: Mapping[str, str]  #: All options and versions, as text.
    changed: Mapping[str, Any]  #: Those given on the command line that are not the defaults.
    manifest: Mapping[str, Any] | None = None  #: Of the training data; None if that is not sealed.
    processes: tuple[int, int] = (1, 1)  #: Training processes in all, and on each machine.


def model_card(run: Run) -> str:
    """Render the README of a trained model.

    Raises:
        jinja2.UndefinedError: if the run lacks a field that the card shows.
    """
    spec = run.manifest["spec"] if run.manifest else None
    body = render(
        f"model_{run.stage}.md",
        run=run,
        manifest=run.manifest,
        spec=spec,
        commands=[*(commands.rebuild(spec) if spec else []), _command(run)],
    )
    return front_matter(_metadata(run)) + body


def _command(run: Run) -> str:
    """Return the command line that trained a model, on what :func:`.commands.rebuild` makes.

    Only options that are not the defaults are told.
    """
    every, local = run.processes
    start = f"fsdpo-train {run.stage}"
    if every > 1:
        nodes = f"--nnodes {every // local} " if every > local else ""
        start = f"torchrun {nodes}--nproc-per-node {local} -m fsdpo_train {run.stage}"
    data = run.data
    if run.manifest is not None:
        data = commands.rebuild(run.manifest["spec"])[-1].rpartition(" ")[2]
    # Random weights have no model to start from.
    given = {**({"model": run.model} if run.model else {}), **run.changed}
    words = [f"{start} {commands.quoted(data)}", *(_flag(*each) for each in given.items())]
    return commands.joined([*words, f"--out runs/{run.stage}"])


def _flag(name: str, value: Any) -> str:
    """Return an option as typed; a switch has no value."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {commands.quoted(value)}"


def _metadata(run: Run) -> dict[str, Any]:
    """Return what the Hub reads; only names that it knows are links."""
    return hub_metadata(
        library_name="transformers",
        language=["en"],
        **TABLES["models"][run.stage],
        base_model=_on_hub(run.model),
        datasets=[hub] if (hub := _on_hub(run.data)) else None,
        model_name=run.name,
        eval_results=_held_out(run) or None,
    )


def _on_hub(name: str) -> str | None:
    """Return ``org/name`` of what is pinned to a commit of the Hub."""
    found = re.fullmatch(r"([^/@]+/[^/@]+)@[0-9a-f]{40}", name)
    return found[1] if found else None


def _held_out(run: Run) -> list[Any]:
    """Return the numbers measured on problems that a reward model was not trained on."""
    from huggingface_hub import EvalResult

    measured = run.report.get("held_out", {})
    source = run.data.partition("@")[0]
    return [
        EvalResult(
            task_type="token-classification",
            task_name="step rewards",
            dataset_type=source,
            dataset_name=f"{source}, problems held out of training",
            **metric,
            metric_value=round(measured[key], 6),
        )
        for key, metric in TABLES["held_out"].items()
        if key in measured
    ]
