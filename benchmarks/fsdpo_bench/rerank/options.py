"""The options of ``fsdpo-bench rerank``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import Seed


class RerankOptions(Options):
    """Compare best-of-N and votes on the same samples, at every N, with paired intervals.

    The datasets have the same samples and the step rewards of different models. Accuracies are
    averages over subsets of N samples: exact for best-of-N and pass@N, and over random subsets for
    votes if there are too many. Intervals are over problems, and differences from the vote are
    paired.

    A strategy is best-of-N or the weighted vote, with an aggregate. The best strategy on one half
    of the problems is measured on the other half, for both halves. The p-values are corrected with
    Holm's method for all models and values of N.

    Examples:
        fsdpo-bench rerank runs/scored

        fsdpo-bench rerank runs/qwen runs/shepherd --k 4 --k 16 --json
    """

    data: Annotated[Sequence[Path], Option(positional=True)]
    """Sealed datasets with step rewards."""
    k: Annotated[
        Sequence[Annotated[int, Field(ge=1)]], Option(default_text="powers of 2, and all samples")
    ] = ()
    """Number of samples N to choose from; may be repeated."""
    aggregate: Annotated[Sequence[str], Option(default_text="all")] = ()
    """Function that turns the step rewards of a sample into one number; may be repeated."""
    subsets: Annotated[int, Field(ge=1)] = 320
    """Number of random subsets for votes. Fewer subsets are all taken."""
    gamma: Annotated[
        Sequence[Annotated[float, Field(gt=0)]], Option(default_text="0.5, 2 and 8")
    ] = ()
    """Inverse temperature γ of the step weights of the paper's loss; may be repeated."""
    problems: Path | None = None
    """File of problems; only these problems count, by their questions."""
    seed: Seed = 0
    """Seed of the random subsets."""
    as_json: Annotated[bool, Option(flags=["--json"], in_digest=False)] = False
    """Print JSON instead of tables."""
