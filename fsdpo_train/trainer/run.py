"""A run from its start to its card; the cards themselves are in ``fsdpo_cards``."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import transformers
from fsdpo_cards import model_card
from fsdpo_cards.commands import pinned_name
from fsdpo_cards.model import TrainingRun

import fsdpo_data
from fsdpo_data.core.files import write_text
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run import MANIFEST_FILE
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train.config import NON_IDENTITY_OPTIONS, TrainConfig
from fsdpo_train.trainer.row_source import RowSource
from fsdpo_train.trainer.run_directory import is_main_process, lock_run_directory
from fsdpo_train.trainer.trainer import save_merged

ReportT = TypeVar("Kind", bound="TrainingReport")


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """What a run did."""

    out: Path
    steps: int  #: Optimizer steps, those before a resume included.
    loss: float  #: Mean loss over the last logging window.


@contextmanager
def start_run(config: TrainConfig, source: RowSource) -> Iterator[dict[str, str]]:
    """Begin a run on ``source``: hold its directory and seed it; yield what decides its weights.

    Raises:
        InputError: if there is no such model, or the directory is not free; see :func:`lock_run_directory`.
        Unavailable: if the model's Hub cannot be reached, or a package is not installed.
    """
    identity = {**config.identity(), "data": source.identity}
    if config.model is not None:
        ref = resolve_weights(config.model).ref  # by content: a path says nothing elsewhere
        identity["model"] = f"{ref.name}@{ref.revision}"
    with lock_run_directory(config, identity):
        transformers.set_seed(config.seed)
        yield identity


def finish_run(
    report_class: type[ReportT],
    trainer: Any,
    config: TrainConfig,
    identity: Mapping[str, str],
    **found: Any,
) -> ReportT:
    """Write the model of a finished run and its card, and return its report.

    ``identity`` is what decided the weights, and what else is worth telling; ``found`` has the
    fields of ``kind`` alone.

    Raises:
        StoreError: if a file cannot be written.
    """
    save_merged(trainer, config)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    last = losses[-1] if losses else float("nan")
    report = report_class(out=config.out, steps=trainer.state.global_step, loss=last, **found)
    if is_main_process():
        _write_card(config, identity, report)
    return report


def _write_card(config: TrainConfig, identity: Mapping[str, str], report: TrainingReport) -> None:
    sealed, on_hub = (config.data / MANIFEST_FILE).exists(), not config.data.exists()
    name, _, revision = identity.get("model", "").rpartition("@")
    world, local = (int(os.environ.get(each, "1")) for each in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    versions = {each: version(each) for each in ("torch", "transformers")}
    changed = {
        each.name: value
        for each in dataclasses.fields(config)
        if each.name not in NON_IDENTITY_OPTIONS | {"data", "model"}
        and (value := getattr(config, each.name)) != each.default
    }
    run = TrainingRun(
        stage=config.stage,
        name=config.out.resolve().name,
        model=pinned_name({"name": name, "revision": revision}),
        # Folders above are this machine's business.
        data=identity["data"] if on_hub else config.data.resolve().name,
        report=vars(report),
        options={**_without_folders(identity), "fsdpo": fsdpo_data.__version__, **versions},
        changed=_without_folders(changed),
        manifest=read_manifest(config.data).to_dict() if sealed else None,
        processes=(world, local),
    )
    write_text(config.out / "README.md", model_card(run))


def _without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the names of files in place of their paths."""
    paths = ("from_config", "deepspeed")
    return {key: Path(value).name if key in paths else value for key, value in options.items()}
