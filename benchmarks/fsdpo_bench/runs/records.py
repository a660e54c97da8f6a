"""The records of a run: one JSON line per problem, with all solutions, verdicts and costs.

The models below check each record and config when it is read. The values stay as they are in the
file.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fsdpo_bench.tasks.table import builtin_tasks
from fsdpo_data.core.entities import Outcome
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.jsonl_log import JsonlLog, LineSpan, read_spans, scan_lines
from fsdpo_data.dataset.manifest_sections import (
    ArtifactRef,
    EngineRef,
    SamplingSection,
    TemplateRef,
)
from fsdpo_data.dataset.run import CONFIG_FILE

RECORDS_FOLDER = "records"  #: Folder in a run directory, with one file per benchmark.

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Model(BaseModel):
    """Base class of models without type conversion."""

    model_config = ConfigDict(strict=True)


class _AnswerRecord(_Model):
    """An answer with its verdict."""

    answer: str | None  #: The extracted answer; None if the response has no answer.
    correct: bool | None  #: Whether the answer is correct; None if the gold is unreadable.
    status: Outcome  #: Outcome of the grading.
    rule: str  #: Rule of the grader that decided the verdict.


class _SolutionRecord(_AnswerRecord):
    """A solution with its verdict, its step rewards and its cost."""

    text: str  #: The complete text.
    steps: list[str]  #: The steps; joined they are the text.
    finish_reason: str  #: ``stop`` or ``length``.
    n_tokens: Count | None  #: Number of generated tokens; None if unknown.
    seconds: Seconds  #: Part of the sampler's wall-clock time.
    scoring_seconds: Seconds = 0.0  #: Part of the scorer's wall-clock time.
    #: One reward per step. Rewards of some published PRM formats are not in [0, 1].
    rewards: list[Annotated[float, Field(allow_inf_nan=False)]] | None

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        if self.rewards and len(self.rewards) != len(self.steps):
            raise ValueError(f"{len(self.rewards)} rewards of {len(self.steps)} steps")
        return self


class _DecodedRecord(_AnswerRecord):
    """The answer of a decoder: one of the samples, or a solution of its own."""

    sample: Count | None = None  #: Index of the chosen sample.
    solution: _SolutionRecord | None = None  #: The decoder's own solution.

    @model_validator(mode="after")
    def _check_sample_or_solution(self) -> Self:
        if (self.sample is None) == (self.solution is None):
            raise ValueError("expected a sample or a solution")
        return self


class _CostRecord(_Model):
    """The cost of one decoder on one problem."""

    tokens: Count | None  #: Number of generated tokens; None if unknown.
    prm_calls: Count  #: Number of solutions and prefixes that the reward model scored.
    seconds: Seconds  #: Time of the sampler and the scorer.


class _Metadata(_Model):
    """The metadata of a problem that grading uses; groups may have any value."""

    alternative_golds: list[str] = []  #: Further gold answers that count as correct.
    gold_tolerance: float | None = None  #: Relative error that the source allows for this gold.


class _Record(_Model):
    """Everything that a run stores about one problem."""

    task: str  #: Name of the benchmark.
    row: Count  #: Index of the problem in the benchmark.
    problem_id: str  #: Id of the problem, with the gold of the source.
    question: str  #: The question.
    gold: str  #: The gold answer; empty if missing.
    metadata: _Metadata  #: Groups, cluster and settings of the grading.
    prompt: str  #: The rendered prompt.
    samples: list[_SolutionRecord]  #: The samples that several decoders share.
    decoded: dict[str, _DecodedRecord]  #: The answer of each decoder, by result name.
    cost: dict[str, _CostRecord]  #: The cost of each decoder, by result name.


class _Source(ArtifactRef):
    """The source of a benchmark's problems."""

    split: str  #: Split of the source.


class _TaskConfig(_Model):
    """A benchmark of a run."""

    title: str  #: Name in reports.
    problems: Count  #: Number of decoded problems.
    rows: Count | None  #: Number of problems of the complete benchmark.
    digest: str  #: Digest of the complete benchmark.
    tolerance: Annotated[float, Field(ge=0, lt=1)] | None  #: Relative error of numeric answers.
    source: _Source  #: Source of the problems.


class _Beam(_Model):
    """The settings that all beam searches of a run share."""

    first_keep: str  #: Beam size after the first step: ``b1`` or ``b2``.
    aggregate: str  #: Name of the aggregate of step rewards.
    max_steps: Count  #: Maximum number of steps per solution.
    step_tokens: Count  #: Maximum number of tokens per step.


