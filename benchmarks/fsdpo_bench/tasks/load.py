"""Load a benchmark from local files, the Hub or a public repository, and check its digest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from fsdpo_bench.tasks.fetch import fetch_file
from fsdpo_bench.tasks.table import (
    GRADING_METADATA,
    RESERVED_METADATA,
    Fields,
    Task,
    default_format,
)
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.identity import SourceRef, file_sha256
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import DATA_SUFFIXES, SourceRow, data_files, data_suffix
from fsdpo_data.hub.client import HubRepo
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION
from fsdpo_data.problems.golds import describe_solutions
from fsdpo_data.problems.hub_datasets import HubSource, load_hub
from fsdpo_data.problems.load import describe_conflicts, problems_digest
from fsdpo_data.problems.row_formats import (
    RowReading,
    find_gold_field,
    read_problem,
    refuse_solution_row,
    refuse_unread_parts,
    refuse_words_without_gold,
)


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A benchmark in memory."""

    task: Task  #: The benchmark, with the number of loaded problems as its ``count``.
    #: The problems in the order of the source, with corrected golds.
    problems: list[Problem]
    #: Ids of the problems with the golds of the source: the keys of ``Task.notes``. An id can occur
    #: twice, because ASDiv contains one question twice.
    ids: list[str]
    ref: SourceRef  #: The source, with its commit or digest.
    rows: Sequence[int]  #: Index of each problem in the complete benchmark.
    digest: str  #: ``problems_digest`` of the ids of the complete benchmark.
    warnings: list[str] = field(default_factory=list)  #: Remarks for readers of the results.

    def subset(self, indices: Iterable[int]) -> Self:
        """Return the benchmark with only the problems at these indices."""
        selected = list(indices)
        return replace(
            self,
            problems=[self.problems[index] for index in selected],
            ids=[self.ids[index] for index in selected],
            rows=[self.rows[index] for index in selected],
        )


