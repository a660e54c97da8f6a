"""Supervised fine-tuning on prompt/completion rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.memory_limit import reraise_memory_error
from fsdpo_data.engines.logprobs import head_error, patch_to_return_logprobs
from fsdpo_data.engines.samplers.tokenization import read_eos_ids
from fsdpo_data.models.untrusted import describe_load_error, read_tokenizer
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.data import SftData, encode_rows
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import (
    can_share_prompts,
    collate_tokens,
    completion_inputs,
    pack_rows,
    pad_to_world_size,
)
from fsdpo_train.trainer.computed_defaults import with_computed_defaults
from fsdpo_train.trainer.deepspeed import gathered_weights
from fsdpo_train.trainer.models import (
    add_lora_adapters,
    check_tokenizer,
    context_length,
    load_model,
)
from fsdpo_train.trainer.row_formats import SFT_ROWS
from fsdpo_train.trainer.row_source import open_data
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer
from fsdpo_train.trainer.training_template import check_stated_template


@dataclass(frozen=True)
class SftReport(TrainingReport):
    """The results of a supervised fine-tuning run.

    Attributes:
        rows: Rows used for training.
        too_long: Rows dropped because they exceed the context length.
        unusable: Rows dropped because the prompt is missing or the completion is empty.
        tokens: Tokens per epoch that have a loss.
    """

    rows: int
    too_long: int
    unusable: int
    tokens: int


def train_sft(config: SftConfig) -> SftReport:
    """Fine-tune a model, and write model, tokenizer and card to ``config.out``.

    Args:
        config: Options of the training; `help(SftConfig)` lists them.

    Raises:
        InputError: if the data or an option cannot be used.
        RunMismatchError: if ``config.out`` belongs to another run.
        StoreError: if ``config.out`` cannot be written, or another process trains there.
        UnavailableError: if a model, tracker or package is not available.

    Example:
        from fsdpo_train import SftConfig, train_sft

        report = train_sft(SftConfig(data="runs/demo", model="tiny", out="runs/sft"))
    """
    data = open_data(config.data, SFT_ROWS)
    config = with_computed_defaults(config)
    with start_run(config, data) as identity:
        arguments = training_arguments(config)
        model, tokenizer = _initial_model(config)
        check_stated_template(config, data, tokenizer)
        encoded = encode_rows(
            data, tokenizer, context_length(config, model), read_eos_ids(model, tokenizer)
        )
        _check_rows_left(encoded, config)
        with gathered_weights(model):
            # The output of a plain head is the logits, so they can be computed in chunks.
            has_plain_head = head_error(model) == 0
        share_prompt = can_share_prompts(model, encoded.rows)
        # A shared prompt needs tree attention; "auto" selects its implementation.
        model = patch_to_return_logprobs(
            model, attention="auto" if share_prompt else None, has_plain_head=has_plain_head
        )
        packs = pack_rows(encoded.rows, config)
        trainer = SftTrainer(
            config,
            share_prompt,
            model=add_lora_adapters(model, config.lora, "CAUSAL_LM"),
            args=arguments,
            train_dataset=pad_to_world_size(packs, arguments),
            processing_class=tokenizer,
            data_collator=lambda batch: collate_tokens(
                [row.solution for row in batch], tokenizer.pad_token_id
            ),
        )
        run_trainer(trainer, config)
        return finish_run(
            SftReport,
            trainer,
            config,
            data=data,
            card_data=identity,
            rows=len(encoded.rows),
            too_long=encoded.too_long,
            unusable=encoded.unusable,
            tokens=sum(row.solution.completion_length for row in encoded.rows),
        )


def _check_rows_left(data: SftData, config: SftConfig) -> None:
    """Raise an InputError if all rows were dropped."""
    if not data.rows:
        raise InputError(
            f"no row is left to train on; {data.too_long} exceed the context length and "
            f"{data.unusable} have no prompt or an empty completion. Check the file, or raise "
            "max_length.",
            field="data",
            value=config.data_text,
        )


def _initial_model(config: SftConfig) -> tuple[Any, Any]:
    """Load ``config.model``, or create a model with random weights from ``config.from_config``.

    Returns:
        The model and its tokenizer.
    """
    if config.model is not None:
        return load_model(config, "AutoModelForCausalLM")
    source = Path(str(config.from_config))
    folder = source.parent if source.suffix == ".json" else source
    try:
        architecture = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
        tokenizer = read_tokenizer(str(folder))
        model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
    except Exception as error:  # tokenizers raises no narrower class for a damaged file
        reraise_memory_error(error)
        raise UnavailableError(
            f"{describe_load_error(error)} Expected config.json and tokenizer files.",
            field="from_config",
            value=str(source),
        ) from error
    check_tokenizer(tokenizer, model)
    return model, tokenizer


class SftTrainer(StageTrainer):
    """A trainer for completions, in which every completion token has the same weight."""

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Return the number of completion tokens."""
        return int(batch["completion_mask"].sum())

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], *_: Any, num_items_in_batch: Any = None
    ) -> Any:
        """Return the cross-entropy of a batch; only a chunk of the logits is in memory.

        The suffix ``_N`` stands for the completion tokens of the batch; see ``batching``.
        """
        inputs_of_model = completion_inputs(inputs, self.share_prompt)
        n_tokens = len(inputs_of_model["target_N"])
        if not n_tokens:
            # A batch of padding rows still needs gradients, because the other processes wait for
            # them. ``scale_loss`` multiplies the loss of the single token by n_tokens = 0.
            first_id = inputs["input_ids"][0, :1]
            inputs_of_model |= {"source_N": torch.zeros_like(first_id), "target_N": first_id}
        loss = -model(**inputs_of_model).mean()
        return self.scale_loss(loss, n_tokens, num_items_in_batch)
