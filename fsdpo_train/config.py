"""Options of the training stages: frozen, and checked before torch is loaded."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.options import NotWith, Option, Options, field_option
from fsdpo_data.dataset.benchmark_problems import AllowBenchmark
from fsdpo_train.losses.loss_options import check_loss_options
from fsdpo_train.losses.preference_losses import PreferenceSpec
from fsdpo_train.losses.prm_losses import PRM_LOSSES, PrmLossSpec

#: Names of the DeepSpeed configurations that come with the package.
DEEPSPEED_PRESETS = ("zero2", "zero3")

# Panels of the help texts.
_OPTIMIZER = "Optimizer"
_COMPUTE = "Memory and speed"
_LOGGING = "Checkpoints and logs"

# Fields of several stages, which may have other defaults: their checks, their flags and their help.
Epochs = Annotated[float, Field(gt=0, description="Number of passes over the data.")]
BatchSize = Annotated[int, Field(ge=1, description="Sequences per device in one micro-batch.")]
GradAccum = Annotated[int, Field(ge=1, description="Micro-batches per optimizer step.")]
LearningRate = Annotated[
    float,
    Field(gt=0, description="Peak learning rate."),
    Option(flags=("--lr", "--learning-rate")),
]
Schedule = Annotated[
    str,
    Field(
        description="Name of a learning-rate schedule in transformers that needs no arguments of "
        "its own. Each has the warm-up, `constant` too."
    ),
    Option(panel=_OPTIMIZER),
]
Warmup = Annotated[
    float,
    Field(
        ge=0,
        description="Warm-up steps: a number of steps, or a fraction of all steps if below 1. A "
        "fraction of less than one step is no warm-up, and the last step is never one of them.",
    ),
    Option(panel=_OPTIMIZER),
]
HeadChunk = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of tokens whose logits are computed at once. Fewer tokens need less "
        "memory and more time. By default, the logits take at most a quarter of the memory that "
        "is free at the start; on a GPU, they are those of 2,048 tokens at most.",
    ),
    Option(panel=_COMPUTE, default_text="by the free memory"),
]


class TrainConfig(Options):
    """Options of every training stage."""

    #: Name of the stage in file names and cards.
    stage: ClassVar[str]

    data: Annotated[Sequence[str | Path], Option(positional=True)]
    """The training data. The rows of several datasets or files follow each other."""
    out: Annotated[Path, Option(in_digest=False)]
    """Output directory for the trained model, its checkpoints and its card."""
    model: str | None = None
    """Checkpoint to start from: a short name, a directory, or ``org/name[@revision]`` on the Hub.
    """
    epochs: Annotated[Epochs, NotWith("max_steps")] = 1.0
    max_steps: Annotated[int, Field(ge=0)] = 0
    """Number of optimizer steps, in place of `epochs`. With 0, `epochs` decides."""
    batch_size: BatchSize = 16
    batch_tokens: Annotated[int, Field(ge=0), Option(panel=_COMPUTE)] = 0
    """Maximum number of tokens per device in one micro-batch, without padding. If set, it replaces
    `batch_size`. A longer sequence is a micro-batch of its own. 0 turns it off.
    """
    grad_accum: GradAccum = 1
    lr: LearningRate = 5e-7
    lora: Annotated[int, Field(ge=0)] = 0
    """Rank of the LoRA adapters, which are merged into the weights at the end. The default of `lr`
    is then ten times as high, except for `tiny`. With 0, all weights are trained.
    """
    load_in_4bit: Annotated[bool, Option(panel=_COMPUTE)] = False
    """Load the frozen weights under LoRA in 4 bits (QLoRA: NF4 with double quantization). At the
    end, the adapters are merged into the original weights.
    """
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Random seed for new weights, data order and dropout."""
    resume: Annotated[bool, Option(in_digest=False)] = False
    """Continue the run in `out` from its latest checkpoint."""
    schedule: Schedule = "linear"
    optim: Annotated[str, Option(panel=_OPTIMIZER)] = "adamw_torch_fused"
    """Name of the optimizer in transformers. 8-bit and paged optimizers need bitsandbytes."""
    warmup: Warmup = 0.05
    weight_decay: Annotated[float, Field(ge=0), Option(panel=_OPTIMIZER)] = 0.0
    """Weight decay of AdamW."""
    adam_beta2: Annotated[float, Field(ge=0, lt=1), Option(panel=_OPTIMIZER)] = 0.999
    """Decay rate of the second moment in AdamW."""
    max_grad_norm: Annotated[float, Field(gt=0), Option(panel=_OPTIMIZER)] = 1.0
    """Maximum gradient norm; larger gradients are clipped."""
    max_length: Annotated[int, Field(ge=0), Option(panel=_COMPUTE)] = 0
    """Maximum number of tokens of a sequence. 0 means the context length of the model."""
    group_by_length: Annotated[bool, Option(panel=_COMPUTE)] = True
    """Put sequences of similar length into one batch, which needs less padding."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], Option(panel=_COMPUTE)] = "auto"
    """Precision of the computation. `auto` is bfloat16 on GPUs that have it, and on CPUs that have
    it if the start model has bfloat16 weights, else float32. The trained weights are saved in
    float32. With `deepspeed` and bfloat16, they are saved in bfloat16, except with `lora`.
    """
    gradient_checkpointing: Annotated[bool, Option(panel=_COMPUTE)] = False
    """Recompute activations in the backward pass. This needs less memory and more time."""
    deepspeed: Annotated[str | None, Option(panel=_COMPUTE)] = None
    """DeepSpeed preset ``zero2`` or ``zero3``, or a DeepSpeed configuration file."""
    report_to: Annotated[str, Option(panel=_LOGGING, in_digest=False)] = "none"
    """Experiment tracker (``wandb``, ``tensorboard``, …), or ``none``."""
    log_every: Annotated[int, Field(ge=1), Option(panel=_LOGGING, in_digest=False)] = 10
    """Optimizer steps between two log entries."""
    save_every: Annotated[int, Field(ge=0), Option(panel=_LOGGING, in_digest=False)] = 500
    """Optimizer steps between two checkpoints. 0 saves no checkpoints."""
    save_limit: Annotated[int, Field(ge=1), Option(panel=_LOGGING, in_digest=False)] = 1
    """Number of checkpoints that are kept. Older checkpoints are deleted."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if not self.data:
            raise self.field_error("data", "expected at least one dataset or file.")
        self._check_out()
        if not self.save_every:
            check_read_options(self, "save_every", ["0"], {"more than 0": ["save_limit"]})
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

    def _check_out(self) -> None:
        """Refuse an output directory that the training reads."""
        inputs = {"the training data": self.data, "the start model": [self.model or ""]}
        for name, locations in inputs.items():
            # Other names, such as `tiny`, are no directories.
            paths = [Path(item) for item in locations if item]
            if self.out.resolve() in [path.resolve() for path in paths if path.exists()]:
                raise self.field_error("out", f"this is {name}. Choose a new directory.")

    @property
    def data_text(self) -> str:
        """The training data, for messages."""
        return ", ".join(map(str, self.data))

    @property
    def rows_per_micro_batch(self) -> int:
        """Rows per device in one micro-batch: 1 with `batch_tokens`, where a row is a pack."""
        return 1 if self.batch_tokens else self.batch_size

    @property
    def steps_depend_on_processes(self) -> bool:
        """Whether a step has other rows on another number of processes: each one adds its own."""
        return True

    @property
    def keeps_prompt_groups(self) -> bool:
        """Whether the rows of a prompt follow each other in the order of training."""
        return getattr(self, "shuffle", None) == "groups"

    @property
    def weights_dtype(self) -> str:
        """Precision in which the start model is loaded."""
        return self.dtype if self.lora else "float32"

    @property
    def reference_dtype(self) -> str:
        """Precision of the weights of a reference model: that of the policy while it computes."""
        if self.load_in_4bit:
            return "nf4"
        is_converted = self.deepspeed is not None and self.dtype == "bfloat16"
        return "bfloat16" if is_converted else self.weights_dtype

    def identity(self) -> dict[str, Any]:
        """Return the options that determine the trained weights, as JSON values.

        A resumed run must have the same values. The infinite γ is a text, as JSON has no infinity.
        """
        return {
            name: str(value) if value == math.inf else value
            for name, value in self.model_dump(mode="json").items()
            if field_option(type(self).model_fields[name]).in_digest
        }


