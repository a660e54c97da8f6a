"""The decoding plan of a run: its decoders with all their parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fsdpo_bench.decode.decoder import Decoder, DecoderSetup
from fsdpo_bench.decode.decoders import DECODERS, DEFAULT_DECODER
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE, check_aggregate


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The decoders of a run and their settings."""

    decoders: tuple[str, ...] = (
        DEFAULT_DECODER,
    )  #: Names of decoders, in the order of ``DECODERS``.
    #: Numbers of samples K to choose from. All decoders share one set of samples.
    ks: tuple[int, ...] = (5,)
    #: Name of the aggregate of step rewards, for decoders that choose.
    aggregate: str = DEFAULT_AGGREGATE
    beams: tuple[BeamSpec, ...] = ()  #: The beam searches.

    @property
    def setups(self) -> list[DecoderSetup]:
        """The decoders with each value of their parameters, in the order of the results."""
        return [setup for name in self.decoders for setup in self._decoder_setups(DECODERS[name])]

    @property
    def n_samples(self) -> int:
        """Number of samples per problem; 0 if no decoder chooses from samples."""
        return max((setup.k for setup in self.setups if setup.decoder.choose), default=0)

    @property
    def requests_per_problem(self) -> int:
        """Number of times that each problem is decoded; decoders share the samples."""
        n_own = sum(setup.decoder.decode is not None for setup in self.setups)
        return (1 if self.n_samples else 0) + n_own

    @property
    def needs_prm(self) -> bool:
        """Whether a decoder needs step rewards."""
        return bool(self.reward_decoders)

    @property
    def reward_decoders(self) -> list[str]:
        """The decoders that need step rewards."""
        return [name for name in self.decoders if DECODERS[name].needs_rewards]

    @property
    def probability_decoders(self) -> list[str]:
        """The decoders that need rewards that are probabilities."""
        return [name for name in self.decoders if DECODERS[name].needs_probabilities]

    @property
    def continuation_decoders(self) -> list[str]:
        """The decoders that sample continuations of partial solutions."""
        return [name for name in self.decoders if DECODERS[name].needs_continuations]

    @property
    def needs_sample_rewards(self) -> bool:
        """Whether a decoder that chooses from samples needs their step rewards."""
        return any(
            setup.decoder.needs_rewards for setup in self.setups if setup.decoder.choose is not None
        )

    @property
    def result_names(self) -> list[str]:
        """Names of the results, such as ``greedy``, ``sc@5``, ``bon@5:min`` and ``sbs@5,1``."""
        return [setup.name for setup in self.setups]

    def beam_config(self) -> dict[str, Any] | None:
        """Return the settings that all beam searches share, for the config of the run."""
        if not self.beams:
            return None
        settings = self.beams[0].model_dump()
        return {key: value for key, value in settings.items() if key not in ("b1", "b2")}

    def _decoder_setups(self, decoder: Decoder) -> list[DecoderSetup]:
        """Return a decoder with each value of its parameters."""
        names = decoder.parameters
        return [
            DecoderSetup(
                decoder,
                k=k,
                aggregate=self.aggregate if "aggregate" in names else "",
                b1=beam.b1 if "b1" in names else 0,
                b2=beam.b2 if "b2" in names else 0,
            )
            for k, beam in product(
                self.ks if "k" in names else (0,),
                self.beams if _has_beams(decoder) else (BeamSpec(),),
            )
        ]


def _has_beams(decoder: Decoder) -> bool:
    """Return whether a decoder has the parameters of a beam search."""
    return not {"b1", "b2"}.isdisjoint(decoder.parameters)


def make_plan(
    decoders: Sequence[str], ks: Sequence[int], aggregate: str, beams: Sequence[BeamSpec]
) -> DecodingPlan:
    """Check the names and make a plan without duplicates.

    Args:
        decoders: Names of decoders; one string may contain several names, separated by commas.
        ks: Numbers of samples.
        aggregate: Name of the aggregate of step rewards.
        beams: Beam searches; ignored if no decoder has their parameters.

    Raises:
        InputError: if a decoder or the aggregate is unknown.
    """
    names = [name.strip() for name in ",".join(decoders).split(",") if name.strip()]
    # `maj@8` is the metric of a decoder, so `maj` names this decoder.
    names_by_metric = {entry.metric: entry.name for entry in DECODERS.importable_entries()}
    names = [names_by_metric.get(name, name) for name in names]
    for name in names or [""]:
        if name not in DECODERS:
            choices = "; ".join(
                f"{decoder.name} ({decoder.description})"
                for decoder in DECODERS.importable_entries()
            )
            suggestion = suggest_names(name, DECODERS)
            raise InputError(
                f"expected names from {choices}.{suggestion} {DECODERS.source_of_names}",
                field="decoder",
                value=name,
            )
    has_beams = any(_has_beams(DECODERS[name]) for name in names)
    return DecodingPlan(
        decoders=tuple(name for name in DECODERS if name in names),
        ks=tuple(sorted(set(ks))),
        aggregate=check_aggregate(aggregate),
        beams=tuple(dict.fromkeys(beams)) if has_beams else (),
    )
