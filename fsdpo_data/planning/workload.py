"""The computation of a stage, and its time on a GPU or at a rate in tokens per second."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from fsdpo_data.core.toml_tables import TomlTable

WorkKind = Literal["generate", "score", "train", "pairs", "none"]  #: See :class:`Workload`.

UTILISATION = 0.4  #: Fraction of a GPU's peak FLOP/s that training and scoring reach.
#: FLOP per parameter and token: a forward pass, and a training step (forward, backward, and forward
#: again for gradient checkpointing).
FORWARD_FLOP = 2.0
TRAINING_FLOP = 8.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU for cost estimates; the fields are the keys of ``gpus.toml``."""

    title: str  #: Name of the GPU.
    peak: float  #: Dense bfloat16 TFLOP/s.
    bandwidth: float  #: Memory bandwidth in TB/s.
    source: str  #: Source of these numbers.
    #: Measured tokens per second of a model with 7 billion parameters; 0 if unknown.
    decode_tokens_per_second: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed of a model with 7 billion parameters, measured or scaled from the A100."""
        reference = GPUS["a100"]
        return (
            self.decode_tokens_per_second
            or reference.decode_tokens_per_second * self.bandwidth / reference.bandwidth
        )

    @property
    def assumptions(self) -> str:
        """The assumptions of the estimates for this GPU, in words."""
        scaling = "" if self.decode_tokens_per_second else ", scaled from the A100 by bandwidth"
        return (
            f"GPU-hours are of one {self.title}. Generation: tokens / "
            f"({self.tokens_per_second:,.0f} per second{scaling}, x 7 / billions of parameters). "
            "Training: 8 x parameters x tokens FLOP (forward, backward, and forward again for "
            "gradient checkpointing). Scoring and "
            f"reference log-probabilities: 2 x. Both run at {100 * UTILISATION:.0f} % of "
            f"{self.peak:,.0f} TFLOP/s ({self.source}). Token counts per text are estimates; the "
            "numbers of sequences are upper bounds. The measured cost comes from the files of the "
            "stages; training does not record it."
        )


GPUS = TomlTable(str(Path(__file__).with_name("gpus")), lambda _, **fields: Gpu(**fields))


@dataclass(frozen=True, slots=True)
class Workload:
    """The amount of computation of a stage."""

    #: ``generate`` samples completions. ``score`` runs one forward pass over prompts and
    #: completions. ``train`` trains on both. ``pairs`` trains on pairs with a reference model,
    #: where completions of a prompt share its computation. ``none`` needs no GPU.
    kind: WorkKind
    sequences: int = 0  #: Number of completions.
    prompts: int = 0  #: Number of different prompts, for ``pairs``.
    prompt_tokens: int = 0  #: Tokens per prompt.
    tokens: int = 0  #: Tokens per completion.
    parameters: float = 0.0  #: Billions of parameters of the model.
    epochs: float = 1.0  #: Training epochs.

    @property
    def tokens_per_epoch(self) -> float:
        """Tokens that one pass over the data generates or reads."""
        if self.kind == "none":
            return 0.0
        if self.kind == "generate":
            return float(self.sequences * self.tokens)
        prompts = self.prompts if self.kind == "pairs" else self.sequences
        return float(prompts * self.prompt_tokens + self.sequences * self.tokens)

    @property
    def passes(self) -> float:
        """Passes over the data, each of the cost of a training epoch in a training.

        The reference model of ``pairs`` runs forward only, once.
        """
        if self.kind == "pairs":
            return self.epochs + FORWARD_FLOP / TRAINING_FLOP
        return self.epochs if self.kind == "train" else 1.0


class CostEstimate(NamedTuple):
    """The estimated or measured cost of a stage."""

    tokens: float | None  #: Processed tokens; None if unknown.
    gpu_hours: float  #: GPU-hours, by the formulas of :attr:`Gpu.assumptions` or measured.


def estimate(work: Workload, gpu: Gpu | None = None) -> CostEstimate:
    """Estimate the cost of a stage, by default on the paper's A100.

    Examples:
        >>> work = Workload("generate", sequences=32 * 10_795, tokens=300, parameters=7)
        >>> round(estimate(work).gpu_hours, 1)
        8.5
    """
    gpu = gpu or GPUS["a100"]
    if work.kind == "none":
        return CostEstimate(0.0, 0.0)
    epochs = work.epochs if work.kind in ("train", "pairs") else 1
    tokens = work.tokens_per_epoch * epochs
    return CostEstimate(tokens, estimate_hours(work, gpu_rate(work, gpu)))


def gpu_rate(work: Workload, gpu: Gpu) -> float:
    """Return the tokens per second of one GPU, by the formulas of :attr:`Gpu.assumptions`."""
    if work.kind == "generate":
        return gpu.tokens_per_second * 7 / work.parameters
    flop = FORWARD_FLOP if work.kind == "score" else TRAINING_FLOP
    return gpu.peak * 1e12 * UTILISATION / (flop * work.parameters * 1e9)


def estimate_hours(work: Workload, tokens_per_second: float, replicas: int = 1) -> float:
    """Return the hours of a stage at a rate.

    Args:
        work: The computation.
        tokens_per_second: Rate of one replica: generated, scored, or trained tokens.
        replicas: Number of replicas that share the work.
    """
    return work.tokens_per_epoch * work.passes / tokens_per_second / replicas / 3600
