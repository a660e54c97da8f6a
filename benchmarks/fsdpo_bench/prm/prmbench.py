"""Finding every wrong step: PRMBench, by the way in which a right solution was altered.

PRMBench (Song et al. 2025) calls a step right if its reward is above a threshold. Its PRMScore is
the mean of two F1 over steps, that of the right and that of the wrong ("negative") ones; a
solution that the model cannot read is left out. Numbers are those of its ``mr_eval``, where it
gives any: it has -1 for what has no denominator, and for an F1 of precision and recall 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fsdpo_bench.prm.first_error import NO_ERROR, FirstErrorExample
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import read_records
from fsdpo_data.core.toml_tables import TomlTable

ORIGINAL = "original"  #: The way of a solution that was not altered.


@dataclass(frozen=True, slots=True)
class Alteration:
    """One way to alter solutions; fields as in the table beside this module."""

    says: str
    dimension: str
    originals: bool = False


ALTERATIONS = TomlTable(__file__, lambda _, **told: Alteration(**told))


@dataclass(frozen=True, slots=True)
class AlteredSolution(FirstErrorExample):
    """A solution whose wrong steps are all known; ``key`` is that of the one it was made of."""

    way: str
    wrong: frozenset[int]  #: Its wrong steps, from 0; some rows name steps beyond the last.


StepVerdicts = tuple[
    AlteredSolution, Sequence[bool]
]  #: A solution, and whether each step is called right.


@dataclass(frozen=True, slots=True)
class StepErrorScores:
    """How well right and wrong steps are told apart; None is what has no denominator."""

    solutions: int
    unscored: int  #: Solutions too long for the model, which are not counted.
    passed: tuple[int, int]  #: Right steps called right, of so many.
    caught: tuple[int, int]  #: Wrong steps called wrong, of so many.
    #: Solutions whose first wrong step is called wrong, whatever is before it, of so many.
    first_caught: tuple[int, int]
    mean_gap_to_original: (
        float | None
    )  #: Mean difference of the share of steps passed to that of the original.
    f1: float | None
    negative_f1: float | None
    score: float | None  #: PRMScore; F1 alone where no step is wrong.


@dataclass(frozen=True, slots=True)
class PrmBenchScores:
    """What a reward model scores on PRMBench."""

    threshold: float  #: Rewards above it call a step right.
    ways: Mapping[str, StepErrorScores]  #: ``all`` is over all altered solutions.
    dimensions: Mapping[str, float]  #: Mean PRMScore of the ways of a dimension.


def read_altered(files: Sequence[Path]) -> list[AlteredSolution]:
    """Read the rows of PRMBench, each once, with the unaltered solutions that it measures.

    Raises:
        InputError: if a row is of another form.
    """
    found: dict[tuple[str, str], AlteredSolution] = {}
    for file in files:
        for record in read_records(file):
            try:
                for each in _parse_row(record.fields):
                    found.setdefault((each.way, each.key), each)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{file}, row {record.row_number}: {record.error or repr(error)}. Expected idx, "
                    "classification, modified_question, modified_process, error_steps of PRMBench."
                ) from None
    return list(found.values())


def _parse_row(row: Mapping[str, Any]) -> Iterator[AlteredSolution]:
    way, wrong = row["classification"], frozenset(int(step) - 1 for step in row["error_steps"])
    made = {"modified": (way, wrong)}
    if ALTERATIONS[way].originals:
        made["original"] = (ORIGINAL, frozenset())
    for which, (way, wrong) in made.items():
        question, steps = row[f"{which}_question"], row[f"{which}_process"]
        if not isinstance(question, str) or not isinstance(steps, list) or not steps:
            raise ValueError("no question or no steps")
        first = min(wrong, default=NO_ERROR)
        yield AlteredSolution(str(row["idx"]), question, tuple(map(str, steps)), first, way, wrong)


def measure_step_errors(
    rows: Sequence[AlteredSolution],
    rewards: Sequence[Sequence[float] | None],
    threshold: float = 0.5,
) -> PrmBenchScores:
    """Count by way, by dimension and in all; the originals count by themselves."""
    given: dict[str, list[StepVerdicts]] = {name: [] for name in ("all", *ALTERATIONS, ORIGINAL)}
    unscored: Counter[str] = Counter()
    for row, each in zip(rows, rewards, strict=True):
        for name in (row.way,) if row.way == ORIGINAL else ("all", row.way):
            if each is None:
                unscored[name] += 1
            else:
                given[name].append((row, [reward > threshold for reward in each]))
    # As in its code, an original of which no step is passed is like none.
    like = {row.key: share for row, called in given[ORIGINAL] if (share := fmean(called))}
    ways = {name: _count(given[name], unscored[name], like) for name in given}
    scores: dict[str, list[float]] = {}
    for name, way in ALTERATIONS.items():
        if (score := ways[name].score) is not None:
            scores.setdefault(way.dimension, []).append(score)
    return PrmBenchScores(threshold, ways, {name: fmean(found) for name, found in scores.items()})


def _count(
    given: Sequence[StepVerdicts], unscored: int, like: Mapping[str, float]
) -> StepErrorScores:
    steps = Counter(
        (place in row.wrong, right) for row, called in given for place, right in enumerate(called)
    )
    passed, blamed = steps[False, True], steps[False, False]
    caught, missed = steps[True, False], steps[True, True]
    firsts = [
        not called[row.first_error] for row, called in given if 0 <= row.first_error < len(called)
    ]
    apart = [
        abs(fmean(called) - like[row.key])
        for row, called in given
        if row.way != ORIGINAL and row.key in like
    ]
    f1, negative = _f1(passed, missed + blamed), _f1(caught, missed + blamed)
    return StepErrorScores(
        len(given),
        unscored,
        (passed, passed + blamed),
        (caught, caught + missed),
        (sum(firsts), len(firsts)),
        fmean(apart) if apart else None,
        f1,
        negative,
        (f1 + negative) / 2 if f1 is not None and negative is not None and caught + missed else f1,
    )


def _f1(hits: int, others: int) -> float | None:
    return 2 * hits / (2 * hits + others) if hits + others else None
