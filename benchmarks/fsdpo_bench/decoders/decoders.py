"""Decoders: procedures that choose one solution of a problem, and the names of their results.

A decoder with its parameters gives one result of a report, such as ``bon@5:min``. With several
reward models, the name states one: ``bon@5:min by qwen_prm``. This module alone writes and reads
these names. To add a decoder, register one more :class:`Decoder`, here or in a
plug-in. Results list the decoders in the order of this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fsdpo_bench.decoders.answer_classes import AnswerClasses
from fsdpo_bench.decoders.estimators import (
    best_of_n,
    distribute_best_of_n,
    distribute_first,
    distribute_vote,
    vote,
    weighted_vote,
)
from fsdpo_data.core.entities import Solution
from fsdpo_data.core.registry import Registry

if TYPE_CHECKING:
    import numpy as np

    Distribute = Callable[[Sequence[AnswerClasses], np.ndarray, np.ndarray], np.ndarray]

#: The solutions from which a decoder chooses: ``samples`` that several decoders share, or the ones
#: that ``greedy`` decoding or a ``beam`` search generates for this decoder.
Origin = Literal["samples", "greedy", "beam"]
#: The numbers of solutions by which a decoder chooses: step rewards, step rewards that are
#: probabilities, or log-likelihoods under the policy.
Need = Literal["nothing", "rewards", "probabilities", "likelihoods"]
SAMPLES_PART = "samples"  #: Name of the dataset in a run with the samples that decoders share.
MODEL_SEPARATOR = " by "  #: Text between a decoder and its reward model in a result name.


class ParameterFormat(NamedTuple):
    """The form of a parameter in result names."""

    pattern: str  #: Regular expression of its text.
    convert: Callable[[str], Any]  #: Function from the text to the value.


_COUNT_FORMAT = ParameterFormat(r"[1-9]\d{0,8}", int)
#: The parameters of decoders; they are fields of :class:`DecoderSetup`.
PARAMETERS: Mapping[str, ParameterFormat] = {
    "k": _COUNT_FORMAT,
    "aggregate": ParameterFormat(r"[\w.-]+", str),
    "b1": _COUNT_FORMAT,
    "b2": _COUNT_FORMAT,
}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The K solutions of a problem from which a decoder chooses one."""

    solutions: Sequence[Solution]  #: The solutions; a choice may not read their verdicts.
    answer_classes: AnswerClasses  #: The answers with which the solutions vote.
    #: The aggregated step rewards of each solution, or its log-likelihood if the decoder needs
    #: likelihoods; None for a solution without rewards.
    rewards: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A procedure that chooses one solution per problem."""

    name: str  #: Name on the command line, and first part of result names.
    title: str  #: Explanation in reports and cards.
    #: Explanation in the help and the errors of ``run``; empty for a decoder that no run can have.
    description: str
    #: Returns the index of the chosen solution, or None if it chooses none, which counts as wrong.
    choose: Callable[[Candidates], int | None]
    #: Returns the probability that each sample is chosen, of shape (P, M). Its arguments are the
    #: answer classes of the P problems, rewards of shape (P, M), and subsets of K samples of shape
    #: (R, M). None to call ``choose`` for each subset, which is slower.
    distribute: Distribute | None = None
    #: Format of the parameters in result names, such as ``@{k}:{aggregate}``; empty without
    #: parameters.
    suffix: str = ""
    origin: Origin = "samples"  #: The solutions from which it chooses.
    #: The numbers by which it chooses. The cost of step rewards includes the reward model.
    needs: Need = "nothing"
    #: Options of beam search that it reads, besides its parameters. Others are refused.
    options: Sequence[str] = ()
    metric: str = ""  #: Name of its accuracy as a metric: ``maj`` for ``maj@K``; empty for none.
    #: Whether reports compare it by each other aggregate with it by the default aggregate.
    compares_aggregates: bool = False
    colour: int = 6  #: Number of its colour in reports, from 1 to 6.

    def __post_init__(self) -> None:
        """Check the fields that depend on each other."""
        if self.suffix and (self.suffix[0] != "@" or not {*self.parameters} <= {*PARAMETERS}):
            names = ", ".join(f"{{{name}}}" for name in PARAMETERS)
            raise ValueError(f"decoder {self.name!r}: expected a suffix of @ and {names}")

    @property
    def needs_rewards(self) -> bool:
        """Whether it needs step rewards."""
        return self.needs in ("rewards", "probabilities")

    @property
    def uses_sample_rewards(self) -> bool:
        """Whether it chooses among samples by step rewards; a search needs them earlier."""
        return self.needs_rewards and self.origin == "samples"

    @property
    def is_vote(self) -> bool:
        """Whether it is the majority vote, the baseline of choices by step rewards."""
        return self.metric == "maj"

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters, in the order of the result name."""
        return [name for _, name, _, _ in Formatter().parse(self.suffix) if name]

    @property
    def has_k(self) -> bool:
        """Whether it has the parameter K, the number of samples that it chooses from."""
        return "k" in self.parameters

    @property
    def form(self) -> str:
        """The form of the result names, such as ``sbs@B1,B2``, for readers."""
        return self.name + self.suffix.format(**{name: name.upper() for name in PARAMETERS})

    def parse_suffix(self, suffix: str) -> DecoderSetup | None:
        """Return the decoder with the parameters of a result name; None if they do not fit."""
        pattern = ""
        for text, name, _, _ in Formatter().parse(self.suffix):
            pattern += re.escape(text) + (f"(?P<{name}>{PARAMETERS[name].pattern})" if name else "")
        match = re.fullmatch(pattern, suffix)
        if match is None:
            return None
        values = {name: PARAMETERS[name].convert(text) for name, text in match.groupdict().items()}
        return DecoderSetup(self, **values)


