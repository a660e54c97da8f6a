"""The base of the trainers: ``transformers.Trainer`` with prompt groups and safe checkpoints."""

import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.utils import broadcast_object_list

from fsdpo_data.core.errors import FsdpoError, InputError, StoreError
from fsdpo_data.core.memory_limit import is_memory_error
from fsdpo_data.dataset.run_directory import read_config, write_config
from fsdpo_data.engines.cpu_bf16.weights import (
    TOKENS_FACTOR,
    Bfloat16Weights,
    uses_bfloat16_weights,
)
from fsdpo_data.models.checkpoints import MAX_CPU_BATCH_TOKENS, cpu_has_bfloat16
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.batching import (
    TrainingRow,
    group_rows,
    grouped_order,
    model_inputs,
    unpack_rows,
)
from fsdpo_train.trainer.checkpoints import (
    STAGING_FOLDER,
    commit_checkpoint,
    commit_model,
    latest_checkpoint,
    staging_directory,
)
from fsdpo_train.trainer.deepspeed import deepspeed_errors
from fsdpo_train.trainer.head_chunk import set_head_chunk
from fsdpo_train.trainer.log_callback import log_instead_of_printing
from fsdpo_train.trainer.models import attach_to_full_precision
from fsdpo_train.trainer.training_state import find_damage
from fsdpo_train.trainer.weight_changes import WeightCallback

log = logging.getLogger(__name__)

CHECKPOINT_FOLDER = "checkpoints"  #: Folder of the checkpoints inside the directory of a run.


class PromptGroupedSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """Sampler that keeps the rows of one ``group`` together inside an optimizer step.

    The rows come in :func:`grouped_order`. Padding rows have length 0 and come last. The order
    inside a step does not change the loss, because the loss is the mean over the step.

    Args:
        rows: The rows, padding rows included.
        config: The options of the run.
        world_size: Number of processes.
    """

    def __init__(self, rows: Sequence[TrainingRow], config: TrainConfig, world_size: int) -> None:
        self.n_rows = len(rows)
        self.rows = [row for row in rows if row.length]
        #: Row indices that stay together in an epoch: one row, or all rows of a prompt.
        self.units = group_rows(self.rows, keep_groups=config.keeps_prompt_groups)
        self.rows_per_step = config.rows_per_micro_batch * config.grad_accum * world_size
        self.config = config
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Select the order of an epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_rows

    def __iter__(self) -> Iterator[int]:
        unit_order = grouped_order(
            [self.rows[unit[0]].length for unit in self.units],
            self.config.rows_per_micro_batch,
            seed=self.config.seed,
            epoch=self.epoch,
            group_by_length=self.config.group_by_length,
        )
        order = [row_index for unit in unit_order for row_index in self.units[unit]]
        for start in range(0, len(order), self.rows_per_step):
            step_order = order[start : start + self.rows_per_step]
            for group in group_rows([self.rows[row_index] for row_index in step_order]):
                yield from (step_order[index] for index in group)
        yield from range(len(order), self.n_rows)


