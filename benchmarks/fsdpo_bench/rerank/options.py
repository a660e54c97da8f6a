"""The options of ``fsdpo-bench rerank``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.sampling import Seed


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankOptions(Options):
    r"""Compare best-of-N and votes on the same samples, at every N, with paired intervals.

    The datasets have the same samples and the step rewards of different models. Accuracies are
    averages over subsets of N samples: exact for best-of-N and pass@N, and over random subsets for
    votes if there are too many. Intervals are over problems, and differences from the vote are
    paired.

    A strategy is best-of-N or the weighted vote, with an aggregate. The best strategy on one half
    of the problems is measured on the other half, for both halves. The p-values are corrected with
    Holm's method for all models and values of N.

    Attributes:
        data: Sealed datasets with step rewards.
        k: Number of samples N to choose from; may be repeated.
        aggregate: Function that turns the step rewards of a sample into one number; may be
            repeated.
        subsets: Number of random subsets for votes. Fewer subsets are all taken.
        gamma: Inverse temperature γ of the step weights of the paper's loss; may be repeated.
        problems: File of problems; only these problems count, by their questions.
        seed: Seed of the random subsets.
        as_json: Print JSON instead of tables.

    Examples:
        fsdpo-bench rerank runs/scored

        fsdpo-bench rerank runs/qwen runs/shepherd --k 4 --k 16 --json
    """

    data: Annotated[Sequence[Path], Option(positional=True)]
    k: Annotated[Sequence[int], Option(min=1, default_text="powers of 2, and all samples")] = ()
    aggregate: Annotated[Sequence[str], Option(default_text="all")] = ()
    subsets: Annotated[int, Option(min=1)] = 320
    gamma: Annotated[Sequence[float], Option(exclusive_min=0, default_text="0.5, 2 and 8")] = ()
    problems: Path | None = None
    seed: Seed = 0
    as_json: Annotated[bool, Option(flag="--json", in_digest=False)] = False
