"""The plan of the study: arms, training runs, questions and sizes, read from ``plan.toml``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.problems.embedded.generator import ProblemKind


@dataclass(frozen=True)
class Arm:
    """One arm of the experiment: a preference loss with a source of step rewards."""

    name: str  #: Name in tables and figures.
    loss: str  #: Name of the loss, as in ``fsdpo-train dpo --loss``.
    gamma: float = 0.0  #: Inverse temperature of the step weights.
    rewards: str = "prm"  #: Source of the step rewards; the docstring of data.py lists them.


#: The arm without preference training: the policy that all other arms start from.
SFT = Arm("SFT", "sft")


@dataclass(frozen=True)
class Policy:
    """One training run of an arm."""

    arm: Arm  #: Loss and rewards.
    lr: float  #: Peak learning rate.
    beta: float  #: Strength of the pull towards the reference policy.
    training_seed: int  #: Seed of the training; the test problems depend on it, too.

    @property
    def name(self) -> str:
        """Name of the directory of the run."""
        arm = self.arm
        credit = f"{arm.loss}-gamma{arm.gamma:g}-{arm.rewards}"
        return f"{credit}-lr{self.lr:g}-beta{self.beta:g}-seed{self.training_seed}"


@dataclass(frozen=True)
class StudyQuestion:
    """A question about the results: how arms compare with the first arm."""

    name: str  #: Name of the question in tables and file names.
    title: str  #: The question, as the title of its figure.
    arms: Sequence[str]  #: Names of the arms; the first is the baseline.


@dataclass(frozen=True)
class Size:
    """The size of a study: problems, samples, training steps and seeds."""

    title: str  #: Name of the size in figures and on pages.
    demonstrations: Mapping[str, int]  #: Number of solutions for SFT, by name in ``STAGES``.
    problems: int  #: Number of problems with preference pairs.
    samples: int  #: Number of solutions sampled per problem.
    prm_epochs: float  #: Epochs of the PRM training.
    steps: int  #: Optimizer steps of every policy.
    #: Learning rates and β values; every arm is trained with each of them and the first seed.
    settings: Sequence[Mapping[str, float]]
    #: By kind of problem: (number of problems, samples per problem) for choosing a setting.
    validation: Mapping[str, Sequence[int]]
    #: By kind of problem: (number of problems, samples per problem) of the reported results.
    test: Mapping[str, Sequence[int]]
    training_seeds: Sequence[int]  #: Seeds of the trainings; each has test problems of its own.
    arms: Sequence[str] = ()  #: Names of the arms; empty for all.
    #: Whether each seed has its own SFT policy, problems, samples, PRM and pairs. All seeds
    #: share the first stage of SFT, from the size in ``based_on``.
    draws: bool = False
    #: The fraction of chosen solutions that reach the answer by luck, in the positive control; None
    #: for pairs of sampled solutions.
    lucky_chosen: float | None = None
    #: Names of the questions that the results answer.
    questions: Sequence[str] = ("normalisation", "density", "rewards")
    based_on: str = ""  #: The size that provides the fields that this size leaves out.


_TABLE = read_module_table(__file__)

#: Seed of the problems with preference pairs. The other seeds are in ``data.py``.
PAIR_SEED = 2
DRAW_SEED_STEP = 100  #: Difference of the seeds of the problems between two draws of the data.


def _read_kind(row: Mapping[str, Any]) -> ProblemKind:
    weights = {int(length): weight for length, weight in row["lengths"].items()}
    return ProblemKind(**{**row, "lengths": weights})


def _read_size(row: Mapping[str, Any]) -> Size:
    fields = row
    while base := _TABLE["sizes"].get(fields.get("based_on")):
        fields = {**base, **{key: value for key, value in fields.items() if key != "based_on"}}
    return Size(**{**fields, "based_on": row.get("based_on", "")})


KINDS = {name: _read_kind(row) for name, row in _TABLE["kinds"].items()}
ARMS = [Arm(**row) for row in _TABLE["arms"]]
#: The two stages of SFT, with the error rates of their solutions.
STAGES: Mapping[str, Any] = _TABLE["stages"]
#: Command lines by name; ``{out}``, ``{sft}`` and fields of ``Size`` are placeholders.
COMMANDS: Mapping[str, str] = _TABLE["commands"]
#: Options of preference training that all arms share.
TRAINING: Mapping[str, Any] = _TABLE["training"]
#: Verdicts on a difference with a corrected p-value below 0.05: a gain, and a loss.
SIGNIFICANT_VERDICTS = ("significantly ahead", "significantly behind")
#: Points of avg@k within which two arms are equivalent.
EQUIVALENCE_MARGIN: float = _TABLE["equivalence_margin"]
QUESTIONS = [StudyQuestion(**row) for row in _TABLE["questions"]]
SIZES = {name: _read_size(row) for name, row in _TABLE["sizes"].items()}
