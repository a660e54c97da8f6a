"""What the step rewards of a run are worth: calibration, distributions, ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fsdpo_bench.results.intervals import share
from fsdpo_bench.results.outcomes import Record
from fsdpo_data.core.statistics import Ranking, ranking_auc
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

#: Bins of a reward in [0, 1].
BINS = 10
#: The aggregate whose distribution is shown: that of best-of-N in the paper.
SHOWN = "min"
#: Steps by number, the rest together at the end.
STEPS = 12


def bin_of(reward: float) -> int:
    """Return the bin of a reward; 1 belongs to the last."""
    return min(BINS - 1, int(reward * BINS))


class RewardTally:
    """Counts rewards of graded samples while records stream by."""

    def __init__(self) -> None:
        self._problems = 0
        self._problem: list[int] = []
        self._right: list[bool] = []
        self._scores: dict[str, list[float]] = {how: [] for how in AGGREGATES}
        self._bins: dict[int, list[tuple[bool, int, float]]] = defaultdict(list)
        self._steps: dict[tuple[int, bool], tuple[float, int]] = defaultdict(lambda: (0.0, 0))

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Pass records on, counting."""
        for record in records:
            self._problems += 1
            for sample in record["samples"]:
                if sample["rewards"] and sample["correct"] is not None:
                    self._add(sample["rewards"], sample["correct"])
            yield record

    def _add(self, rewards: Sequence[float], right: bool) -> None:
        self._problem.append(self._problems)
        self._right.append(right)
        for how in AGGREGATES:
            self._scores[how].append(aggregate(rewards, how))
        for number, reward in enumerate(rewards):
            self._bins[bin_of(reward)].append((right, self._problems, reward))
            key = (min(number, STEPS - 1), right)
            total, count = self._steps[key]
            self._steps[key] = (total + reward, count + 1)

    def as_dict(self) -> dict[str, Any] | None:
        """Return what was counted; None if there were no rewards."""
        if not self._right:
            return None
        return {
            "solutions": len(self._right),
            "correct": sum(self._right),
            "calibration": self._calibration(),
            "distribution": self._distribution(),
            "by_step": {"correct": self._by_step(True), "wrong": self._by_step(False)},
            "ranking_auc": {
                how: _ranking(ranking_auc(self._problem, scores, self._right))
                for how, scores in self._scores.items()
            },
        }

    def _calibration(self) -> dict[str, Any]:
        """Hold step rewards against how often the solutions they stand in are correct.

        That is what a reward model trained on outcomes predicts. Steps of one problem are alike,
        so the intervals are clustered by problem.
        """
        bins = [_bin(index, steps) for index, steps in sorted(self._bins.items())]
        steps = sum(each["steps"] for each in bins)
        gaps = sum(each["steps"] * abs(each["reward"] - each["correct"]) for each in bins)
        return {"bins": bins, "expected_error": round(gaps / steps, 6)}

    def _distribution(self) -> dict[str, Any]:
        counts = {True: [0] * BINS, False: [0] * BINS}
        for score, right in zip(self._scores[SHOWN], self._right, strict=True):
            counts[right][bin_of(score)] += 1
        return {"aggregate": SHOWN, "correct": counts[True], "wrong": counts[False]}

    def _by_step(self, right: bool) -> list[dict[str, float] | None]:
        found = (self._steps.get((number, right)) for number in range(STEPS))
        return [
            None if each is None else {"reward": round(each[0] / each[1], 6), "steps": each[1]}
            for each in found
        ]


def _ranking(found: Ranking) -> dict[str, Any]:
    return {**asdict(found), "ci95": None if found.ci95 is None else list(found.ci95)}


def _bin(index: int, steps: Sequence[tuple[bool, int, float]]) -> dict[str, Any]:
    found = share([right for right, _, _ in steps], [problem for _, problem, _ in steps])
    return {
        "from": index / BINS,
        "to": (index + 1) / BINS,
        "steps": found.n,
        "problems": found.clusters,
        "reward": round(sum(reward for _, _, reward in steps) / found.n, 6),
        "correct": round(found.value or 0, 6),
        "ci95": None if found.ci95 is None else [round(bound, 6) for bound in found.ci95],
    }
