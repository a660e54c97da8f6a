"""What the stages share: a directory that is theirs, ``transformers.Trainer``, options."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError, RunMismatch, Unavailable
from fsdpo_data.models.resolve import resolve
from fsdpo_train.config import DEEPSPEED_PRESETS, TrainConfig
from fsdpo_train.trainer.batching import grouped_order

if TYPE_CHECKING:
    import datasets


def is_main_process() -> bool:
    """Say whether this process speaks for the run; under torchrun, one of them does."""
    return os.environ.get("RANK", "0") == "0"


def check_out(config: TrainConfig, identity: Mapping[str, str]) -> None:
    """Refuse a directory that belongs to something else; make it if it is missing.

    Raises:
        InputError: if it holds a model, or a run and ``--resume`` is off.
        RunMismatch: if it holds a run with other options.
    """
    state = config.out / f"{config.stage}.json"
    if not state.exists():
        if (config.out / "config.json").exists():
            raise InputError(f"--out {config.out}: already holds a model. Choose a new --out.")
        config.out.mkdir(parents=True, exist_ok=True)
        return
    if not config.resume:
        raise InputError(
            f"--out {config.out}: already holds a run. Add --resume to continue it, or choose a "
            "new --out."
        )
    before = json.loads(state.read_text())
    changed = {key for key in before.keys() | identity if before.get(key) != identity.get(key)}
    if changed:
        raise RunMismatch(
            f"{config.out} was started with other options; these differ: {sorted(changed)}. "
            "Resume with the options of the first start, or choose a new --out."
        )


def model_identity(name: str) -> str:
    """Return which model ``--model`` names, by content: a path says nothing elsewhere.

    Raises:
        InputError: if there is no such model.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    ref = resolve(name, template="problem").ref
    return f"{ref.name}@{ref.revision}"


