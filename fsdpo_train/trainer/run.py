"""Start and end of a training run, with its report and its model card."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import transformers
from fsdpo_cards import model_card
from fsdpo_cards.model import TrainingRun, TrainingSource
from fsdpo_cards.pinned_names import pinned_name

import fsdpo_data
from fsdpo_data.core.files import write_text
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.plugins import load_environment_plugins, loaded_plugins
from fsdpo_data.dataset.run_directory import lock_run_directory
from fsdpo_data.dataset.stage_registry import card_rows
from fsdpo_data.models.checkpoints import hide_bars
from fsdpo_data.models.resolve import architecture_revision, resolve_weights
from fsdpo_train.config import DEEPSPEED_PRESETS, TrainConfig
from fsdpo_train.trainer.processes import is_main_process, process_count
from fsdpo_train.trainer.row_source import RowSource, TrainingData
from fsdpo_train.trainer.train_command import train_command
from fsdpo_train.trainer.trainer import identity_file, save_merged
from fsdpo_train.trainer.training_template import stated_template, write_template

ReportT = TypeVar("ReportT", bound="TrainingReport")


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """The results that every training run has."""

    out: Path  #: Directory of the trained model.
    steps: int  #: Optimizer steps, including the steps before a resume.
    loss: float  #: Mean loss over the last logging window; NaN without a window.


@contextmanager
def start_run(config: TrainConfig, data: TrainingData) -> Iterator[dict[str, Any]]:
    """Lock the directory of a run, set the seed and yield the identity of the run.

    The identity contains every option that determines the weights, as JSON values by name. The file
    :func:`identity_file` has it, together with the loaded plug-ins.

    Raises:
        InputError: if the model does not exist.
        RunMismatchError: if the directory has other files, a run with other options, or a run while
            ``resume`` is off.
        StoreError: if the directory cannot be written, or another process trains in it.
        UnavailableError: if the Hub cannot be reached, or a package is not installed.
    """
    identity = {**config.identity(), "data": data.identity, **_pinned_files(config)}
    if config.steps_depend_on_processes:
        identity |= _processes()
    if config.model is not None:
        # The revision is a Hub commit or a digest of the local files, because a path means nothing
        # on another machine. A run from random weights has no model.
        ref = resolve_weights(config.model).ref
        identity["model"] = f"{ref.name}@{ref.revision}"
    load_environment_plugins()  # a plug-in can change the loss
    # The processes of a distributed run share the lock of the main process.
    lock: AbstractContextManager[None] = nullcontext()
    if is_main_process():
        file = identity_file(config)
        lock = lock_run_directory(config.out, identity, resume=config.resume, config_file=file.name)
    with lock, hide_bars():
        transformers.set_seed(config.seed)
        yield identity


def _pinned_files(config: TrainConfig) -> dict[str, str]:
    """Return the options that name a file or a template: its name and its digest."""
    pinned_files = {}
    if config.deepspeed is not None and config.deepspeed not in DEEPSPEED_PRESETS:
        file = Path(config.deepspeed)
        pinned_files["deepspeed"] = f"{file.name}@sha256:{file_sha256(file)}"
    architecture: Path | None = getattr(config, "from_config", None)
    if architecture is not None:
        revision = architecture_revision(architecture)
        pinned_files["from_config"] = f"{architecture.resolve().name}@{revision}"
    template = stated_template(config)
    if template is not None:
        pinned_files["template"] = f"{template.name}@{template.digest}"
    return pinned_files


def _plugins() -> dict[str, str]:
    """Return the loaded plug-ins as an entry of the card; nothing without plug-ins."""
    plugins = [
        f"{plugin.module} {plugin.version or 'sha256:' + plugin.sha256}"
        for plugin in loaded_plugins()
    ]
    return {"plugins": ", ".join(plugins)} if plugins else {}


def finish_run(
    report_class: type[ReportT],
    trainer: Any,
    config: TrainConfig,
    *,
    data: TrainingData,
    card_data: Mapping[str, Any],
    **report_fields: Any,
) -> ReportT:
    """Write the model of a finished run and its card, and return the report.

    Args:
        report_class: Class of the report.
        trainer: The trainer after training.
        config: The options of the run.
        data: The data of the run.
        card_data: The identity of the run, and further entries. The card shows both, and the
            provenance of the data.
        **report_fields: The fields that ``report_class`` adds to :class:`TrainingReport`.

    Raises:
        StoreError: if a file cannot be written.
    """
    save_merged(trainer, config)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    report = report_class(
        out=config.out,
        steps=trainer.state.global_step,
        loss=losses[-1] if losses else float("nan"),
        **report_fields,
    )
    if is_main_process():
        _write_card(config, data, {**card_data, **data.provenance}, report)
        write_template(config, data)
    return report


def _write_card(
    config: TrainConfig, data: TrainingData, card_data: Mapping[str, Any], report: TrainingReport
) -> None:
    """Write the model card to ``README.md``."""
    versions = {
        "fsdpo": fsdpo_data.__version__,
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
    options = {name: str(value) for name, value in card_data.items()}
    model = _pinned_model(card_data)
    run = TrainingRun(
        stage=config.stage,
        name=config.out.resolve().name,
        model=model,
        sources=[_card_source(source) for source in data.sources],
        report=vars(report),
        options={**options, **_plugins(), **_processes(), **versions},
        command=train_command(config, model, [source.name for source in data.sources]),
    )
    write_text(config.out / "README.md", model_card(run))


def _card_source(source: RowSource) -> TrainingSource:
    """Return the data of a source that the card shows."""
    manifest = source.manifest
    return TrainingSource(
        name=source.name,
        rows=source.count_rows(),
        manifest=manifest.to_dict() if manifest else None,
        config_rows=manifest.rows._asdict() if manifest else None,
        stage_rows=card_rows(manifest) if manifest else (),
    )


def _pinned_model(identity: Mapping[str, Any]) -> str:
    """Return the initial model with its commit on the Hub; empty for random weights."""
    name, _, revision = str(identity.get("model") or "").rpartition("@")
    return pinned_name({"name": name, "revision": revision})


def _processes() -> dict[str, str]:
    """Return the number of processes as an entry of identity and card; nothing for one."""
    count = process_count()
    return {} if count == "1" else {"processes": count}