class SftConfig(TrainConfig):
    r"""Fine-tune a model on prompt/completion rows.

    The loss covers the completion and the end-of-sequence token.

    Examples:
        fsdpo-train sft sft.jsonl --model Qwen/Qwen2-7B --out runs/sft

        fsdpo-train sft sft.jsonl --model tiny --out runs/tiny --epochs 1

        torchrun --nproc-per-node 8 -m fsdpo_train sft sft.parquet --model ./base \
          --out runs/sft --deepspeed zero3
    """

    stage: ClassVar[str] = "sft"

    data: Annotated[Sequence[str | Path], Option(positional=True)]
    """A JSONL or parquet file with the columns ``prompt`` and ``completion``, or
    ``org/name[@revision]`` of such a dataset on the Hub. May be given several times.
    """
    epochs: Annotated[Epochs, NotWith("max_steps")] = 3.0
    batch_size: Annotated[BatchSize, NotWith("batch_tokens")] = 16
    lr: LearningRate = 1e-5
    schedule: Schedule = "cosine"
    warmup: Warmup = 0.03
    from_config: Path | None = None
    """Start from random weights instead of `model`. Give a ``config.json``, or its directory. The
    directory must also contain the tokenizer.
    """
    template: Annotated[str | None, Option(default_text="by the prompts")] = None
    """Prompt template of the rows, which is written next to the weights: a name (`fsdpo-data list
    templates`), a `.txt` file that contains `{question}`, or the directory of a dataset, whose
    template is used. By default, the prompts show a template with a name.
    """
    head_chunk: HeadChunk = None

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if (self.model is None) == (self.from_config is None):
            raise self.field_error(
                "model",
                "expected exactly one of `model` and `from_config`, which starts from random "
                "weights.",
            )


