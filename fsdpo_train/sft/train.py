"""Supervised fine-tuning on prompt/completion rows; the loop is ``transformers.Trainer``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError, Unavailable
from fsdpo_data.models.untrusted import load_error
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.data import IGNORE, collate, encode_rows, read_rows
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.card import write_card
from fsdpo_train.trainer.directory import claimed, is_main_process
from fsdpo_train.trainer.models import (
    check_tokenizer,
    context_length,
    load_model,
    model_identity,
    with_adapters,
)
from fsdpo_train.trainer.trainer import (
    Report,
    filled,
    ordered_trainer,
    outcome,
    run_trainer,
    save_merged,
)

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True)
class SftReport(Report):
    """What a run of supervised fine-tuning did.

    Attributes:
        rows: Rows trained on.
        too_long: Rows dropped because they exceed the context length.
        unusable: Rows dropped because the prompt is missing or the completion empty.
        tokens: Tokens per epoch that carry loss.
    """

    rows: int
    too_long: int
    unusable: int
    tokens: int


def train_sft(config: SftConfig) -> SftReport:
    """Train as ``config`` says and write model, tokenizer and card to ``config.out``.

    Raises:
        InputError: if the data or an option cannot be used.
        RunMismatch: if ``config.out`` belongs to another run.
        StoreError: if it cannot be written, or another process trains there.
        Unavailable: if a model, tracker or package is not here.
    """
    data, rows = read_rows(config.data)
    identity = {**config.identity(), "data": data}
    if config.model is not None:
        identity["model"] = model_identity(config.model)
    with claimed(config, identity):
        return _train(config, identity, rows)


def _train(config: SftConfig, identity: dict[str, str], rows: datasets.Dataset) -> SftReport:
    import transformers

    transformers.set_seed(config.seed)
    model, tokenizer = _start(config)
    encoded, too_long, unusable = encode_rows(rows, tokenizer, context_length(config, model))
    if not len(encoded):
        raise InputError(
            f"no row is left to train on; {too_long} exceed the context length and {unusable} have "
            "no prompt or an empty completion. Check the file, or raise max_length.",
            field="data",
            value=str(config.data),
        )
    trainer = _trainer(config, model, tokenizer, encoded)
    run_trainer(trainer, config, identity)
    # The trainer turns the cache off for training; whoever samples from the model wants it.
    model.config.use_cache = True
    save_merged(trainer, config)
    report = SftReport(
        **outcome(trainer, config),
        rows=len(encoded),
        too_long=too_long,
        unusable=unusable,
        tokens=sum(encoded["loss_tokens"]),
    )
    if is_main_process():
        write_card(config, identity, report)
    return report


def _start(config: SftConfig) -> tuple[Any, Any]:
    """Load the checkpoint, or draw random weights for the given architecture."""
    from transformers import AutoModelForCausalLM

    if config.model is not None:
        return load_model(config.model, AutoModelForCausalLM)
    return _random_model(Path(str(config.from_config)))


def _random_model(source: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = source.parent if source.suffix == ".json" else source
    try:
        architecture = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"{load_error(error)} Expected config.json and tokenizer files.",
            field="from_config",
            value=str(source),
        ) from error
    check_tokenizer(tokenizer, model)
    return model, tokenizer


def _trainer(config: SftConfig, model: Any, tokenizer: Any, rows: datasets.Dataset) -> Any:
    arguments = training_arguments(config)
    return ordered_trainer()(
        config,
        model=with_adapters(model, config.lora, "CAUSAL_LM"),
        args=arguments,
        train_dataset=filled(rows, arguments, labels=[IGNORE] * len(rows[0]["labels"])),
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
    )
