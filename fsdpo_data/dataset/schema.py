"""Schema 1: what a row is. Three parquet configs of one dataset; see README, "Data model"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.identity import ID_VERSION, ModelRef, digest

if TYPE_CHECKING:
    import pyarrow as pa

    from fsdpo_data.engines.samplers import SamplingSpec

#: Major version of the columns below; in manifests, parquet footers and Hub tags.
SCHEMA_VERSION = 1
#: Key of the schema version in a parquet footer.
VERSION_KEY = "fsdpo_schema_version"
CONFIGS = ("problems", "solutions", "pairs")


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


def sampling_id(model: ModelRef, template: str, sampling: SamplingSpec) -> str:
    """Digest who was asked and how.

    ``sampling.n`` is left out: sample 3 of 8 and sample 3 of 32 are the same sample.

    Args:
        model: The model as resolved.
        template: Digest of the prompt template.
        sampling: The sampling parameters.
    """
    how = {key: value for key, value in asdict(sampling).items() if key != "n"}
    return digest("sampling", ID_VERSION, model, template, how)


def solution_id(problem_id: str, sampling: str, index: int) -> str:
    """Return the id of sample ``index``: what was asked of whom, not what came back.

    Args:
        problem_id: The problem's content id.
        sampling: Result of :func:`sampling_id`, computed once per run.
        index: Position among the samples of the problem.
    """
    return digest("solution", ID_VERSION, problem_id, sampling, index)


def arrow_schema(config: str) -> pa.Schema:
    """Return the columns of ``problems``, ``solutions`` or ``pairs``; the footer holds the version.

    Only plain Arrow types, so that ``datasets``, polars, pandas and DuckDB read them as they are.
    """
    import pyarrow as pa

    text, texts, numbers = pa.string(), pa.list_(pa.string()), pa.list_(pa.float32())
    counts = pa.struct([("n", pa.int32()), ("n_correct", pa.int32())])
    columns: dict[str, list[tuple[str, pa.DataType]]] = {
        "problems": [
            ("problem_id", text),
            ("source", text),
            ("split", text),
            ("question", text),
            ("answer", text),
            ("metadata", text),
        ],
        "solutions": [
            ("solution_id", text),
            ("problem_id", text),
            ("sample_index", pa.int32()),
            ("prompt", text),
            ("completions", texts),
            ("finish_reason", text),
            ("n_tokens", pa.int32()),
            ("answer", text),
            ("outcome", text),
            ("labels", pa.list_(pa.bool_())),
            ("rollouts", pa.list_(counts)),
            ("step_rewards", numbers),
        ],
        "pairs": [
            ("problem_id", text),
            ("chosen_id", text),
            ("rejected_id", text),
            ("prompt", text),
            ("chosen", text),
            ("rejected", text),
            ("chosen_steps", texts),
            ("rejected_steps", texts),
            ("chosen_rewards", numbers),
            ("rejected_rewards", numbers),
        ],
    }
    return pa.schema(columns[config], metadata={VERSION_KEY: str(SCHEMA_VERSION)})
