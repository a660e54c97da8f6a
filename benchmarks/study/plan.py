"""What the study trains: how much data, which settings, which seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

#: The methods beside the SFT policy, by their losses.
METHODS = {"dpo": "DPO", "step-dpo": "Step-DPO", "full-step": "Full-Step-DPO"}

BETA, GAMMA = 0.05, 0.5


@dataclass(frozen=True)
class Policy:
    """One training run.

    Attributes:
        loss: Name of the loss.
        lr: Peak learning rate.
        beta: Pull towards the SFT policy.
        gamma: Temperature of step rewards; only ``full-step`` reads it.
        seed: Of the order of the data.
    """

    loss: str
    lr: float
    beta: float = BETA
    gamma: float = GAMMA
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of its directory."""
        gamma = f"-gamma{self.gamma:g}" if self.loss == "full-step" else ""
        return f"{self.loss}-lr{self.lr:g}-beta{self.beta:g}{gamma}-seed{self.seed}"

    def with_seed(self, seed: int) -> Policy:
        """Return the same run from another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Sizes:
    """How large a study is.

    Attributes:
        problems: Training problems.
        samples: Solutions sampled of each.
        prm_epochs: Passes over them of the process reward model.
        validation: Problems that settings are chosen on, and samples of each.
        test: Problems of the final numbers, and samples of each.
        lrs: Learning rates tried for every loss.
        betas: β tried for every loss.
        gammas: γ tried for Full-Step-DPO, at its best learning rate and β.
        seeds: Training runs of what was chosen.
    """

    problems: int
    samples: int
    prm_epochs: float
    validation: tuple[int, int]
    test: tuple[int, int]
    lrs: tuple[float, ...]
    betas: tuple[float, ...]
    gammas: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def prm_options(self) -> tuple[object, ...]:
        """Options of ``fsdpo-train prm``."""
        return (
            *("--model", "tiny", "--epochs", self.prm_epochs, "--lr", 1.5e-3, "--adam-beta2", 0.98),
            *("--batch-size", 32, "--grad-accum", 1, "--log-every", 100, "--save-every", 0),
        )

    def settings(self) -> Iterator[Policy]:
        """Yield every learning rate with every β, the same for every loss."""
        for loss in METHODS:
            for beta in self.betas:
                for lr in self.lrs:
                    yield Policy(loss, lr, beta)


#: What the study chose on validation problems; `make demo` trains just that.
CHOSEN = (
    Policy("dpo", 1e-4, beta=1.0),
    Policy("step-dpo", 1e-4, beta=1.0),
    Policy("full-step", 1e-4, beta=1.0),
)

STUDY = Sizes(
    problems=600,
    samples=16,
    prm_epochs=3,
    validation=(300, 8),
    test=(300, 8),
    lrs=(3e-5, 1e-4),
    betas=(0.05, 1.0),
    gammas=(0.0, 2.0, 8.0),
    seeds=(0, 1, 2),
)

DEMO = Sizes(
    problems=160,
    samples=16,
    prm_epochs=2,
    validation=(0, 0),
    test=(120, 8),
    lrs=(),
    betas=(),
    gammas=(),
    seeds=(0,),
)
