"""Options of the training stages: frozen, and checked before torch is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from fsdpo_data.core.options import Option, Options, declared_fields
from fsdpo_data.engines.options import IMPLICIT_REWARD_BETA
from fsdpo_train.losses.loss_options import check_loss_options
from fsdpo_train.losses.preference_losses import PreferenceSpec
from fsdpo_train.losses.prm_losses import PRM_LOSSES, PrmLoss

#: Names of the DeepSpeed configurations that come with the package.
DEEPSPEED_PRESETS = ("zero2", "zero3")

# Panels of the help texts.
_LOSS = "Loss"
_OPTIMIZER = "Optimizer"
_COMPUTE = "Memory and speed"
_LOGGING = "Checkpoints and logs"

HeadChunk = Annotated[int | None, Option(min=1, panel=_COMPUTE, default_text="by the free memory")]


@dataclass(frozen=True)
class TrainConfig(Options):
    """Options of every training stage.

    Attributes:
        data: The training data. The rows of several datasets or files follow each other.
        out: Output directory for the trained model, its checkpoints and its card.
        model: Checkpoint to start from: a short name, a directory, or ``org/name[@revision]`` on
            the Hub.
        epochs: Number of passes over the data.
        max_steps: Stop after this number of optimizer steps. With 0, `epochs` decides.
        batch_size: Sequences per device in one micro-batch.
        batch_tokens: Maximum number of tokens per device in one micro-batch, without padding. If
            set, it replaces `batch_size`. A longer sequence is a micro-batch of its own. 0 turns it
            off.
        grad_accum: Micro-batches per optimizer step.
        lr: Peak learning rate.
        lora: Rank of the LoRA adapters, which are merged into the weights at the end. With 0, all
            weights are trained.
        load_in_4bit: Load the frozen weights under LoRA in 4 bits (QLoRA: NF4 with double
            quantization). At the end, the adapters are merged into the original weights.
        seed: Random seed for new weights, data order and dropout.
        resume: Continue the run in `out` from its latest checkpoint.
        schedule: Name of the learning-rate schedule in transformers.
        optim: Name of the optimizer in transformers. 8-bit and paged optimizers need bitsandbytes.
        warmup: Warm-up steps: a number of steps, or a fraction of all steps if below 1.
        weight_decay: Weight decay of AdamW.
        adam_beta2: Decay rate of the second moment in AdamW.
        max_grad_norm: Maximum gradient norm; larger gradients are clipped.
        max_length: Maximum number of tokens of a sequence. 0 means the context length of the model.
        group_by_length: Put sequences of similar length into one batch, which needs less padding.
        dtype: Precision of the computation. Weights stay in float32, except frozen weights under
            LoRA.
        gradient_checkpointing: Recompute activations in the backward pass. This needs less memory
            and more time.
        deepspeed: DeepSpeed preset ``zero2`` or ``zero3``, or a DeepSpeed configuration file.
        report_to: Experiment tracker (``wandb``, ``tensorboard``, …), or ``none``.
        log_every: Optimizer steps between two log entries.
        save_every: Optimizer steps between two checkpoints. 0 saves no checkpoints.
        save_limit: Number of checkpoints that are kept. Older checkpoints are deleted.
    """

    #: Name of the stage in file names and cards.
    stage: ClassVar[str]

    data: Annotated[Sequence[str | Path], Option(positional=True)]
    out: Annotated[Path, Option(in_digest=False)]
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
    resume: Annotated[bool, Option(in_digest=False)] = False
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
    report_to: Annotated[str, Option(panel=_LOGGING, in_digest=False)] = "none"
    log_every: Annotated[int, Option(min=1, panel=_LOGGING, in_digest=False)] = 10
    save_every: Annotated[int, Option(min=0, panel=_LOGGING, in_digest=False)] = 500
    save_limit: Annotated[int, Option(min=1, panel=_LOGGING, in_digest=False)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise self.field_error("data", "expected at least one dataset or file.")
        preset = self.deepspeed
        if preset is not None and preset not in DEEPSPEED_PRESETS and not Path(preset).is_file():
            presets = ", ".join(DEEPSPEED_PRESETS)
            raise self.field_error("deepspeed", f"expected {presets} or a DeepSpeed config file.")
        if self.lora and preset == "zero3":
            raise self.field_error(
                "lora",
                "adapters cannot be merged into weights that zero3 partitions over processes. Use "
                "zero2, which needs little more memory with LoRA.",
            )
        if self.load_in_4bit and (not self.lora or getattr(self, "from_config", None)):
            raise self.field_error(
                "load_in_4bit",
                "4-bit weights need a `model`, and cannot be trained. Set `lora` to the rank of "
                "trainable adapters, e.g. `lora=16`.",
            )

    @property
    def data_text(self) -> str:
        """The training data, for messages."""
        return ", ".join(map(str, self.data))

    @property
    def rows_per_micro_batch(self) -> int:
        """Rows per device in one micro-batch: 1 with `batch_tokens`, where a row is a pack."""
        return 1 if self.batch_tokens else self.batch_size

    @property
    def keeps_prompt_groups(self) -> bool:
        """Whether the rows of a prompt follow each other in the order of training."""
        return getattr(self, "shuffle", None) == "groups"

    @property
    def weights_dtype(self) -> str:
        """Precision in which the start model is loaded."""
        return self.dtype if self.lora else "float32"

    def identity(self) -> dict[str, Any]:
        """Return the options that determine the trained weights, as JSON values.

        A resumed run must have the same values.
        """
        return {
            name: _json_value(getattr(self, name))
            for name, declaration in declared_fields(type(self)).items()
            if declaration.option.in_digest
        }


def _json_value(value: Any) -> Any:
    """Return the value of an option with texts in place of paths, and lists in place of tuples."""
    if isinstance(value, Path):
        return str(value)
    return [_json_value(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class SftConfig(TrainConfig):
    r"""Fine-tune a model on prompt/completion rows.

    The loss covers the completion and the end-of-sequence token.

    Attributes:
        data: A JSONL or parquet file with the columns ``prompt`` and ``completion``, or
            ``org/name[@revision]`` of such a dataset on the Hub. May be given several times.
        from_config: Start from random weights instead of `model`. Give a ``config.json``, or its
            directory. The directory must also contain the tokenizer.
        head_chunk: Number of tokens whose logits are computed at once. Fewer tokens need less
            memory and more time. By default, the logits take at most a quarter of the memory that
            is free at the start; on a GPU, they are those of 2,048 tokens at most.

    Examples:
        fsdpo-train sft sft.jsonl --model Qwen/Qwen2-7B --out runs/sft \
          --dtype bfloat16

        fsdpo-train sft sft.jsonl --model tiny --out runs/tiny --epochs 1

        torchrun --nproc-per-node 8 -m fsdpo_train sft sft.parquet --model ./base \
          --out runs/sft --dtype bfloat16 --deepspeed zero3
    """

    stage: ClassVar[str] = "sft"

    epochs: Annotated[float, Option(exclusive_min=0)] = 3.0
    lr: Annotated[float, Option(exclusive_min=0)] = 1e-5
    schedule: Annotated[str, Option(panel=_OPTIMIZER)] = "cosine"
    warmup: Annotated[float, Option(min=0, panel=_OPTIMIZER)] = 0.03
    from_config: Path | None = None
    head_chunk: HeadChunk = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.model is None) == (self.from_config is None):
            raise self.field_error(
                "model",
                "expected exactly one of `model` and `from_config`, which starts from random "
                "weights.",
            )


@dataclass(frozen=True)
class PrmConfig(TrainConfig):
    r"""Train a process reward model (PRM) on solutions with step labels.

    The defaults are the paper's: one epoch, 256 solutions per optimizer step on one device, and a
    learning rate of 5e-7. Small models need a much higher learning rate.

    Attributes:
        data: Sealed dataset: a directory, a URL, or ``org/name[@revision]`` on the Hub. Or a JSONL
            or parquet file. A file has the columns ``prompt``, ``completions`` and ``labels``
            (booleans, or numbers in [0, 1]). May be given several times.
        model: Policy whose weights get the reward head: a short name, a directory, or
            ``org/name[@revision]`` on the Hub. The default is the model that wrote the solutions
            of all sealed datasets.
        labels: ``outcome``: the outcome of the solution at every step (N=1). ``rollouts``: the
            fraction of correct continuations of each step, or of a judge's votes (N>1).
            ``first-error``: right before the first error that ``label --search first-error`` found,
            wrong from there on. ``imported``: the labels of ``fsdpo-data import``. ``auto``:
            imported labels if the solution has them, else labels of a search, else rollouts, else
            outcomes.
        loss: Name of the loss.
        beta: Factor β of the log-ratio of a policy.
        zeta: Margin ζ between right and wrong steps, in logits.
        loss_reduction: Reduction over the label positions of a solution: ``sum`` (the paper's) or
            ``mean``.
        label_positions: Tokens with a loss. ``step``: the last token of each step (the paper's).
            ``token``: every token of the step, as in Cobbe et al. (2021). In both cases, a trained
            PRM scores a step at its last token.
        shuffle: ``solutions`` come in random order, as in other trainers. With ``groups``, all
            solutions of a prompt come in one batch, and the prompt is computed once.
        samples: Number of solutions per problem of a dataset; the first ones are used. 0 uses all
            solutions.
        balance: Weight the steps such that right and wrong steps have the same total weight.
        only_mixed: Use only problems that have both correct and wrong solutions.
        held_out: Fraction of the problems that is not trained on, but used to evaluate the PRM.
        eval_every: Optimizer steps between two evaluations on the held-out problems. With 0, the
            PRM is evaluated only at the end.

    Examples:
        fsdpo-train prm runs/demo --model tiny --out runs/prm --batch-size 32 \
          --grad-accum 1 --lr 1.5e-3 --adam-beta2 0.98 --epochs 3

        fsdpo-train prm runs/demo org/solutions rows.jsonl --model tiny --out runs/prm

        torchrun --nproc-per-node 8 -m fsdpo_train prm runs/qwen \
          --model qwen2-7b-sft --out runs/prm --dtype bfloat16 --deepspeed zero3 \
          --gradient-checkpointing --grad-accum 4
    """

    stage: ClassVar[str] = "prm"

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    model: Annotated[str | None, Option(default_text="by dataset")] = None
    batch_size: Annotated[int, Option(min=1)] = 8
    grad_accum: Annotated[int, Option(min=1)] = 32
    labels: Literal["auto", "outcome", "rollouts", "first-error", "imported"] = "auto"
    loss: Annotated[str, Option(choices=PRM_LOSSES, panel=_LOSS)] = "bce"
    beta: Annotated[float, Option(exclusive_min=0, panel=_LOSS)] = IMPLICIT_REWARD_BETA
    zeta: Annotated[float, Option(min=0, panel=_LOSS)] = 4.0
    loss_reduction: Literal["sum", "mean"] = "sum"
    label_positions: Literal["step", "token"] = "step"
    shuffle: Annotated[Literal["solutions", "groups"], Option(panel=_COMPUTE)] = "solutions"
    samples: Annotated[int, Option(min=0)] = 0
    balance: bool = False
    only_mixed: bool = False
    held_out: Annotated[float, Option(min=0, exclusive_max=1)] = 0.05
    eval_every: Annotated[int, Option(min=0, panel=_LOGGING, in_digest=False)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_loss_options(self, self.prm_loss, PRM_LOSSES)

    @property
    def prm_loss(self) -> PrmLoss:
        """The registered loss."""
        return PRM_LOSSES.find(self.loss, field="loss")


@dataclass(frozen=True)
class DpoConfig(PreferenceSpec, TrainConfig):
    r"""Train a policy on preference pairs with step-wise DPO, DPO or a related loss.

    The defaults are the paper's: one epoch, 4 prompts with 16 pairs each per optimizer step on one
    device. The learning rate, β and γ come from the paper too. Small models need a much higher
    learning rate.

    Attributes:
        data: Sealed dataset with pairs: a directory, a URL, or ``org/name[@revision]`` on the Hub.
            Or a JSONL or parquet file with the columns of the config ``pairs``. May be given
            several times.
        model: Start model, which is also the reference policy: a short name, a directory, or
            ``org/name[@revision]`` on the Hub. The default is the model that wrote the solutions
            of all sealed datasets.
        batch_size: Prompts per device in one micro-batch, each with all its pairs. With
            ``pairs`` as `shuffle`: pairs per device in one micro-batch.
        batch_tokens: Maximum number of tokens per device in one micro-batch. If set, it replaces
            `batch_size`. Each prompt and each different solution counts once. A prompt with more
            tokens is a micro-batch of its own. 0 turns it off.
        shuffle: ``groups`` keeps the pairs of a prompt in one batch, where each solution is
            computed once. ``pairs`` shuffles single pairs, as other trainers do.
        share_prompt: Compute each prompt once for all its solutions, with a tree attention mask.
            Otherwise, each solution is a row of its own.
        attention: Attention over shared prompts: ``flex`` (FlexAttention, GPUs only), ``sdpa``, or
            ``auto``, which uses flex if possible.
        reference_cache: Directory for reference log-probabilities, which several runs can share.
            The default is ``reference`` in `out`.
        head_chunk: Number of tokens whose logits are computed at once. Fewer tokens need less
            memory and more time. By default, the logits take at most a quarter of the memory that
            is free at the start; on a GPU, they are those of 2,048 tokens at most.

    Examples:
        fsdpo-train dpo runs/pairs --model tiny --out runs/full-step --lr 1e-4 \
          --beta 1

        fsdpo-train dpo org/pairs --model tiny --out runs/dpo --loss dpo --lr 1e-4 \
          --beta 1 --reference-cache runs/reference

        torchrun --nproc-per-node 8 -m fsdpo_train dpo runs/pairs \
          --model qwen2-7b-sft --out runs/full-step --batch-size 1 --dtype bfloat16 \
          --deepspeed zero3 --gradient-checkpointing
    """

    stage: ClassVar[str] = "dpo"

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    model: Annotated[str | None, Option(default_text="by dataset")] = None
    batch_size: Annotated[int, Option(min=1)] = 4
    shuffle: Literal["groups", "pairs"] = "groups"
    share_prompt: Annotated[bool, Option(panel=_COMPUTE)] = True
    attention: Annotated[Literal["auto", "flex", "sdpa"], Option(panel=_COMPUTE)] = "auto"
    reference_cache: Annotated[Path | None, Option(panel=_COMPUTE, in_digest=False)] = None
    head_chunk: HeadChunk = None
