"""What ``transformers`` is told of a run."""

from importlib.util import find_spec
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from fsdpo_data.core.errors import InputError, UnavailableError, install_command, unknown_name_error
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.deepspeed import deepspeed_config, init_deepspeed_processes


def training_arguments(config: TrainConfig, **options: Any) -> Any:
    """Return the ``TrainingArguments`` of a stage; ``options`` are those of this stage alone.

    Raises:
        InputError: if an option is unknown or options do not go together.
        Unavailable: if a tracker, DeepSpeed or what adapters need is not installed.
    """
    for field, kinds in {"schedule": SchedulerType, "optim": OptimizerNames}.items():
        names, name = [kind.value for kind in kinds], getattr(config, field)
        if name not in names:
            raise unknown_name_error(field, name, names)
    adapters = (("lora", "peft", "lora"), ("load_in_4bit", "bitsandbytes", "qlora"))
    for field, package, extra in adapters:
        if (value := getattr(config, field)) and find_spec(package) is None:
            told = f"it needs {package}. Install it: {install_command(extra)}."
            raise UnavailableError(told, field=field, value=value)
    known = ["none", *get_available_reporting_integrations()]
    if config.report_to not in known:
        raise UnavailableError(
            f"not installed here; expected {' or '.join(known)}.",
            field="report_to",
            value=config.report_to,
        )
    try:
        arguments = TrainingArguments(
            output_dir=str(config.out / "checkpoints"),
            num_train_epochs=config.epochs,
            max_steps=config.max_steps or -1,
            per_device_train_batch_size=config.rows_per_micro_batch,
            gradient_accumulation_steps=config.grad_accum,
            learning_rate=config.lr,
            lr_scheduler_type=config.schedule,
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
            logging_nan_inf_filter=False,  # which would show 0 for what is no number
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or 500,
            seed=config.seed,
            dataloader_pin_memory=torch.cuda.is_available(),
            remove_unused_columns=False,
            **options,
        )
        init_deepspeed_processes(arguments)
    except ImportError as error:
        raise UnavailableError(
            f"{error} Install it: {install_command('train,deepspeed')}."
        ) from error
    except ValueError as error:
        raise InputError(f"these options do not go together: {error}") from error
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (ImportError, ValueError) as error:  # now, and not behind the reference
        raise UnavailableError(str(error), field="optim", value=config.optim) from error
    return arguments
