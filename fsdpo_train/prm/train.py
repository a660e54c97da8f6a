"""Training of process reward models: one logit per step, on top of the weights of a policy.

Name suffixes give the shapes: ``_B`` solutions, ``_T`` tokens, ``_K`` label positions of a
solution, ``_N`` completion tokens of a batch. A label position is the last token of a step.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import Interval, auc, auc_interval, ranking_auc
from fsdpo_data.engines.logprobs import check_plain_head, patch_to_return_logprobs
from fsdpo_data.engines.prefix_sharing.model_attention import accept_prefix_trees
from fsdpo_data.engines.scorers.trained_prm import record_trained_steps
from fsdpo_data.engines.step_tokens import gather_at_positions
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_train.config import PrmConfig
from fsdpo_train.prm.data import (
    IGNORE_LABEL,
    PrmData,
    PrmRow,
    collate_solutions,
    open_solutions,
    prepare_rows,
    read_labelled_rows,
)
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import (
    can_share_prompts,
    completion_inputs,
    model_inputs,
    pack_rows,
    pad_to_world_size,
)
from fsdpo_train.trainer.computed_defaults import with_computed_defaults
from fsdpo_train.trainer.models import (
    add_lora_adapters,
    context_length,
    disable_dropout,
    load_model,
)
from fsdpo_train.trainer.reference_model import ReferenceModel
from fsdpo_train.trainer.row_source import render_chat_prompts
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.start_model import with_start_model
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer

log = logging.getLogger(__name__)

#: Prefix of the metrics on held-out problems in logs.
METRIC_PREFIX = "held_out"
#: Metrics on held-out problems.
METRICS = ("loss", "accuracy", "auc", "ranking_auc")


@dataclass(frozen=True)
class PrmReport(TrainingReport):
    """The results of a PRM training run.

    Attributes:
        counts: Sizes of the data; see :class:`~fsdpo_train.prm.data.PrmData`.
        held_out: ``loss``, ``accuracy`` and ``auc`` over steps, and ``ranking_auc`` of correct over
            wrong solutions of a problem. Empty without held-out problems.
        auc_ci95: 95 % interval of ``auc`` over problems. None below two problems, and for an AUC of
            0 or 1.
        no_better_than_chance: Whether the lower bound of ``auc_ci95`` is at most 0.5. False without
            an interval.
        is_policy: Whether the model is a policy with implicit rewards.
    """

    counts: Counter[str]
    held_out: dict[str, float]
    auc_ci95: Interval | None
    no_better_than_chance: bool
    is_policy: bool


def train_prm(config: PrmConfig) -> PrmReport:
    """Train a process reward model, and write model, tokenizer and card to ``config.out``.

    Args:
        config: Options of the training; `help(PrmConfig)` lists them.

    Raises:
        InputError: if the data or an option cannot be used.
        RunMismatchError: if ``config.out`` belongs to another run.
        StoreError: if ``config.out`` cannot be written, or another process trains there.
        UnavailableError: if a model, tracker or package is not available.

    Example:
        from fsdpo_train import PrmConfig, train_prm

        report = train_prm(PrmConfig(data="runs/labelled", model="tiny", out="runs/prm"))
    """
    data = open_solutions(config.data, allow_benchmark=config.allow_benchmark)
    config = with_computed_defaults(with_start_model(config, data))
    with start_run(config, data) as identity:
        arguments = training_arguments(
            config,
            per_device_eval_batch_size=config.batch_size,
            eval_strategy="steps" if config.eval_every and config.held_out else "no",
            eval_steps=config.eval_every or None,
            label_names=["labels"],
        )
        model, tokenizer = _load_prm(config)
        unlabelled = Counter[str]()
        prompt_data = render_chat_prompts(data, tokenizer, str(config.model))
        rows = read_labelled_rows(prompt_data, config, unlabelled)
        prm_data = prepare_rows(rows, tokenizer, context_length(config, model), config)
        prm_data.counts.update(unlabelled)
        _log_counts(prm_data.counts)
        if config.held_out and not prm_data.held_out:
            log.warning(
                "all solutions have one prompt or one problem id and count as one problem, so none "
                "is held out to evaluate the PRM. If they solve several problems, give each its "
                "own prompt; otherwise set `held_out=0`."
            )
        trainer = _make_trainer(config, arguments, model, tokenizer, prm_data)
        run_trainer(trainer, config)
        metrics = _evaluate(trainer) if prm_data.held_out else {}
        auc_ci95 = None
        if "auc_low" in metrics:
            auc_ci95 = Interval(metrics["auc_low"], metrics["auc_high"])
        return finish_run(
            PrmReport,
            trainer,
            config,
            data=data,
            card_data=identity,
            counts=prm_data.counts,
            held_out={name: metrics[name] for name in METRICS if name in metrics},
            auc_ci95=auc_ci95,
            no_better_than_chance=auc_ci95 is not None and auc_ci95[0] <= 0.5,
            is_policy=config.prm_loss.trains_policy,
        )


def _load_prm(config: PrmConfig) -> tuple[Any, Any]:
    """Load the model and its tokenizer: a policy if the loss trains one, else a reward model."""
    if config.prm_loss.trains_policy:
        policy, tokenizer = load_model(config, "AutoModelForCausalLM")
        # The reference runs without dropout. Dropout in the policy would add noise to the rewards.
        return disable_dropout(policy), tokenizer

    def configure(model_config: Any) -> None:
        set_reward_head(model_config)
        record_trained_steps(model_config, last_step_only=config.last_step_only)

    return load_model(config, "AutoModelForTokenClassification", configure)


def _make_trainer(
    config: PrmConfig, arguments: Any, model: Any, tokenizer: Any, data: PrmData
) -> "PrmTrainer":
    """Prepare the model for the loss and for shared prompts, and return its trainer."""
    trains_policy = config.prm_loss.trains_policy
    share_prompt = can_share_prompts(model, [*data.train, *data.held_out])
    if trains_policy:
        check_plain_head(model)
        patch_to_return_logprobs(model, attention="auto")  # also accepts shared prompts
    elif share_prompt:
        accept_prefix_trees(model)
    trainer_class = ImplicitTrainer if trains_policy else PrmTrainer
    return trainer_class(
        config,
        share_prompt,
        model=add_lora_adapters(model, config.lora, "CAUSAL_LM" if trains_policy else "TOKEN_CLS"),
        args=arguments,
        train_dataset=pad_to_world_size(pack_rows(data.train, config), arguments),
        eval_dataset=data.held_out or None,
        processing_class=tokenizer,
        data_collator=lambda batch: collate_solutions(batch, tokenizer.pad_token_id),
        compute_metrics=lambda prediction: _heldout_metrics(prediction, data.held_out),
    )


def set_reward_head(model_config: Any) -> None:
    """Configure the model to have a head with one logit per token."""
    model_config.num_labels = 1
    model_config.id2label = {0: "reward"}
    model_config.label2id = {"reward": 0}
    model_config.classifier_dropout = 0.0
    model_config.get_text_config().use_cache = False


def _evaluate(trainer: Any) -> dict[str, float]:
    """Return the metrics of the trained model on the held-out problems."""
    metrics = trainer.evaluate(metric_key_prefix=METRIC_PREFIX)
    return {name.removeprefix(f"{METRIC_PREFIX}_"): value for name, value in metrics.items()}


class PrmTrainer(StageTrainer):
    """A trainer for step rewards."""

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Return the number of solutions with a label; padding rows have none."""
        return int((batch["labels"] != IGNORE_LABEL).any(-1).sum())

    def logits(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Return the logits at the label positions, shape [B, K]."""
        inputs_of_model, position_BT = model_inputs(inputs, self.share_prompt)
        logits_BT = model(**inputs_of_model).logits.flatten()[position_BT]
        return gather_at_positions(logits_BT, inputs["label_positions"])

    def loss(self, logit_BK: Tensor, label_BK: Tensor, mask_BK: Tensor) -> Tensor:
        """Return the mean loss over solutions; ``loss_reduction`` applies within a solution."""
        config: PrmConfig = self.stage_config
        return config.prm_loss.function(logit_BK, label_BK, mask_BK, spec=config)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a batch, and the logits too if ``return_outputs`` is set."""
        label_BK = inputs["labels"]
        mask_BK = label_BK != IGNORE_LABEL
        logit_BK = self.logits(model, inputs)
        loss = self.loss(logit_BK, label_BK, mask_BK)  # a padding row adds 0 and counts in the mean
        if not return_outputs:
            return self.scale_loss(loss, len(label_BK), num_items_in_batch)
        # transformers expects the loss as the first output, and drops it.
        return loss, (None, logit_BK.float().masked_fill(~mask_BK, IGNORE_LABEL))

    def evaluation_loop(
        self, *args: Any, metric_key_prefix: str = METRIC_PREFIX, **options: Any
    ) -> Any:
        """Evaluate; the loss is the mean over the solutions, each with the same weight."""
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **options)
        # On several processes, the mean of transformers also counts the rows that fill up the last
        # batches. The predictions are without these rows.
        logit_BK = torch.from_numpy(output.predictions)
        label_BK = torch.from_numpy(output.label_ids)
        loss = self.loss(logit_BK, label_BK, label_BK != IGNORE_LABEL)
        output.metrics[f"{metric_key_prefix}_loss"] = float(loss)
        return output


