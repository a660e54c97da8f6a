"""Training a process reward model: one logit per step, on top of the policy's own weights."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsdpo_data.core.statistics import auc, auc_interval, ranking_auc
from fsdpo_data.engines.step_tokens import at_readouts
from fsdpo_train.config import PrmConfig
from fsdpo_train.prm.data import (
    NO_STEP,
    Prepared,
    class_weights,
    collate,
    open_solutions,
    prepare,
    step_rows,
)
from fsdpo_train.prm.loss import prm_loss
from fsdpo_train.trainer.arguments import training_arguments
from fsdpo_train.trainer.batching import filled
from fsdpo_train.trainer.models import context_length, load_model, with_adapters
from fsdpo_train.trainer.run import Report, finish, started
from fsdpo_train.trainer.trainer import CountingTrainer, run_trainer

log = logging.getLogger(__name__)

#: Prefix of the held-out numbers in logs.
HELD_OUT = "held_out"
#: What is measured on held-out problems.
METRICS = ("loss", "accuracy", "auc", "ranking_auc")


@dataclass(frozen=True)
class PrmReport(Report):
    """What a run of PRM training did.

    Attributes:
        counts: What it was trained on; see :class:`~fsdpo_train.prm.data.Prepared`.
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
        InputError: if the data or an option cannot be used.
        RunMismatch: if ``config.out`` belongs to another run.
        StoreError: if it cannot be written, or another process trains there.
        Unavailable: if a model, tracker or package is not here.
    """
    source = open_solutions(config.data)
    with started(config, source) as identity:
        arguments = training_arguments(
            config,
            per_device_eval_batch_size=config.batch_size,
            eval_strategy="steps" if config.eval_every and config.held_out else "no",
            eval_steps=config.eval_every or None,
            label_names=["labels"],
        )
        model, tokenizer = load_model(config.model, "AutoModelForTokenClassification", _one_logit)
        data = prepare(step_rows(source, config), tokenizer, context_length(config, model), config)
        _tell(data.counts)
        # The head is new: peft trains it whole, and saves it.
        model = with_adapters(model, config.lora, "TOKEN_CLS", exclude=("score",))
        trainer = _trainer(config, arguments, model, tokenizer, data)
        run_trainer(trainer, config, identity)
        measured = trainer.evaluate(metric_key_prefix=HELD_OUT) if data.held_out else {}
        named = {name.removeprefix(f"{HELD_OUT}_"): value for name, value in measured.items()}
        interval = (named["auc_low"], named["auc_high"]) if "auc_low" in named else None
        return finish(
            PrmReport,
            trainer,
            config,
            {**identity, **source.said},
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


class PrmTrainer(CountingTrainer):
    """A trainer of step rewards.

    ``class_weights`` are those of (wrong, right) steps.
    """

    def __init__(
        self, config: PrmConfig, class_weights: tuple[float, float] | None, **options: Any
    ) -> None:
        super().__init__(config, **options)
        self.class_weights = class_weights

    def items(self, batch: Mapping[str, Any]) -> int:
        """Count the solutions with a label."""
        return int((batch["labels"] != NO_STEP).any(-1).sum())

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a batch, or its logits too where it is measured on."""
        readouts, labels = inputs["readouts"], inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logits, there = at_readouts(outputs.logits, readouts), labels != NO_STEP
        reduce, weights = self.stage_config.reduce, self.class_weights
        loss = prm_loss(logits, labels, there, reduce=reduce, class_weights=weights)
        if not return_outputs:
            return self.share(loss, len(labels), num_items_in_batch)
        return loss, (None, logits.float().masked_fill(~there, NO_STEP))


def _trainer(config: PrmConfig, arguments: Any, model: Any, tokenizer: Any, data: Prepared) -> Any:
    no_labels = [NO_STEP] * len(data.train[0]["labels"])
    return PrmTrainer(
        config,
        class_weights(data.train) if config.balance else None,
        model=model,
        args=arguments,
        train_dataset=filled(data.train, arguments, labels=no_labels),
        eval_dataset=data.held_out or None,
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
        compute_metrics=lambda found: _metrics(found.predictions, found.label_ids, data.held_out),
    )


def _metrics(
    logits: np.ndarray, labels: np.ndarray, rows: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return what the held-out problems say; a soft label counts as right from 0.5 up."""
    there = labels != NO_STEP
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
