"""The decoding plan of a run: its decoders, numbers of samples, aggregate and beam searches."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.steps.rewards import check_aggregate

#: Description of each decoder, by its name on the command line.
DECODERS: Mapping[str, str] = {
    "greedy": "the most likely token at every step",
    "sc": "self-consistency: the majority of K samples",
    "weighted": "a majority weighted by the aggregated step rewards",
    "bon": "best-of-N: the sample with the best aggregated step rewards",
    "sbs": "step-wise beam search",
}
_SAMPLE_DECODERS = ("sc", "weighted", "bon")  #: Decoders that choose one of K samples.
_PRM_DECODERS = ("weighted", "bon", "sbs")  #: Decoders that need step rewards.


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The decoders of a run and their settings."""

    decoders: tuple[str, ...] = ("greedy",)  #: Names of decoders, in the order of ``DECODERS``.
    #: Numbers of samples K to choose from. All decoders share one set of samples.
    ks: tuple[int, ...] = (5,)
    aggregate: str = "min"  #: Name of the aggregate of step rewards, for ``weighted`` and ``bon``.
    beams: tuple[BeamSpec, ...] = ()  #: The beam searches of ``sbs``.

    @property
    def n_samples(self) -> int:
        """Number of samples per problem; 0 if no decoder chooses from samples."""
        return max(self.ks) if set(self.decoders) & set(_SAMPLE_DECODERS) else 0

    @property
    def requests_per_problem(self) -> int:
        """Number of times that each problem is decoded; decoders share the samples."""
        return (1 if self.n_samples else 0) + ("greedy" in self.decoders) + len(self.beams)

    @property
    def needs_prm(self) -> bool:
        """Whether a decoder needs step rewards."""
        return bool(set(self.decoders) & set(_PRM_DECODERS))

    @property
    def result_names(self) -> list[str]:
        """Names of the results, such as ``greedy``, ``sc@5``, ``bon@5:min`` and ``sbs@5,1``."""
        names = []
        for decoder in self.decoders:
            if decoder in _SAMPLE_DECODERS:
                names += [sampled_name(decoder, k, self.aggregate) for k in self.ks]
            elif decoder == "sbs":
                names += [beam_name(beam) for beam in self.beams]
            else:
                names.append(decoder)
        return names

    def beam_config(self) -> dict[str, Any] | None:
        """Return the settings that all beam searches share, for the config of the run."""
        if not self.beams:
            return None
        settings = asdict(self.beams[0])
        return {key: value for key, value in settings.items() if key not in ("b1", "b2")}


def sampled_name(decoder: str, k: int, aggregate: str) -> str:
    """Name the result of a decoder that chooses one of K samples."""
    return f"sc@{k}" if decoder == "sc" else f"{decoder}@{k}:{aggregate}"


def beam_name(beam: BeamSpec) -> str:
    """Name the result of a beam search."""
    return f"sbs@{beam.b1},{beam.b2}"


def make_plan(
    decoders: Sequence[str], ks: Sequence[int], aggregate: str, beams: Sequence[BeamSpec]
) -> DecodingPlan:
    """Check the names and make a plan without duplicates.

    Args:
        decoders: Names of decoders; one string may contain several names, separated by commas.
        ks: Numbers of samples.
        aggregate: Name of the aggregate of step rewards.
        beams: Beam searches; ignored without the decoder ``sbs``.

    Raises:
        InputError: if a decoder or the aggregate is unknown.
    """
    names = [name.strip() for name in ",".join(decoders).split(",") if name.strip()]
    for name in names or [""]:
        if name not in DECODERS:
            choices = "; ".join(f"{key} ({meaning})" for key, meaning in DECODERS.items())
            suggestion = suggest_names(name, DECODERS)
            raise InputError(
                f"expected names from {choices}.{suggestion}", field="decoder", value=name
            )
    return DecodingPlan(
        decoders=tuple(name for name in DECODERS if name in names),
        ks=tuple(sorted(set(ks))),
        aggregate=check_aggregate(aggregate),
        beams=tuple(dict.fromkeys(beams)) if "sbs" in names else (),
    )
