"""What a training run is: frozen options, checked before anything heavy is loaded."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from fsdpo_data.core.options import Option, Options

#: Options that say where a run lives or what is watched, not what it computes.
_LOGGING_OPTIONS = ("report_to", "log_every", "save_every", "save_limit", "eval_every")
NON_IDENTITY_OPTIONS = frozenset(("out", "resume", "reference_cache", *_LOGGING_OPTIONS))
#: DeepSpeed configurations that come with the package.
DEEPSPEED_PRESETS = ("zero2", "zero3")

Loss = Literal["full-step", "full-step-scaled", "dpo", "step-dpo", "public-code"]
#: Those that read no step rewards.
REWARD_FREE_LOSSES = ("dpo", "step-dpo")

_LOSS, _OPTIMIZER = "Loss", "Optimizer"
_COMPUTE, _WATCH = "Memory and speed", "Checkpoints and logs"


@dataclass(frozen=True)
class TrainConfig(Options):
    """Options that every training stage has.

    Attributes:
        data: What to train on.
        out: Directory of the trained model.
        model: Checkpoint to start from: a short name, a directory, or ``org/name[@revision]`` of
            the Hub.
        epochs: Passes over the data.
        max_steps: Stop after so many optimizer steps; 0: `epochs` decides.
        batch_size: Sequences per device and pass.
        batch_tokens: Instead of `batch_size`: tokens per device and pass at most, padding aside;
            a longer sequence makes a pass of its own. 0: off.
        grad_accum: Passes per optimizer step.
        lr: Peak learning rate.
        lora: Rank of LoRA adapters, merged into the weights at the end; 0 trains all weights.
        load_in_4bit: Hold the weights that LoRA freezes in four bits (QLoRA: NF4, quantized twice);
            the adapters are merged into the weights as they were.
        seed: Of new weights, the order of the data and dropout.
        resume: Continue the run in `out` from its last checkpoint.
        schedule: Learning-rate schedule, by its name in transformers.
        optim: Optimizer, by its name in transformers; those of 8 bits and paged ones need
            bitsandbytes.
        warmup: Share of the steps spent warming up (below 1), or their number.
        weight_decay: AdamW weight decay.
        adam_beta2: AdamW second-moment decay.
        max_grad_norm: Gradient clipping.
        max_length: Tokens of a sequence at most; 0: the model's context length.
        group_by_length: Batch sequences of like length: less padding, where there is any.
        dtype: Precision of the computation; weights stay float32, except those that LoRA freezes.
        gradient_checkpointing: Recompute activations: less memory, more time.
        deepspeed: ``zero2``, ``zero3`` or a DeepSpeed config file.
        report_to: Tracker (``wandb``, ``tensorboard``, …) or ``none``.
        log_every: Optimizer steps between losses logged.
        save_every: Optimizer steps between checkpoints; 0 keeps none.
        save_limit: Checkpoints kept.
    """

    #: Name of the stage, in digests and state files.
    stage: ClassVar[str]

    data: Annotated[Path, Option(positional=True)]
    out: Path
    model: str | None = None
    epochs: Annotated[float, Option(exclusive_min=0)] = 1.0
    max_steps: Annotated[int, Option(min=0)] = 0
    batch_size: Annotated[int, Option(min=1)] = 16
    batch_tokens: Annotated[int, Option(min=0, panel=_COMPUTE)] = 0
    grad_accum: Annotated[int, Option(min=1)] = 1
    lr: Annotated[float, Option(exclusive_min=0)] = 5e-7
    lora: Annotated[int, Option(min=0)] = 0
    load_in_4bit: Annotated[bool, Option(panel=_COMPUTE)] = False
    seed: Annotated[int, Option(min=0, max=2**32 - 1)] = 0
    resume: bool = False
    schedule: Annotated[str, Option(panel=_OPTIMIZER)] = "linear"
    optim: Annotated[str, Option(panel=_OPTIMIZER)] = "adamw_torch_fused"
    warmup: Annotated[float, Option(min=0, panel=_OPTIMIZER)] = 0.05
    weight_decay: Annotated[float, Option(min=0, panel=_OPTIMIZER)] = 0.0
    adam_beta2: Annotated[float, Option(min=0, exclusive_max=1, panel=_OPTIMIZER)] = 0.999
    max_grad_norm: Annotated[float, Option(exclusive_min=0, panel=_OPTIMIZER)] = 1.0
    max_length: Annotated[int, Option(min=0, panel=_COMPUTE)] = 0
    group_by_length: Annotated[bool, Option(panel=_COMPUTE)] = True
    dtype: Annotated[Literal["float32", "bfloat16"], Option(panel=_COMPUTE)] = "float32"
    gradient_checkpointing: Annotated[bool, Option(panel=_COMPUTE)] = False
    deepspeed: Annotated[str | None, Option(panel=_COMPUTE)] = None
    report_to: Annotated[str, Option(panel=_WATCH)] = "none"
    log_every: Annotated[int, Option(min=1, panel=_WATCH)] = 10
    save_every: Annotated[int, Option(min=0, panel=_WATCH)] = 500
    save_limit: Annotated[int, Option(min=1, panel=_WATCH)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        preset = self.deepspeed
        if preset is not None and preset not in DEEPSPEED_PRESETS and not Path(preset).is_file():
            known = ", ".join(DEEPSPEED_PRESETS)
            raise self.field_error("deepspeed", f"expected {known} or a DeepSpeed config file.")
        if self.lora and preset == "zero3":
            raise self.field_error(
                "lora",
                "adapters cannot be merged into weights that zero3 spreads over processes. Use "
                "zero2: LoRA leaves little for zero3 to save.",
            )
        if self.load_in_4bit and not (self.lora and self.model):
            raise self.field_error(
                "load_in_4bit",
                "weights in four bits are those of a `model`, and frozen. Set `lora` to the rank "
                "of adapters over them, e.g. `lora=16`.",
            )

    @property
    def rows_per_micro_batch(self) -> int:
        """Return how many rows a device takes at a time: one where tokens are counted."""
        return 1 if self.batch_tokens else self.batch_size

    @property
    def keeps_prompt_groups(self) -> bool:
        """Say whether all that has one prompt comes together."""
        return getattr(self, "shuffle", None) == "groups"

    @property
    def weights_dtype(self) -> str:
        """Return the precision of the weights that training starts from."""
        return self.dtype if self.lora else "float32"

    def identity(self) -> dict[str, str]:
        """Return the options that decide the trained weights, as text; what resuming compares."""
        fields = dataclasses.asdict(self)
        return {key: str(value) for key, value in fields.items() if key not in NON_IDENTITY_OPTIONS}


@dataclass(frozen=True)
class SftConfig(TrainConfig):
    """Fine-tune on prompt/completion rows; the loss covers the completion and its end.

    Attributes:
        data: JSONL or parquet with the columns ``prompt`` and ``completion``, or
            ``org/name[@revision]`` of such rows on the Hub.
        from_config: Start from random weights: ``config.json``, or the directory that holds it
            and the tokenizer.
    """

    stage: ClassVar[str] = "sft"

    epochs: Annotated[float, Option(exclusive_min=0)] = 3.0
    lr: Annotated[float, Option(exclusive_min=0)] = 1e-5
    schedule: Annotated[str, Option(panel=_OPTIMIZER)] = "cosine"
    warmup: Annotated[float, Option(min=0, panel=_OPTIMIZER)] = 0.03
    from_config: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.model is None) == (self.from_config is None):
            raise self.field_error(
                "model",
                "expected exactly one of it and `from_config`, which starts from random weights.",
            )


@dataclass(frozen=True)
class PrmConfig(TrainConfig):
    """Train a process reward model: a reward for each step, learnt from labelled solutions.

    The defaults are the paper's: one epoch, 256 solutions per step on one device, learning rate
    5e-7. Small models want a much higher one.

    Attributes:
        data: A sealed dataset, ``org/name[@revision]`` of one on the Hub, or JSONL or parquet with
            the columns ``prompt``, ``completions`` and ``labels`` (booleans, or numbers in [0, 1]).
        model: Policy to put the head on: a short name, a directory, or ``org/name[@revision]``.
        labels: ``outcome`` (N=1), ``rollouts`` (N>1: the share of correct continuations, or of a
            judge's votes), or ``auto``: rollouts where there are any, else outcomes.
        loss: ``bce``: each step against its label (the paper's). ``pqm``: right steps rank above
            the wrong ones, and each above those before it (Li and Li 2024). ``implicit``: a policy
            is trained, whose log-ratio to the model it starts from tells the outcome (Yuan et al.
            2024); it is scored with ``--policy`` and ``--reference``.
        beta: For ``implicit``: what the log-ratio is multiplied by.
        zeta: For ``pqm``: how far wrong steps have to stay below.
        loss_reduction: Over the label positions of a solution: their ``sum`` (the paper's) or their ``mean``.
        label_positions: Where labels are learnt: at each ``step``'s end (the paper's), or at every
            ``token`` of the step, as Cobbe et al. (2021) train verifiers; scores are read at the
            steps' ends either way.
        shuffle: ``solutions`` come in random order, as in other trainers; with ``groups`` those of
            a prompt come in one batch, where it is computed once.
        samples: Solutions used of each problem, the first ones; 0: all.
        balance: Weigh steps so that right and wrong ones count the same in total.
        only_mixed: Use only problems that have right and wrong solutions.
        held_out: Share of the problems kept out of training, to measure on.
        eval_every: Optimizer steps between measurements on them; 0: at the end only.
    """

    stage: ClassVar[str] = "prm"

    model: str = "tiny"
    batch_size: Annotated[int, Option(min=1)] = 8
    grad_accum: Annotated[int, Option(min=1)] = 32
    labels: Literal["auto", "outcome", "rollouts"] = "auto"
    loss: Annotated[Literal["bce", "pqm", "implicit"], Option(panel=_LOSS)] = "bce"
    beta: Annotated[float, Option(exclusive_min=0, panel=_LOSS)] = 0.05
    zeta: Annotated[float, Option(min=0, panel=_LOSS)] = 4.0
    loss_reduction: Literal["sum", "mean"] = "sum"
    label_positions: Literal["step", "token"] = "step"
    shuffle: Annotated[Literal["solutions", "groups"], Option(panel=_COMPUTE)] = "solutions"
    samples: Annotated[int, Option(min=0)] = 0
    balance: bool = False
    only_mixed: bool = False
    held_out: Annotated[float, Option(min=0, exclusive_max=1)] = 0.05
    eval_every: Annotated[int, Option(min=0, panel=_WATCH)] = 0


@dataclass(frozen=True)
class PreferenceSpec(Options):
    """Which preference loss, and its two temperatures.

    Attributes:
        loss: The paper's is ``full-step``.
        beta: Pull towards the reference policy.
        gamma: Temperature of step rewards; 0 weighs all steps alike.
    """

    loss: Loss = "full-step"
    beta: Annotated[float, Option(exclusive_min=0)] = 0.05
    gamma: Annotated[float, Option(min=0, allow_infinity=True)] = 0.5


@dataclass(frozen=True)
class DpoConfig(PreferenceSpec, TrainConfig):
    """Train a policy on preference pairs: step-wise DPO, DPO and their relatives.

    The defaults are the paper's: one epoch, 4 prompts of 16 pairs per step on one device, learning
    rate 5e-7, β 0.05, γ 0.5. Small models want a much higher learning rate.

    Attributes:
        data: A sealed dataset with pairs, ``org/name[@revision]`` of one on the Hub, or JSONL or
            parquet with the columns of its ``pairs``.
        model: Policy to start from, and the reference: a short name, a directory, or
            ``org/name[@revision]``.
        batch_size: Prompts per device and pass, each with all its pairs; with `shuffle`
            ``pairs``, pairs.
        batch_tokens: Instead of `batch_size`: tokens of prompts and different solutions per
            device and pass at most; a prompt with more makes a pass of its own. 0: off.
        shuffle: ``groups`` keeps the pairs of a prompt in one batch, where its solutions are
            computed once; ``pairs`` scatters them, as other trainers do.
        share_prompt: Compute a prompt once for its solutions, under a tree mask; otherwise each
            solution is a row of its own.
        attention: Over shared prompts: ``flex`` (FlexAttention, GPUs only), ``sdpa``, or ``auto``:
            flex where it can run.
        reference_cache: Directory of reference log-probabilities, shared between runs; else
            ``reference`` in `out`.
    """

    stage: ClassVar[str] = "dpo"

    model: str = "tiny"
    batch_size: Annotated[int, Option(min=1)] = 4
    shuffle: Literal["groups", "pairs"] = "groups"
    share_prompt: Annotated[bool, Option(panel=_COMPUTE)] = True
    attention: Annotated[Literal["auto", "flex", "sdpa"], Option(panel=_COMPUTE)] = "auto"
    reference_cache: Annotated[Path | None, Option(panel=_COMPUTE)] = None