class StageTrainer(transformers.Trainer):  # type: ignore[misc]
    """A trainer for losses that are means over the items of an optimizer step.

    Batches of a step contain different numbers of items (tokens, solutions or pairs), and every
    item has the same weight. A subclass implements ``count_items``. Its ``compute_loss`` returns
    the mean over a batch, scaled by ``scale_loss``. A checkpoint is complete or absent.

    Args:
        config: The options of the run.
        share_prompt: Whether the model computes a prompt once for neighbouring solutions.
        **options: Arguments of ``transformers.Trainer``.
    """

    data_collator: Any

    def __init__(self, config: TrainConfig, share_prompt: bool, **options: Any) -> None:
        self.stage_config: Any = config
        self.share_prompt = share_prompt
        self.use_cache = options["model"].config.get_text_config().use_cache
        super().__init__(**options)
        log_instead_of_printing(self)
        collate = self.data_collator
        self.data_collator = lambda rows: collate(unpack_rows(rows))
        # With this flag and a count of items, no version of transformers divides by grad_accum.
        self.model_accepts_loss_kwargs = True
        self.uses_bfloat16 = uses_bfloat16_weights(config.dtype, self.args)
        if self.uses_bfloat16 and not cpu_has_bfloat16():
            log.warning(
                "this CPU has no instructions for bfloat16, so large models train many times "
                "slower than with `dtype='float32'`"
            )
        self.compute_context = (
            Bfloat16Weights(self.model).use_in_model if self.uses_bfloat16 else nullcontext
        )

    def models_with_head(self) -> list[Any]:
        """Return the models that training runs; some have a vocabulary head."""
        return [self.model]

    def make_sampler(self) -> Any:
        """Return the sampler of the rows, with a method ``set_epoch``."""
        return PromptGroupedSampler(self.train_dataset, self.stage_config, self.args.world_size)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        self.train_sampler = self.make_sampler()
        return self.train_sampler

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create the schedule of the learning rate, with the warm-up in whole steps."""
        self.args.warmup_steps = count_warmup_steps(self.stage_config.warmup, num_training_steps)
        return super().create_scheduler(num_training_steps, optimizer)

    @property
    def is_ready(self) -> bool:
        """Whether the model and the data are ready for the first step."""
        return self.callback_handler.train_dataloader is not None

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        # The data loader has moved the inputs to the device. Under DeepSpeed, transformers would
        # also cast labels and reference log-probabilities to bfloat16.
        return inputs

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.stage_config.out / CHECKPOINT_FOLDER / STAGING_FOLDER)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = self.stage_config.out / CHECKPOINT_FOLDER
        with staging_directory(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                name = f"checkpoint-{self.state.global_step}"
                commit_checkpoint(folder, name, self.stage_config.save_limit)
            self.accelerator.wait_for_everyone()

    def _maybe_log_save_evaluate(
        self, loss: Any, grad_norm: Any, *args: Any, **options: Any
    ) -> None:
        # This check runs before a checkpoint is saved and older checkpoints are removed.
        if grad_norm is not None and not grad_norm < torch.inf:
            raise self._divergence_error()
        if self.state.global_step == self.state.max_steps:
            # The last logging window ends with the run. It may be shorter than the others.
            self.control.should_log = True
        super()._maybe_log_save_evaluate(loss, grad_norm, *args, **options)

    def _divergence_error(self) -> InputError:
        """Return the error for a gradient norm that is NaN or infinite."""
        step = self.state.global_step
        if step == 1:  # no learning rate has changed the weights yet
            return InputError(
                "the gradient norm of the first step is NaN or infinite, before any update. Check "
                "the weights of the model and the options of the loss.",
                field="model",
                value=self.stage_config.model,
            )
        return InputError(
            f"training diverged: the gradient norm at step {step} is NaN or infinite. The last "
            "checkpoint is older and intact. Start again with a lower learning rate.",
            field="lr",
            value=self.stage_config.lr,
        )

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any) -> torch.Tensor:
        """Accumulate the gradients of a batch, and return its loss."""
        run_step = super().training_step
        with self.compute_context():
            losses = [run_step(model, part, *args) for part in self._split_batch(inputs)]
            return torch.stack(losses).sum()

    def prediction_step(self, *args: Any, **options: Any) -> Any:
        """Evaluate a batch with the same weights as in training."""
        with self.compute_context():
            return super().prediction_step(*args, **options)

    def _split_batch(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Split a batch by rows if this saves memory and costs no time."""
        is_distributed = self.accelerator.num_processes > 1 or self.is_deepspeed_enabled
        # Preference batches cannot be split, and have no entry "input_ids".
        if is_distributed or self.args.device.type != "cpu" or "input_ids" not in inputs:
            return [inputs]
        _, position_BT = model_inputs(inputs, self.share_prompt)
        tokens_per_part = MAX_CPU_BATCH_TOKENS * (TOKENS_FACTOR if self.uses_bfloat16 else 1)
        part_B = position_BT.amax(1) // tokens_per_part
        part_sizes = part_B.unique_consecutive(return_counts=True)[1].tolist()
        split_tensors = {name: tensor.split(part_sizes) for name, tensor in inputs.items()}
        return [
            {name: tensors[index] for name, tensors in split_tensors.items()}
            for index in range(len(part_sizes))
        ]

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Return the number of items that the loss of a batch is the mean over."""
        raise NotImplementedError

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any
    ) -> tuple[list[Any], torch.Tensor | None]:
        """Return the batches of one optimizer step, and their number of items over all processes.

        The training loop checks for the end only after a step. A run that was stopped after its
        last checkpoint gets no further batch.
        """
        if self.state.global_step >= self.state.max_steps:
            return [], None
        # Accelerate tells no sampler of a run that resumes within an epoch on several processes.
        self.train_sampler.set_epoch(int(self.state.epoch))
        batches = list(islice(epoch_iterator, num_batches))
        batch_items = torch.tensor(sum(map(self.count_items, batches)))
        return batches, self.accelerator.gather(batch_items.to(device)).sum()

    def scale_loss(
        self, loss: torch.Tensor, batch_items: int, all_items: torch.Tensor
    ) -> torch.Tensor:
        """Return the contribution of a batch to the mean over the optimizer step.

        Args:
            loss: The mean over the items of the batch.
            batch_items: Number of items in the batch.
            all_items: Number of items in the optimizer step, over all processes.
        """
        # Gradients are averaged over processes, which divides by the number of processes.
        return loss * batch_items * self.accelerator.num_processes / all_items


def count_warmup_steps(warmup: float, max_steps: int) -> int:
    """Return the number of warm-up steps, which never take the last step of a run.

    The learning rate of the first warm-up step is 0. transformers rounds fractions up, so a run of
    few steps would lose one: a fraction of less than one step is no warm-up here.

    Args:
        warmup: A number of steps, or a fraction of all steps if below 1, which is rounded up from
            one step on.
        max_steps: Number of steps of the run.
    """
    # A float may be a little above the whole number that it stands for: 0.07 * 100.
    steps = warmup if warmup >= 1 else round(warmup * max_steps, 6)
    return 0 if steps < 1 else max(0, min(math.ceil(steps), max_steps - 1))


def identity_file(config: TrainConfig) -> Path:
    """Return the file with the identity of a run."""
    return config.out / f"{config.stage}.json"


def run_trainer(trainer: Any, config: TrainConfig) -> None:
    """Train from the beginning, or from the latest complete checkpoint with ``config.resume``.

    Raises:
        InputError: if training diverges, or changes no weight.
        StoreError: if a checkpoint cannot be written.
    """
    folder = config.out / CHECKPOINT_FOLDER
    # One process checks the files, and all processes resume from the same checkpoint.
    is_first_process = trainer.is_world_process_zero()
    newest_checkpoint = None
    record: dict[str, Any] = {}
    if is_first_process:
        record = read_config(identity_file(config))
        if config.resume:
            newest_checkpoint = latest_checkpoint(folder, partial(find_damage, trainer=trainer))
    (checkpoint,) = broadcast_object_list([newest_checkpoint])
    head_chunk = set_head_chunk(trainer, record)
    if is_first_process:
        write_config(identity_file(config), {**record, **head_chunk})
        shutil.rmtree(folder / STAGING_FOLDER, ignore_errors=True)  # left by a killed run
        if config.resume:
            start = checkpoint or "the beginning: there is no complete checkpoint"
            log.info(f"resuming from {start}")
    trainer.accelerator.wait_for_everyone()
    weights = WeightCallback(
        trainer.model,
        is_converted=trainer.is_deepspeed_enabled,
        is_resumed=checkpoint is not None,
    )
    trainer.add_callback(weights)
    with _start_errors(trainer, checkpoint):
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    _check_weights_changed(trainer, weights, config)


@contextmanager
def _start_errors(trainer: Any, checkpoint: Path | None) -> Iterator[None]:
    """Turn an error before the first step into one about the checkpoint or about DeepSpeed.

    Raises:
        StoreError: if the run resumes, for an Exception before the first step.
        InputError: if DeepSpeed does not start.
    """
    deepspeed = trainer.stage_config.deepspeed
    try:
        yield
    except Exception as error:
        if trainer.is_ready or isinstance(error, FsdpoError) or is_memory_error(error):
            raise
        if checkpoint is None:
            with deepspeed_errors(deepspeed):
                raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        cause = "DeepSpeed does not start, or " if deepspeed else ""
        raise StoreError(
            f"{cause}the checkpoint {checkpoint} does not fit this run ({reason}). "
            f"{'If DeepSpeed starts without it, move' if deepspeed else 'Move'} it away, and run "
            "again with `resume=True`."
        ) from error


def _check_weights_changed(trainer: Any, weights: WeightCallback, config: TrainConfig) -> None:
    """Raise an InputError if no process has changed a weight."""
    if weights.is_changed is None:
        return
    changed = torch.tensor(float(weights.is_changed), device=trainer.args.device)
    if not trainer.accelerator.reduce(changed):
        raise InputError(
            f"the training of {trainer.state.global_step} steps changed no weight, so no model is "
            "written. Check the learning rate and the options of the loss, and start again in a "
            "new directory.",
            field="lr",
            value=config.lr,
        )


def save_merged(trainer: Any, config: TrainConfig) -> None:
    """Write the trained model, with LoRA adapters merged in; it is complete or absent.

    Raises:
        StoreError: if the model cannot be written.
    """
    if config.lora:
        trained = trainer.accelerator.unwrap_model(trainer.model).cpu()
        # bfloat16 and 4-bit weights under the adapters are rounded. The model gets its own weights.
        if config.load_in_4bit or config.weights_dtype != "float32":
            full_precision = attach_to_full_precision(trained, config)
        else:
            full_precision = trained.float()
        trainer.model = full_precision.merge_and_unload()
    # transformers switches the cache off for training, but sampling needs it.
    trainer.model.config.get_text_config().use_cache = trainer.use_cache
    with staging_directory(config.out) as folder:
        if not config.lora:
            trainer.save_model(str(folder))
        elif trainer.is_world_process_zero():  # DeepSpeed would save the adapters
            trainer._save(str(folder))
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            commit_model(config.out)
        trainer.accelerator.wait_for_everyone()
