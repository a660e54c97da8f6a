"""The record of a problem: its solutions, verdicts and costs, as typed objects.

A run writes one JSON line per record. The classes check each line when it is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, TypeAdapter

from fsdpo_bench.decode.solution import DecodedSolution, DecodingCost, OwnSolution
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX, Outcome, Problem, check_gold_metadata
from fsdpo_data.core.sampling import FinishReason

JsonObject = dict[str, Any]  #: A JSON object of a record.

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: Rewards of some published PRM formats are not in [0, 1].
StepReward = Annotated[float, Field(allow_inf_nan=False)]

#: The rule of a decoder that chooses none of its samples.
NO_VOTES_RULE = "no-votes"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """An answer with its verdict."""

    answer: str | None  #: The extracted answer; None if the response has no answer.
    correct: bool | None  #: Whether the answer is correct; None if the gold is unreadable.
    status: Outcome  #: Outcome of the grading.
    rule: str  #: Rule of the grader that decided the verdict.
    #: Whether the answer is correct without the tolerance; None if no tolerance applies.
    strict: bool | None = None

    @property
    def is_strictly_correct(self) -> bool | None:
        """Whether the answer is correct without any tolerance; None if the gold is unreadable."""
        return self.correct if self.strict is None else self.strict

    @property
    def has_judge_rule(self) -> bool:
        """Whether a judge decided the verdict, and not the grader."""
        return self.rule.startswith(JUDGE_RULE_PREFIX)

    def answer_json(self) -> JsonObject:
        """Return the fields of the answer as plain JSON."""
        values = {
            "answer": self.answer,
            "correct": self.correct,
            "status": self.status,
            "rule": self.rule,
        }
        return values if self.strict is None else values | {"strict": self.strict}


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRecord(AnswerRecord):
    """A solution with its verdict, its step rewards and its cost."""

    text: str  #: The complete text.
    steps: tuple[str, ...]  #: The steps; joined they are the text.
    finish_reason: FinishReason  #: ``stop``, or ``length`` for a truncated solution.
    n_tokens: Count | None  #: Number of generated tokens; None if unknown.
    seconds: Seconds  #: Part of the sampler's wall-clock time.
    scoring_seconds: Seconds = 0.0  #: Part of the scorer's wall-clock time.
    rewards: tuple[StepReward, ...] | None  #: One reward per step; None without rewards.

    def __post_init__(self) -> None:
        """Check the number of rewards."""
        if self.rewards and len(self.rewards) != len(self.steps):
            raise ValueError(f"{len(self.rewards)} rewards of {len(self.steps)} steps")

    def to_json(self) -> JsonObject:
        """Return the solution as plain JSON."""
        return {
            "text": self.text,
            "steps": self.steps,
            "finish_reason": self.finish_reason,
            "n_tokens": self.n_tokens,
            "seconds": self.seconds,
            "rewards": self.rewards,
            "scoring_seconds": self.scoring_seconds,
            **self.answer_json(),
        }

    @classmethod
    def from_solution(cls, solution: DecodedSolution, answer: AnswerRecord) -> Self:
        """Return the record of a solution with its verdict; times are rounded to microseconds."""
        return cls(
            answer=answer.answer,
            correct=answer.correct,
            status=answer.status,
            rule=answer.rule,
            strict=answer.strict,
            text=solution.text,
            steps=solution.steps,
            finish_reason=solution.finish_reason,
            n_tokens=solution.n_tokens,
            seconds=round(solution.seconds, 6),
            scoring_seconds=round(solution.scoring_seconds, 6),
            rewards=solution.rewards,
        )

    def to_solution(self) -> DecodedSolution:
        """Return the solution without its verdict."""
        return DecodedSolution(
            text=self.text,
            steps=self.steps,
            finish_reason=self.finish_reason,
            n_tokens=self.n_tokens,
            seconds=self.seconds,
            rewards=self.rewards,
            scoring_seconds=self.scoring_seconds,
        )

    def cost(self, *, includes_prm: bool) -> DecodingCost:
        """Return the cost of the solution; with ``includes_prm``, including the reward model."""
        return DecodingCost(
            tokens=self.n_tokens,
            prm_calls=1 if includes_prm else 0,
            seconds=self.seconds + (self.scoring_seconds if includes_prm else 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRecord(AnswerRecord):
    """The answer of a decoder: one of the samples, a solution of its own, or no answer."""

    sample: Count | None = None  #: Index of the chosen sample.
    solution: SolutionRecord | None = None  #: The decoder's own solution.

    def __post_init__(self) -> None:
        """Check that the answer has one source, and that no source means no answer."""
        if self.sample is not None and self.solution is not None:
            raise ValueError("expected a sample or a solution")
        if self.sample is None and self.solution is None and self.answer is not None:
            raise ValueError("expected a sample or a solution for an answer")

    @classmethod
    def from_answer(
        cls,
        answer: AnswerRecord,
        sample: int | None = None,
        solution: SolutionRecord | None = None,
    ) -> Self:
        """Return the record of a decoder's answer."""
        return cls(
            answer=answer.answer,
            correct=answer.correct,
            status=answer.status,
            rule=answer.rule,
            strict=answer.strict,
            sample=sample,
            solution=solution,
        )

    @classmethod
    def without_choice(cls, samples: Sequence[AnswerRecord]) -> Self:
        """Return the record of a decoder that chooses none of the samples, which is wrong."""
        is_gold_readable = samples[0].correct is not None
        return cls(
            answer=None,
            correct=False if is_gold_readable else None,
            status="no_answer" if is_gold_readable else samples[0].status,
            rule=NO_VOTES_RULE,
            strict=None if samples[0].strict is None else False,
        )

    def to_json(self) -> JsonObject:
        """Return the answer as plain JSON."""
        values = self.answer_json() | {"sample": self.sample}
        return values if self.solution is None else values | {"solution": self.solution.to_json()}


