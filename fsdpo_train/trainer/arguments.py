"""The ``TrainingArguments`` of a run, and checks of the options that they depend on."""

from importlib.util import find_spec
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from fsdpo_data.core.errors import InputError, UnavailableError, install_command, unknown_name_error
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.deepspeed import (
    deepspeed_config,
    first_line,
    init_deepspeed_processes,
)

#: Schedules of transformers that ignore the warm-up, and their variants with one.
_WITH_WARMUP = {"constant": "constant_with_warmup"}


def training_arguments(config: TrainConfig, **stage_options: Any) -> Any:
    """Return the ``TrainingArguments`` of a stage.

    Args:
        config: The options of the run.
        **stage_options: Arguments that only this stage sets.

    Raises:
        InputError: if an option is unknown, options do not go together, or one process sees several
            GPUs.
        UnavailableError: if a tracker, DeepSpeed or a package for adapters is not installed.
    """
    _check_names(config)
    _check_adapter_packages(config)
    try:
        arguments = TrainingArguments(
            output_dir=str(config.out / "checkpoints"),
            num_train_epochs=config.epochs,
            max_steps=config.max_steps or -1,
            per_device_train_batch_size=config.rows_per_micro_batch,
            gradient_accumulation_steps=config.grad_accum,
            learning_rate=config.lr,
            # transformers has a constant schedule without a warm-up.
            lr_scheduler_type=_WITH_WARMUP.get(config.schedule, config.schedule),
            optim=config.optim,
            warmup_steps=config.warmup,
            weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
            max_grad_norm=config.max_grad_norm,
            bf16=config.dtype == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=config.gradient_checkpointing,
            deepspeed=deepspeed_config(config.deepspeed),
            report_to=config.report_to,
            logging_steps=config.log_every,
            disable_tqdm=True,  # the bars would print; StageTrainer logs
            logging_nan_inf_filter=False,  # the filter would log NaN as 0
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or 500,
            seed=config.seed,
            dataloader_pin_memory=torch.cuda.is_available(),
            remove_unused_columns=False,
            **stage_options,
        )
        init_deepspeed_processes(arguments)
    except ImportError as error:
        raise UnavailableError(
            f"a package is missing: {first_line(error)} Install the packages: "
            f"{install_command('train,deepspeed')}."
        ) from error
    except ValueError as error:
        raise InputError(f"these options do not go together: {first_line(error)}") from error
    _check_one_gpu(arguments)
    _check_optimizer(arguments, config)
    return arguments


def _check_names(config: TrainConfig) -> None:
    """Check the names of the schedule, the optimizer and the tracker.

    Raises:
        InputError: if transformers has no such schedule or optimizer, or if the schedule needs
            further arguments.
        UnavailableError: if the tracker is not installed.
    """
    schedules = [schedule.value for schedule in SchedulerType if not _needs_arguments(schedule)]
    schedules.remove(SchedulerType.REDUCE_ON_PLATEAU.value)  # it needs evaluations, has no warm-up
    if config.schedule not in schedules:
        raise unknown_name_error("schedule", config.schedule, schedules)
    optimizers = [optimizer.value for optimizer in OptimizerNames]
    if config.optim not in optimizers:
        raise unknown_name_error("optim", config.optim, optimizers)
    trackers = ["none", *get_available_reporting_integrations()]
    if config.report_to not in trackers:
        raise UnavailableError(
            f"not installed here; expected {' or '.join(trackers)}.",
            field="report_to",
            value=config.report_to,
        )


def _needs_arguments(schedule: SchedulerType) -> bool:
    """Return whether a schedule needs arguments of its own, such as its lowest learning rate.

    The Trainer would notice only after the data are tokenised and the models are loaded.
    """
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    try:
        get_scheduler(schedule, optimizer, num_warmup_steps=0, num_training_steps=1)
    except (TypeError, ValueError):
        return True
    return False


def _check_adapter_packages(config: TrainConfig) -> None:
    """Raise an UnavailableError if a package for LoRA, 4 bits or DeepSpeed is not installed."""
    for field, package, extra in (
        ("lora", "peft", "lora"),
        ("load_in_4bit", "bitsandbytes", "qlora"),
        ("deepspeed", "deepspeed", "train,deepspeed"),
    ):
        value = getattr(config, field)
        if value and find_spec(package) is None:
            raise UnavailableError(
                f"the package {package} is missing. Install it: {install_command(extra)}.",
                field=field,
                value=value,
            )


def _check_one_gpu(arguments: TrainingArguments) -> None:
    """Raise an InputError if one process sees several GPUs.

    The Trainer would use DataParallel, which splits every tensor of a batch by its first dimension.
    Positions in the whole batch, which the models get, would point to other tokens or to none.
    """
    if arguments.n_gpu > 1:
        raise InputError(
            f"{arguments.n_gpu} GPUs but one process: start one process per GPU with torchrun "
            "--nproc-per-node, or make only one GPU visible (CUDA_VISIBLE_DEVICES)."
        )


def _check_optimizer(arguments: TrainingArguments, config: TrainConfig) -> None:
    """Raise an UnavailableError if the package of the optimizer is not installed.

    The Trainer would notice only after the reference log-probabilities are computed.
    """
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (ImportError, ValueError) as error:
        raise UnavailableError(str(error), field="optim", value=config.optim) from error
