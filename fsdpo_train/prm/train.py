"""Training a process reward model: one logit per step, on top of the policy's own weights."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsdpo_data.core.statistics import auc, auc_interval, ranking_auc
from fsdpo_data.engines.logprobs import check_plain_head, patch_to_return_logprobs
from fsdpo_data.engines.prefix_sharing import accept_prefix_trees
from fsdpo_data.engines.step_tokens import gather_at_positions
from fsdpo_train.config import PrmConfig
from fsdpo_train.prm.data import (
    IGNORE_LABEL,
    class_weights,
    collate,
    open_solutions,
    prepare_rows,
    step_rows,
)
from fsdpo_train.prm.loss import pqm_loss, prm_loss
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import (
    can_pack_prompts,
    completion_inputs,
    model_inputs,
    pack_rows,
    pad_to_world_size,
)
from fsdpo_train.trainer.bf16_weights import Bfloat16Weights
from fsdpo_train.trainer.models import add_lora_adapters, context_length, load_model
from fsdpo_train.trainer.run import TrainingReport, finish_run, start_run
from fsdpo_train.trainer.trainer import StageTrainer, run_trainer

log = logging.getLogger(__name__)

#: Prefix of the held-out numbers in logs.
HELD_OUT_PREFIX = "held_out"
#: What is measured on held-out problems.
METRICS = ("loss", "accuracy", "auc", "ranking_auc")


@dataclass(frozen=True)
class PrmReport(TrainingReport):
    """What a run of PRM training did.

    Attributes:
        counts: What it was trained on; see :class:`~fsdpo_train.prm.data.PrmData`.
        held_out: ``loss``, ``accuracy`` and ``auc`` over steps, ``ranking_auc`` of right over
            wrong solutions within a problem; empty if nothing was held out.
        auc_ci95: 95 % interval of ``auc``, problems being the independent units; None if unknown.
        no_better_than_chance: Whether that interval holds one half, or is below it.
    """

    counts: Counter[str]
    held_out: dict[str, float]
    auc_ci95: tuple[float, float] | None
    no_better_than_chance: bool


def train_prm(config: PrmConfig) -> PrmReport:
    """Train as ``config`` says and write model, tokenizer and card to ``config.out``.

    Raises:
        FsdpoError: as :func:`~fsdpo_train.sft.train.train_sft`.
    """
    source = open_solutions(config.data)
    with start_run(config, source) as identity:
        arguments = training_arguments(
            config,
            per_device_eval_batch_size=config.batch_size,
            eval_strategy="steps" if config.eval_every and config.held_out else "no",
            eval_steps=config.eval_every or None,
            label_names=["labels"],
        )
        implicit = config.loss == "implicit"
        kind = "CausalLM" if implicit else "TokenClassification"
        head = None if implicit else _one_logit
        model, tokenizer = load_model(config, f"AutoModelFor{kind}", head)
        data = prepare_rows(
            step_rows(source, config), tokenizer, context_length(config, model), config
        )
        _tell(data.counts)
        share = can_pack_prompts(model, arguments, [*data.train, *data.held_out])
        if implicit:
            check_plain_head(model)
            patch_to_return_logprobs(model, attention="auto")
        elif share:
            accept_prefix_trees(model)
        model = add_lora_adapters(model, config.lora, "CAUSAL_LM" if implicit else "TOKEN_CLS")
        no_labels = [IGNORE_LABEL] * len(data.train[0]["labels"])
        trainer = (ImplicitTrainer if implicit else PrmTrainer)(
            class_weights(data.train) if config.balance else None,
            config,
            share,
            model=model,
            args=arguments,
            train_dataset=pad_to_world_size(
                pack_rows(data.train, config), arguments, labels=no_labels
            ),
            eval_dataset=data.held_out or None,
            processing_class=tokenizer,
            data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
            compute_metrics=lambda found: _metrics(found, data.held_out),
        )
        run_trainer(trainer, config, identity)
        measured = trainer.evaluate(metric_key_prefix=HELD_OUT_PREFIX) if data.held_out else {}
        named = {
            name.removeprefix(f"{HELD_OUT_PREFIX}_"): value for name, value in measured.items()
        }
        interval = (named["auc_low"], named["auc_high"]) if "auc_low" in named else None
        return finish_run(
            PrmReport,
            trainer,
            config,
            {**identity, **source.provenance},
            counts=data.counts,
            held_out={name: named[name] for name in METRICS if name in named},
            auc_ci95=interval,
            no_better_than_chance=interval is not None and interval[0] <= 0.5,
        )


def _one_logit(architecture: Any) -> None:
    """Put a head of one logit on the policy's weights."""
    architecture.num_labels = 1
    architecture.id2label, architecture.label2id = {0: "reward"}, {"reward": 0}
    architecture.classifier_dropout = 0.0
    architecture.use_cache = False


