"""``transformers.Trainer`` with data in an order of ours."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import transformers
from accelerate.utils import broadcast_object_list

from fsdpo_data.models.checkpoints import CPU_TOKENS
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.batching import grouped_order
from fsdpo_train.trainer.checkpoints import WRITING, last_whole, settle, settle_model, writing
from fsdpo_train.trainer.directory import write_state

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"  #: Folder of the checkpoints in that of a run.


class Order(torch.utils.data.Sampler):  # type: ignore[misc]
    """Rows in :func:`grouped_order`, fillers last.

    Rows have a ``length``; that of fillers is 0.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], config: TrainConfig) -> None:
        self.rows = len(rows)
        self.lengths = [row["length"] for row in rows if row["length"]]
        self.config, self.epoch = config, 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of another epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        size, group = self.config.batch_size, self.config.group_by_length
        yield from grouped_order(self.lengths, size, self.config.seed, self.epoch, group)
        yield from range(len(self.lengths), self.rows)


class CountingTrainer(transformers.Trainer):  # type: ignore[misc]
    """A trainer of losses that are means over the items of a step; checkpoints are whole.

    Data come in :class:`Order`. Batches of a step hold different numbers of items, and every item
    counts the same. Subclasses say how many (``items``) and return ``self.share`` of the mean over
    a batch.
    """

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.stage_config: Any = config
        self.use_cache = options["model"].config.use_cache
        super().__init__(**options)
        # With it and a count of items, no version of transformers divides by grad_accum.
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self, train_dataset: Any = None) -> Order:
        return Order(self.train_dataset, self.stage_config)

    def _run_epoch(self, **options: Any) -> None:
        # The loop asks whether it is done behind a step only: a run that was stopped behind
        # its last checkpoint would take one step too many.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**options)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.stage_config.out / CHECKPOINTS / WRITING)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = self.stage_config.out / CHECKPOINTS
        with writing(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                name = f"checkpoint-{self.state.global_step}"
                settle(folder, name, self.stage_config.save_limit)
            self.accelerator.wait_for_everyone()

    def training_step(self, model: Any, inputs: dict[str, Any], *given: Any) -> torch.Tensor:
        """Add the gradients of a batch, part by part, and return its loss."""
        step = super().training_step
        return torch.stack([step(model, part, *given) for part in self._parts(inputs)]).sum()

    def _parts(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Part a batch by its rows where that saves memory and costs no time."""
        distributed = self.accelerator.num_processes > 1 or self.is_deepspeed_enabled
        # The solutions of prompt groups belong together, and have another name.
        if distributed or self.args.device.type != "cpu" or "input_ids" not in inputs:
            return [inputs]
        rows = max(1, CPU_TOKENS // inputs["input_ids"].shape[1])
        parts = zip(*(each.split(rows) for each in inputs.values()), strict=True)
        return [dict(zip(inputs, part, strict=True)) for part in parts]

    def items(self, batch: Mapping[str, Any]) -> int:
        """Count what the loss of a batch is the mean over."""
        raise NotImplementedError

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> torch.Tensor:
        """Count the items of one optimizer step, over all processes."""
        items = torch.tensor(sum(self.items(batch) for batch in batch_samples))
        return self.accelerator.gather(items.to(device)).sum()

    def share(self, loss: torch.Tensor, items: int, all_items: torch.Tensor) -> torch.Tensor:
        """Return what the mean over ``items`` adds to the mean over all of the step."""
        # Gradients are averaged over processes, so each takes its share times their number.
        return loss * items * self.accelerator.num_processes / all_items


def run_trainer(trainer: Any, config: TrainConfig, identity: Mapping[str, str]) -> None:
    """Train from the beginning or the last whole checkpoint; StoreError if one is not written."""
    # Only now is the directory this run's: a start that failed may be tried again, and every
    # process of a distributed run has found it free.
    trainer.accelerator.wait_for_everyone()
    folder = config.out / CHECKPOINTS
    # One process reads the digests, and all resume from the same.
    first = trainer.is_world_process_zero()
    (last,) = broadcast_object_list([last_whole(folder) if config.resume and first else None])
    if first:
        write_state(config, identity)
        shutil.rmtree(folder / WRITING, ignore_errors=True)  # of a run that was killed
        if config.resume:
            log.info(f"resuming from {last or 'the beginning: there is no whole checkpoint'}")
    trainer.accelerator.wait_for_everyone()
    trainer.train(resume_from_checkpoint=last and str(last))


def save_merged(trainer: Any, config: TrainConfig) -> None:
    """Write weights that transformers loads as they are, adapters merged in; whole or not at all.

    Raises:
        StoreError: if they cannot be written.
    """
    if config.lora:
        trainer.model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        trainer.model_wrapped = trainer.model
    # transformers turns it off for training; whoever samples wants it.
    trainer.model.config.use_cache = trainer.use_cache
    with writing(config.out) as place:
        trainer.save_model(str(place))
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            settle_model(config.out)
        trainer.accelerator.wait_for_everyone()
