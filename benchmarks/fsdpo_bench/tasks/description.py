"""The part of a benchmark's definition that its results depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskDescription:
    """A benchmark as runs and results record it."""

    name: str  #: Name on the command line, and name of the folder in a data directory.
    title: str  #: Name in reports.
    count: int | None = None  #: Number of problems; None if unknown.
    version: int = 1  #: Version of the problems and their grading; raised with every change.
    #: The default metric: ``avg@K``, ``maj@K``, or ``greedy`` for the accuracy of one solution.
    metric: str = "greedy"
    #: Relative error of numeric answers, in addition to the rounding of the gold; 0 allows only
    #: the rounding. Reports give the tolerant and the strict score. None for exact answers.
    tolerance: float | None = None
    #: Benchmark with the base problems; reports give the drop in accuracy from it.
    base_task: str = ""
    #: Group whose parts (such as instances of templates) give the spread of the accuracy.
    spread_group: str = ""
