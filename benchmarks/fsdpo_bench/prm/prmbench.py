"""Finding every wrong step: PRMBench, by the way in which a right solution was altered.

PRMBench (Song et al. 2025) calls a step right if its reward is above a threshold. Its PRMScore is
the mean of two F1 over steps, that of the right and that of the wrong ("negative") ones; a
solution that the model cannot read is left out. Numbers are those of its ``mr_eval``, where it
gives any: it has -1 for what has no denominator, and for an F1 of precision and recall 0.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_bench.prm.first_error import NO_ERROR, Judged
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import read_records
from fsdpo_data.core.tables import Table

ORIGINAL = "original"  #: The way of a solution that was not altered.


@dataclass(frozen=True, slots=True)
class Way:
    """One way to alter solutions; fields as in the table beside this module."""

    says: str
    dimension: str
    originals: bool = False


WAYS = Table(__file__, lambda _, **told: Way(**told))


@dataclass(frozen=True, slots=True)
class Altered(Judged):
    """A solution whose wrong steps are all known; ``key`` is that of the one it was made of."""

    way: str
    wrong: frozenset[int]  #: Its wrong steps, from 0; some rows name steps beyond the last.


@dataclass(frozen=True, slots=True)
class StepErrors:
    """How well right and wrong steps are told apart; None is what has no denominator."""

    score: float | None  #: PRMScore; F1 alone where no step is wrong.
    f1: float | None
    negative_f1: float | None
    passed: int  #: Right steps called right.
    right: int
    caught: int  #: Wrong steps called wrong.
    wrong: int
    first_caught: int  #: Solutions whose first wrong step is called wrong, whatever is before it.
    with_error: int
    apart: float | None  #: Mean difference of the share of steps passed to that of the original.
    solutions: int
    unscored: int  #: Solutions too long for the model, which are not counted.


@dataclass(frozen=True, slots=True)
class PrmBench:
    """What a reward model scores on PRMBench."""

    threshold: float  #: Rewards above it call a step right.
    overall: StepErrors  #: Over all altered solutions.
    dimensions: Mapping[str, float]  #: Mean PRMScore of the ways of a dimension.
    ways: Mapping[str, StepErrors]


def read_altered(files: Sequence[Path]) -> list[Altered]:
    """Read the rows of PRMBench, each once, with the unaltered solutions that it measures.

    Raises:
        InputError: if a row is of another form.
    """
    found: dict[tuple[str, str], Altered] = {}
    for file in files:
        for record in read_records(file):
            try:
                if record.broken:
                    raise ValueError(record.broken)
                for each in _altered(record.fields):
                    found.setdefault((each.way, each.key), each)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{file}, row {record.row}: {error!r}. Expected idx, classification, "
                    "modified_question, modified_process and error_steps, as in PRMBench."
                ) from None
    return list(found.values())


def _altered(row: Mapping[str, Any]) -> Iterator[Altered]:
    key, way = str(row["idx"]), str(row["classification"])
    if WAYS[way].originals:
        yield _solution(key, row, "original", ORIGINAL, frozenset())
    wrong = frozenset(int(step) - 1 for step in row["error_steps"])
    yield _solution(key, row, "modified", way, wrong)


def _solution(
    key: str, row: Mapping[str, Any], which: str, way: str, wrong: frozenset[int]
) -> Altered:
    question, steps = row[f"{which}_question"], row[f"{which}_process"]
    if not isinstance(question, str) or not isinstance(steps, list) or not steps:
        raise ValueError("no question or no steps")
    first = min(wrong, default=NO_ERROR)
    return Altered(key, question, tuple(map(str, steps)), first, way, wrong)


def measure_step_errors(
    rows: Sequence[Altered], rewards: Sequence[Sequence[float] | None], threshold: float = 0.5
) -> PrmBench:
    """Count by way, by dimension and in all; the originals count by themselves."""
    calls = [None if each is None else [reward > threshold for reward in each] for each in rewards]
    by_way: dict[str, list[tuple[Altered, Sequence[bool] | None]]] = {}
    for row, called in zip(rows, calls, strict=True):
        by_way.setdefault(row.way, []).append((row, called))
    like = {row.key: statistics.fmean(called) for row, called in by_way.get(ORIGINAL, ()) if called}
    order = [name for name in (*WAYS, ORIGINAL) if name in by_way]
    ways = {name: _count(by_way[name], like) for name in order}
    scores: dict[str, list[float]] = {}
    for name in order:
        if name != ORIGINAL and (score := ways[name].score) is not None:
            scores.setdefault(WAYS[name].dimension, []).append(score)
    altered = [pair for name in order if name != ORIGINAL for pair in by_way[name]]
    dimensions = {name: statistics.fmean(found) for name, found in scores.items()}
    return PrmBench(threshold, _count(altered, like), dimensions, ways)


def _count(
    pairs: Sequence[tuple[Altered, Sequence[bool] | None]], like: Mapping[str, float]
) -> StepErrors:
    counted = [(row, called) for row, called in pairs if called]
    steps = [
        (place in row.wrong, right) for row, called in counted for place, right in enumerate(called)
    ]
    passed, missed = steps.count((False, True)), steps.count((True, True))
    caught, blamed = steps.count((True, False)), steps.count((False, False))
    firsts = [
        not called[row.first_error] for row, called in counted if 0 <= row.first_error < len(called)
    ]
    # As in its code, an original of which no step is passed is like none.
    apart = [
        abs(statistics.fmean(called) - like[row.key])
        for row, called in counted
        if row.way != ORIGINAL and like.get(row.key)
    ]
    f1, negative = _f1(passed, missed + blamed), _f1(caught, missed + blamed)
    both = None if f1 is None or negative is None else (f1 + negative) / 2
    return StepErrors(
        score=both if caught + missed else f1,
        f1=f1,
        negative_f1=negative,
        passed=passed,
        right=passed + blamed,
        caught=caught,
        wrong=caught + missed,
        first_caught=sum(firsts),
        with_error=len(firsts),
        apart=statistics.fmean(apart) if apart else None,
        solutions=len(counted),
        unscored=len(pairs) - len(counted),
    )


def _f1(hits: int, others: int) -> float | None:
    return 2 * hits / (2 * hits + others) if hits + others else None
