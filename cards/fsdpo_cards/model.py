"""Render the cards of trained models: fine-tuned policies, DPO policies and reward models."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_cards.dataset import StageEntries, stage_entries
from fsdpo_cards.render import TABLES, front_matter, hub_metadata, render


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """A dataset or a file of a training run."""

    name: str  #: A name, or ``org/name@commit`` on the Hub.
    rows: int  #: Number of its rows.
    manifest: Mapping[str, Any] | None = None  #: Its manifest, if it is a dataset.
    #: Numbers of its problems, solutions and pairs, by config, if it is a dataset.
    config_rows: Mapping[str, int] | None = None
    stage_rows: Sequence[str] = ()  #: Markdown rows that describe the stages of the dataset.

    @property
    def stages(self) -> StageEntries:
        """The entries of the stages of the dataset, by name; empty for others."""
        return stage_entries(self.manifest) if self.manifest else {}


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The data of a training run that its card shows."""

    stage: str  #: ``sft``, ``prm`` or ``dpo``.
    name: str  #: Name of the trained model.
    #: The initial model: a name, or ``org/name@commit`` on the Hub; empty for random weights.
    model: str
    sources: Sequence[TrainingSource]  #: The training data.
    report: Mapping[str, Any]  #: The report of the run, such as steps, loss and metrics.
    options: Mapping[str, str]  #: All options and versions, as text.
    command: str  #: The command line that trains the model.

    @property
    def datasets(self) -> list[TrainingSource]:
        """The sources with a manifest."""
        return [source for source in self.sources if source.manifest]


def model_card(run: TrainingRun) -> str:
    """Render the README of a trained model.

    Raises:
        jinja2.UndefinedError: if the run lacks a field of the card.
    """
    body = render(
        f"model_{run.stage}.md",
        run=run,
        datasets=run.datasets,
        templates=_unique(_sample_options(source)["template"]["name"] for source in run.datasets),
        segmenters=_unique(_sample_options(source)["segmenter"] for source in run.datasets),
    )
    return front_matter(_metadata(run)) + body


def _sample_options(source: TrainingSource) -> Mapping[str, Any]:
    """Return the options of the samples of a dataset."""
    options: Mapping[str, Any] = source.stages["sample"]["options"]
    return options


def _unique(names: Iterable[str]) -> list[str]:
    """Return the names without repetitions, in order."""
    return list(dict.fromkeys(names))


def _metadata(run: TrainingRun) -> dict[str, Any]:
    """Return the metadata that the Hub reads from the card; only names on the Hub become links."""
    stage_metadata = TABLES["models"][run.stage]
    datasets = list(filter(None, (_unpinned_hub_name(source.name) for source in run.sources)))
    return hub_metadata(
        library_name="transformers",
        language=["en"],
        pipeline_tag=stage_metadata["pipeline_tag"],
        tags=stage_metadata["tags"],
        base_model=_unpinned_hub_name(run.model),
        datasets=datasets or None,
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
    source = ", ".join(source.name.partition("@")[0] for source in run.sources)
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
