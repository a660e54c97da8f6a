"""The cost of the work on a dataset."""

from __future__ import annotations

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.sampling import add_tokens


class Cost(FileModel):
    """The cost of a stage, or of all stages of a dataset."""

    tokens: int | None  #: Sampled tokens; None if unknown.
    #: Solutions, and prefixes in a search, that a reward model scored.
    prm_calls: int
    #: Time of sampling, in seconds, without grading; scoring is included only in a search.
    seconds: float

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(
            tokens=add_tokens(self.tokens, other.tokens),
            prm_calls=self.prm_calls + other.prm_calls,
            seconds=round(self.seconds + other.seconds, 3),
        )


NO_COST = Cost(tokens=0, prm_calls=0, seconds=0.0)  #: The cost of a stage that runs no model.
