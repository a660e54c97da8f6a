"""Options for a benchmark in a file of rows that otherwise need a TOML file."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fsdpo_bench.tasks.table import METRIC_PATTERN, Task
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option
from fsdpo_data.problems.row_formats import RowReading


class RowOptions(RowReading):
    """Options of the rows of a file with your own problems."""

    metric: Annotated[str | None, Option(default_text="the benchmark's")] = None
    """Default metric of the benchmarks: `avg@K`, `maj@K`, or `greedy`. It sets the decoders and the
    number of samples.
    """
    subject_field: str | None = None
    """Field with the subject of a problem, in your own file of rows. Reports give the accuracy by
    subject.
    """
    level_field: str | None = None
    """Field with the level of a problem, in your own file of rows."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.metric is not None and not METRIC_PATTERN.fullmatch(self.metric):
            raise InputError("expected greedy, avg@K or maj@K.", field="metric", value=self.metric)

    def apply(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the benchmarks with these options.

        Raises:
            InputError: if an option needs a file of rows, and no benchmark is one.
        """
        if self.metric is not None:
            tasks = [replace(task, metric=self.metric) for task in tasks]
        if not any(task.plain_rows is not None for task in tasks):
            self._check_defaults()
        return [task if task.plain_rows is None else self._change_rows(task) for task in tasks]

    def _check_defaults(self) -> None:
        """Raise an InputError if an option is set that only a file of rows reads."""
        for name, value in self:
            if name != "metric" and value != type(self).model_fields[name].default:
                raise InputError(
                    "the option needs a file of your own rows as `task`. Remove the option, or "
                    "write it into the TOML file of the benchmark.",
                    field=name,
                    value=value,
                )

    def _change_rows(self, task: Task) -> Task:
        """Return a benchmark in a file of rows with the named fields."""
        named_fields = {"subject": self.subject_field, "level": self.level_field}
        groups = {name: (field,) for name, field in named_fields.items() if field is not None}
        return replace(task, plain_rows=self, groups={**task.groups, **groups})
