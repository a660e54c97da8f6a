"""Benchmarks, defined by TOML files: built-in files, plug-in files, and files of the user."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from runpy import run_path
from typing import Any, TypeVar

from fsdpo_bench.tasks.description import TaskDescription
from fsdpo_bench.tasks.fetch import PublicFile
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, data_suffix, read_records
from fsdpo_data.core.toml_tables import check_types
from fsdpo_data.problems.golds import (
    gold_text,
    means_no_gold,
    parse_boxed_gold,
    parse_gsm8k_gold,
    read_gold,
)
from fsdpo_data.problems.hub_datasets import HubDataset
from fsdpo_data.problems.row_formats import ProblemFormat, RowReading

#: Folder of the built-in tasks.
BUILTIN_TASKS = Path(__file__).parent / "builtin"
#: Decimal places of numeric golds, and significant digits of those below 1. Two published files of
#: AddSub differ in binary noise (0.6666666666666666); rounding makes their golds equal.
GOLD_DECIMALS = 10
GRADING_METADATA = ("alternative_golds", "gold_tolerance")  #: Metadata that grading reads.
#: Metadata that the benchmark sets for grading and statistics.
RESERVED_METADATA = ("cluster", *GRADING_METADATA)

RecordT = TypeVar("RecordT")
METRIC_PATTERN = re.compile(r"greedy|(avg|maj)@[1-9]\d*")  #: The form of a metric.

Fields = Mapping[str, Any]  #: The fields of a row.


@dataclass(frozen=True, slots=True)
class GoldCorrection:
    """A correction of one gold answer: a ``[[note]]`` in the benchmark's TOML file."""

    reason: str  #: The error in the source, for reports.
    gold: str = ""  #: The correct gold; empty to keep the gold of the source.
    alternative_golds: Sequence[str] = ()  #: Other answers that are correct too.
    tolerance: float | None = None  #: Relative error that the source allows for this gold.


@dataclass(frozen=True, slots=True)
class Task(TaskDescription):
    """A benchmark with its source; the keys of its TOML file are the names of these fields."""

    digest: str = ""  #: ``problems_digest`` with the golds of the source; empty if unknown.
    #: Formats of its rows, tried in this order. Empty for the fields ``question`` and ``answer``,
    #: with the checks of rows without a TOML file.
    formats: Sequence[ProblemFormat] = ()
    order: int = 1000  #: Position in lists; tasks are sorted by this number.
    suites: Sequence[str] = ()  #: Suites that contain the benchmark.
    licence: str = ""  #: Licence of the problems.
    source: str = ""  #: Address of a publication of the problems, by their authors or of a copy.
    #: File of a user's own benchmark; None if the rows come from a data directory or the Hub.
    data: Path | None = None
    #: How to read the rows of ``data`` if it alone defines the benchmark, without TOML.
    plain_rows: RowReading | None = None
    #: Paths in a data directory, in addition to the default ones.
    files: Sequence[str] = ()
    #: Dataset on the Hub; None if no repository with these rows is known.
    hub: HubDataset | None = None
    hub_split: str = "test"  #: Split of the Hub dataset.
    hub_task: str = "default"  #: Id of the task in the ``eval.yaml`` of the Hub dataset.
    fetch: PublicFile | None = None  #: File in a public repository, for benchmarks not on the Hub.
    #: Hook that changes a row before its format is found; None excludes the row.
    row: Callable[[Fields], Fields | None] = dict
    read: Callable[[Path], Iterator[SourceRow]] = read_records  #: Hook that reads a file.
    make: Callable[[], list[Problem]] | None = None  #: Hook that generates the problems.
    #: Texts that some copies add to the question; they are removed.
    remove_text: Sequence[str] = ()
    hint: str = ""  #: Text after every question, such as the required form of the answer.
    missing_golds: int = 0  #: Number of problems without a gold; the score excludes them.
    #: Corrections of golds, by problem id.
    notes: Mapping[str, GoldCorrection] = field(default_factory=dict)
    defects: Sequence[str] = ()  #: Other known defects of public copies.
    #: Field with the base problem; problems with the same value are one cluster in statistics.
    cluster: str = ""
    #: Groups of problems in reports: the possible field names, by name of the group.
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def has_own_problems(self) -> bool:
        """Whether the problems do not come from a data directory: a file of its own, or a hook."""
        return self.data is not None or self.make is not None

    def format_question(self, text: str) -> str:
        """Return the question without ``remove_text``, and with the hint."""
        for unwanted in self.remove_text:
            text = text.replace(unwanted, "")
        return text.strip() + (f"\n{self.hint}" if self.hint else "")

    def problem_groups(self, metadata: Fields) -> dict[str, str]:
        """Return the value of each group, from the metadata of a problem."""
        values: dict[str, str] = {}
        for group, names in self.groups.items():
            value = next((metadata[name] for name in names if name in metadata), None)
            if value is not None:
                values[group] = str(value).removeprefix("Level ")
        return values


