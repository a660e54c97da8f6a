"""Preference training on prompt groups: step-wise DPO, DPO and related losses.

A prompt group has the solutions of one prompt and the pairs between them. Suffixes give shapes:
``_N`` completion tokens of all solutions, ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P``
pairs.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.logprobs import check_plain_head, patch_to_return_logprobs
from fsdpo_data.engines.prefix_sharing.probe import supports_prefix_sharing
from fsdpo_data.engines.samplers.tokenization import read_eos_ids
from fsdpo_train.config import DpoConfig
from fsdpo_train.losses.preference_losses import SolutionBatch
from fsdpo_train.preference.batch_loss import preference_loss
from fsdpo_train.preference.data import (
    PairRow,
    PreferenceCollator,
    scatter_tokens,
    tokenize_groups,
    training_rows,
)
from fsdpo_train.preference.pair_batches import (
    PairBatchSampler,
    count_micro_batches,
    pair_batches,
)
from fsdpo_train.preference.pairs import PromptGroup, group_by_prompt, open_pairs
from fsdpo_train.preference.reference import add_reference, reference_fingerprint
from fsdpo_train.preference.reference_store import ReferenceStore
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import pack_rows, pad_to_world_size, padding_row
from fsdpo_train.trainer.computed_defaults import with_computed_defaults
from fsdpo_train.trainer.deepspeed import gathered_weights
from fsdpo_train.trainer.models import (
    add_lora_adapters,
    context_length,
    disable_dropout,
    load_model,
)
from fsdpo_train.trainer.row_source import render_chat_prompts
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.start_model import with_start_model
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer

log = logging.getLogger(__name__)

#: Metrics that are logged with the loss; see
#: :func:`fsdpo_train.preference.batch_loss.preference_loss`.
METRICS = (
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "kl",
    "alpha_entropy",
)


@dataclass(frozen=True)
class DpoReport(TrainingReport):
    """The results of a preference training run.

    Attributes:
        counts: Sizes of the data; see :func:`~fsdpo_train.preference.data.tokenize_groups`.
        metrics: Mean of each of ``METRICS`` over the last logging window.
    """

    counts: Counter[str]
    metrics: dict[str, float]


def train_dpo(config: DpoConfig) -> DpoReport:
    """Train a policy on preference pairs, and write model, tokenizer and card to ``config.out``.

    Args:
        config: Options of the training; `help(DpoConfig)` lists them.

    Raises:
        InputError: if options or data cannot be used.
        RunMismatchError: if ``config.out`` belongs to another run.
        UnavailableError: if a model or a package is missing.

    Example:
        from fsdpo_train import DpoConfig, train_dpo

        report = train_dpo(DpoConfig(data="runs/pairs", model="tiny", out="runs/policy"))
    """
    loss = config.preference_loss  # imports a plug-in before the identity of the run is recorded
    data = open_pairs(config.data, loss, allow_benchmark=config.allow_benchmark)
    config = with_computed_defaults(with_start_model(config, data))
    with start_run(config, data) as identity:
        arguments = _preference_arguments(config)
        model, tokenizer = load_model(config, "AutoModelForCausalLM")
        with gathered_weights(model):
            check_plain_head(model)  # no soft cap or scale after the head
        # The reference runs without dropout. Dropout in the policy would add noise to the margins.
        model = disable_dropout(model)
        fingerprint = reference_fingerprint(config, identity["model"])
        prompt_data = render_chat_prompts(data, tokenizer, str(config.model))
        groups, counts = tokenize_groups(
            group_by_prompt(prompt_data.rows(), loss, config.gamma),
            tokenizer,
            context_length(config, model),
            read_eos_ids(model, tokenizer),
        )
        share_prompt = config.share_prompt and _supports_shared_prompts(model, groups)
        _log_counts(counts, share_prompt)
        store = ReferenceStore(config.reference_cache or config.out / "reference", fingerprint)
        if loss.uses_reference:
            groups = add_reference(groups, store, config, arguments, share_prompt=share_prompt)
        trainer = _make_trainer(
            config, arguments, model, tokenizer, groups, share_prompt=share_prompt
        )
        run_trainer(trainer, config)
        return finish_run(
            DpoReport,
            trainer,
            config,
            data=data,
            card_data={**identity, "reference": store.digest},
            counts=counts,
            metrics=_last_metrics(trainer.state.log_history),
        )


def _preference_arguments(config: DpoConfig) -> Any:
    """Return the ``TrainingArguments`` of the run.

    Raises:
        InputError: if FlexAttention would run on a CPU.
    """
    arguments = training_arguments(config)
    if config.attention == "flex" and not torch.cuda.is_available():
        raise InputError(
            "FlexAttention has gradients on GPUs only; expected auto or sdpa.",
            field="attention",
            value="flex",
        )
    return arguments


def _supports_shared_prompts(model: Any, groups: Sequence[PromptGroup]) -> bool:
    """Return whether the model can compute the prompt of a group once for all its solutions."""
    max_row_tokens = max(
        len(solution.tokens.input_ids) for group in groups for solution in group.solutions
    )
    with gathered_weights(model):  # the check runs the model
        return supports_prefix_sharing(model, max_row_tokens)


def _make_trainer(
    config: DpoConfig,
    arguments: Any,
    model: Any,
    tokenizer: Any,
    groups: Sequence[PromptGroup],
    *,
    share_prompt: bool,
) -> "PreferenceTrainer":
    """Make the rows of the run, prepare the model for the loss, and return its trainer."""
    model = patch_to_return_logprobs(model, attention=config.attention)
    rows, arguments = _padded_rows(
        pack_rows(training_rows(groups, config.shuffle), config), config, arguments
    )
    return PreferenceTrainer(
        config,
        share_prompt,
        model=add_lora_adapters(model, config.lora, "CAUSAL_LM"),
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=PreferenceCollator(
            groups=groups,
            share_prompt=share_prompt,
            pad_id=tokenizer.pad_token_id,
        ),
    )


def _padded_rows(
    rows: Sequence[PairRow], config: DpoConfig, arguments: Any
) -> tuple[Sequence[PairRow], Any]:
    """Return the rows with padding, and the ``TrainingArguments`` with the accumulation.

    Padding rows have no pairs, and so no loss.
    """
    if not config.batch_pairs:
        return pad_to_world_size(rows, arguments), arguments
    batches = pair_batches(rows, config.batch_pairs, config.seed)
    micro_batches = count_micro_batches(batches, config, arguments.world_size)
    log.info(
        f"{len(batches)} batches of at least {config.batch_pairs} pairs, with {micro_batches} "
        "micro-batches per process"
    )
    # A padding row runs one pair of its prompt, so it is cheapest with the shortest prompt.
    shortest_row = min(rows, key=lambda row: row.length)
    accumulation = config.replace(batch_pairs=0, grad_accum=micro_batches)
    return [*rows, padding_row(shortest_row)], _preference_arguments(accumulation)


def _last_metrics(log_history: list[dict[str, Any]]) -> dict[str, float]:
    """Return the metrics of the last logging window."""
    windows = [entry for entry in log_history if "loss" in entry]
    if not windows:
        return {}
    return {name: windows[-1][name] for name in METRICS if name in windows[-1]}


class PreferenceTrainer(StageTrainer):
    """A trainer for preference losses on prompt groups."""

    def __init__(self, config: DpoConfig, share_prompt: bool, **options: Any) -> None:
        super().__init__(config, share_prompt, **options)
        #: For each metric: the sum over pairs since the last log, and the number of pairs.
        self.metric_sums = torch.zeros(len(METRICS), 2)

    def make_sampler(self) -> Any:
        """Return the sampler of the rows: batches of prompts with ``batch_pairs``."""
        if not self.stage_config.batch_pairs:
            return super().make_sampler()
        return PairBatchSampler(self.train_dataset, self.stage_config, self.args.world_size)

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Return the number of pairs."""
        return len(batch["solutions"].chosen_P)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], *_: Any, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss over the pairs of a batch."""
        solutions: SolutionBatch = inputs["solutions"]
        logp_N = model(**inputs["model_inputs"])
        logp_ST = scatter_tokens(logp_N, solutions.step_ST)
        n_pairs = len(solutions.chosen_P)
        if not n_pairs:  # a padding row: the other processes wait for its gradients
            return 0 * logp_N.sum()
        loss, metrics = preference_loss(logp_ST, solutions, self.stage_config)
        self._add_metrics(metrics, n_pairs)
        return self.scale_loss(loss, n_pairs, num_items_in_batch)

    def _add_metrics(self, metrics: Mapping[str, torch.Tensor], n_pairs: int) -> None:
        """Add the metrics of a batch to the sums of the logging window."""
        values = torch.stack([metrics[name].detach().float() for name in METRICS]).cpu()
        is_finite = values.isfinite()  # the entropy is NaN for single steps
        self.metric_sums[:, 0] += n_pairs * values.masked_fill(~is_finite, 0)
        self.metric_sums[:, 1] += n_pairs * is_finite

    def log(self, logs: dict[str, float], *args: Any) -> None:
        """Log the metrics since the last log, averaged over the pairs of all processes."""
        metric_sums = self.accelerator.reduce(self.metric_sums.to(self.args.device)).tolist()
        for name, (total, n_pairs) in zip(METRICS, metric_sums, strict=True):
            if n_pairs:
                logs[name] = total / n_pairs
        self.metric_sums.zero_()
        super().log(logs, *args)


def _log_counts(counts: Counter[str], share_prompt: bool) -> None:
    """Log the size of the data, and the pairs that were left out."""
    log.info(
        f"{counts['pairs']} pairs of {counts['solutions']} different solutions to "
        f"{counts['prompts']} prompts; prompts computed "
        f"{'once' if share_prompt else 'once per solution'}"
    )
    if counts["repeated_pairs"]:
        log.info(f"left out {counts['repeated_pairs']} duplicate pairs")
    if counts["contradictory_pairs"]:
        log.warning(
            f"{counts['contradictory_pairs']} pairs contradict another pair, which prefers the "
            "other one of the same two texts. All of them are trained, and their gradients cancel."
        )
    if counts["long_solutions"]:
        log.info(
            f"left out {counts['long_solutions']} solutions beyond the context length, and "
            f"{counts['long_pairs']} pairs with them"
        )
