"""Supervised fine-tuning on prompt/completion rows; the loop is ``transformers.Trainer``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.data import collate, encode_rows, read_rows
from fsdpo_train.trainer.card import write_card
from fsdpo_train.trainer.loop import (
    check_out,
    check_tokenizer,
    context_length,
    last_loss,
    load_model,
    model_identity,
    ordered_trainer,
    run_trainer,
    training_arguments,
    unloadable,
)

if TYPE_CHECKING:
    import datasets


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
    if config.model is not None:
        identity["model"] = model_identity(config.model)
    check_out(config, identity)
    transformers.set_seed(config.seed)
    model, tokenizer = _start(config)
    encoded, too_long, unusable = encode_rows(rows, tokenizer, context_length(config, model))
    if not len(encoded):
        raise InputError(
            f"{config.data}: no row is left to train on; {too_long} exceed the context length "
            f"and {unusable} have no prompt or an empty completion. Check the file, or raise "
            "--max-length."
        )
    trainer = _trainer(config, model, tokenizer, encoded)
    run_trainer(trainer, config, identity)
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
        loss=last_loss(trainer.state.log_history),
    )
    if trainer.is_world_process_zero():
        write_card(config, identity, report)
    return report


def _start(config: SftConfig) -> tuple[Any, Any]:
    """Load the checkpoint, or draw random weights for the given architecture."""
    from transformers import AutoModelForCausalLM

    if config.model is not None:
        model, tokenizer = load_model(config.model, AutoModelForCausalLM)
    else:
        model, tokenizer = _random_model(Path(str(config.from_config)))
    check_tokenizer(tokenizer, model)
    return model, tokenizer


def _random_model(source: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = source.parent if source.suffix == ".json" else source
    try:
        architecture = AutoConfig.from_pretrained(str(source))
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise unloadable(f"--from-config {source}", error) from error
    return model, tokenizer


def _trainer(config: SftConfig, model: Any, tokenizer: Any, rows: datasets.Dataset) -> Any:
    return ordered_trainer()(
        config,
        model=model,
        args=training_arguments(config),
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
    )