class ImplicitTrainer(PrmTrainer):
    """A trainer for implicit PRMs, whose reward is β times the log-ratio to the start model.

    The logit of a label position is β·log(π/π_ref) over all tokens up to this position.
    """

    def __init__(self, config: PrmConfig, share_prompt: bool, **options: Any) -> None:
        super().__init__(config, share_prompt, **options)
        self.reference = ReferenceModel(config, self.args, attention="auto")

    def models_with_head(self) -> list[Any]:
        """Return the policy and the reference."""
        return [*super().models_with_head(), self.reference.model]

    def logits(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Return β·log(π/π_ref) up to every label position, shape [B, K]."""
        inputs_of_model = completion_inputs(inputs, self.share_prompt)
        completion_BT = inputs["completion_mask"]
        reference_N = self.reference.logprobs(**inputs_of_model)
        ratio_N = model(**inputs_of_model) - reference_N
        ratio_BT = reference_N.new_zeros(completion_BT.shape)
        ratio_BT = ratio_BT.masked_scatter(completion_BT, ratio_N)
        return self.stage_config.beta * gather_at_positions(
            ratio_BT.cumsum(-1), inputs["label_positions"]
        )


def _heldout_metrics(prediction: Any, rows: Sequence[PrmRow]) -> dict[str, float]:
    """Return the metrics on held-out problems; a step counts as right if its label is at least 0.5.

    An AUC needs at least two problems.

    Args:
        prediction: The ``EvalPrediction`` of transformers.
        rows: The held-out rows.

    Raises:
        InputError: if the reward of a step is NaN.
    """
    logits = prediction.predictions
    labels = prediction.label_ids
    is_labelled = labels != IGNORE_LABEL
    step_logits = logits[is_labelled]
    n_nan = int(np.isnan(step_logits).sum())
    if n_nan:
        raise InputError(
            f"training diverged: the model returns NaN for {n_nan} of {len(step_logits)} steps of "
            "held-out problems. Start again with a lower learning rate, or with `dtype=float32`."
        )
    targets = labels[is_labelled] >= RIGHT_STEP_LABEL
    problems = [row.problem for row in rows]
    step_problems = np.repeat(problems, is_labelled.sum(-1)).tolist()
    has_several_problems = len(set(problems)) > 1
    interval = auc_interval(step_problems, step_logits, targets)
    auc_low, auc_high = interval or (None, None)

    rewards = 1 / (1 + np.exp(-logits.clip(-80, 80)))  # clipped because exp would overflow
    mean_rewards = [
        float(row_rewards[row_mask].mean())
        for row_rewards, row_mask in zip(rewards, is_labelled, strict=True)
    ]
    ranking = ranking_auc(problems, mean_rewards, [row.is_correct for row in rows])
    metrics = {
        "accuracy": float(((step_logits >= 0) == targets).mean()),
        "auc": auc(step_logits, targets) if has_several_problems else None,
        "auc_low": auc_low,
        "auc_high": auc_high,
        "ranking_auc": ranking.value if ranking.n > 1 else None,
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _log_counts(counts: Counter[str]) -> None:
    """Log the size of the data, and the solutions and labels that are left out."""
    log.info(
        f"{counts['solutions']} solutions of {counts['problems']} problems, {counts['steps']} "
        f"labelled steps, {counts['positive'] / counts['steps']:.1%} right; "
        f"{counts['held_out_problems']} problems held out"
    )
    if counts["unlabelled_solutions"]:
        log.info(f"left out {counts['unlabelled_solutions']} solutions without labels")
    if counts["lost_labels"]:
        log.info(
            f"left out {counts['lost_labels']} labels of steps beyond the context length, and "
            f"{counts['lost_solutions']} solutions without a label that the loss reads"
        )
