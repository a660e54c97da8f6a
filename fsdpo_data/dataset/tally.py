"""Counts over solutions, and the statistics derived from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import NamedTuple, Self

from fsdpo_data.answers import Verdict
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.entities import (
    COUNTED_OUTCOMES,
    GRADED_OUTCOMES,
    MODEL_FAILURES,
    UNGRADED,
    Outcome,
    Solution,
)
from fsdpo_data.core.sampling import Completion
from fsdpo_data.core.statistics import Mean, mean_rate, wilson_interval
from fsdpo_data.dataset.manifest import SolutionStats

_LABEL_BY_OUTCOME = {"correct": "positive", **dict.fromkeys(MODEL_FAILURES, "negative")}


class GradedCount(NamedTuple):
    """The number of solutions of one problem, by what is known of them."""

    correct: int  #: Correct solutions.
    graded: int  #: Solutions that are known to be correct or wrong.
    total: int  #: Solutions that accuracy counts, the undecided ones included.


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

    def add_sampling_cost(self, completions: Sequence[Completion]) -> None:
        """Add the tokens, time and texts of the completions of one problem."""
        token_counts = [completion.n_tokens for completion in completions]
        if search := completions[0].search:
            # The solutions of a search may share steps, so one of them and the rest count.
            token_counts = [completions[0].n_tokens, search.discarded_tokens]
            self.prm_calls += search.prm_calls
        self.tokens += sum(count for count in token_counts if count is not None)
        self.solutions_without_token_count += token_counts.count(None)
        self.seconds += sum(completion.seconds for completion in completions)
        self.truncated += sum(completion.finish_reason == "length" for completion in completions)
        self.unique_texts += len({completion.text for completion in completions})

    def add_thinking(self, solutions: Sequence[Solution]) -> None:
        """Add whether the thinking of solutions ended."""
        for solution in solutions:
            if solution.thinking_closed is not None:
                self.thinking["closed" if solution.thinking_closed else "unclosed"] += 1
                is_stopped = solution.finish_reason == "stop" and not solution.thinking_closed
                self.stopped_thoughts += is_stopped

    def add_verdicts(
        self,
        problem_ids: Sequence[str],
        verdicts: Sequence[Verdict | None],
        step_counts: Sequence[int],
    ) -> None:
        """Add the verdicts on solutions. The solutions of a problem must be neighbours.

        Args:
            problem_ids: Id of the problem of each solution.
            verdicts: One verdict per solution; None for a solution that nothing graded.
            step_counts: Number of steps of each solution.
        """
        statuses: list[Outcome] = [verdict.status if verdict else UNGRADED for verdict in verdicts]
        self.solutions += len(verdicts)
        self.outcomes.update(statuses)
        self.grader_rules.update(verdict.rule for verdict in verdicts if verdict)
        for status, n_steps in zip(statuses, step_counts, strict=True):
            self.labels[_LABEL_BY_OUTCOME.get(status, "unlabelled")] += n_steps
        status_of_solution = iter(statuses)
        for _, group in groupby(problem_ids):
            outcomes = Counter(next(status_of_solution) for _ in group)
            graded = sum(outcomes[outcome] for outcome in GRADED_OUTCOMES)
            total = sum(outcomes[outcome] for outcome in COUNTED_OUTCOMES)
            self.graded_counts.append(GradedCount(outcomes["correct"], graded, total))

    def outcome_counts(self) -> dict[str, int]:
        """Return the solutions by outcome for the manifest."""
        return dict(sorted(self.outcomes.items()))

    def rule_counts(self) -> dict[str, int]:
        """Return the solutions by the rule that decided their outcome, for the manifest."""
        return dict(sorted(self.grader_rules.items()))

    def label_counts(self) -> dict[str, int]:
        """Return the steps by label for the manifest, with the total as ``steps``."""
        return {"steps": self.labels.total(), **dict(sorted(self.labels.items()))}

    def thinking_counts(self) -> dict[str, int]:
        """Return the solutions with thinking that is ``closed`` or ``unclosed``; empty without."""
        counts = self.thinking
        return {name: counts[name] for name in ("closed", "unclosed")} if counts else {}

    def statistics(self) -> SolutionStats:
        """Return the manifest's statistics of the solutions.

        The samples of one problem are not independent, so the 95 % intervals are over problems.
        """
        counted_problems = [count for count in self.graded_counts if count.total]
        is_solved = [count.correct > 0 for count in counted_problems]
        return SolutionStats(
            accuracy=_mean_over_problems(counted_problems),
            pass_at_k=mean_rate(is_solved).round(6),
            solved_problems=sum(is_solved),
            mixed_problems=sum(0 < count.correct < count.graded for count in counted_problems),
            truncated=self.truncated,
            stopped_thoughts=self.stopped_thoughts,
            unique_solutions=self.unique_texts,
            tokens_per_second=round(self.tokens / self.seconds, 1) if self.seconds else None,
        )

    def cost(self) -> Cost:
        """Return the cost of sampling."""
        return Cost(
            tokens=None if self.solutions_without_token_count else self.tokens,
            prm_calls=self.prm_calls,
            seconds=round(self.seconds, 3),
        )


def _mean_over_problems(counts: Sequence[GradedCount]) -> Mean:
    """Return the accuracy over :data:`COUNTED_OUTCOMES`, with the problems as clusters."""
    correct = [count.correct for count in counts]
    totals = [count.total for count in counts]
    if not counts:
        return Mean(value=None, n=0, ci95=None)
    mean = Mean(
        value=sum(correct) / sum(totals),
        n=sum(totals),
        ci95=wilson_interval(correct, totals),
        clusters=len(counts),
    )
    return mean.round(6)