_HOOK_NAMES = ("row", "read", "make")  #: Functions that a hook file may define.


def read_task(file: Path) -> Task:
    """Read a benchmark's TOML file.

    The key ``hook`` names a Python file in the same folder, which may define ``row``, ``read`` and
    ``make``.

    Raises:
        InputError: if the file is not a valid benchmark.
    """
    try:
        entries = read_toml_file(file)
        hooks = _load_hooks(file.parent / entries.pop("hook")) if "hook" in entries else {}
        return _parse_task(entries, hooks, file)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"{file} is not a benchmark: {reason}. Compare it with those in {BUILTIN_TASKS}."
        ) from None


def _parse_task(entries: dict[str, Any], hooks: Mapping[str, Any], file: Path) -> Task:
    """Return the benchmark with the entries of a TOML file."""
    own_names = {*_HOOK_NAMES, "notes", "plain_rows"}
    known_keys = {task_field.name for task_field in fields(Task)} - own_names
    known_keys.add("note")
    for key in entries.keys() - known_keys:
        raise ValueError(f"no key {key!r}.{suggest_names(key, known_keys)}".rstrip("."))
    notes = {note.pop("id"): _make(GoldCorrection, note) for note in entries.pop("note", ())}
    missing_golds = entries.get("missing_golds", 0)
    format_entries = entries.pop("formats", ())
    for entry in format_entries:
        check_types(make_format, entry)
    formats = tuple(make_format(missing_golds=missing_golds, **entry) for entry in format_entries)
    if "hub" in entries:
        entries["hub"] = _make(HubDataset, entries["hub"])
    if "fetch" in entries:
        entries["fetch"] = _make(PublicFile, entries["fetch"])
    if "data" in entries:
        entries["data"] = file.parent / entries["data"]
    check_types(Task, entries)
    if not METRIC_PATTERN.fullmatch(entries.get("metric", "greedy")):
        raise ValueError(f"metric {entries['metric']!r}: expected greedy, avg@K or maj@K")
    name = entries.setdefault("name", file.stem)
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"name {name!r}: expected letters, digits, dots, hyphens, underscores")
    entries.setdefault("title", name)
    return Task(formats=formats, notes=notes, **entries, **hooks)


def _make(record_class: type[RecordT], values: dict[str, Any]) -> RecordT:
    """Return a record with the values of a TOML table, whose types are checked."""
    check_types(record_class, values)
    return record_class(**values)


def _load_hooks(file: Path) -> dict[str, Any]:
    """Return the hooks that a Python file defines, by name; imported names are not hooks."""
    variables = run_path(str(file))
    module_name = variables["__name__"]
    return {
        name: variables[name]
        for name in _HOOK_NAMES
        if getattr(variables.get(name), "__module__", "") == module_name
    }


def normalize_number(value: Any) -> str:
    """Return a numeric gold in one spelling: ``27.0`` becomes ``27``, ``025`` becomes ``25``."""
    text = gold_text(value)
    try:
        return str(int(text))
    except ValueError:
        pass  # not an integer
    try:
        number = float(text)
    except ValueError:
        raise UnusableRowError(f"the answer {text!r} is not a number") from None
    if abs(number) >= 1:
        return gold_text(round(number, GOLD_DECIMALS))
    return gold_text(float(f"{number:.{GOLD_DECIMALS - 1}e}"))  # 1.6e-19 has no 10 decimal places


def _is_missing(value: Any) -> bool:
    """Return whether a field has no gold: nothing, or a word such as N/A."""
    if isinstance(value, str):
        return not value.strip() or means_no_gold(value)
    return value in (None, [])


#: Functions from a field of a row to the gold, by the value of ``gold`` in a format.
GOLD_PARSERS: Mapping[str, Callable[[Any], str]] = {
    "auto": read_gold,
    "as-given": gold_text,
    "extract": partial(read_gold, reading="extract"),
    "boxed": parse_boxed_gold,
    "hashes": parse_gsm8k_gold,
    # A problem without a gold stays in the benchmark, but the score excludes it. The number 0 is a
    # gold.
    "maybe": lambda value: "" if _is_missing(value) else read_gold(value),
    "number": normalize_number,
}


def make_format(
    question: Sequence[str], answer: str, gold: str = "", *, missing_golds: int = 0
) -> ProblemFormat:
    """Return the format of an entry of ``formats``.

    Args:
        question: Fields with the parts of the question.
        answer: Field with the gold answer.
        gold: Name of the gold parser; by default ``auto``, or ``maybe`` with missing golds.
        missing_golds: Number of problems of the benchmark without a gold.
    """
    parser = gold or ("maybe" if missing_golds else "auto")
    if parser not in GOLD_PARSERS:
        raise ValueError(f"gold {parser!r}: expected one of {', '.join(GOLD_PARSERS)}")
    description = " + ".join((*question, answer))
    if parser == "boxed":
        description += " with a \\boxed answer"
    return ProblemFormat(
        question=tuple(question),
        answer=answer,
        parse_gold=GOLD_PARSERS[parser],
        description=description,
    )


