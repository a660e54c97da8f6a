"""The cards of trained models: fine-tuned and preference-trained policies, step reward models."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsdpo_cards import commands
from fsdpo_cards.render import TABLES, front_matter, hub_metadata, render


@dataclass(frozen=True, slots=True)
class TrainingRun:
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


def model_card(run: TrainingRun) -> str:
    """Render the README of a trained model.

    Raises:
        jinja2.UndefinedError: if the run lacks a field that the card shows.
    """
    spec = run.manifest["spec"] if run.manifest else None
    made = commands.rebuild_commands(spec) if spec else []
    body = render(
        f"model_{run.stage}.md",
        run=run,
        manifest=run.manifest,
        spec=spec,
        commands=[*made, commands.train_command(run, made)],
    )
    return front_matter(_metadata(run)) + body


def _metadata(run: TrainingRun) -> dict[str, Any]:
    """Return what the Hub reads; only names that it knows are links."""
    return hub_metadata(
        library_name="transformers",
        language=["en"],
        **TABLES["models"][run.stage],
        base_model=_on_hub(run.model),
        datasets=[hub] if (hub := _on_hub(run.data)) else None,
        model_name=run.name,
        eval_results=_held_out_metrics(run) or None,
    )


def _on_hub(name: str) -> str | None:
    """Return ``org/name`` of what is pinned to a commit of the Hub."""
    found = re.fullmatch(r"([^/@]+/[^/@]+)@[0-9a-f]{40}", name)
    return found[1] if found else None


def _held_out_metrics(run: TrainingRun) -> list[Any]:
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
