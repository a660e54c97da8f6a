"""Supervised fine-tuning on prompt/completion rows; the loop is ``transformers.Trainer``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.engines.logprobs import head_error, patch_to_return_logprobs
from fsdpo_data.models.untrusted import describe_load_error, read_tokenizer
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.data import COLUMNS, encode_rows
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import (
    can_pack_prompts,
    completion_inputs,
    pack_rows,
    pad_to_world_size,
    solution_batch,
)
from fsdpo_train.trainer.deepspeed import gathered_weights
from fsdpo_train.trainer.models import (
    add_lora_adapters,
    check_tokenizer,
    context_length,
    load_model,
)
from fsdpo_train.trainer.row_source import open_source
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer


@dataclass(frozen=True)
class SftReport(TrainingReport):
    """What a run of supervised fine-tuning did.

    Attributes:
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
        RunMismatchError: if ``config.out`` belongs to another run.
        StoreError: if it cannot be written, or another process trains there.
        Unavailable: if a model, tracker or package is not here.
    """
    source = open_source(config.data, COLUMNS)
    with start_run(config, source) as identity:
        arguments = training_arguments(config)
        model, tokenizer = _start(config)
        length = context_length(config, model)
        rows, too_long, unusable = encode_rows(source, tokenizer, length)
        if not rows:
            raise InputError(
                f"no row is left to train on; {too_long} exceed the context length and {unusable} "
                "have no prompt or an empty completion. Check the file, or raise max_length.",
                field="data",
                value=str(config.data),
            )
        with gathered_weights(model):
            plain = not head_error(model)
        share = can_pack_prompts(model, arguments, rows)
        model = patch_to_return_logprobs(
            model, attention="auto" if share else None, has_plain_head=plain
        )
        passes = pack_rows(rows, config)
        trainer = SftTrainer(
            config,
            share,
            model=add_lora_adapters(model, config.lora, "CAUSAL_LM"),
            args=arguments,
            train_dataset=pad_to_world_size(
                passes, arguments, n_prompt=len(passes[0]["input_ids"])
            ),
            processing_class=tokenizer,
            data_collator=lambda batch: solution_batch(batch, tokenizer.pad_token_id),
        )
        run_trainer(trainer, config, identity)
        tokens = sum(row["length"] - row["n_prompt"] for row in rows)
        counts = {"rows": len(rows), "too_long": too_long, "unusable": unusable, "tokens": tokens}
        return finish_run(SftReport, trainer, config, {**identity, **source.provenance}, **counts)


def _start(config: SftConfig) -> tuple[Any, Any]:
    """Load the checkpoint, or draw random weights for the given architecture."""
    if config.model is not None:
        return load_model(config, "AutoModelForCausalLM")
    source = Path(str(config.from_config))
    folder = source.parent if source.suffix == ".json" else source
    try:
        architecture = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
        tokenizer = read_tokenizer(str(folder))
        model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
    except Exception as error:  # a damaged file: tokenizers raises no narrower class
        raise UnavailableError(
            f"{describe_load_error(error)} Expected config.json and tokenizer files.",
            field="from_config",
            value=str(source),
        ) from error
    check_tokenizer(tokenizer, model)
    return model, tokenizer


class SftTrainer(StageTrainer):
    """A trainer of completions: each of their tokens counts the same."""

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Count the tokens of completions."""
        return int(batch["own"].sum())

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], *_: Any, num_items_in_batch: Any = None
    ) -> Any:
        """Return the cross-entropy of a batch, whose logits are never there all at once."""
        read = completion_inputs(inputs, self.share_prompt)
        items = len(read["target_N"])
        if not items:  # a filler: the other processes wait for its gradients
            first = inputs["input_ids"][0, :1]
            read |= {"source_N": torch.zeros_like(first), "target_N": first}
        return self.scale_loss(-model(**read).mean(), items, num_items_in_batch)
