"""Render the cards of trained models: fine-tuned policies, DPO policies and reward models."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_cards.render import TABLES, front_matter, hub_metadata, render


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The data of a training run that its card shows."""

    stage: str  #: ``sft``, ``prm`` or ``dpo``.
    name: str  #: Name of the trained model.
    #: The initial model: a name, or ``org/name@commit`` on the Hub; empty for random weights.
    model: str
    data: str  #: The training data: a name, or ``org/name@commit`` on the Hub.
    report: Mapping[str, Any]  #: The report of the run, such as steps, loss and metrics.
    options: Mapping[str, str]  #: All options and versions, as text.
    command: str  #: The command line that trains the model.
    manifest: Mapping[str, Any] | None = None  #: Manifest of the training data, if it is a dataset.
    stage_rows: Sequence[str] = ()  #: Markdown rows that describe the stages of the dataset.


def model_card(run: TrainingRun) -> str:
    """Render the README of a trained model.

    Raises:
        jinja2.UndefinedError: if the run lacks a field of the card.
    """
    spec = run.manifest["spec"] if run.manifest else None
    body = render(
        f"model_{run.stage}.md",
        run=run,
        manifest=run.manifest,
        spec=spec,
        stage_rows=run.stage_rows,
    )
    return front_matter(_metadata(run)) + body


def _metadata(run: TrainingRun) -> dict[str, Any]:
    """Return the metadata that the Hub reads from the card; only names on the Hub become links."""
    stage_metadata = TABLES["models"][run.stage]
    dataset = _unpinned_hub_name(run.data)
    return hub_metadata(
        library_name="transformers",
        language=["en"],
        pipeline_tag=stage_metadata["pipeline_tag"],
        tags=stage_metadata["tags"],
        base_model=_unpinned_hub_name(run.model),
        datasets=[dataset] if dataset else None,
        model_name=run.name,
        eval_results=_evaluation_results(run) or None,
    )


def _unpinned_hub_name(name: str) -> str | None:
    """Return the ``org/name`` of ``org/name@commit``; None for other names."""
    match = re.fullmatch(r"([^/@]+/[^/@]+)@[0-9a-f]{40}", name)
    return match[1] if match else None


def _evaluation_results(run: TrainingRun) -> list[Any]:
    """Return the metrics of a reward model on its evaluation problems, as ``EvalResult``."""
    from huggingface_hub import EvalResult

    metrics = run.report.get("held_out", {})
    source = run.data.partition("@")[0]
    return [
        EvalResult(
            task_type="token-classification",
            task_name="step rewards",
            dataset_type=source,
            dataset_name=f"{source}, problems held out of training",
            metric_type=metric["metric_type"],
            metric_name=metric["metric_name"],
            metric_value=round(metrics[key], 6),
        )
        for key, metric in TABLES["held_out"].items()
        if key in metrics
    ]
