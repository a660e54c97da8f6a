"""``transformers.Trainer`` with data in an order of ours."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import transformers
from accelerate.utils import broadcast_object_list

from fsdpo_data.core.errors import InputError
from fsdpo_data.models.checkpoints import MAX_CPU_BATCH_TOKENS
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.batching import group_rows, grouped_order, model_inputs, unpack_rows
from fsdpo_train.trainer.bf16_weights import Bfloat16Weights, uses_bfloat16_weights
from fsdpo_train.trainer.checkpoints import (
    WRITING,
    commit_checkpoint,
    commit_model,
    latest_complete_checkpoint,
    staging_directory,
)
from fsdpo_train.trainer.models import attach_to_full_precision
from fsdpo_train.trainer.run_directory import write_state

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"  #: Folder of the checkpoints in that of a run.


class PromptGroupedSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """Rows in :func:`grouped_order`, fillers last.

    Rows have a ``length``; that of fillers is 0. Those of one ``group`` stand together within a
    step of the optimizer, whose loss is the mean over them in whatever order.
    """

    def __init__(self, rows: Sequence[Any], config: TrainConfig, processes: int) -> None:
        self.all, self.rows = len(rows), [row for row in rows if row["length"]]
        self.units = group_rows(self.rows, config.keeps_prompt_groups)
        self.step = config.rows_per_micro_batch * config.grad_accum * processes
        self.config, self.epoch = config, 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of another epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.all

    def __iter__(self) -> Iterator[int]:
        size, group = self.config.rows_per_micro_batch, self.config.group_by_length
        lengths = [self.rows[unit[0]]["length"] for unit in self.units]
        drawn = grouped_order(lengths, size, self.config.seed, self.epoch, group)
        order = [number for unit in drawn for number in self.units[unit]]
        for start in range(0, len(order), self.step):
            step = order[start : start + self.step]
            for together in group_rows([self.rows[number] for number in step]):
                yield from (step[place] for place in together)
        yield from range(len(order), self.all)


class StageTrainer(transformers.Trainer):  # type: ignore[misc]
    """A trainer of losses that are means over the items of a step; checkpoints are whole.

    Data come in :class:`PromptGroupedSampler`. Batches of a step hold different numbers of items, and every item
    counts the same. Subclasses say how many (``items``) and return ``self.share`` of the mean over
    a batch. To ``share_prompt``, the model reads trees.
    """

    data_collator: Any

    def __init__(self, config: TrainConfig, share_prompt: bool, **options: Any) -> None:
        self.stage_config: Any = config
        self.share_prompt = share_prompt
        self.use_cache = options["model"].config.use_cache
        super().__init__(**options)
        collate = self.data_collator
        self.data_collator = lambda rows: collate(unpack_rows(rows))
        # With it and a count of items, no version of transformers divides by grad_accum.
        self.model_accepts_loss_kwargs = True
        self.uses_bfloat16 = uses_bfloat16_weights(config, self.args)
        self.rounded = (
            Bfloat16Weights(self.model).use_in_model if self.uses_bfloat16 else nullcontext
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> PromptGroupedSampler:
        return PromptGroupedSampler(self.train_dataset, self.stage_config, self.args.world_size)

    def _run_epoch(self, **options: Any) -> None:
        # The loop asks whether it is done behind a step only: a run that was stopped behind
        # its last checkpoint would take one step too many.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**options)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        # The loader has put them on the device. Under DeepSpeed, transformers would also cast
        # labels and reference log-probabilities to bfloat16.
        return inputs

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.stage_config.out / CHECKPOINTS / WRITING)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = self.stage_config.out / CHECKPOINTS
        with staging_directory(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                name = f"checkpoint-{self.state.global_step}"
                commit_checkpoint(folder, name, self.stage_config.save_limit)
            self.accelerator.wait_for_everyone()

    def _maybe_log_save_evaluate(self, loss: Any, norm: Any, *given: Any, **options: Any) -> None:
        # Before a checkpoint is made of it, and older ones go.
        if norm is not None and not norm < torch.inf:
            raise InputError(
                f"the run has diverged: the gradient of step {self.state.global_step} is no "
                "number. The last checkpoint is of before. Start anew with a lower one.",
                field="lr",
                value=self.stage_config.lr,
            )
        if self.state.global_step == self.state.max_steps:
            # A run shorter than a window has one, too, which is there when it is resumed.
            self.control.should_log |= not any("loss" in each for each in self.state.log_history)
        super()._maybe_log_save_evaluate(loss, norm, *given, **options)

    def training_step(self, model: Any, inputs: dict[str, Any], *given: Any) -> torch.Tensor:
        """Add the gradients of a batch, part by part, and return its loss."""
        step = super().training_step
        with self.rounded():
            return torch.stack([step(model, part, *given) for part in self._parts(inputs)]).sum()

    def prediction_step(self, *given: Any, **options: Any) -> Any:
        """Compute as in training."""
        with self.rounded():
            return super().prediction_step(*given, **options)

    def _parts(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Part a batch by its rows where that saves memory and costs no time."""
        distributed = self.accelerator.num_processes > 1 or self.is_deepspeed_enabled
        # The solutions of prompt groups belong together, and have another name.
        if distributed or self.args.device.type != "cpu" or "input_ids" not in inputs:
            return [inputs]
        _, place_BT = model_inputs(inputs, self.share_prompt)
        # Products of halves gain from more tokens, and those take half the memory.
        part_B = place_BT.amax(1) // (MAX_CPU_BATCH_TOKENS * (2 if self.uses_bfloat16 else 1))
        rows = part_B.unique_consecutive(return_counts=True)[1].tolist()
        parts = zip(*(each.split(rows) for each in inputs.values()), strict=True)
        return [dict(zip(inputs, part, strict=True)) for part in parts]

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Count what the loss of a batch is the mean over."""
        raise NotImplementedError

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> torch.Tensor:
        """Count the items of one optimizer step, over all processes."""
        items = torch.tensor(sum(self.count_items(batch) for batch in batch_samples))
        return self.accelerator.gather(items.to(device)).sum()

    def scale_loss(self, loss: torch.Tensor, items: int, all_items: torch.Tensor) -> torch.Tensor:
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
    (last,) = broadcast_object_list(
        [latest_complete_checkpoint(folder) if config.resume and first else None]
    )
    if first:
        write_state(config, identity)
        shutil.rmtree(folder / WRITING, ignore_errors=True)  # of a run that was killed
        if config.resume:
            log.info(f"resuming from {last or 'the beginning: there is no whole checkpoint'}")
    trainer.accelerator.wait_for_everyone()
    trainer.train(resume_from_checkpoint=last and str(last))
    most = trainer.state.max_steps
    if config.schedule != "constant" and trainer.args.get_warmup_steps(most) >= most:
        log.info(f"warming up took all {most} steps (at the first, lr is 0): lower warmup")


def save_merged(trainer: Any, config: TrainConfig) -> None:
    """Write weights that transformers loads as they are, adapters merged in; whole or not at all.

    Raises:
        StoreError: if they cannot be written.
    """
    if config.lora:
        trained = trainer.accelerator.unwrap_model(trainer.model).cpu()
        # Not into halves or quarters, which would round most of it away.
        whole = (
            attach_to_full_precision(trained, config) if config.load_in_4bit else trained.float()
        )
        trainer.model = whole.merge_and_unload()
    # transformers turns it off for training; whoever samples wants it.
    trainer.model.config.use_cache = trainer.use_cache
    with staging_directory(config.out) as place:
        if not config.lora:
            trainer.save_model(str(place))
        elif trainer.is_world_process_zero():  # DeepSpeed would save what it trained: the adapters
            trainer._save(str(place))
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            commit_model(config.out)
        trainer.accelerator.wait_for_everyone()
