"""What ``results.json`` says, as types: plain JSON that a type checker can follow."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from fsdpo_bench.results.outcomes import Amount

Costs = dict[str, Amount]  #: By what was spent: tokens, calls of the reward model, seconds.


class AccuracyDrop(TypedDict):
    """How much lower accuracy is than on the problems that these were made from."""

    drop: float
    n: int
    ci95: list[float]


class AccuracyResult(TypedDict):
    """A share of right answers."""

    correct: float
    n: int
    accuracy: float | None  #: None of none.
    ci95: list[float] | None
    clusters: int | None  #: Base problems, where problems share one.


class SuiteResults(TypedDict):
    """The mean of benchmarks, each counting the same."""

    tasks: list[str]
    decoders: dict[str, AccuracyResult]


class DecoderResults(AccuracyResult):
    """What a decoder reached on a benchmark."""

    strict: NotRequired[
        AccuracyResult
    ]  #: Without the tolerance of the benchmark, where it has one.
    outcomes: dict[str, int]
    cost: Costs


class TaskResults(TypedDict):
    """A benchmark; keys are decoders, and the labels of groups before them."""

    title: str
    problems: int
    task_problems: int  #: Problems that the whole benchmark has.
    decoders: dict[str, DecoderResults]
    groups: dict[str, dict[str, dict[str, AccuracyResult]]]
    group_spread: dict[str, dict[str, float]]  #: How accuracy differs between the parts of a group.
    accuracy_drops: dict[str, dict[str, dict[str, AccuracyDrop]]]
    avg_at_k: dict[str, AccuracyResult]
    pass_at_k: dict[str, AccuracyResult]
    maj_at_k: dict[str, AccuracyResult]


class Results(TypedDict):
    """All of ``results.json``."""

    version: int
    run: Mapping[str, Any]  #: What decided the output.
    tasks: dict[str, TaskResults]
    suites: dict[str, SuiteResults]
    cost: dict[str, Costs]  #: By decoder, over all benchmarks.
    rewards: dict[str, Any] | None  #: What the rewards of the samples are like.
