"""The nouns: what a problem, a solution and a pair are, and what can become of a solution."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fsdpo_data.core.identity import ID_VERSION, digest


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold answer.

    Attributes:
        question: The problem text, as it goes into the prompt.
        answer: The gold answer, as the source writes it (``1,000`` keeps its comma).
        source: Where it came from, e.g. ``openai/gsm8k`` or a file name.
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

    def to_row(self) -> dict[str, str]:
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
#: The outcomes that are the model's own doing: wrong answers, and nothing else.
MODEL_FAILURES: tuple[Outcome, ...] = ("incorrect", "no_answer")
GRADED_OUTCOMES: tuple[Outcome, ...] = (
    "correct",
    *MODEL_FAILURES,
)  #: The outcomes that say how good the model is.


@dataclass(frozen=True, slots=True)
class Solution:
    """One sampled solution of a problem, in steps.

    Attributes:
        solution_id: What was asked of whom, and which sample it is.
        sample_index: Position among the samples of the problem.
        prompt: What the model was given, template applied.
        completions: The steps; joined they are the text, to the character.
        finish_reason: ``stop``, or ``length`` for one that was cut.
        n_tokens: Tokens generated, end-of-sequence included; None where nobody has counted.
        labels: One per step; None where the failure was not the model's.
        rollouts: Of each step ``n`` continuations and the ``n_correct`` among them; None where
            there were none.
        step_rewards: One per step, from 0 to 1 if they are probabilities; None where it has not
            been scored.
        thinking_closed: Whether the thinking before the answer ended; None where there is none.
        thinking_tokens: Those of ``n_tokens`` that are thinking; None where nobody has counted.
    """

    solution_id: str
    problem_id: str
    sample_index: int
    prompt: str
    completions: Sequence[str]
    finish_reason: str
    n_tokens: int | None
    answer: str | None
    outcome: Outcome
    labels: Sequence[bool] | None
    rollouts: Sequence[Mapping[str, int]] | None = None
    step_rewards: Sequence[float] | None = None
    thinking_closed: bool | None = None
    thinking_tokens: int | None = None

    @property
    def text(self) -> str:
        """What the model wrote."""
        return "".join(self.completions)


@dataclass(frozen=True, slots=True)
class Pair:
    """A solution that is preferred to another one of the same problem.

    Attributes:
        chosen_rewards: One per step; None for a continuation, which has not been scored.
    """

    problem_id: str
    chosen_id: str
    rejected_id: str
    prompt: str
    chosen: str
    rejected: str
    chosen_steps: Sequence[str]
    rejected_steps: Sequence[str]
    chosen_rewards: Sequence[float] | None
    rejected_rewards: Sequence[float] | None
