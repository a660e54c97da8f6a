"""Load a benchmark from local files or from the Hub, and hold it against what is known of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from fsdpo_bench.tasks.fetch import fetch_file
from fsdpo_bench.tasks.table import RESERVED_METADATA, Fields, Task
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import SourceRef, file_sha256
from fsdpo_data.core.row_files import DATA_SUFFIXES, SourceRow, data_files
from fsdpo_data.hub.client import HubRepo
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION
from fsdpo_data.problems.hub_datasets import HubSource, load_hub
from fsdpo_data.problems.load import problems_digest
from fsdpo_data.problems.row_formats import UnusableRowError


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A benchmark in memory."""

    task: Task
    problems: list[Problem]  #: In the source's order; ASDiv asks one question twice: ids repeat.
    ids: list[str]  #: Their ids with the golds as the source has them: the keys of ``Task.notes``.
    ref: SourceRef
    digest: str
    warnings: list[str] = field(default_factory=list)  #: What a reader of the results should know.

    def part(self, places: Iterable[int]) -> Self:
        """Return the problems at some places of it."""
        pairs = [(self.problems[place], self.ids[place]) for place in places]
        return replace(self, problems=[each for each, _ in pairs], ids=[key for _, key in pairs])


def load_task(task: Task, data: Path | None = None) -> LoadedTask:
    """Load all problems of a benchmark.

    ``data`` is its file, or a directory with a folder or file for each benchmark. Without it, the
    benchmark's own file of rows, the Hub or a public repository has them.

    Raises:
        InputError: if it is not there, or has more or fewer rows than it should.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    data = task.data or data
    if data is None and task.fetch is not None:
        data = fetch_file(task.name, task.fetch)
    if task.make is not None:
        ref, problems = SourceRef(task.name, str(EMBEDDED_VERSION), "test"), task.make()
    elif data is not None:
        file = find_file(task, data)
        ref = SourceRef(f"{task.name}/{file.name}", f"sha256:{file_sha256(file)}", "test")
        problems = read_problems(task, task.read(file), ref.name)
    else:
        ref, records = _from_hub(task)
        problems = read_problems(task, records, ref.name)
    if not problems:
        raise InputError(f"{ref.name}: no problem in it. Expected the rows of {task.title}.")
    if task.count not in (None, len(problems)):
        raise InputError(
            f"{ref.name}: {len(problems)} problems, expected the {task.count} of {task.title}. "
            "Give the whole benchmark; `limit` takes a part of it."
        )
    ids = [problem.id for problem in problems]
    digest = problems_digest(ids)
    warnings = []
    if task.digest not in ("", digest):
        warnings.append(
            f"{task.title} from {ref.name}: texts or golds differ from the known ones somewhere "
            f"(digest {digest}, expected {task.digest}); numbers may not compare."
        )
    noted = [_with_note(task, problem) for problem in problems]
    return LoadedTask(replace(task, count=len(problems)), noted, ids, ref, digest, warnings)


def read_problems(task: Task, records: Iterable[SourceRow], where: str) -> list[Problem]:
    """Read the rows of a benchmark, in any of its forms.

    Raises:
        InputError: at the first row that is no problem: a benchmark is whole or not at all.
    """
    problems = []
    for record in records:
        try:
            if record.error:
                raise UnusableRowError(record.error)
            fields = task.row(record.fields)
            if fields is not None:
                problems.append(_read(task, fields))
        except UnusableRowError as reason:
            own = 'Other columns: a TOML file with form = [{ question = ["q"], answer = "a" }].'
            told = own if task.data else f"Expected the rows of {task.title}."
            raise InputError(f"{where}, row {record.row_number}: {reason}. {told}") from None
    return problems


def _read(task: Task, fields: Fields) -> Problem:
    form = next((form for form in task.formats if form.matches(fields)), None)
    if form is None:
        expected = "; or ".join(form.description for form in task.formats)
        raise UnusableRowError(f"fields {', '.join(fields)}, expected {expected}")
    # What counts besides is said by the benchmark, and not by a field that has such a name.
    rest = {
        key: value
        for key, value in fields.items()
        if key not in (*form.question, *RESERVED_METADATA)
    }
    if task.cluster:
        if fields.get(task.cluster) is None:
            raise UnusableRowError(f"no {task.cluster}, which problems on one base problem share")
        rest["cluster"] = fields[task.cluster]
    question, gold = task.question(form.question_text(fields)), form.parse_gold(fields[form.answer])
    return Problem(question, gold.strip(), task.name, "test", rest)


def _with_note(task: Task, problem: Problem) -> Problem:
    note = task.notes.get(problem.id)
    if note is None:
        return problem
    metadata = {
        **problem.metadata,
        "alternative_golds": list(note.alternative_golds),
        "gold_note": note.reason,
    }
    if note.tolerance is not None:
        metadata["gold_tolerance"] = note.tolerance
    return replace(problem, answer=note.gold or problem.answer, metadata=metadata)


def find_file(task: Task, data: Path) -> Path:
    """Return the benchmark's file in ``data``: that file itself, or in a folder of its name.

    Raises:
        InputError: if there is none.
    """
    folder, beside = data / task.name, [data / f"{task.name}{suffix}" for suffix in DATA_SUFFIXES]
    if folder.is_dir() and not any((data / file).is_file() for file in task.files):
        files = data_files(str(folder), "test")
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3])
            raise InputError(f"{folder} holds several files ({names}): give one of them.")
        return files[0]
    for file in (data, *(data / file for file in task.files), *beside):
        if file.is_file():
            return file
    if data.suffix in DATA_SUFFIXES:
        data_files(str(data), "test")  # says what is there instead
    without = " Leave it out to download it." if task.hub or task.fetch else ""
    raise InputError(
        f"it holds no {task.title}: expected {folder}/test.jsonl or {beside[0].name}.{without}",
        field="data",
        value=str(data),
    )


def _from_hub(task: Task) -> tuple[SourceRef, list[SourceRow]]:
    if task.hub is None:
        raise InputError(
            f"no repository on the Hub is known to hold {task.title} as it is scored here. "
            f"Give its file, or a directory with it; {task.source} has it.",
            field="data",
        )
    way_out = "give local files as `data`, or use the task `embedded`, which needs no network"
    repo = HubRepo(task.hub.repo, "dataset", advice=way_out)
    configs = task.hub.configs or (None,)
    commit, parts = load_hub(HubSource("", repo, configs, task.hub), task.hub_split)
    records = [record for _, part in parts for record in part]
    return SourceRef(task.hub.repo, commit, task.hub_split), records
