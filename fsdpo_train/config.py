"""What a training run is: frozen options, checked before anything heavy is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest

#: Options that say where a run lives or what is watched, not what it computes.
NOT_IDENTITY = frozenset(
    {
        "out",
        "resume",
        "report_to",
        "log_every",
        "save_every",
        "save_limit",
        "eval_every",
        "reference_cache",
    }
)
#: DeepSpeed configurations that come with the package.
DEEPSPEED_PRESETS = ("zero2", "zero3")
#: The preference losses by name.
LOSSES = ("full-step", "full-step-scaled", "dpo", "step-dpo", "release")


#: Those that read no step rewards.
WITHOUT_REWARDS = ("dpo", "step-dpo")


@dataclass(frozen=True, slots=True)
class PreferenceSpec:
    """Which loss, and its two temperatures.

    Attributes:
        loss: One of ``LOSSES``.
        beta: Strength of the pull towards the reference policy, over 0.
        gamma: Temperature of step rewards, 0 or more; 0 weighs all steps alike.
    """

    loss: str = "full-step"
    beta: float = 0.05
    gamma: float = 0.5

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"--loss {self.loss}: expected one of {', '.join(LOSSES)}.")
        if not 0 < self.beta < float("inf"):
            raise InputError(f"--beta {self.beta}: expected a number over 0; the paper has 0.05.")
        if not self.gamma >= 0:
            raise InputError(f"--gamma {self.gamma}: expected 0 or more; the paper has 0.5.")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Options that every training stage has.

    Attributes:
        data: What to train on.
        out: Directory of the trained model.
        model: Checkpoint to start from: a short name, a directory, or ``org/name[@revision]`` of
            the Hub.
        epochs: Passes over the data.
        max_steps: Stop after this many optimizer steps; 0 means ``epochs`` decides.
        batch_size: Sequences per device and forward pass.
        grad_accum: Forward passes per optimizer step.
        lr: Peak learning rate.
        schedule: Learning-rate schedule, by its name in transformers.
        warmup: Share of the steps spent warming up (below 1), or their number.
        weight_decay: AdamW weight decay.
        adam_beta2: AdamW's second-moment decay.
        max_grad_norm: Gradient clipping.
        max_length: Tokens per sequence at most; 0 means the model's context length.
        group_by_length: Batch sequences of like length, so that less is padding.
        bf16: Compute in bfloat16; weights stay float32.
        gradient_checkpointing: Recompute activations to save memory.
        deepspeed: ``zero2``, ``zero3`` or a DeepSpeed config file, passed through.
        report_to: Tracker (``wandb``, ``tensorboard``, …) or ``none``.
        log_every: Optimizer steps between losses logged.
        save_every: Optimizer steps between checkpoints; 0 keeps none.
        save_limit: Checkpoints kept.
        seed: Of the random weights, the order of the data and dropout.
        resume: Continue from the last checkpoint in ``out``.
    """

    #: Name of the stage, in digests and state files.
    stage: ClassVar[str]

    data: Path
    out: Path
    model: str | None = None
    epochs: float = 1.0
    max_steps: int = 0
    batch_size: int = 16
    grad_accum: int = 1
    lr: float = 1e-5
    schedule: str = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    adam_beta2: float = 0.999
    max_grad_norm: float = 1.0
    max_length: int = 0
    group_by_length: bool = True
    bf16: bool = False
    gradient_checkpointing: bool = False
    deepspeed: str | None = None
    report_to: str = "none"
    log_every: int = 10
    save_every: int = 500
    save_limit: int = 1
    seed: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        limits = (
            ("epochs", self.epochs, self.epochs > 0, "more than 0"),
            ("max-steps", self.max_steps, self.max_steps >= 0, "0 (--epochs decides) or more"),
            ("batch-size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("grad-accum", self.grad_accum, self.grad_accum >= 1, "at least 1"),
            ("lr", self.lr, self.lr > 0, "more than 0"),
            ("warmup", self.warmup, self.warmup >= 0, "a share below 1 or a number of steps"),
            ("weight-decay", self.weight_decay, self.weight_decay >= 0, "0 or more"),
            ("max-length", self.max_length, self.max_length >= 0, "0 (the model's) or more"),
            ("log-every", self.log_every, self.log_every >= 1, "at least 1"),
            ("save-every", self.save_every, self.save_every >= 0, "0 (no checkpoints) or more"),
            ("save-limit", self.save_limit, self.save_limit >= 1, "at least 1"),
        )
        _check(limits)
        preset = self.deepspeed is None or self.deepspeed in DEEPSPEED_PRESETS
        if not preset and not Path(str(self.deepspeed)).is_file():
            raise InputError(
                f"--deepspeed {self.deepspeed}: expected {', '.join(DEEPSPEED_PRESETS)} or a "
                "DeepSpeed config file."
            )

    def identity(self) -> dict[str, str]:
        """Return the options that decide the trained weights, as text; what --resume compares."""
        fields = dataclasses.asdict(self)
        return {key: str(value) for key, value in fields.items() if key not in NOT_IDENTITY}

    @property
    def digest(self) -> str:
        """Return the digest of :meth:`identity`."""
        return digest(self.stage, self.identity())


@dataclass(frozen=True, slots=True)
class SftConfig(TrainConfig):
    """Options of ``fsdpo-train sft``.

    Attributes:
        data: JSONL or parquet file with the columns ``prompt`` and ``completion``.
        from_config: Start from random weights: ``config.json``, or the directory that holds it
            and the tokenizer.
    """

    stage: ClassVar[str] = "sft"

    epochs: float = 3.0
    from_config: Path | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.from_config is None):
            given = "neither was" if self.model is None else "both were"
            raise InputError(
                f"--model and --from-config: {given} given, expected exactly one. --model NAME "
                "continues a checkpoint; --from-config DIR starts from random weights."
            )
        TrainConfig.__post_init__(self)  # super() does not know a class that slots has remade


