"""Preference training on prompt groups: the paper's step-wise DPO and its relatives."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.logprobs import patch_to_return_logprobs
from fsdpo_data.engines.prefix_sharing import supports_prefix_sharing
from fsdpo_train.config import DpoConfig
from fsdpo_train.preference.data import PreferenceCollator, prepare_pairs, training_rows
from fsdpo_train.preference.groups import scatter_tokens
from fsdpo_train.preference.loss import SolutionBatch, preference_loss
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs
from fsdpo_train.preference.reference import reference_fingerprint, reference_logprobs
from fsdpo_train.preference.reference_store import ReferenceStore
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import pack_rows, pad_to_world_size
from fsdpo_train.trainer.deepspeed import gathered_weights
from fsdpo_train.trainer.models import (
    add_lora_adapters,
    context_length,
    disable_dropout,
    load_model,
)
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer

log = logging.getLogger(__name__)

#: What is logged beside the loss; see :func:`fsdpo_train.preference.loss.preference_loss`.
_REWARDS = ("chosen", "rejected", "margins", "accuracies")
METRICS = (*(f"rewards/{name}" for name in _REWARDS), "kl", "alpha_entropy")


@dataclass(frozen=True)
class DpoReport(TrainingReport):
    """What a run of preference training did.

    Attributes:
        counts: What it was trained on; see :class:`~fsdpo_train.preference.data.PreferenceData`.
        metrics: ``METRICS`` over the same window.
    """

    counts: Counter[str]
    metrics: dict[str, float]


def train_dpo(config: DpoConfig) -> DpoReport:
    """Train as ``config`` says and write model, tokenizer and card to ``config.out``.

    Raises:
        FsdpoError: as :func:`~fsdpo_train.sft.train.train_sft`, also of the reference cache.
    """
    source = open_pairs(config.data)
    with start_run(config, source) as identity:
        arguments = _arguments(config)
        model, tokenizer = load_model(config, "AutoModelForCausalLM")
        # The reference has none, and a policy that starts apart from it has margins made of noise.
        model = disable_dropout(model)
        maker = reference_fingerprint(config, identity["model"], tokenizer)
        prompts = group_by_prompt(source.rows(), config.loss)
        data = prepare_pairs(prompts, tokenizer, context_length(config, model), maker)
        with gathered_weights(model):
            share = config.share_prompt and supports_prefix_sharing(model, data.longest)
        _tell(data.counts, share)
        store = ReferenceStore(config.reference_cache or config.out / "reference", maker)
        reference = reference_logprobs(data, store, config, arguments, share_prompt=share)
        tokens = {"pad": tokenizer.pad_token_id, "eos": tokenizer.eos_token_id}
        model = patch_to_return_logprobs(model, attention=config.attention)
        rows = pack_rows(training_rows(data.groups, config.shuffle), config)
        trainer = PreferenceTrainer(
            config,
            share,
            model=add_lora_adapters(model, config.lora, "CAUSAL_LM"),
            args=arguments,
            train_dataset=pad_to_world_size(rows, arguments, pairs=[]),
            processing_class=tokenizer,
            data_collator=PreferenceCollator(data.groups, reference, share, **tokens),
        )
        run_trainer(trainer, config, identity)
        windows = [entry for entry in trainer.state.log_history if "loss" in entry]
        metrics = {name: windows[-1][name] for name in METRICS if windows and name in windows[-1]}
        told = {**identity, **source.provenance, "reference": store.digest}
        return finish_run(DpoReport, trainer, config, told, counts=data.counts, metrics=metrics)


def _arguments(config: DpoConfig) -> Any:
    arguments = training_arguments(config)
    if arguments.n_gpu > 1:
        raise InputError(
            f"{arguments.n_gpu} GPUs and one process: start one process for each with torchrun "
            "--nproc-per-node, or show only one (CUDA_VISIBLE_DEVICES)."
        )
    if config.attention == "flex" and not torch.cuda.is_available():
        raise InputError(
            "FlexAttention has gradients on GPUs alone; expected auto or sdpa.",
            field="attention",
            value="flex",
        )
    return arguments


class PreferenceTrainer(StageTrainer):
    """A trainer of preference losses on prompt groups."""

    def __init__(self, config: DpoConfig, share_prompt: bool, **options: Any) -> None:
        super().__init__(config, share_prompt, **options)
        self.metric_sums = torch.zeros(len(METRICS), 2)

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Count the pairs."""
        return len(batch["chosen_P"])

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], *_: Any, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss over the pairs of a batch."""
        logp_N = model(**inputs["read"])
        logp_ST = scatter_tokens(logp_N, inputs["step_ST"])
        chosen_P, rejected_P = inputs["chosen_P"], inputs["rejected_P"]
        if not len(chosen_P):  # a filler: the other processes wait for its gradients
            return 0 * logp_N.sum()
        tables = ("reference_ST", "step_ST", "ends_ST", "reward_SK")
        solutions = SolutionBatch(*(inputs[name] for name in tables))
        loss, metrics = preference_loss(logp_ST, solutions, chosen_P, rejected_P, self.stage_config)
        self._count(metrics, len(chosen_P))
        return self.scale_loss(loss, len(chosen_P), num_items_in_batch)

    def _count(self, metrics: Mapping[str, torch.Tensor], pairs: int) -> None:
        values = torch.stack([metrics[name].detach().float() for name in METRICS]).cpu()
        there = values.isfinite()  # single steps have no entropy
        self.metric_sums[:, 0] += pairs * values.masked_fill(~there, 0)
        self.metric_sums[:, 1] += pairs * there

    def log(self, logs: dict[str, float], *given: Any) -> None:
        """Add what was measured since the last time."""
        sums = self.accelerator.reduce(self.metric_sums.to(self.args.device)).tolist()
        logs |= {
            name: total / pairs for name, (total, pairs) in zip(METRICS, sums, strict=True) if pairs
        }
        self.metric_sums.zero_()
        super().log(logs, *given)


def _tell(counts: Counter[str], share_prompt: bool) -> None:
    log.info(
        f"{counts['pairs']} pairs of {counts['solutions']} different solutions to "
        f"{counts['prompts']} prompts; prompts computed "
        f"{'once' if share_prompt else 'once per solution'}"
    )
    if counts["repeated_pairs"]:
        log.info(f"left out {counts['repeated_pairs']} pairs that are there already")
    if counts["long_solutions"]:
        log.info(
            f"left out {counts['long_solutions']} solutions beyond the context length, and "
            f"{counts['long_pairs']} pairs with them"
        )
