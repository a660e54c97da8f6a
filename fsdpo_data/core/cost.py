"""The cost of the work on a dataset."""

from __future__ import annotations

from fsdpo_data.core.file_model import FileModel


class Cost(FileModel):
    """The cost of a stage, of all stages of a dataset, or of a decoder."""

    #: Sampled tokens, discarded ones included; None if unknown. The tokens of a decoder can be a
    #: mean over subsets of the samples, with a fraction.
    tokens: int | float | None
    #: Solutions, and prefixes in a search, that a reward model scored.
    prm_calls: int
    #: Time of sampling, in seconds, without grading; scoring is included only in a search. None if
    #: unknown, as for decoders that share their samples.
    seconds: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether a number says something; recorded responses may have no costs at all."""
        return bool(self.tokens or self.prm_calls)

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both; a number that one cost lacks is unknown."""
        tokens = seconds = None
        if self.tokens is not None and other.tokens is not None:
            tokens = self.tokens + other.tokens
        if self.seconds is not None and other.seconds is not None:
            seconds = round(self.seconds + other.seconds, 3)
        return Cost(tokens=tokens, prm_calls=self.prm_calls + other.prm_calls, seconds=seconds)


NO_COST = Cost(tokens=0, prm_calls=0, seconds=0.0)  #: The cost of a stage that runs no model.
