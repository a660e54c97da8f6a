"""A decoder that chooses the shortest of K samples."""

from fsdpo_bench.decoders.decoders import Candidates, Decoder


def choose_shortest(candidates: Candidates) -> int:
    """Return the index of the sample with the fewest characters."""
    lengths = [len(solution.text) for solution in candidates.solutions]
    return lengths.index(min(lengths))


SHORTEST = Decoder(
    name="shortest",
    title="the shortest of K samples",
    description="the shortest of K samples",
    suffix="@{k}",
    choose=choose_shortest,
)
