"""Options for a benchmark in a file of rows that otherwise need a TOML file."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

from fsdpo_bench.tasks.table import GOLD_PARSERS, METRIC_PATTERN, Task
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.row_files import DATA_SUFFIXES


@dataclass(frozen=True, slots=True)
class RowOptions(Options):
    """Options of the rows of a file with your own problems.

    Attributes:
        metric: Default metric of the benchmarks: `avg@K`, `maj@K`, or `greedy`. It sets the
            decoders and the number of samples.
        subject_field: Field with the subject of a problem, in your own file of rows. Reports give
            the accuracy by subject.
        level_field: Field with the level of a problem, in your own file of rows.
        gold: How to read the gold of your own file. `extract` takes the final answer of a complete
            solution. `number`, `boxed` and `hashes` each expect one form.
    """

    metric: Annotated[str | None, Option(default_text="the benchmark's")] = None
    subject_field: str | None = None
    level_field: str | None = None
    gold: Annotated[str | None, Option(choices=GOLD_PARSERS, default_text="text")] = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)  # a class with slots has no super() of its own
        if self.metric is not None and not METRIC_PATTERN.fullmatch(self.metric):
            raise InputError("expected greedy, avg@K or maj@K.", field="metric", value=self.metric)

    def apply(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the benchmarks with these options.

        Raises:
            InputError: if an option needs a file of rows, and no benchmark is one.
        """
        if self.metric is not None:
            tasks = [replace(task, metric=self.metric) for task in tasks]
        own_names = {task.name for task in tasks if is_row_file(task)}
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name != "metric" and value is not None and not own_names:
                raise InputError(
                    "the option needs a file of your own rows as `task`. Remove the option, or "
                    "write it into the TOML file of the benchmark.",
                    field=option.name,
                    value=value,
                )
        return [self._change_rows(task) if task.name in own_names else task for task in tasks]

    def _change_rows(self, task: Task) -> Task:
        """Return a benchmark in a file of rows with the groups and the gold parser."""
        named_fields = {"subject": self.subject_field, "level": self.level_field}
        groups = {name: (field,) for name, field in named_fields.items() if field is not None}
        formats = task.formats
        if self.gold is not None:
            parse_gold = GOLD_PARSERS[self.gold]
            formats = [replace(row_format, parse_gold=parse_gold) for row_format in formats]
        return replace(task, formats=formats, groups={**task.groups, **groups})


def is_row_file(task: Task) -> bool:
    """Return whether a benchmark is a file of rows without a TOML file."""
    return task.data is not None and task.data.suffix in DATA_SUFFIXES and task.has_plain_rows
