"""The entities of a dataset: problems, solutions, their outcomes, and preference pairs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from fsdpo_data.core.identity import ID_VERSION, digest


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold answer.

    Attributes:
        question: The problem text, exactly as the prompt template receives it.
        answer: The gold answer, as the source writes it (``1,000`` keeps its comma).
        source: The origin of the problem, e.g. ``openai/gsm8k`` or a file name.
        split: The split of the source that contains the problem.
        metadata: All other fields of the source (level, subject, reference solution …). Grading
            reads two of them: ``alternative_golds``, a list of further gold answers, and
            ``gold_tolerance``, the relative error that numbers may have.
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

    @property
    def alternative_golds(self) -> tuple[str, ...]:
        """Further gold answers; a response that matches one of them is correct."""
        return tuple(self.metadata.get("alternative_golds", ()))

    @property
    def gold_tolerance(self) -> float | None:
        """The relative error that numeric answers may have; None for exact answers."""
        return self.metadata.get("gold_tolerance")

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


def check_gold_metadata(metadata: Mapping[str, Any]) -> None:
    """Check the metadata of a problem that grading reads.

    Raises:
        ValueError: if ``alternative_golds`` is not a list of texts, or ``gold_tolerance`` is not a
            number from 0.
    """
    golds = metadata.get("alternative_golds", [])
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ValueError("alternative_golds: expected a list of texts")
    tolerance = metadata.get("gold_tolerance")
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if tolerance is not None and not (is_number and 0 <= tolerance < math.inf):
        raise ValueError("gold_tolerance: expected a number from 0")


#: The class of a graded solution. ``gold_unparsed``: the grader cannot read the gold answer.
#: ``undecided``: the grader did not read a part of the gold or the answer, so they may be equal.
#: ``timed_out``: the comparison took too long. ``ungraded``: the solution has imported step labels,
#: and nothing graded its answer.
Outcome = Literal[
    "correct", "incorrect", "no_answer", "undecided", "gold_unparsed", "timed_out", "ungraded"
]

UNDECIDED: Outcome = "undecided"
UNGRADED: Outcome = "ungraded"
#: Start of ``verdict_by`` for a judge. The name and the revision of its model follow, and the
#: grader's rule that found the answer.
JUDGE_RULE_PREFIX = "judge/"
NO_VERDICT = "none"  #: The value of ``verdict_by`` for solutions that nothing graded.
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
#: The outcomes of answers that are known to be wrong.
MODEL_FAILURES: tuple[Outcome, ...] = ("incorrect", "no_answer")
#: The outcomes that measure the model. Labels, pairs and rewards read only these.
GRADED_OUTCOMES: tuple[Outcome, ...] = ("correct", *MODEL_FAILURES)
#: The outcomes of answers that the grader could not decide.
UNDECIDED_OUTCOMES: tuple[Outcome, ...] = ("undecided", "timed_out")
#: The outcomes that every accuracy and pass@k counts. An undecided answer is not known to be
#: correct, so it counts as wrong.
COUNTED_OUTCOMES: tuple[Outcome, ...] = (*GRADED_OUTCOMES, *UNDECIDED_OUTCOMES)
#: The outcomes that no number counts: a gold that cannot be read, and a solution that nothing
#: graded, say nothing about the model.
UNCOUNTED_OUTCOMES: tuple[Outcome, ...] = ("gold_unparsed", UNGRADED)


def split_verdict_by(verdict_by: str) -> tuple[str, str]:
    """Return who gave an outcome, and the rules of the grader; the first rule found the answer.

    The name of a judge's model may contain slashes, but its revision and the rules do not.
    """
    name, at_sign, version_and_rules = verdict_by.rpartition("@")
    version, _, rules = version_and_rules.partition("/")
    return f"{name}{at_sign}{version}", rules


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
        finish_reason: ``stop``, or ``length`` for a truncated solution. Imported solutions that go
            on after their labelled steps are truncated, too.
        n_tokens: Number of generated tokens, including end-of-sequence; None if unknown.
        thinking_closed: Whether the thinking before the answer ended; None without thinking.
        search_cost: The cost of the search that found the solution: ``discarded_tokens`` (tokens of
            the search that the solution does not have) and ``prm_calls``. None without a search.
            All solutions of a search state the cost of the same search. A generation may go on
            after its step, and the tokens of dropped steps are discarded. Their number is estimated
            by the length of the text for engines without token ids, and for searches that end at a
            limit.
        answer: The final answer that the grader extracted; None if it found no answer.
        outcome: The result of grading.
        verdict_by: Who gave the outcome: the grader and its rules, such as ``math@6/boxed/number``,
            ``judge/MODEL@REVISION/boxed`` if a judge decided, or ``none`` for ``ungraded``.
        exactly_correct: Whether the answer is correct without the tolerance of the problem or the
            grader; None if there is no tolerance, or the gold answer is unreadable.
        labels: Whether each step is correct, by the outcome of the solution or by a search for the
            first error. None for ``undecided``, ``gold_unparsed``, ``timed_out`` and ``ungraded``.
        rollouts: One entry per step: ``n`` continuations after the step, of which ``n_correct`` are
            correct; or ``n`` votes of a judge, of which ``n_correct`` find no error up to the step.
            Null for a step that was not continued, or has no readable vote. None without either.
        step_rewards: One reward per step, in [0, 1] unless the reward model gives other values;
            None if not scored.
        imported_labels: A label of each step that an imported file states, from 0 (wrong) to 1
            (right); None without one.
        imported_ratings: A rating of each step that an imported file states (-1, 0 or 1); None
            without one.
        imported_correct: Whether another grader found the answer correct, as an imported file
            states; None if the file has no verdict.
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
    verdict_by: str
    labels: Sequence[bool] | None
    thinking_closed: bool | None = None
    search_cost: Mapping[str, int | None] | None = None
    exactly_correct: bool | None = None
    rollouts: Sequence[Mapping[str, int] | None] | None = None
    step_rewards: Sequence[float] | None = None
    imported_labels: Sequence[float] | None = None
    imported_ratings: Sequence[int] | None = None
    imported_correct: bool | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the solution of a row of ``solutions``.

        Other columns of the row are left out, and columns that it lacks are None.
        """
        values: dict[str, Any] = {name: row.get(name) for name in _SOLUTION_COLUMNS}
        return cls(**values)

    @property
    def text(self) -> str:
        """The full text that the model generated."""
        return "".join(self.completions)


_SOLUTION_COLUMNS = tuple(item.name for item in fields(Solution))


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