def _check_metadata(metadata: JsonObject) -> JsonObject:
    """Check the metadata that grading reads; groups may have any value."""
    check_gold_metadata(metadata)
    return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """Everything that a run stores about one problem."""

    task: str  #: Name of the benchmark.
    row: Count  #: Index of the problem in the benchmark.
    problem_id: str  #: Digest of the question and of the source's own gold answer.
    question: str  #: The question.
    gold: str  #: The gold answer; empty if missing.
    #: Groups such as the subject, the cluster for statistics, and settings of the grading.
    metadata: Annotated[JsonObject, AfterValidator(_check_metadata)]
    prompt: str  #: The rendered prompt.
    samples: tuple[SolutionRecord, ...]  #: The samples that several decoders share.
    decoded: dict[str, DecoderRecord]  #: The answer of each decoder, by result name.
    cost: dict[str, DecodingCost]  #: The cost of each decoder, by result name.

    @property
    def own_solutions(self) -> dict[str, SolutionRecord]:
        """The solutions of decoders that do not choose from the samples, by result name."""
        return {
            name: entry.solution
            for name, entry in self.decoded.items()
            if entry.solution is not None
        }

    def to_json(self) -> JsonObject:
        """Return the record as plain JSON."""
        return {
            "task": self.task,
            "row": self.row,
            "problem_id": self.problem_id,
            "question": self.question,
            "gold": self.gold,
            "metadata": self.metadata,
            "prompt": self.prompt,
            "samples": [sample.to_json() for sample in self.samples],
            "decoded": {name: entry.to_json() for name, entry in self.decoded.items()},
            "cost": {name: cost.to_json() for name, cost in self.cost.items()},
        }


@cache
def record_validator() -> TypeAdapter[ProblemRecord]:
    """Return the validator of records."""
    return TypeAdapter(ProblemRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedProblem:
    """The solutions of a problem before their grading."""

    task: str  #: Name of the benchmark.
    row: int  #: Index of the problem in the benchmark.
    problem_id: str  #: Digest of the question and of the source's own gold answer.
    problem: Problem  #: The problem, with the metadata that records keep.
    prompt: str  #: The rendered prompt.
    samples: Sequence[DecodedSolution]  #: The samples that decoders share.
    #: The solution of each other decoder with its cost, by result name.
    own_solutions: Mapping[str, OwnSolution]

    @classmethod
    def from_record(cls, record: ProblemRecord) -> Self:
        """Return the solutions of a record, without their verdicts.

        Raises:
            KeyError: if the record lacks the cost of a solution.
        """
        return cls(
            task=record.task,
            row=record.row,
            problem_id=record.problem_id,
            problem=Problem(
                question=record.question,
                answer=record.gold,
                source=record.task,
                split="test",
                metadata=record.metadata,
            ),
            prompt=record.prompt,
            samples=[sample.to_solution() for sample in record.samples],
            own_solutions={
                name: OwnSolution(solution.to_solution(), record.cost[name])
                for name, solution in record.own_solutions.items()
            },
        )

    @property
    def solutions(self) -> list[DecodedSolution]:
        """The samples, followed by the solutions of the other decoders."""
        return [*self.samples, *(solution for solution, _ in self.own_solutions.values())]
