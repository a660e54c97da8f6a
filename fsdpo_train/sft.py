"""Supervised fine-tuning on prompt/completion rows; the loop is ``transformers.Trainer``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsdpo_data
from fsdpo_data.errors import InputError, RunMismatch, Unavailable
from fsdpo_data.identity import file_sha256
from fsdpo_data.models import resolve
from fsdpo_train.config import SftConfig
from fsdpo_train.sft_data import collate, encode_rows, grouped_order, read_rows

if TYPE_CHECKING:
    import datasets

_STATE = "sft.json"


@dataclass(frozen=True, slots=True)
class SftReport:
    """What a run did.

    Attributes:
        out: Directory of the trained model.
        rows: Rows trained on.
        too_long: Rows dropped because they exceed the context length.
        unusable: Rows dropped because the prompt is missing or the completion empty.
        tokens: Tokens per epoch that carry loss.
        steps: Optimizer steps, those before a resume included.
        loss: Mean loss over the last logging window.
    """

    out: Path
    rows: int
    too_long: int
    unusable: int
    tokens: int
    steps: int
    loss: float


def train_sft(config: SftConfig) -> SftReport:
    """Train as ``config`` says and write model, tokenizer and card to ``config.out``.

    Raises:
        InputError: if the data or an option cannot be used.
        RunMismatch: if ``config.out`` belongs to another run.
        Unavailable: if a model, tracker or package is not here.
    """
    import transformers

    rows = read_rows(config.data)
    identity = {**config.identity(), "data": file_sha256(config.data)}
    _check_out(config, identity)
    transformers.set_seed(config.seed)
    model, tokenizer = _start(config)
    encoded, too_long, unusable = encode_rows(rows, tokenizer, _context(config, model))
    if not len(encoded):
        raise InputError(
            f"{config.data}: no row is left to train on; {too_long} exceed the context length "
            f"and {unusable} have no prompt or an empty completion. Check the file, or raise "
            "--max-length."
        )
    trainer = _trainer(config, model, tokenizer, encoded)
    # Only now is the directory this run's: a start that failed may be tried again, and every
    # process of a distributed run has found it free.
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        (config.out / _STATE).write_text(json.dumps(identity, indent=2) + "\n")
    trainer.train(resume_from_checkpoint=_last_checkpoint(config))
    # The trainer turns the cache off for training; whoever samples from the model wants it.
    model.config.use_cache = True
    trainer.save_model(str(config.out))
    report = SftReport(
        out=config.out,
        rows=len(encoded),
        too_long=too_long,
        unusable=unusable,
        tokens=sum(encoded["loss_tokens"]),
        steps=trainer.state.global_step,
        loss=_last_loss(trainer.state.log_history),
    )
    if trainer.is_world_process_zero():
        _write_card(config, identity, report)
    return report


def _check_out(config: SftConfig, identity: dict[str, str]) -> None:
    """Refuse a directory that belongs to something else."""
    state = config.out / _STATE
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


def _start(config: SftConfig) -> tuple[Any, Any]:
    """Load the checkpoint, or draw random weights for the given architecture."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    # The rows hold whole prompts: the template is named only to need no chat template.
    found = resolve(config.model, template="problem") if config.model else None
    try:
        if found is None:
            folder = Path(str(config.from_config))
            folder = folder.parent if folder.suffix == ".json" else folder
            architecture = AutoConfig.from_pretrained(str(config.from_config))
            tokenizer = AutoTokenizer.from_pretrained(str(folder))
            model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
        else:
            tokenizer = AutoTokenizer.from_pretrained(found.path, revision=found.commit)
            # Float32 whatever the file holds: at 1e-5, updates to bfloat16 weights round away.
            model = AutoModelForCausalLM.from_pretrained(
                found.path, revision=found.commit, dtype=torch.float32, use_safetensors=True
            )
    except (OSError, ValueError) as error:
        source = (
            f"--model {config.model}" if config.model else f"--from-config {config.from_config}"
        )
        reason = str(error).splitlines()[0]
        raise Unavailable(
            f"{source}: {reason} Expected config.json, tokenizer files and, for --model, "
            "safetensors weights."
        ) from error
    _check_tokenizer(tokenizer, model)
    return model, tokenizer


def _check_tokenizer(tokenizer: Any, model: Any) -> None:
    if tokenizer.eos_token_id is None:
        raise InputError("the tokenizer has no end-of-sequence token; SFT could not end an answer.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens but the model embeds only {size}. "
            "Use the tokenizer the model was made with, or set vocab_size in config.json."
        )


def _context(config: SftConfig, model: Any) -> int:
    context = getattr(model.config, "max_position_embeddings", None) or config.max_length
    if config.max_length > context:
        raise InputError(f"--max-length {config.max_length}: the model reads {context} tokens.")
    return config.max_length or context or 2**31


def _trainer(config: SftConfig, model: Any, tokenizer: Any, rows: datasets.Dataset) -> Any:
    """Set up ``transformers.Trainer`` with an order of its own."""
    import torch
    import transformers

    class Order(torch.utils.data.Sampler):  # type: ignore[type-arg]
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return len(lengths)

        def __iter__(self) -> Iterator[int]:
            size, group = config.batch_size, config.group_by_length
            return grouped_order(lengths, size, config.seed, self.epoch, group)

    class Trainer(transformers.Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Order:
            return Order()

    lengths = rows["length"][:]
    return Trainer(
        model=model,
        args=_arguments(config),
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
    )


def _arguments(config: SftConfig) -> Any:
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
        return TrainingArguments(
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
            deepspeed=str(config.deepspeed) if config.deepspeed else None,
            report_to=config.report_to,
            logging_steps=config.log_every,
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or 500,
            save_total_limit=config.save_limit,
            seed=config.seed,
            dataloader_pin_memory=torch.cuda.is_available(),
        )
    except ImportError as error:
        raise Unavailable(f"{error} Install fsdpo[train], or fsdpo[deepspeed].") from error
    except ValueError as error:
        raise InputError(f"these options do not go together: {error}") from error


def _last_checkpoint(config: SftConfig) -> str | None:
    """Return the newest checkpoint to resume from; None starts at the beginning."""
    from transformers.trainer_utils import get_last_checkpoint

    folder = config.out / "checkpoints"
    return get_last_checkpoint(str(folder)) if config.resume and folder.is_dir() else None


def _last_loss(history: list[dict[str, float]]) -> float:
    losses = [entry["loss"] for entry in history if "loss" in entry]
    return losses[-1] if losses else float("nan")


def _write_card(config: SftConfig, identity: dict[str, str], report: SftReport) -> None:
    """Write a model card: what the weights were made from, and how."""
    import torch
    import transformers

    versions = {
        "fsdpo": fsdpo_data.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    table = "\n".join(f"| {key} | `{value}` |" for key, value in {**identity, **versions}.items())
    (config.out / "README.md").write_text(
        f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [sft, fsdpo]
---

# {config.out.resolve().name}

Supervised fine-tuning of `{config.model or config.from_config}`: {report.rows} rows,
{report.tokens} tokens with loss per epoch, {report.steps} optimizer steps, final loss
{report.loss:.4f}. {report.too_long} rows exceeded the context length and {report.unusable} were
unusable; they were left out.

| option | value |
| --- | --- |
{table}

`data` is the SHA-256 of the training file.
"""
    )
