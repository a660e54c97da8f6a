"""Counts over solutions; tallies of parts add up to that of the whole."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from fsdpo_data.answers import Verdict
from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES, Solution
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.core.statistics import clustered_interval, wilson_interval
from fsdpo_data.dataset.manifest_sections import (
    AccuracyStats,
    PassAtK,
    SolutionStats,
    ThinkingStats,
)

_LABELS = {"correct": "positive", **dict.fromkeys(MODEL_FAILURES, "negative")}


@dataclass(slots=True)
class Tally:
    """Counts over solutions; tallies of shards add up."""

    outcomes: Counter[str] = field(default_factory=Counter)
    grader_rules: Counter[str] = field(
        default_factory=Counter
    )  #: Solutions by the rule that decided.
    #: Steps by label (``positive``, ``negative``, ``unlabelled``).
    labels: Counter[str] = field(default_factory=Counter)
    solutions: int = 0
    tokens: int = 0
    solutions_without_token_count: int = 0  #: Solutions whose tokens nobody has counted.
    seconds: float = 0.0
    #: Solutions that thought, by whether the thinking ended; its tokens, and solutions without.
    thinking: Counter[str] = field(default_factory=Counter)
    truncated: int = 0  #: Solutions cut at ``max_tokens``.
    unique_texts: int = 0  #: Different texts, counted within each problem.
    #: (correct, graded) of each problem.
    graded_counts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Add the counts of another shard."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def add_sampling_cost(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Add what sampling the solutions of one problem took."""
        counts = [sample["n_tokens"] for sample in samples]
        self.tokens += sum(count for count in counts if count is not None)
        self.solutions_without_token_count += counts.count(None)
        self.seconds += sum(sample["seconds"] for sample in samples)
        self.truncated += sum(sample["finish_reason"] == "length" for sample in samples)
        self.unique_texts += len({sample["text"] for sample in samples})

    def add_thinking(self, solutions: Sequence[Solution]) -> None:
        """Add whether the thinking of solutions ended, and what it took."""
        for each in solutions:
            if each.thinking_closed is not None:
                self.thinking["closed" if each.thinking_closed else "unclosed"] += 1
                self.thinking["tokens"] += each.thinking_tokens or 0
                self.thinking["uncounted"] += each.thinking_tokens is None

    def add_verdicts(self, verdicts: Sequence[Verdict], steps: Sequence[int]) -> None:
        """Add the verdicts on the samples of one problem, which have so many steps each."""
        outcomes = Counter(verdict.status for verdict in verdicts)
        self.outcomes.update(outcomes)
        self.grader_rules.update(verdict.rule for verdict in verdicts)
        for verdict, count in zip(verdicts, steps, strict=True):
            self.labels[_LABELS.get(verdict.status, "unlabelled")] += count
        graded = sum(outcomes[each] for each in GRADED_OUTCOMES)
        self.solutions += len(verdicts)
        self.graded_counts.append((outcomes["correct"], graded))

    def manifest_counts(self) -> dict[str, Any]:
        """Return the manifest's counts by outcome, by label and by rule."""
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "labels": {"steps": self.labels.total(), **dict(sorted(self.labels.items()))},
            "grader_rules": dict(sorted(self.grader_rules.items())),
        }

    def outcome_statistics(self) -> dict[str, Any]:
        """Derive what the counts by outcome mean, as fields of :class:`~.parts.SolutionStats`.

        Accuracy is the mean over graded solutions. The samples of one problem are alike, so its
        95 % interval is clustered by problem; pass@M counts problems, so its interval is Wilson's.
        """
        with_gold = [(right, n) for right, n in self.graded_counts if n]
        correct, graded = (sum(counts) for counts in zip((0, 0), *with_gold, strict=True))
        solved, n = sum(right > 0 for right, _ in with_gold), len(with_gold)
        return {
            "accuracy": AccuracyStats(
                value=round(correct / graded, 6) if graded else None,
                correct=correct,
                n=graded,
                ci95=clustered_interval(with_gold),
            ),
            "pass_at_k": PassAtK(
                value=round(solved / n, 6) if n else None,
                solved=solved,
                n=n,
                ci95=wilson_interval(solved, n),
            ),
            "mixed_problems": sum(0 < right < n for right, n in with_gold),
        }

    def thinking_stats(self) -> ThinkingStats | None:
        """Return what the solutions thought; None if none did."""
        counts = self.thinking
        if not counts:
            return None
        return ThinkingStats(
            closed=counts["closed"],
            unclosed=counts["unclosed"],
            tokens=UNKNOWN if counts["uncounted"] else counts["tokens"],
        )

    def statistics(self) -> SolutionStats:
        """Return what the counts mean."""
        return SolutionStats(
            **self.outcome_statistics(),
            truncated=self.truncated,
            unique_solutions=self.unique_texts,
            tokens_per_second=round(self.tokens / self.seconds, 1) if self.seconds else None,
        )
