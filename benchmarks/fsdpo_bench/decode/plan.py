"""What is decoded of every problem: which decoders, at which K, chosen how."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.steps.rewards import check_aggregate

#: What each decoder does, by its name on the command line.
DECODERS: Mapping[str, str] = {
    "greedy": "the most likely token at every step",
    "sc": "self-consistency: the majority of K samples",
    "weighted": "a majority weighted by the aggregated step rewards",
    "bon": "best-of-N: the sample with the best aggregated step rewards",
    "sbs": "step-wise beam search",
}
_OF_SAMPLES = ("sc", "weighted", "bon")
_WITH_PRM = ("weighted", "bon", "sbs")


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """Decoders and their settings."""

    decoders: tuple[str, ...] = ("greedy",)
    ks: tuple[int, ...] = (5,)  #: Numbers of samples to decide among; one set serves all.
    aggregate: str = "min"  #: How step rewards become one number for ``weighted`` and ``bon``.
    beams: tuple[BeamSpec, ...] = ()

    @property
    def samples(self) -> int:
        """Samples of each problem; 0 if no decoder needs them."""
        return max(self.ks) if set(self.decoders) & set(_OF_SAMPLES) else 0

    @property
    def passes(self) -> int:
        """Times that a problem is decoded: samples are drawn once, whoever chooses among them."""
        return bool(self.samples) + ("greedy" in self.decoders) + len(self.beams)

    @property
    def needs_prm(self) -> bool:
        """Whether anything is to be rewarded."""
        return bool(set(self.decoders) & set(_WITH_PRM))

    @property
    def names(self) -> list[str]:
        """Names of the results, such as ``greedy``, ``sc@5``, ``bon@5:min`` and ``sbs@5,1``."""
        found = []
        for each in self.decoders:
            if each in _OF_SAMPLES:
                found += [sampled_name(each, k, self.aggregate) for k in self.ks]
            elif each == "sbs":
                found += [beam_name(beam) for beam in self.beams]
            else:
                found.append(each)
        return found

    def beam_config(self) -> dict[str, Any] | None:
        """Return what the searches have in common beside their widths, for the run's config."""
        if not self.beams:
            return None
        common = asdict(self.beams[0])
        return {key: common[key] for key in common if key not in ("b1", "b2")}


def sampled_name(decoder: str, k: int, aggregate: str) -> str:
    """Name the result of a decoder that chooses one of K samples."""
    return f"sc@{k}" if decoder == "sc" else f"{decoder}@{k}:{aggregate}"


def beam_name(beam: BeamSpec) -> str:
    """Name the result of a beam search."""
    return f"sbs@{beam.b1},{beam.b2}"


def make_plan(
    decoders: Sequence[str], ks: Sequence[int], aggregate: str, beams: Sequence[BeamSpec]
) -> DecodingPlan:
    """Check what is asked for and freeze it; ``decoders`` may hold several, between commas.

    Raises:
        InputError: for a name that is none.
    """
    names = [name.strip() for each in decoders for name in each.split(",") if name.strip()]
    for name in names or [""]:
        if name not in DECODERS:
            known = "; ".join(f"{key} ({says})" for key, says in DECODERS.items())
            near = suggest_names(name, DECODERS)
            raise InputError(f"expected some of {known}.{near}", field="decoder", value=name)
    return DecodingPlan(
        tuple(name for name in DECODERS if name in names),
        tuple(sorted(set(ks))),
        check_aggregate(aggregate),
        tuple(dict.fromkeys(beams)) if "sbs" in names else (),
    )