def load_task(task: Task, data: Path | None = None) -> LoadedTask:
    """Load all problems of a benchmark.

    Args:
        task: The benchmark.
        data: Its file, or a directory with a folder or a file for each benchmark. Without ``data``,
            the problems come from the benchmark's own file, a public repository or the Hub.

    Raises:
        InputError: if the problems are missing, or their number is wrong.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    data = task.data or data
    records: list[SourceRow] = []
    if data is None and task.fetch is not None:
        data = fetch_file(task.name, task.fetch)
    if task.make is not None:
        ref = SourceRef(task.name, str(EMBEDDED_VERSION), "test")
        problems = task.make()
    elif data is not None:
        file = find_file(task, data)
        # The name of a task tells apart files such as test.jsonl. A file of rows names its task.
        name = file.name if task.plain_rows is not None else f"{task.name}/{file.name}"
        ref = SourceRef(name, f"sha256:{file_sha256(file)}", "test")
        records = list(task.read(file))
        problems = read_problems(task, records, ref.name)
    else:
        ref, records = _read_from_hub(task)
        problems = read_problems(task, records, ref.name)
    if not problems:
        raise InputError(f"{ref.name}: no problems found. Expected the rows of {task.title}.")
    if task.count not in (None, len(problems)):
        raise InputError(
            f"{ref.name}: {len(problems)} problems, expected the {task.count} of {task.title}. "
            "Give the complete benchmark; `limit` selects a part of it."
        )
    if task.plain_rows is not None:
        _check_named_groups(task, problems, ref.name)
    ids = [problem.id for problem in problems]
    digest = problems_digest(ids)
    return LoadedTask(
        task=replace(task, count=len(problems)),
        problems=[_with_gold_rules(task, problem) for problem in problems],
        ids=ids,
        ref=ref,
        rows=range(len(ids)),
        digest=digest,
        warnings=[
            *_describe_ignored_fields(task, records),
            *_describe_problems(task, problems, digest, ref.name),
        ],
    )


def _describe_problems(
    task: Task, problems: Sequence[Problem], digest: str, location: str
) -> list[str]:
    """Return warnings about the problems of a benchmark.

    Args:
        task: The benchmark.
        problems: Its problems, with the golds of the source.
        digest: Their digest.
        location: Name of the source.
    """
    warnings = []
    if task.digest not in ("", digest):
        warnings.append(
            f"{task.title} from {location}: some questions or golds differ from the known ones "
            f"(digest {digest}, expected {task.digest}); numbers may not be comparable."
        )
    known_ids = {problem.id for problem in problems}
    if unused_notes := [note_id for note_id in task.notes if note_id not in known_ids]:
        warnings.append(
            f"{task.title}: no problem has the id of these notes, which change no gold: "
            f"{', '.join(unused_notes)}. Ids include the hint and the gold of the source."
        )
    if solutions := describe_solutions([problem.answer for problem in problems]):
        warnings.append(f"{task.title}: {solutions}")
    n_empty = [problem.answer for problem in problems].count("")
    if task.missing_golds not in (0, n_empty):
        warnings.append(
            f"{task.title}: {n_empty:,} problems have no gold answer, and `missing_golds` is "
            f"{task.missing_golds:,}."
        )
    # A known benchmark has the questions that its authors chose.
    if not task.digest and (conflicts := describe_conflicts(problems)):
        warnings.append(f"{task.title}: {conflicts}")
    return warnings


def _describe_ignored_fields(task: Task, records: Iterable[SourceRow]) -> list[str]:
    """Name the fields that grade a problem only without a TOML file."""
    if task.plain_rows is not None:
        return []
    names = {
        name
        for record in records
        for name in GRADING_METADATA
        if record.fields.get(name) not in (None, [])
    }
    return [
        f"{task.title}: the field `{name}` has no effect in a benchmark with a TOML file. Write it "
        "as a `[[note]]`, or as the `tolerance` of the benchmark."
        for name in sorted(names)
    ]


def _check_named_groups(task: Task, problems: Sequence[Problem], location: str) -> None:
    """Raise an InputError if no row has a field that an option such as ``level_field`` names."""
    names = list(dict.fromkeys(name for problem in problems for name in problem.metadata))
    for group, fields in task.groups.items():
        for field_name in fields:
            if field_name not in names:
                raise InputError(
                    f"no row of {location} has this field next to question and gold; the others "
                    f"are {', '.join(names) or 'none'}.{suggest_names(field_name, names)}",
                    field=f"{group}_field",
                    value=field_name,
                )


def read_problems(task: Task, records: Iterable[SourceRow], location: str) -> list[Problem]:
    """Parse the rows of a benchmark, in any of its formats.

    Args:
        task: The benchmark.
        records: The rows.
        location: Name of the source, for error messages.

    Raises:
        InputError: at the first unusable row, because a benchmark must be complete.
    """
    problems = []
    for record in records:
        try:
            if task.plain_rows is not None:
                problems.append(_read_plain_problem(task, record, task.plain_rows))
                continue
            if record.error:
                raise UnusableRowError(record.error)
            fields = task.row(record.fields)
            if fields is not None:
                problems.append(_parse_problem(task, fields))
        except UnusableRowError as reason:
            if task.data:
                advice = (
                    "Name other columns with `question_field` and `gold_field`, or in a TOML file "
                    'with formats = [{ question = ["q"], answer = "a" }].'
                )
            else:
                advice = f"Expected the rows of {task.title}."
            raise InputError(f"{location}, row {record.row_number}: {reason}. {advice}") from None
    return problems


def _read_plain_problem(task: Task, record: SourceRow, reading: RowReading) -> Problem:
    """Return the problem of a row of a benchmark without a TOML file."""
    problem = read_problem(record, task.name, "test", reading)
    # Without a TOML file, no field is known to hold the base problem.
    metadata = {name: value for name, value in problem.metadata.items() if name != "cluster"}
    return replace(problem, answer=problem.answer.strip(), metadata=metadata)


def _parse_problem(task: Task, fields: Fields) -> Problem:
    """Return the problem of a row; the first matching format applies."""
    formats = task.formats or (default_format(task.missing_golds),)
    row_format = next((item for item in formats if item.matches(fields)), None)
    if row_format is None:
        expected = "; or ".join(item.description for item in formats)
        raise UnusableRowError(f"fields {', '.join(fields)}, expected {expected}")
    # The benchmark sets reserved metadata; a field of the row with such a name has no effect.
    excluded_names = (*row_format.question, *RESERVED_METADATA)
    metadata = {name: value for name, value in fields.items() if name not in excluded_names}
    if task.cluster:
        if fields.get(task.cluster) is None:
            raise UnusableRowError(
                f"no {task.cluster}, the field that problems with one base problem share"
            )
        metadata["cluster"] = fields[task.cluster]
    question = task.format_question(row_format.question_text(fields))
    if task.formats:
        gold = row_format.gold_answer(fields, row_format.answer)
    else:
        refuse_solution_row(fields)
        refuse_unread_parts(fields)
        gold = row_format.gold_answer(fields, find_gold_field(fields, row_format))
        if gold:  # a benchmark may have problems without one
            refuse_words_without_gold(gold)
    return Problem(
        question=question,
        answer=gold.strip(),
        source=task.name,
        split="test",
        metadata=metadata,
    )


def _with_gold_rules(task: Task, problem: Problem) -> Problem:
    """Return a problem with the benchmark's tolerance and its note on the problem, if any."""
    metadata = dict(problem.metadata)
    if task.tolerance is not None:
        metadata.setdefault("gold_tolerance", task.tolerance)
    note = task.notes.get(problem.id)
    if note is None:
        return replace(problem, metadata=metadata)
    if note.alternative_golds:
        metadata["alternative_golds"] = list(note.alternative_golds)
    metadata["gold_note"] = note.reason
    if note.tolerance is not None:
        metadata["gold_tolerance"] = note.tolerance
    return replace(problem, answer=note.gold or problem.answer, metadata=metadata)


