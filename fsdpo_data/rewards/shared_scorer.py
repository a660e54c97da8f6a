"""A scorer that is loaded once, and that merges the calls of several threads into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.scorers import Scorer, ScorerInput

#: Step rewards of one solution; None for a solution without rewards.
Rewards = list[float] | None


class _ScoringCall(NamedTuple):
    """The items of one call, and the place for its result."""

    items: Sequence[ScorerInput]  #: The solutions to score.
    result: Future[list[Rewards]]  #: The rewards, in the order of the items.


class SharedScorer:
    """A scorer for any number of threads.

    Trainers such as verl call reward functions once per completion, from many threads. While the
    model scores, further calls wait in a queue. The next thread that gets the model scores all of
    them in one batch.

    Args:
        load: Loads the scorer. It runs once, at the first call, and must be picklable if the
            instance is to be pickled.
    """

    def __init__(self, load: Callable[[], Scorer]) -> None:
        self._load = load
        self._reset()

    def _reset(self) -> None:
        self._scorer: Scorer | None = None
        self._waiting: list[_ScoringCall] = []
        self._waiting_lock = Lock()
        self._scorer_lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the function that loads the scorer; another process loads the model again."""
        return {"_load": self._load}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._load = state["_load"]
        self._reset()

    def score_in_order(self, items: Sequence[ScorerInput]) -> list[Rewards]:
        """Return one reward per step for each item, in the order of the items.

        An error of the scorer reaches only the calls whose items cause it.
        """
        call = _ScoringCall(items, Future())
        with self._waiting_lock:
            self._waiting.append(call)
        with self._scorer_lock:
            if not call.result.done():  # another thread may have scored it in the meantime
                self._score_waiting()
        return call.result.result()

    def _score_waiting(self) -> None:
        """Score all calls in the queue in one batch, or one by one if the batch fails."""
        with self._waiting_lock:
            calls = self._waiting
            self._waiting = []
        try:
            rewards = iter(self._score([item for call in calls for item in call.items]))
            for call in calls:
                call.result.set_result([next(rewards) for _ in call.items])
        except Exception:
            for call in calls:
                self._score_alone(call)

    def _score_alone(self, call: _ScoringCall) -> None:
        try:
            call.result.set_result(list(self._score(call.items)))
        except Exception as error:
            call.result.set_exception(error)

    def _score(self, items: Sequence[ScorerInput]) -> Sequence[Rewards]:
        if self._scorer is None:
            self._scorer = self._load()
        return collect_results(self._scorer.score(items))
