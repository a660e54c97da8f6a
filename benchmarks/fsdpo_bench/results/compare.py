"""Two runs on the same problems: paired differences, and the problems that changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fsdpo_bench.results.intervals import (
    Interval,
    cluster_sums,
    clustered_mcnemar,
    mcnemar,
    paired_interval,
)
from fsdpo_bench.results.outcomes import ProblemResult, clusters_of, read_problem_results
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_bench.tasks.table import is_spelling
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option

Pairs = Sequence[tuple[ProblemResult, ProblemResult]]


@dataclass(frozen=True, slots=True)
class ChangedProblem:
    """A problem that one of the two solves and the other does not; ``better`` is ``a`` or ``b``."""

    task: str
    problem_id: str
    question: str
    gold: str
    answer_a: str | None
    answer_b: str | None
    better: str


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better the second run is on a benchmark."""

    task: str
    decoder_a: str
    decoder_b: str
    n: int  #: Problems that count in both.
    correct_a: int
    correct_b: int
    only_a: int
    only_b: int
    difference: float  #: Accuracy of the second less that of the first.
    ci95: Interval  #: Its 95 % score interval, over problems or clusters of them.
    p: float  #: Exact McNemar, by sign patterns of clusters where problems share a base problem.
    clusters: int | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs compared."""

    deltas: Sequence[PairedDifference]
    #: Problems whose verdict changed, for the first pair of decoders of each benchmark.
    changed: Sequence[ChangedProblem]
    #: What a reader should know: problems left out, graders or prompts that differ.
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What to compare.

    Attributes:
        task: Only this benchmark.
        decoder_a: The first run's decoder, of those that both runs have.
        decoder_b: The second's.
        common: Compare the problems both have, where the sets differ.
    """

    task: str | None = None
    decoder_a: Annotated[str | None, Option(flag="--decoder", default_text="all")] = None
    decoder_b: Annotated[str | None, Option(default_text="the first's")] = None
    common: bool = False


def compare_runs(run_a: Path, run_b: Path, wanted: ComparisonOptions) -> RunComparison:
    """Compare two runs problem by problem.

    Raises:
        InputError: if they have no benchmark or decoder in common, or other problems of one
            without ``common``.
    """
    configs = read_config(run_a), read_config(run_b)
    first, second = _problems(run_a), _problems(run_b)
    both = [name for name in first if name in second]
    tasks = [name for name in both if wanted.task is None or is_spelling(wanted.task, name)]
    if not tasks:
        raise InputError(
            f"no benchmark to compare: {run_a} has {', '.join(first)}, {run_b} has "
            f"{', '.join(second)}" + (f", and `task` is {wanted.task}." if wanted.task else ".")
        )
    notes = _differences(configs)
    deltas: list[PairedDifference] = []
    changed: list[ChangedProblem] = []
    for task in tasks:
        pairs, note = _pair_outcomes(task, first[task], second[task], wanted.common)
        notes += note
        found = [_delta(task, pairs, *decoders) for decoders in _decoders(pairs, wanted)]
        deltas += [delta for delta, _ in found]
        changed += found[0][1]
    return RunComparison(deltas, changed, notes)


def _problems(run: Path) -> dict[str, dict[tuple[str, int], ProblemResult]]:
    tasks = read_problem_results(read_records(run))
    if not tasks:
        raise InputError(f"{run} holds no records. Finish it: run it with `resume=True`.")
    return {name: {each.key: each for each in facts} for name, facts in tasks.items()}


def _differences(configs: tuple[Mapping[str, Any], Mapping[str, Any]]) -> list[str]:
    """Name what differs besides the models and makes numbers hard to compare."""
    told = {
        "graders": [each["grader"] for each in configs],
        "prompt templates": ["{name} ({digest})".format(**each["template"]) for each in configs],
        "most tokens of a solution": [each["sampling"]["max_tokens"] for each in configs],
    }
    return [f"the {what} differ: {a} and {b}" for what, (a, b) in told.items() if a != b]


def _pair_outcomes(
    task: str,
    first: Mapping[tuple[str, int], ProblemResult],
    second: Mapping[tuple[str, int], ProblemResult],
    common: bool,
) -> tuple[Pairs, list[str]]:
    pairs = [(each, second[key]) for key, each in first.items() if key in second]
    alone = (len(first) - len(pairs), len(second) - len(pairs))
    told = (
        f"{task}: {len(pairs)} problems are in both runs, {alone[0]} only in the first and "
        f"{alone[1]} only in the second"
    )
    if not pairs:
        raise InputError(f"{told}. Runs compare on the same problems: check `data` and `limit`.")
    if any(alone) and not common:
        raise InputError(f"{told}. Set `common=True` to compare those in both.")
    return pairs, [told] if any(alone) else []


def _decoders(pairs: Pairs, wanted: ComparisonOptions) -> list[tuple[str, str]]:
    first, second = pairs[0][0].decoded, pairs[0][1].decoded
    one = wanted.decoder_a or wanted.decoder_b
    asked = [(one, wanted.decoder_b or one)] if one else [(name, name) for name in first]
    both = [(a, b) for a, b in asked if a in first and b in second]
    if not both:
        what = "no decoder is in both runs"
        if one:
            what = f"no decoder {asked[0][0]!r} in the first run or {asked[0][1]!r} in the second"
        raise InputError(
            f"{what}: they have {', '.join(first)} and {', '.join(second)}. Give "
            "`decoder_a` and `decoder_b` of those."
        )
    return both


def _delta(
    task: str, pairs: Pairs, one: str, other: str
) -> tuple[PairedDifference, list[ChangedProblem]]:
    """Hold two decoders against each other; return the difference, and what changed."""
    answers = [(facts, facts.decoded[one], second.decoded[other]) for facts, second in pairs]
    counted = [each for each in answers if None not in (each[1].correct, each[2].correct)]
    if not counted:
        raise InputError(f"{task}: no problem counts in both runs; their golds are unreadable.")
    verdicts = [(bool(a.correct), bool(b.correct)) for _, a, b in counted]
    gains = [b - a for a, b in verdicts]
    clusters = clusters_of(facts for facts, _, _ in counted)
    only_a, only_b = gains.count(-1), gains.count(1)
    sums = [int(total) for total, _ in cluster_sums(gains, clusters).values()]
    p = mcnemar(only_a, only_b) if clusters is None else clustered_mcnemar(sums)
    changed = []
    for (facts, a, b), gain in zip(counted, gains, strict=True):
        if gain:
            asked, better = (facts.key[0], facts.question, facts.gold), "a" if gain < 0 else "b"
            changed.append(ChangedProblem(facts.task, *asked, a.answer, b.answer, better))
    n, of_clusters = len(counted), None if clusters is None else len(set(clusters))
    right_a, right_b = (sum(each) for each in zip(*verdicts, strict=True))
    told = (sum(gains) / n, paired_interval(gains, clusters), p, of_clusters)
    return PairedDifference(task, one, other, n, right_a, right_b, only_a, only_b, *told), changed
