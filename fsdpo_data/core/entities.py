"""The entities of a dataset: problems, solutions, their outcomes, and preference pairs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fsdpo_data.core.identity import ID_VERSION, digest


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold answer.

    Attributes:
        question: The problem text, exactly as the prompt template receives it.
        answer: The gold answer, as the source writes it (``1,000`` keeps its comma).
        source: The origin of the problem, e.g. ``openai/gsm8k`` or a file name.
        split: The split of the source that contains the problem.
        metadata: All other fields of the source (level, subject, reference solution …).
    """

    question: str
    answer: str
    source: str
    split: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Digest of question and gold answer, so equal problems have equal ids in every source."""
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


#: The class of a graded solution. ``gold_unparsed``: the grader cannot read the gold answer.
#: ``undecided``: the grader did not read a part of the gold or the answer, so they may be equal.
#: ``timed_out``: the comparison took too long. ``ungraded``: the solution has imported step labels,
#: and nothing graded its answer.
Outcome = Literal[
    "correct", "incorrect", "no_answer", "undecided", "gold_unparsed", "timed_out", "ungraded"
]

UNDECIDED: Outcome = "undecided"
UNGRADED: Outcome = "ungraded"
#: Start of the rule of a verdict by a judge; the name and the revision of its model follow.
JUDGE_RULE_PREFIX = "judge/"
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
#: The outcomes that count as wrong answers. All other failures belong to the grader or the gold.
MODEL_FAILURES: tuple[Outcome, ...] = ("incorrect", "no_answer")
#: The outcomes that measure the model; accuracy counts only these.
GRADED_OUTCOMES: tuple[Outcome, ...] = ("correct", *MODEL_FAILURES)
#: The outcomes of solutions that the grader could not decide. Accuracy leaves them out.
GRADER_FAILURES: tuple[Outcome, ...] = ("undecided", "gold_unparsed", "timed_out")


@dataclass(frozen=True, slots=True)
class Solution:
    """One sampled solution of a problem, in steps.

    Attributes:
        solution_id: Digest of the problem id, the sampling settings and the sample index.
        problem_id: Id of the problem.
        sample_index: Position among the samples of the problem, from 0.
        prompt: The prompt that the model received, with the template applied.
        completions: The steps (TRL's name for them), thinking included. Joined, they give the
            sampled text exactly.
        finish_reason: ``stop``, or ``length`` for a truncated solution.
        n_tokens: Number of generated tokens, including end-of-sequence; None if unknown.
        answer: The final answer that the grader extracted; None if it found no answer.
        outcome: The result of grading.
        labels: Whether each step is correct, by the outcome of the solution or by a search for the
            first error. None for ``undecided``, ``gold_unparsed``, ``timed_out`` and ``ungraded``.
        rollouts: One entry per step: the number ``n`` of continuations and the number ``n_correct``
            of correct ones. Null for a step that a search for the first error did not continue.
            None without rollouts.
        step_rewards: One reward per step, in [0, 1] unless the reward model gives other values;
            None if not scored.
        thinking_closed: Whether the thinking before the answer ended; None without thinking.
        step_labels: An imported label of each step, from 0 (wrong) to 1 (right); None without one.
        step_ratings: An imported rating of each step (-1, 0 or 1), if its format has ratings.
        answer_judge: The judge that decided the outcome, as ``judge/MODEL@REVISION``; None if the
            grader decided.
        search: The cost of the search that found the solution: ``discarded_tokens`` (tokens of the
            search that the solution does not have) and ``prm_calls``. None without a search. All
            solutions of a search state the cost of the same search.
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
    rollouts: Sequence[Mapping[str, int] | None] | None = None
    step_rewards: Sequence[float] | None = None
    thinking_closed: bool | None = None
    step_labels: Sequence[float] | None = None
    step_ratings: Sequence[int] | None = None
    answer_judge: str | None = None
    search: Mapping[str, int | None] | None = None

    @property
    def text(self) -> str:
        """The full text that the model generated."""
        return "".join(self.completions)


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference pair: a chosen and a rejected solution of one problem.

    Attributes:
        problem_id: Id of the problem.
        chosen_id: Id of the chosen solution; a digest of its text if it is a continuation of the
            rejected solution's first steps (``pair --style step-dpo``).
        rejected_id: Id of the rejected solution.
        prompt: The prompt of both solutions.
        chosen: Text of the chosen solution after the prompt, first steps included.
        rejected: Text of the rejected solution.
        chosen_steps: Steps of the chosen solution.
        rejected_steps: Steps of the rejected solution.
        chosen_rewards: One reward per chosen step; None for a continuation without scores.
        rejected_rewards: One reward per rejected step; None if not scored.
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
