"""The nouns: what a problem, a solution and a pair are, and what can become of a solution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from fsdpo_data.core.identity import ID_VERSION, digest

if TYPE_CHECKING:
    pass


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


Outcome = Literal["correct", "incorrect", "no_answer", "gold_unparsed", "timed_out"]


OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