@cache
def default_format(missing_golds: int) -> ProblemFormat:
    """Return the format of the rows of a benchmark without ``formats``."""
    return make_format(["question"], "answer", missing_golds=missing_golds)


@cache
def builtin_tasks() -> Mapping[str, Task]:
    """Return the built-in benchmarks by name, sorted by ``order``."""
    tasks = sorted(map(read_task, BUILTIN_TASKS.glob("*.toml")), key=lambda task: task.order)
    return {task.name: task for task in tasks}


def _read_plugin_task(location: Any) -> Task:
    """Return the benchmark of an entry point: a path of a TOML file, or a function with one."""
    return read_task(Path(location() if callable(location) else location))


#: Benchmarks of plug-ins. An entry point is the path of a TOML file, or a function that returns it;
#: its name is the name of the benchmark.
PLUGIN_TASKS: Registry[Task] = Registry(
    "benchmark", Task, group="fsdpo.benchmarks", convert=_read_plugin_task
)


def all_tasks() -> Mapping[str, Task]:
    """Return the built-in benchmarks, followed by the benchmarks of plug-ins, by name.

    Raises:
        InputError: if a plug-in cannot be imported.
    """
    return {**builtin_tasks(), **PLUGIN_TASKS}


def _importable_tasks() -> list[Task]:
    """Return the benchmarks, except for broken plug-ins."""
    return [*builtin_tasks().values(), *PLUGIN_TASKS.importable_entries()]


def is_listed(name: str, digest: str) -> bool:
    """Return whether a listed benchmark has these problems, and not only a file with its name.

    A benchmark without a known digest is known by its name alone.

    Args:
        name: Name of the benchmark.
        digest: Digest of its complete problems.
    """
    return any(task.name == name and task.digest in ("", digest) for task in _importable_tasks())


def suites() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the benchmarks of each suite; a broken plug-in is in no suite."""
    tasks = _importable_tasks()
    names = dict.fromkeys(suite for task in tasks for suite in task.suites)
    return {name: tuple(task.name for task in tasks if name in task.suites) for name in names}


def get_task(name: str) -> Task:
    """Return a benchmark by its name, or from a TOML file or a file of rows.

    Names match without case, hyphens and underscores: ``GSM-IC2`` is ``gsm_ic2``.

    Raises:
        InputError: if there is no such benchmark; the message lists similar names.
    """
    file = Path(name)
    if file.suffix == ".toml":
        return read_task(file)
    if suffix := data_suffix(file):
        name = file.name[: -len(suffix)]
        return Task(name=name, title=name, data=file, plain_rows=RowReading())
    for tasks in (builtin_tasks(), PLUGIN_TASKS):
        for task_name in tasks:
            if is_same_name(name, task_name):
                return tasks[task_name]
    raise _unknown_task_error("task", name, [*builtin_tasks(), *PLUGIN_TASKS])


def is_same_name(name: str, other_name: str) -> bool:
    """Return whether two names differ only in case, hyphens and underscores."""
    return _simplify_name(name) == _simplify_name(other_name)


def _simplify_name(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def select_tasks(suite: str | None, names: Sequence[str] = ()) -> list[Task]:
    """Return the tasks of a suite, followed by the tasks with these names.

    Raises:
        InputError: if there is neither a suite nor a name, one of them is unknown, or two
            benchmarks have the same name.
    """
    if suite is None and not names:
        raise InputError(
            "no benchmark is named. Set `task` or `suite`, such as `suite=smoke`, which needs no "
            "download, or `suite=all`, the nine benchmarks of Full-Step-DPO. `fsdpo-bench tasks` "
            "lists all of them."
        )
    if suite is not None and suite not in suites():
        raise _unknown_task_error("suite", suite, suites())
    suite_names = suites()[suite] if suite else ()
    tasks = [get_task(name) for name in suite_names]
    tasks += [get_task(name) for name in dict.fromkeys(names)]
    tasks_by_name: dict[str, Task] = {}
    for task in tasks:
        if tasks_by_name.setdefault(task.name, task) != task:
            raise InputError(
                f"two benchmarks are named {task.name!r}. Results are by name, so rename a file, "
                "or give a benchmark a `name` in a TOML file.",
                field="task",
                value=list(names),
            )
    return list(tasks_by_name.values())


def _unknown_task_error(field_name: str, name: str, known_names: Iterable[str]) -> InputError:
    """Return the error for an unknown task or suite; it lists the known and the similar names."""
    names = list(known_names)
    return InputError(
        f"expected one of {', '.join(names)}.{suggest_names(name.lower(), names)} "
        "`fsdpo-bench tasks` lists all of them.",
        field=field_name,
        value=name,
    )
