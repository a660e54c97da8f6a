"""Benchmarks of a file with recorded responses."""

from dataclasses import replace

from fsdpo_bench.tasks.load import LoadedTask
from fsdpo_bench.tasks.table import Task
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import SourceRef
from fsdpo_data.exchange.response_file import ResponseFile
from fsdpo_data.exchange.response_formats import question_key
from fsdpo_data.problems.load import problems_digest


def recorded_task(response_file: ResponseFile) -> LoadedTask:
    """Return the questions and golds of a file of responses as a benchmark."""
    file = response_file.file
    name = file.stem
    problems = [
        Problem(
            question=responses[0].question,
            answer=responses[0].gold,
            source=name,
            split="test",
        )
        for responses in response_file.responses.values()
    ]
    ids = [problem.id for problem in problems]
    return LoadedTask(
        task=Task(name=name, title=name, count=len(problems)),
        problems=problems,
        ids=ids,
        ref=SourceRef(file.name, response_file.model.revision, "test"),
        digest=problems_digest(ids),
    )


def restrict_to_responses(loaded_task: LoadedTask, response_file: ResponseFile) -> LoadedTask:
    """Return the problems of a benchmark that have responses in a file.

    The golds come from the benchmark.

    Raises:
        InputError: if no problem has a response.
    """
    file = response_file.file
    indices = [
        index
        for index, problem in enumerate(loaded_task.problems)
        if question_key(problem.question) in response_file.responses
    ]
    if not indices:
        raise InputError(
            f"{file} has no response to any problem of {loaded_task.task.title}. Remove "
            "`task` to grade the responses with the golds in the file."
        )
    warnings = [*loaded_task.warnings]
    if len(indices) < len(loaded_task.problems):
        warnings.append(
            f"{file.name} has responses to {len(indices):,} of the "
            f"{len(loaded_task.problems):,} problems of {loaded_task.task.title}; the run "
            "excludes the other problems"
        )
    return replace(loaded_task.subset(indices), warnings=warnings)
