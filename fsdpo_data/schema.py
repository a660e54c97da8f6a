"""Schema 1: what a row is. Three parquet configs of one dataset; see README, "Data model"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsdpo_data.identity import ID_VERSION, ModelRef, digest

if TYPE_CHECKING:
    import pyarrow as pa

    from fsdpo_data.samplers import SamplingSpec

#: Major version of the columns below; in manifests, parquet footers and Hub tags.
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold answer.

    Attributes:
        question: The problem text, as it goes into the prompt.
        answer: The gold answer, as the source writes it (``1,000`` keeps its comma).
        source: Where it came from, e.g. ``openai/gsm8k`` or a file name.
        split: Split of the source.
        metadata: Whatever else the source says (level, subject, reference solution …).
    """

    question: str
    answer: str
    source: str
    split: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Content id: the same question with the same gold is the same problem anywhere."""
        return digest("problem", ID_VERSION, self.question, self.answer)

    def row(self) -> dict[str, str]:
        """Return the row of the ``problems`` config."""
        return {
            "problem_id": self.id,
            "source": self.source,
            "split": self.split,
            "question": self.question,
            "answer": self.answer,
            "metadata": json.dumps(dict(self.metadata), ensure_ascii=False, sort_keys=True),
        }


def solution_id(
    problem_id: str, model: ModelRef, template: str, sampling: SamplingSpec, index: int
) -> str:
    """Return the id of sample ``index``: what was asked of whom, not what came back.

    ``sampling.n`` is left out: sample 3 of 8 and sample 3 of 32 are the same sample.
    """
    how = (
        sampling.temperature,
        sampling.top_p,
        sampling.max_tokens,
        list(sampling.stop),
        sampling.seed,
    )
    return digest("solution", ID_VERSION, problem_id, model, template, how, index)