class PrmTrainer(StageTrainer):
    """A trainer of step rewards; ``weights`` are those of (wrong, right) steps."""

    def __init__(self, weights: tuple[float, float] | None, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.class_weights = weights

    def count_items(self, batch: Mapping[str, Any]) -> int:
        """Count the solutions with a label."""
        return int((batch["labels"] != IGNORE_LABEL).any(-1).sum())

    def logits(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Return the logits of steps, [B, K]."""
        read, place_BT = model_inputs(inputs, self.share_prompt)
        return gather_at_positions(
            model(**read).logits.flatten()[place_BT], inputs["label_positions"]
        )

    def loss(self, logits: Tensor, labels: Tensor, there: Tensor) -> Tensor:
        """Return the mean loss of solutions."""
        config = self.stage_config
        if config.loss == "pqm":
            return pqm_loss(logits, labels, there, zeta=config.zeta)
        weights = self.class_weights
        return prm_loss(logits, labels, there, reduce=config.reduce, class_weights=weights)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a batch, or its logits too where it is measured on."""
        labels = inputs["labels"]
        there = labels != IGNORE_LABEL
        logits = self.logits(model, inputs)
        loss = self.loss(logits, labels, there)
        if not return_outputs:
            return self.scale_loss(loss, len(labels), num_items_in_batch)
        return loss, (None, logits.float().masked_fill(~there, IGNORE_LABEL))


class ImplicitTrainer(PrmTrainer):
    """A trainer of a policy whose log-ratio to where it started is the reward of a solution.

    The logit of a step is β·log π/π_ref up to its end; that of the last one meets the outcome.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        reference, _ = load_model(self.stage_config, "AutoModelForCausalLM")
        patch_to_return_logprobs(reference, attention="auto").eval().requires_grad_(False)
        if self.uses_bfloat16:
            Bfloat16Weights(reference).install()
        self.reference = reference.to(self.args.device)

    def logits(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Return β·log π/π_ref up to the end of every step, [B, K]."""
        read, own_BT = completion_inputs(inputs, self.share_prompt), inputs["own"]
        with torch.no_grad():
            held_N = self.reference(**read)
        ratio_BT = held_N.new_zeros(own_BT.shape).masked_scatter(own_BT, model(**read) - held_N)
        return self.stage_config.beta * gather_at_positions(
            ratio_BT.cumsum(-1), inputs["label_positions"]
        )

    def loss(self, logits: Tensor, labels: Tensor, there: Tensor) -> Tensor:
        """Return the cross-entropy of the outcomes."""
        behind = there.flip(-1).cumsum(-1).flip(-1)  # steps from here on
        return super().loss(logits, labels, there & (behind == 1))


def _metrics(found: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what the held-out problems say; a soft label counts as right from 0.5 up."""
    logits, labels = found.predictions, found.label_ids
    there = labels != IGNORE_LABEL
    steps, targets = logits[there], labels[there] >= 0.5
    rewards = 1 / (1 + np.exp(-logits.clip(-80, 80)))  # beyond that a reward shows no change
    means = [float(row[mask].mean()) for row, mask in zip(rewards, there, strict=True)]
    problems, right = zip(*((row["problem"], row["right"]) for row in rows), strict=True)
    of_steps = np.repeat(problems, there.sum(-1)).tolist(), steps.tolist(), targets.tolist()
    low, high = auc_interval(*of_steps) or (None, None)
    measured = {
        "accuracy": float(((steps >= 0) == targets).mean()),
        "auc": auc(*of_steps[1:]),
        "auc_low": low,
        "auc_high": high,
        "ranking_auc": ranking_auc(problems, means, right).value,
    }
    return {name: value for name, value in measured.items() if value is not None}


def _tell(counts: Counter[str]) -> None:
    log.info(
        f"{counts['solutions']} solutions of {counts['problems']} problems, {counts['steps']} "
        f"labelled steps, {counts['positive'] / counts['steps']:.1%} right; "
        f"{counts['held_out_problems']} problems held out"
    )
    if counts["lost_labels"]:
        log.info(
            f"lost {counts['lost_labels']} labels of steps beyond the context length, "
            f"{counts['lost_solutions']} solutions whole"
        )