@dataclass(frozen=True, slots=True)
class PrmConfig(TrainConfig):
    """Options of ``fsdpo-train prm``; the paper's settings are the defaults.

    Attributes:
        data: A sealed dataset, or a JSONL or parquet file with the columns ``prompt``,
            ``completions`` and ``labels`` (booleans, or numbers in [0, 1]).
        labels: ``outcome`` (N=1), ``rollouts`` (N>1: the share of correct continuations), or
            ``auto``: rollouts where there are any, else outcomes.
        reduce: Loss of a solution: the ``sum`` over its readouts (the paper's) or their ``mean``.
        readouts: Where labels are learnt: at each ``step``'s end (the paper's), or at every
            ``token`` of the step, as Cobbe et al. (2021) train verifiers; scores are read at the
            steps' ends either way.
        samples: Solutions used of each problem, the first ones; 0 for all.
        balance: Weigh steps so that right and wrong ones count the same in total.
        only_mixed: Use only problems that have right and wrong solutions.
        held_out: Share of the problems kept out of training, to measure on.
        eval_every: Optimizer steps between measurements on them; 0 measures at the end only.
        lora: Rank of LoRA adapters, merged into the weights at the end; 0 trains all weights.
    """

    stage: ClassVar[str] = "prm"

    model: str | None = "tiny"
    batch_size: int = 8
    grad_accum: int = 32
    lr: float = 5e-7
    schedule: str = "linear"
    warmup: float = 0.05
    labels: str = "auto"
    reduce: str = "sum"
    readouts: str = "step"
    samples: int = 0
    balance: bool = False
    only_mixed: bool = False
    held_out: float = 0.05
    eval_every: int = 0
    lora: int = 0

    def __post_init__(self) -> None:
        TrainConfig.__post_init__(self)
        kinds = ("auto", "outcome", "rollouts")
        limits = (
            ("labels", self.labels, self.labels in kinds, f"one of {', '.join(kinds)}"),
            ("reduce", self.reduce, self.reduce in ("sum", "mean"), "sum or mean"),
            ("readouts", self.readouts, self.readouts in ("step", "token"), "step or token"),
            ("samples", self.samples, self.samples >= 0, "0 (all) or more"),
            ("held-out", self.held_out, 0 <= self.held_out < 1, "a share from 0 to below 1"),
            ("eval-every", self.eval_every, self.eval_every >= 0, "0 (at the end) or more"),
        )
        _check(limits)
        _check_lora(self.lora, self.deepspeed)


@dataclass(frozen=True, slots=True)
class DpoConfig(TrainConfig):
    """Options of ``fsdpo-train dpo``; the paper's settings are the defaults.

    Attributes:
        data: A sealed dataset with pairs, ``org/name[@revision]`` of one on the Hub, or a JSONL or
            parquet file with the columns of its ``pairs``.
        batch_size: Prompts per device and forward pass, each with all its pairs (with 16 pairs a
            prompt, 4 are the paper's batch of 64); with ``shuffle`` ``pairs``, pairs.
        loss: One of :data:`fsdpo_train.config.LOSSES`.
        beta: Strength of the pull towards the reference policy.
        gamma: Temperature of step rewards.
        shuffle: ``groups`` keeps the pairs of a prompt in one batch, where its solutions are
            computed once; ``pairs`` scatters them, as other trainers do.
        share_prompt: Compute a prompt once for its solutions, under a tree mask; otherwise each
            solution is a row of its own.
        lora: Rank of LoRA adapters, merged into the weights at the end; 0 trains all weights.
        reference_cache: Directory of reference log-probabilities, shared between runs; by default
            ``reference`` in ``out``.
    """

    stage: ClassVar[str] = "dpo"

    model: str | None = "tiny"
    batch_size: int = 4
    lr: float = 5e-7
    schedule: str = "linear"
    warmup: float = 0.05
    loss: str = "full-step"
    beta: float = 0.05
    gamma: float = 0.5
    shuffle: str = "groups"
    share_prompt: bool = True
    lora: int = 0
    reference_cache: Path | None = None

    def __post_init__(self) -> None:
        TrainConfig.__post_init__(self)
        kinds = ("groups", "pairs")
        _check([("shuffle", self.shuffle, self.shuffle in kinds, " or ".join(kinds))])
        _check_lora(self.lora, self.deepspeed)
        _ = self.preference  # checks its own values

    @property
    def preference(self) -> PreferenceSpec:
        """Return the loss and its temperatures."""
        return PreferenceSpec(self.loss, self.beta, self.gamma)


def _check(limits: Iterable[tuple[str, object, bool, str]]) -> None:
    """Raise for the first of (option, value, whether it is fine, what is expected) that is not."""
    for option, value, ok, expected in limits:
        if not ok:
            raise InputError(f"--{option} {value}: expected {expected}.")


def _check_lora(rank: int, deepspeed: str | None) -> None:
    _check([("lora", rank, rank >= 0, "0 (all weights) or a rank")])
    if rank and deepspeed == "zero3":
        raise InputError(
            "--lora --deepspeed zero3: adapters cannot be merged into weights that are spread "
            "over processes. Use zero2: LoRA leaves little for zero3 to save."
        )