class _Config(_Model):
    """The config of a run: everything that decides its content."""

    kind: Literal["bench"]  #: Marks runs of ``fsdpo-bench``.
    config_digest: str  #: Digest of all other fields.
    model: ArtifactRef  #: The model that wrote the solutions.
    template: TemplateRef  #: The prompt template.
    sampling: SamplingSection  #: The sampling settings.
    engine: EngineRef  #: The engine of the sampler.
    segmenter: str  #: Full name of the segmenter.
    grader: str  #: Version of the grader.
    prm: ArtifactRef | None  #: The process reward model.
    decoders: Annotated[list[str], Field(min_length=1)]  #: Result names, such as ``sc@5``.
    beam: _Beam | None  #: Settings of beam searches.
    #: Benchmarks by name. The names are also file names.
    tasks: dict[Annotated[str, Field(pattern=r"^[^/\x00]+$")], _TaskConfig]


def _validate(model: type[_Model], value: Any, location: str) -> None:
    """Check a JSON value against a model.

    Raises:
        InputError: if the value does not fit; the message names the first wrong field.
    """
    try:
        model.model_validate(value)
    except ValidationError as error:
        first_error = error.errors()[0]
        field_path = ".".join(map(str, first_error["loc"])) or "the value"
        raise InputError(
            f"{location}: {field_path}: {first_error['msg']}. Expected a file that "
            "`fsdpo-bench run` wrote."
        ) from None


def record_key(record: Mapping[str, Any]) -> str:
    """Return the key of a record: the problem's id and row, because an id can occur twice."""
    return f"{record['problem_id']}/{int(record['row'])}"


def own_decoders(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the results with a solution of their own, such as ``greedy``."""
    return [name for name, entry in record["decoded"].items() if entry.get("sample") is None]


def record_file(out: Path, task: str) -> Path:
    """Return the path of the records of a benchmark in a run directory."""
    return out / RECORDS_FOLDER / f"{task}.jsonl"


def open_records(out: Path, task: str) -> AbstractContextManager[JsonlLog]:
    """Open the records of a benchmark for appending."""
    file = record_file(out, task)
    file.parent.mkdir(exist_ok=True)
    return JsonlLog.open(file, record_key)


def read_config(out: Path) -> dict[str, Any]:
    """Read the config of a run, with the benchmarks in the order of the built-in tasks.

    Raises:
        InputError: if ``out`` is not a run of ``fsdpo-bench``.
    """
    try:
        config = json.loads((out / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict) or config.get("kind") != "bench":
        raise InputError(
            f"{out}: expected a directory that `fsdpo-bench run` wrote, with {CONFIG_FILE} and "
            f"{RECORDS_FOLDER}/."
        )
    _validate(_Config, config, str(out / CONFIG_FILE))
    ranks = {name: rank for rank, name in enumerate(builtin_tasks())}
    names = sorted(config["tasks"], key=lambda name: ranks.get(name, len(ranks)))
    return {**config, "tasks": {name: config["tasks"][name] for name in names}}


def select_decoder(out: Path, name: str | None) -> str:
    """Return the decoder with this name, by default the first decoder of the run.

    Raises:
        InputError: if the run has no such decoder.
    """
    decoders: list[str] = read_config(out)["decoders"]
    decoder = name or decoders[0]
    if decoder not in decoders:
        suggestion = suggest_names(decoder, decoders)
        raise InputError(
            f"{out} has the decoders {', '.join(decoders)}.{suggestion}",
            field="decoder",
            value=decoder,
        )
    return decoder


def read_records(out: Path, task: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a run, by benchmark and by row.

    Args:
        out: Directory of the run.
        task: Name of a benchmark; all benchmarks by default.

    Raises:
        InputError: if there is no run or no such benchmark, or a record is damaged.
    """
    tasks = list(read_config(out)["tasks"])
    if task is not None and task not in tasks:
        raise InputError(f"{out} has no records of {task!r}: expected one of {', '.join(tasks)}.")
    for name in [task] if task else tasks:
        path = record_file(out, name)
        spans = _first_spans(path) if path.exists() else {}
        keys = sorted(spans, key=lambda key: int(key.rpartition("/")[2]))
        if not keys:
            continue
        for record in read_spans(path, [spans[key] for key in keys]):
            _validate(_Record, record, f"{path}, problem {record_key(record)}")
            if record["task"] != name:
                raise InputError(f"{path}: a record of {record['task']!r}, expected {name!r}.")
            yield record


def _first_spans(path: Path) -> dict[str, LineSpan]:
    """Return the span of the first line of each record, by key."""
    spans: dict[str, LineSpan] = {}
    start = 0
    for key, length in scan_lines(path, record_key):
        if key is not None:
            spans.setdefault(key, LineSpan(start, length))
        start += length
    return spans