class PrmConfig(PrmLossSpec, TrainConfig):
    r"""Train a process reward model (PRM) on solutions with step labels.

    The defaults are those of Full-Step-DPO (arXiv 2502.14356) for models with 7 billion weights:
    one epoch, 256 solutions per optimizer step on one device, and a learning rate of 5e-7. Good
    rates for smaller models are not known. `tiny`, the model of a million weights in the package,
    has its own defaults, which the command prints.

    Examples:
        fsdpo-train prm runs/demo --model tiny --out runs/prm --epochs 3

        fsdpo-train prm runs/demo org/solutions rows.jsonl --model tiny --out runs/prm

        fsdpo-train prm runs/demo --model tiny --out runs/orm --last-step-only

        torchrun --nproc-per-node 8 -m fsdpo_train prm runs/qwen \
          --model qwen2-7b-sft --out runs/prm --deepspeed zero3 \
          --gradient-checkpointing --grad-accum 4
    """

    stage: ClassVar[str] = "prm"

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    """Dataset: a directory, a URL, or ``org/name[@revision]`` on the Hub. Or a JSONL or
    parquet file. A file has the columns ``prompt``, ``completions`` and ``labels`` (booleans, or
    numbers in [0, 1]). May be given several times.
    """
    model: Annotated[str | None, Option(default_text="by dataset")] = None
    """Policy whose weights get the reward head: a short name, a directory, or
    ``org/name[@revision]`` on the Hub. The default is the model that wrote the solutions of all
    datasets. A file has no default, and neither has a dataset of another program on the Hub.
    """
    batch_size: BatchSize = 8
    grad_accum: GradAccum = 32
    labels: Literal["auto", "outcome", "rollouts", "first-error", "imported"] = "auto"
    """``outcome``: the outcome of the solution at every step. ``rollouts``: the fraction of correct
    continuations of each step, or of a judge's votes. ``first-error``: right before the first
    error that ``label --search first-error`` found, wrong from there on. ``imported``: the labels
    of ``fsdpo-data import``. ``auto``: the labels that were made last, which are those of
    ``fsdpo-data label``, else imported labels, else outcomes. Solutions without labels of this kind
    are left out, and counted.
    """
    last_step_only: bool = False
    """Train on the label of the last step of each solution only, which makes an outcome reward
    model (ORM). The checkpoint records it.
    """
    shuffle: Annotated[Literal["solutions", "groups"], Option(panel=_COMPUTE)] = "solutions"
    """``solutions`` come in random order, as in other trainers. With ``groups``, all solutions of a
    prompt come in one batch, and the prompt is computed once.
    """
    samples: Annotated[int, Field(ge=0)] = 0
    """Number of solutions per problem of a dataset; the first ones are used. 0 uses all solutions.
    """
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Fraction of the problems that is not trained on, but used to evaluate the PRM."""
    eval_every: Annotated[int, Field(ge=0), Option(panel=_LOGGING, in_digest=False)] = 0
    """Optimizer steps between two evaluations on the held-out problems. With 0, the PRM is
    evaluated only at the end.
    """
    allow_benchmark: AllowBenchmark = False
    """Train on benchmark problems, too."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        check_loss_options(self, self.prm_loss.name, PRM_LOSSES)
        if not self.held_out:
            check_read_options(self, "held_out", ["0"], {"more than 0": ["eval_every"]})


