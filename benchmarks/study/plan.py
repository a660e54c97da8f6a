"""What the study trains and asks, from the table beside this module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.problems.embedded.generator import ProblemKind


@dataclass(frozen=True)
class Arm:
    """A way to give credit."""

    name: str  #: What tables and figures call it.
    loss: str
    gamma: float = 0.0  #: Temperature of step rewards.
    rewards: str = "prm"  #: Where step rewards come from; see :mod:`data`.


#: No credit at all: the policy that all others start from.
SFT = Arm("SFT", "sft")


@dataclass(frozen=True)
class Policy:
    """One training run."""

    arm: Arm
    lr: float
    beta: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its directory."""
        arm = self.arm
        credit = f"{arm.loss}-gamma{arm.gamma:g}-{arm.rewards}"
        return f"{credit}-lr{self.lr:g}-beta{self.beta:g}-seed{self.seed}"


@dataclass(frozen=True)
class StudyQuestion:
    """What is asked of the results: how arms compare with the first one."""

    name: str
    asks: str
    arms: Sequence[str]


@dataclass(frozen=True)
class Size:
    """How large a study is."""

    demonstrations: Mapping[str, int]  #: Solutions that the SFT policy learns from, by stage.
    problems: int  #: Problems that pairs are made of.
    samples: int  #: Solutions sampled of each.
    prm_epochs: float  #: Passes over them of the process reward model.
    steps: int  #: Optimizer steps of every policy.
    settings: Sequence[Mapping[str, float]]  #: Tried for every arm alike, with the first seed.
    #: Of each kind: problems, and solutions sampled of each, that settings are chosen on.
    validation: Mapping[str, Sequence[int]]
    test: Mapping[str, Sequence[int]]  #: What is reported; every seed has problems of its own.
    seeds: Sequence[int]
    arms: Sequence[str] = ()  #: Only these.
    copies: int = 1  #: How often each layer of the embedded model stands in the policy.
    policy: str = ""  #: The size whose SFT policy is trained, if not one of its own.
    like: str = ""  #: The size that says what this one leaves out.


_TABLE = read_toml(__file__)
KINDS = {
    name: ProblemKind(
        **{**told, "lengths": {int(k): often for k, often in told["lengths"].items()}}
    )
    for name, told in _TABLE["kinds"].items()
}
ARMS = [Arm(**told) for told in _TABLE["arms"]]
STAGES: Mapping[str, Any] = _TABLE["stages"]
COMMANDS: Mapping[str, str] = _TABLE["commands"]
TRAINING: Mapping[str, Any] = _TABLE["training"]
QUESTIONS = [StudyQuestion(**told) for told in _TABLE["questions"]]
SIZES = {
    name: Size(**{**_TABLE["sizes"].get(told.get("like"), {}), **told})
    for name, told in _TABLE["sizes"].items()
}
