"""Counts over solutions, and the statistics derived from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from fsdpo_data.answers import Verdict
from fsdpo_data.core.entities import (
    GRADED_OUTCOMES,
    MODEL_FAILURES,
    UNGRADED,
    Outcome,
    Solution,
)
from fsdpo_data.core.statistics import Interval, wilson_interval
from fsdpo_data.dataset.manifest_sections import (
    AccuracyStats,
    PassAtK,
    SolutionStats,
    ThinkingStats,
)

_LABEL_BY_OUTCOME = {"correct": "positive", **dict.fromkeys(MODEL_FAILURES, "negative")}


class GradedCount(NamedTuple):
    """The number of correct and of graded solutions of one problem."""

    correct: int  #: Correct solutions.
    graded: int  #: Solutions with an outcome that counts towards accuracy.


@dataclass(slots=True)
class Tally:
    """Counts over solutions; the tallies of all shards add up to the dataset's tally."""

    outcomes: Counter[str] = field(default_factory=Counter)  #: Solutions by outcome.
    #: Solutions by the grader's rule that decided their outcome.
    grader_rules: Counter[str] = field(default_factory=Counter)
    #: Steps by label (``positive``, ``negative``, ``unlabelled``).
    labels: Counter[str] = field(default_factory=Counter)
    solutions: int = 0  #: Number of solutions.
    tokens: int = 0  #: Sampled tokens, as far as they are known.
    solutions_without_token_count: int = 0  #: Solutions whose number of tokens is unknown.
    prm_calls: int = 0  #: Solutions and prefixes that a reward model scored in searches.
    seconds: float = 0.0  #: Time of sampling, in seconds.
    #: Solutions with thinking that is ``closed`` or ``unclosed``.
    thinking: Counter[str] = field(default_factory=Counter)
    truncated: int = 0  #: Solutions that reached ``max_tokens``.
    #: Solutions that stopped before ``max_tokens``, inside their thinking.
    stopped_thoughts: int = 0
    unique_texts: int = 0  #: Distinct texts, counted per problem.
    graded_counts: list[GradedCount] = field(default_factory=list)  #: One entry per problem.

    def add(self, other: Self) -> None:
        """Add the counts of another shard."""
        for count_field in fields(self):
            name = count_field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_sampling_cost(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Add the tokens, time and texts of the samples of one problem."""
        token_counts = [sample["n_tokens"] for sample in samples]
        if search := samples[0].get("search"):
            # The solutions of a search may share steps, so one of them and the rest count.
            token_counts = [samples[0]["n_tokens"], search["discarded_tokens"]]
            self.prm_calls += search["prm_calls"]
        self.tokens += sum(count for count in token_counts if count is not None)
        self.solutions_without_token_count += token_counts.count(None)
        self.seconds += sum(sample["seconds"] for sample in samples)
        self.truncated += sum(sample["finish_reason"] == "length" for sample in samples)
        self.unique_texts += len({sample["text"] for sample in samples})

    def add_thinking(self, solutions: Sequence[Solution]) -> None:
        """Add whether the thinking of solutions ended."""
        for solution in solutions:
            if solution.thinking_closed is not None:
                self.thinking["closed" if solution.thinking_closed else "unclosed"] += 1
                is_stopped = solution.finish_reason == "stop" and not solution.thinking_closed
                self.stopped_thoughts += is_stopped

    def add_verdicts(self, verdicts: Sequence[Verdict | None], steps: Sequence[int]) -> None:
        """Add the verdicts on the samples of one problem.

        Args:
            verdicts: One verdict per sample; None for a sample that nothing graded.
            steps: Number of steps of each sample.
        """
        statuses: list[Outcome] = [verdict.status if verdict else UNGRADED for verdict in verdicts]
        outcomes = Counter(statuses)
        self.outcomes.update(outcomes)
        self.grader_rules.update(verdict.rule for verdict in verdicts if verdict)
        for status, n_steps in zip(statuses, steps, strict=True):
            self.labels[_LABEL_BY_OUTCOME.get(status, "unlabelled")] += n_steps
        graded = sum(outcomes[outcome] for outcome in GRADED_OUTCOMES)
        self.solutions += len(verdicts)
        self.graded_counts.append(GradedCount(correct=outcomes["correct"], graded=graded))

    def manifest_counts(self) -> dict[str, Any]:
        """Return the manifest's ``outcomes``, ``labels`` and ``grader_rules``."""
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "labels": {"steps": self.labels.total(), **dict(sorted(self.labels.items()))},
            "grader_rules": dict(sorted(self.grader_rules.items())),
        }

    def outcome_statistics(self) -> dict[str, Any]:
        """Derive the fields of :class:`SolutionStats` that depend on outcomes.

        The samples of one problem are not independent, so the 95 % intervals are over problems.
        """
        graded_problems = [count for count in self.graded_counts if count.graded]
        correct = sum(count.correct for count in graded_problems)
        graded = sum(count.graded for count in graded_problems)
        is_solved = [count.correct > 0 for count in graded_problems]
        solved = sum(is_solved)
        n_problems = len(graded_problems)
        return {
            "accuracy": AccuracyStats(
                value=round(correct / graded, 6) if graded else None,
                correct=correct,
                n=graded,
                ci95=_rounded_interval(
                    [count.correct for count in graded_problems],
                    [count.graded for count in graded_problems],
                ),
            ),
            "pass_at_k": PassAtK(
                value=round(solved / n_problems, 6) if n_problems else None,
                solved=solved,
                n=n_problems,
                ci95=_rounded_interval(is_solved, [1] * n_problems),
            ),
            "mixed_problems": sum(0 < count.correct < count.graded for count in graded_problems),
        }

    def thinking_stats(self) -> ThinkingStats | None:
        """Return the statistics of the thinking; None if no solution contains thinking."""
        counts = self.thinking
        if not counts:
            return None
        return ThinkingStats(closed=counts["closed"], unclosed=counts["unclosed"])

    def statistics(self) -> SolutionStats:
        """Return the manifest's statistics of the solutions."""
        outcome_statistics = self.outcome_statistics()
        # Most datasets contain no thinking.
        optional_fields = {}
        if self.stopped_thoughts:
            optional_fields["stopped_thoughts"] = self.stopped_thoughts
        return SolutionStats(
            accuracy=outcome_statistics["accuracy"],
            pass_at_k=outcome_statistics["pass_at_k"],
            mixed_problems=outcome_statistics["mixed_problems"],
            truncated=self.truncated,
            unique_solutions=self.unique_texts,
            tokens_per_second=round(self.tokens / self.seconds, 1) if self.seconds else None,
            **optional_fields,
        )


def _rounded_interval(totals: Sequence[int], counts: Sequence[int]) -> Interval | None:
    """Return the interval of a mean over problems, for the manifest; None without problems."""
    interval = wilson_interval(totals, counts)
    return interval.round_bounds(6) if interval else None
