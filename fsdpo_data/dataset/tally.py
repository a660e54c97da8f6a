"""Counts over solutions; tallies of parts add up to that of the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fsdpo_data.answers import Verdict
from fsdpo_data.core.nouns import FAILED, GRADED

_LABELS = {"correct": "positive", **dict.fromkeys(FAILED, "negative")}


@dataclass(slots=True)
class Tally:
    """Counts over solutions; tallies of shards add up.

    Attributes:
        outcomes: Solutions by outcome.
        rules: Solutions by the grader rule that decided.
        labels: Steps by label (``positive``, ``negative``, ``unlabelled``).
        solutions: Solutions.
        tokens: Tokens generated.
        seconds: Wall-clock seconds of the sampler.
        truncated: Solutions cut at ``max_tokens``.
        unique: Different texts, counted within each problem.
        accuracies: (correct, graded) of each problem.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    solutions: int = 0
    tokens: int = 0
    seconds: float = 0.0
    truncated: int = 0
    unique: int = 0
    accuracies: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another shard."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def add_samples(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Add what sampling the solutions of one problem took."""
        self.tokens += sum(sample["n_tokens"] for sample in samples)
        self.seconds += sum(sample["seconds"] for sample in samples)
        self.truncated += sum(sample["finish_reason"] == "length" for sample in samples)
        self.unique += len({sample["text"] for sample in samples})

    def add_verdicts(self, verdicts: Sequence[Verdict], steps: Sequence[int]) -> None:
        """Add the verdicts on the samples of one problem, which have so many steps each."""
        outcomes = Counter(verdict.status for verdict in verdicts)
        self.outcomes.update(outcomes)
        self.rules.update(verdict.rule for verdict in verdicts)
        for verdict, count in zip(verdicts, steps, strict=True):
            self.labels[_LABELS.get(verdict.status, "unlabelled")] += count
        graded = sum(outcomes[each] for each in GRADED)
        self.solutions += len(verdicts)
        self.accuracies.append((outcomes["correct"], graded))

    def counts(self) -> dict[str, Any]:
        """Return the manifest's counts by outcome, by label and by rule."""
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "labels": {"steps": self.labels.total(), **dict(sorted(self.labels.items()))},
            "grader_rules": dict(sorted(self.rules.items())),
        }