def find_file(task: Task, data: Path) -> Path:
    """Return the benchmark's file: ``data`` itself, or a file in the directory ``data``.

    Raises:
        InputError: if there is no such file, or several.
    """
    folder = data / task.name
    default_files = [data / f"{task.name}{suffix}" for suffix in DATA_SUFFIXES]
    task_files = [data / file for file in task.files]
    if folder.is_dir() and not any(file.is_file() for file in task_files):
        files = data_files(str(folder), "test")
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3])
            raise InputError(f"{folder} contains several files ({names}). Give one of them.")
        return files[0]
    for file in (data, *task_files, *default_files):
        if file.is_file():
            return file
    if data_suffix(data):
        data_files(str(data), "test")  # raises an error that describes the missing file
    download = " Remove `data` to download the benchmark." if task.hub or task.fetch else ""
    raise InputError(
        f"the directory contains no {task.title}: expected {folder}/test.jsonl or "
        f"{default_files[0].name}.{download}",
        field="data",
        value=str(data),
    )


def _read_from_hub(task: Task) -> tuple[SourceRef, list[SourceRow]]:
    """Download the rows of a benchmark, and return them with their source."""
    if task.hub is None:
        raise InputError(
            f"missing: no Hub repository is known for {task.title} as it is scored here. Give "
            f"its file, or a directory that contains it; the problems are at {task.source}.",
            field="data",
        )
    advice = "give local files as `data`, or use the task `embedded`, which needs no network"
    repo = HubRepo(task.hub.repo, "dataset", custom_advice=advice)
    configs = task.hub.configs or (None,)
    source = HubSource(short_name="", repo=repo, configs=configs, expected=task.hub)
    commit, config_rows = load_hub(source, task.hub_split)
    records = [row for config in config_rows for row in config.rows]
    return SourceRef(task.hub.repo, commit, task.hub_split), records
