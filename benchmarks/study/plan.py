"""What the study trains: how much data, which settings, which seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdpo_data.core.tables import read_table

#: The methods beside the SFT policy, by their losses.
METHODS = {"dpo": "DPO", "step-dpo": "Step-DPO", "full-step": "Full-Step-DPO"}

BETA, GAMMA = 0.05, 0.5


@dataclass(frozen=True)
class Policy:
    """One training run."""

    loss: str
    lr: float
    beta: float = BETA  #: Pull towards the SFT policy.
    gamma: float = GAMMA  #: Temperature of step rewards; only ``full-step`` reads it.
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of its directory."""
        gamma = f"-gamma{self.gamma:g}" if self.loss == "full-step" else ""
        return f"{self.loss}-lr{self.lr:g}-beta{self.beta:g}{gamma}-seed{self.seed}"


@dataclass(frozen=True)
class Sizes:
    """How large a study is."""

    problems: int  #: Training problems.
    samples: int  #: Solutions sampled of each.
    prm_epochs: float  #: Passes over them of the process reward model.
    validation: Sequence[int]  #: Problems that settings are chosen on, and samples of each.
    test: Sequence[int]  #: Problems of the final numbers, and samples of each.
    lrs: Sequence[float]
    betas: Sequence[float]
    gammas: Sequence[float]  #: γ tried for Full-Step-DPO, at its best learning rate and β.
    seeds: Sequence[int]  #: Training runs of what was chosen.

    def settings(self) -> Iterator[Policy]:
        """Yield every learning rate with every β, the same for every loss."""
        for loss in METHODS:
            for beta in self.betas:
                for lr in self.lrs:
                    yield Policy(loss, lr, beta)


_TOLD = read_table(__file__)
#: What the study chose on validation problems; `make demo` trains just that.
CHOSEN = tuple(Policy(**policy) for policy in _TOLD["chosen"])
STUDY, DEMO = (Sizes(**_TOLD[name]) for name in ("study", "demo"))
