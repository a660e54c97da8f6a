"""A decoder, with everything that the rest of the program asks about it, and result names.

A decoder with its parameters gives one result of a run, such as ``bon@5:min``. This module alone
writes and reads these names. :mod:`fsdpo_bench.decode.decoders` contains the decoders.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from fsdpo_bench.decode.records import SolutionRecord
from fsdpo_bench.decode.solution import OnFinished, OwnSolution
from fsdpo_bench.decoders.answer_classes import Agreements, answer_classes
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer


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
    """The K samples of a problem from which a decoder chooses one."""

    samples: Sequence[SolutionRecord]  #: The graded samples; a choice may not read their verdicts.
    #: The answer with which each sample votes; None for a sample that does not vote.
    votes: Sequence[str | None]
    #: The aggregated step rewards of each sample; None for a sample without rewards.
    rewards: Sequence[float | None]
    agreements: Agreements  #: For each answer, the answers that agree with it.

    def answer_classes(self) -> list[int]:
        """Return the class of equivalent answers of each sample; ``NO_ANSWER`` for no vote."""
        return answer_classes(self.votes, self.agreements)


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """The problems for a decoder that generates solutions of its own, and the models."""

    setup: "DecoderSetup"  #: The decoder with its parameters.
    prompts: Sequence[str]  #: Rendered prompts.
    questions: Sequence[str]  #: The question of each prompt, for scorers with their own prompt.
    sampler: Sampler  #: The policy.
    load_scorer: Callable[[], Scorer] | None  #: Loads the reward model; None if there is none.
    sampling: SamplingSpec  #: Sampling settings of the run.
    segmenter: str  #: Name and version of the segmenter, such as ``auto@1``.
    beam: BeamSpec  #: Settings of beam search.
    on_finished: OnFinished  #: Called when prompts finish.


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A procedure that gives one solution per problem.

    It chooses one of K samples (``choose``), or generates solutions of its own (``decode``).
    """

    name: str  #: Name on the command line, and first part of result names.
    title: str  #: Explanation in reports and cards.
    description: str  #: Explanation in ``--help`` and in error messages.
    #: Format of the parameters in result names, such as ``@{k}:{aggregate}``; empty without
    #: parameters.
    suffix: str = ""
    #: Returns the index of the chosen sample, or None if it chooses none, which counts as wrong.
    #: None for a decoder with solutions of its own.
    choose: Callable[[Candidates], int | None] | None = None
    #: Returns the solution of each prompt; None for a decoder that chooses.
    decode: Callable[[DecodingRequest], list[OwnSolution]] | None = None
    #: Whether it needs step rewards. Its cost then includes the reward model.
    needs_rewards: bool = False
    needs_probabilities: bool = False  #: Whether the rewards must be probabilities.
    #: Whether it samples continuations of partial solutions; recorded responses have none.
    needs_continuations: bool = False
    #: Options of beam search that it reads, besides its parameters. Others are refused.
    options: Sequence[str] = ()
    metric: str = ""  #: Name of its accuracy as a metric: ``maj`` for ``maj@K``; empty for none.
    colour: int = 6  #: Number of its colour in reports, from 1 to 6.

    def __post_init__(self) -> None:
        """Check the fields that depend on each other."""
        if (self.choose is None) == (self.decode is None):
            raise ValueError(f"decoder {self.name!r}: expected `choose` or `decode`")
        if self.suffix and (self.suffix[0] != "@" or not {*self.parameters} <= {*PARAMETERS}):
            names = ", ".join(f"{{{name}}}" for name in PARAMETERS)
            raise ValueError(f"decoder {self.name!r}: expected a suffix of @ and {names}")
        if self.choose is not None and "k" not in self.parameters:
            raise ValueError(f"decoder {self.name!r} chooses from samples, but lacks {{k}}")

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters, in the order of the result name."""
        return [name for _, name, _, _ in Formatter().parse(self.suffix) if name]

    @property
    def form(self) -> str:
        """The form of the result names, such as ``sbs@B1,B2``, for readers."""
        return self.name + self.suffix.format(**{name: name.upper() for name in PARAMETERS})

    def parse_suffix(self, suffix: str) -> "DecoderSetup | None":
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
    """A decoder with the values of its parameters: one result of a run."""

    decoder: Decoder  #: The decoder.
    k: int = 0  #: Number of samples; 0 if the decoder has no such parameter.
    aggregate: str = ""  #: Aggregate of step rewards; empty if the decoder has no such parameter.
    b1: int = 0  #: Next steps per solution of a beam; 0 if the decoder has no such parameter.
    b2: int = 0  #: Size of the beam; 0 if the decoder has no such parameter.

    @property
    def name(self) -> str:
        """Name of the result, such as ``greedy``, ``sc@5``, ``bon@5:min`` and ``sbs@5,1``."""
        values = {name: getattr(self, name) for name in PARAMETERS}
        return self.decoder.name + self.decoder.suffix.format(**values)