class DpoConfig(PreferenceSpec, TrainConfig):
    r"""Train a policy on preference pairs with step-wise DPO, DPO or a related loss.

    The defaults are those of Full-Step-DPO (arXiv 2502.14356) for models with 7 billion weights:
    one epoch, and 4 prompts per optimizer step on one device, which are 64 pairs if every prompt
    has 16. `batch_pairs` counts the pairs instead. The learning rate, β and γ come from there too.
    Good rates for smaller models are not known: at 0.5 billion weights, 5e-6 is suspected to be too
    high. `tiny`, the model of a million weights in the package, has its own defaults, such as 1e-4,
    which the command prints.

    Examples:
        fsdpo-train dpo runs/pairs --model tiny --loss full-step --out runs/full-step

        fsdpo-train dpo org/pairs --model tiny --out runs/dpo --loss dpo \
          --reference-cache runs/reference

        torchrun --nproc-per-node 8 -m fsdpo_train dpo runs/pairs \
          --model qwen2-7b-sft --loss full-step --out runs/full-step \
          --batch-size 1 --batch-pairs 128 --deepspeed zero3 --gradient-checkpointing
    """

    stage: ClassVar[str] = "dpo"

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    """Dataset with pairs: a directory, a URL, or ``org/name[@revision]`` on the Hub. Or a
    JSONL or parquet file with the columns ``prompt``, ``chosen_steps``, ``rejected_steps``,
    ``chosen_rewards`` and ``rejected_rewards``. For losses without steps, such as ``dpo`` and
    ``ipo``, the columns ``prompt``, ``chosen`` and ``rejected`` are enough. May be given several
    times.
    """
    model: Annotated[str | None, Option(default_text="by dataset")] = None
    """Start model, which is also the reference policy: a short name, a directory, or
    ``org/name[@revision]`` on the Hub. The default is the model that wrote the solutions of all
    datasets. A file has no default, and neither has a dataset of another program on the Hub.
    """
    batch_size: Annotated[int, Field(ge=1)] = 4
    """Prompts per device in one micro-batch, each with all its pairs. With ``pairs`` as `shuffle`:
    pairs per device in one micro-batch.
    """
    batch_tokens: Annotated[int, Field(ge=0), Option(panel=_COMPUTE)] = 0
    """Maximum number of tokens per device in one micro-batch. If set, it replaces `batch_size`.
    Each prompt and each different solution counts once. A prompt with more tokens is a micro-batch
    of its own. 0 turns it off.
    """
    batch_pairs: Annotated[int, Field(ge=0)] = 0
    """Minimum number of pairs per optimizer step, over all processes. A step takes whole prompts in
    random order until it has so many pairs. The number of micro-batches follows, each with at most
    `batch_size` prompts per device. 0 counts prompts instead: `batch_size` × `grad_accum` per
    device.
    """
    shuffle: Literal["groups", "pairs"] = "groups"
    """``groups`` keeps the pairs of a prompt in one batch, where each solution is computed once.
    ``pairs`` shuffles single pairs, as other trainers do.
    """
    share_prompt: Annotated[bool, Option(panel=_COMPUTE)] = True
    """Compute each prompt once for all its solutions, with a tree attention mask. Otherwise, each
    solution is a row of its own.
    """
    attention: Annotated[
        Literal["auto", "flex", "sdpa"], Option(panel=_COMPUTE), NotWith("share_prompt")
    ] = "auto"
    """Attention over shared prompts: ``flex`` (FlexAttention, GPUs only), ``sdpa``, or ``auto``,
    which uses flex if possible.
    """
    reference_cache: Annotated[Path | None, Option(panel=_COMPUTE, in_digest=False)] = None
    """Directory for reference log-probabilities, which several runs can share. The default is
    ``reference`` in `out`.
    """
    head_chunk: HeadChunk = None
    allow_benchmark: AllowBenchmark = False
    """Train on benchmark problems, too."""

    @property
    def steps_depend_on_processes(self) -> bool:
        """Whether a step has other rows on another number of processes: not with `batch_pairs`."""
        return not self.batch_pairs

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if not self.batch_pairs:
            return
        if self.shuffle == "pairs":
            raise self.field_error(
                "batch_pairs",
                "with `shuffle=pairs`, a row is one pair, and `batch_size` counts pairs. Leave "
                "`batch_pairs` out.",
            )
        if self.batch_tokens or self.grad_accum > 1:
            raise self.field_error(
                "batch_pairs",
                "the pairs decide how many micro-batches of `batch_size` prompts a step has. Leave "
                "`batch_tokens` and `grad_accum` out.",
            )