def load_model(
    name: str, auto_class: Any, configure: Callable[[Any], None] | None = None
) -> tuple[Any, Any]:
    """Load a checkpoint and its tokenizer to train.

    Args:
        name: What ``--model`` says.
        auto_class: The ``AutoModelFor…`` to load it as.
        configure: Changes the checkpoint's config before its weights are loaded.

    Raises:
        Unavailable: if there is no such model, or it cannot be loaded.
    """
    import torch
    from transformers import AutoConfig, AutoTokenizer

    # The rows hold whole prompts: the template is named only to need no chat template.
    found = resolve(name, template="problem")
    try:
        tokenizer = AutoTokenizer.from_pretrained(found.path, revision=found.commit)
        architecture = AutoConfig.from_pretrained(found.path, revision=found.commit)
        if configure is not None:
            configure(architecture)
        # Float32 whatever the file holds: at 1e-5, updates to bfloat16 weights round away.
        model = auto_class.from_pretrained(
            found.path,
            revision=found.commit,
            config=architecture,
            dtype=torch.float32,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise unloadable(f"--model {name}", error) from error
    return model, tokenizer


def unloadable(source: str, error: Exception) -> Unavailable:
    """Say why nothing could be loaded from ``source``."""
    return Unavailable(
        f"{source}: {str(error).splitlines()[0]} Expected config.json, tokenizer files and, for "
        "--model, safetensors weights."
    )


def check_tokenizer(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer that does not fit the model; give it a padding token if it has none.

    Raises:
        InputError: if it has no end-of-sequence token, or more tokens than the model embeds.
    """
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer has no end-of-sequence token; no answer could end. Set eos_token in "
            "tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    size = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > size:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens but the model embeds only {size}. "
            "Use the tokenizer the model was made with, or set vocab_size in config.json."
        )


def context_length(config: TrainConfig, model: Any) -> int:
    """Return how many tokens a row may have.

    Raises:
        InputError: if ``--max-length`` is more than the model reads.
    """
    context = getattr(model.config, "max_position_embeddings", None) or config.max_length
    if config.max_length > context:
        raise InputError(f"--max-length {config.max_length}: the model reads {context} tokens.")
    return config.max_length or context or 2**31


def with_adapters(model: Any, rank: int, task: str, *, exclude: Sequence[str] = ()) -> Any:
    """Put LoRA adapters on every linear layer of ``model``, if ``rank`` is over 0.

    Args:
        model: The model; a vocabulary head is left alone.
        rank: Rank of the adapters; their scale is twice that.
        task: Task type, as peft names it.
        exclude: Layers to leave out.

    Raises:
        Unavailable: if peft is not installed.
    """
    if not rank:
        return model
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise Unavailable(f"--lora needs peft ({error}). Install fsdpo[lora].") from error
    adapters = LoraConfig(
        task_type=task,
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=list(exclude) or None,
    )
    return get_peft_model(model, adapters)


def save_merged(trainer: Any, out: Path, rank: int) -> None:
    """Write weights that transformers loads as they are, adapters merged in."""
    if rank:
        trainer.model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        trainer.model_wrapped = trainer.model
    trainer.save_model(str(out))


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


def training_arguments(config: TrainConfig, **options: Any) -> Any:
    """Return the ``TrainingArguments`` of a stage; ``options`` are those of this stage alone.

    Raises:
        InputError: if an option is unknown or options do not go together.
        Unavailable: if a tracker or DeepSpeed is not installed.
    """
    import torch
    from transformers import TrainingArguments
    from transformers.integrations import get_available_reporting_integrations
    from transformers.trainer_utils import SchedulerType

    schedules = [kind.value for kind in SchedulerType]
    if config.schedule not in schedules:
        raise InputError(f"--schedule {config.schedule}: expected one of {', '.join(schedules)}.")
    known = ["none", *get_available_reporting_integrations()]
    if config.report_to not in known:
        raise Unavailable(
            f"--report-to {config.report_to}: not installed here; expected {' or '.join(known)}."
        )
    try:
        arguments = TrainingArguments(
            output_dir=str(config.out / "checkpoints"),
            num_train_epochs=config.epochs,
            max_steps=config.max_steps or -1,
            per_device_train_batch_size=config.batch_size,
            gradient_accumulation_steps=config.grad_accum,
            learning_rate=config.lr,
            lr_scheduler_type=config.schedule,
            warmup_steps=config.warmup,
            weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
            max_grad_norm=config.max_grad_norm,
            bf16=config.bf16,
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=config.gradient_checkpointing,
            deepspeed=deepspeed_config(config.deepspeed),
            report_to=config.report_to,
            logging_steps=config.log_every,
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or 500,
            save_total_limit=config.save_limit,
            seed=config.seed,
            dataloader_pin_memory=torch.cuda.is_available(),
            **options,
        )
        _join_processes(arguments)
        atexit.register(_leave_processes)
        return arguments
    except ImportError as error:
        raise Unavailable(f"{error} Install fsdpo[train], or fsdpo[deepspeed].") from error
    except ValueError as error:
        raise InputError(f"these options do not go together: {error}") from error


def _join_processes(arguments: Any) -> None:
    """Let DeepSpeed know the other processes: zero3 spreads weights over them as it loads them."""
    if arguments.deepspeed is None or "RANK" not in os.environ:
        return
    import deepspeed

    arguments.device  # noqa: B018, the property sets up torch's process group
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _leave_processes() -> None:
    """End the process group: its threads, still running, now and then abort a process that ends."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def deepspeed_config(name: str | None) -> dict[str, Any] | str | None:
    """Return what ``TrainingArguments`` takes for ``--deepspeed``."""
    if name not in DEEPSPEED_PRESETS:
        return name
    zero: dict[str, Any] = {"stage": int(name[-1]), "overlap_comm": True}
    if name == "zero3":
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {
        "zero_optimization": zero,
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        # The optimizer and the schedule are those of the Trainer.
        "zero_allow_untested_optimizer": True,
        **{size: "auto" for size in sizes},
    }


def run_trainer(trainer: Any, config: TrainConfig, identity: Mapping[str, str]) -> None:
    """Train from the beginning or the last checkpoint."""
    # Only now is the directory this run's: a start that failed may be tried again, and every
    # process of a distributed run has found it free.
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        state = config.out / f"{config.stage}.json"
        state.write_text(json.dumps(dict(identity), indent=2) + "\n")
    trainer.train(resume_from_checkpoint=last_checkpoint(config))


def last_checkpoint(config: TrainConfig) -> str | None:
    """Return the newest checkpoint to resume from; None starts at the beginning."""
    from transformers.trainer_utils import get_last_checkpoint

    folder = config.out / "checkpoints"
    return get_last_checkpoint(str(folder)) if config.resume and folder.is_dir() else None


def last_loss(history: list[dict[str, float]]) -> float:
    """Return the mean loss of the last logging window, or of a run that was shorter than one."""
    losses = [entry["loss"] for entry in history if "loss" in entry]
    losses = losses or [entry["train_loss"] for entry in history if "train_loss" in entry]
    return losses[-1] if losses else float("nan")