@dataclass(frozen=True, slots=True)
class DecoderSetup:
    """A decoder with the values of its parameters: one result of a report."""

    decoder: Decoder  #: The decoder.
    k: int = 1  #: Number of solutions to choose from; 1 for decoders without ``has_k``, too.
    aggregate: str = ""  #: Aggregate of step rewards; empty if the decoder has no such parameter.
    b1: int = 0  #: Next steps per solution of a beam; 0 if the decoder has no such parameter.
    b2: int = 0  #: Size of the beam; 0 if the decoder has no such parameter.
    #: One of several reward models, whose rewards it uses; empty if there is only one, or none.
    model: str = ""

    @property
    def name(self) -> str:
        """Name of the result, such as ``greedy``, ``sc@5`` and ``bon@5:min by qwen_prm``."""
        values = {name: getattr(self, name) for name in PARAMETERS}
        model_suffix = MODEL_SEPARATOR + self.model if self.model else ""
        return self.decoder.name + self.decoder.suffix.format(**values) + model_suffix

    @property
    def part(self) -> str:
        """Name of the dataset in a run with the solutions: that of samples, or the result name."""
        return SAMPLES_PART if self.decoder.origin == "samples" else self.name


DECODERS: Registry[Decoder] = Registry("decoder", Decoder, group="fsdpo.decoders")


def find_decoder(origin: Origin) -> Decoder:
    """Return the first decoder whose solutions have an origin."""
    return next(decoder for decoder in DECODERS.values() if decoder.origin == origin)


def parse_result_name(name: str) -> DecoderSetup | None:
    """Return the decoder and the parameters of a result name; None for an unknown decoder."""
    name_without_model, _, model = name.partition(MODEL_SEPARATOR)
    decoder_name, at_sign, parameters = name_without_model.partition("@")
    if decoder_name not in DECODERS:
        return None
    setup = DECODERS[decoder_name].parse_suffix(at_sign + parameters)
    if setup is None or (model and not setup.decoder.uses_sample_rewards):
        return None
    return replace(setup, model=model)


def _choose_first(candidates: Candidates) -> int:
    """Choose the first solution."""
    return 0


def _distribute_first(
    classes_P: Sequence[AnswerClasses], reward_PM: np.ndarray, member_RM: np.ndarray
) -> np.ndarray:
    """Return the distribution of :func:`_choose_first`."""
    return distribute_first(reward_PM.shape)


def _choose_best(candidates: Candidates) -> int:
    """Choose the solution with the highest reward or likelihood."""
    return best_of_n(candidates.rewards)


def _distribute_best(
    classes_P: Sequence[AnswerClasses], reward_PM: np.ndarray, member_RM: np.ndarray
) -> np.ndarray:
    """Return the distribution of :func:`_choose_best`."""
    return distribute_best_of_n(reward_PM, int(member_RM[0].sum()))


DECODERS.register(
    Decoder(
        name="greedy",
        title="one solution by greedy decoding",
        description="the most likely token at every step",
        choose=_choose_first,
        distribute=_distribute_first,
        origin="greedy",
        colour=1,
    )
)
DECODERS.register(
    Decoder(
        name="first",
        title="one random sample: the first one",
        description="the first of the samples or of the recorded responses",
        choose=_choose_first,
        distribute=_distribute_first,
        colour=1,
    )
)
DECODERS.register(
    Decoder(
        name="sc",
        title="the most frequent answer of K samples (self-consistency)",
        description="self-consistency: the majority of K samples",
        suffix="@{k}",
        choose=lambda candidates: vote(candidates.answer_classes),
        distribute=lambda classes_P, _, member_RM: distribute_vote(classes_P, member_RM),
        metric="maj",
        colour=2,
    )
)
DECODERS.register(
    Decoder(
        name="weighted",
        title="a vote of K samples, weighted by their rewards",
        description="a majority weighted by the aggregated step rewards",
        suffix="@{k}:{aggregate}",
        choose=lambda candidates: weighted_vote(candidates.answer_classes, candidates.rewards),
        distribute=lambda classes_P, reward_PM, member_RM: distribute_vote(
            classes_P, member_RM, reward_PM
        ),
        needs="probabilities",
        colour=3,
    )
)
DECODERS.register(
    Decoder(
        name="bon",
        title="the sample with the highest reward (best-of-N)",
        description="best-of-N: the sample with the best aggregated step rewards",
        suffix="@{k}:{aggregate}",
        choose=_choose_best,
        distribute=_distribute_best,
        needs="rewards",
        compares_aggregates=True,
        colour=4,
    )
)
DECODERS.register(
    Decoder(
        name="sbs",
        title="step-wise beam search",
        description="step-wise beam search",
        suffix="@{b1},{b2}",
        choose=_choose_first,
        distribute=_distribute_first,
        origin="beam",
        needs="rewards",
        options=("first_keep", "max_steps"),
        colour=5,
    )
)
DECODERS.register(
    Decoder(
        name="likely",
        title="the most likely sample, without a PRM",
        description="",
        suffix="@{k}",
        choose=_choose_best,
        distribute=_distribute_best,
        needs="likelihoods",
    )
)
