"""``transformers.Trainer`` with data in an order of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.batching import grouped_order
from fsdpo_train.trainer.directory import last_checkpoint, write_state

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run did.

    Attributes:
        out: Directory of the trained model.
        steps: Optimizer steps, those before a resume included.
        loss: Mean loss over the last logging window.
    """

    out: Path
    steps: int
    loss: float


def outcome(trainer: Any, config: TrainConfig) -> dict[str, Any]:
    """Return the fields of :class:`Report` of a finished run."""
    steps, history = trainer.state.global_step, trainer.state.log_history
    return {"out": config.out, "steps": steps, "loss": _last_loss(history)}


def ordered_trainer() -> Any:
    """Return a ``transformers.Trainer`` whose data comes in :func:`grouped_order`."""
    import torch
    import transformers

    class Order(torch.utils.data.Sampler):  # type: ignore[type-arg]
        def __init__(self, rows: datasets.Dataset, config: TrainConfig) -> None:
            self.lengths, self.config, self.epoch = rows["length"][:], config, 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return len(self.lengths)

        def __iter__(self) -> Iterator[int]:
            size, group = self.config.batch_size, self.config.group_by_length
            return grouped_order(self.lengths, size, self.config.seed, self.epoch, group)

    class Trainer(transformers.Trainer):
        def __init__(self, config: TrainConfig, **options: Any) -> None:
            self.stage_config = config
            super().__init__(**options)

        def _get_train_sampler(self, train_dataset: Any = None) -> Order:
            return Order(self.train_dataset, self.stage_config)

    return Trainer


def run_trainer(trainer: Any, config: TrainConfig, identity: Mapping[str, str]) -> None:
    """Train from the beginning or the last checkpoint."""
    # Only now is the directory this run's: a start that failed may be tried again, and every
    # process of a distributed run has found it free.
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        write_state(config, identity)
    trainer.train(resume_from_checkpoint=last_checkpoint(config))


def _last_loss(history: list[dict[str, float]]) -> float:
    """Return the mean loss of the last logging window, or of a run that was shorter than one."""
    losses = [entry["loss"] for entry in history if "loss" in entry]
    losses = losses or [entry["train_loss"] for entry in history if "train_loss" in entry]
    return losses[-1] if losses else float("nan")


def save_merged(trainer: Any, config: TrainConfig) -> None:
    """Write weights that transformers loads as they are, adapters merged in."""
    if config.lora:
        trainer.model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        trainer.model_wrapped = trainer.model
    trainer.save_model(str(config.out))
