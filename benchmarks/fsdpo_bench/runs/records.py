"""The records of a run: one line per problem, with everything that was decoded of it.

What is read is checked here, once, against the models below, and stays as it was written.
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

RECORDS = "records"  #: Folder of the records in a run directory, one file per benchmark.

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True)


class _AnswerRecord(_Model):
    """An answer with its verdict; ``correct`` is None where the gold cannot be read."""

    answer: str | None
    correct: bool | None
    status: Outcome
    rule: str


class _SolutionRecord(_AnswerRecord):
    text: str
    steps: list[str]
    finish_reason: str
    n_tokens: Count | None
    seconds: Seconds
    scoring_seconds: Seconds = 0.0
    #: In [0, 1] where they are probabilities; some published reward models say something else.
    rewards: list[Annotated[float, Field(allow_inf_nan=False)]] | None

    @model_validator(mode="after")
    def _one_reward_per_step(self) -> Self:
        if self.rewards and len(self.rewards) != len(self.steps):
            raise ValueError(f"{len(self.rewards)} rewards of {len(self.steps)} steps")
        return self


class _DecodedRecord(_AnswerRecord):
    """What a decoder decided: one of the samples, or a solution of its own."""

    sample: Count | None = None
    solution: _SolutionRecord | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.sample is None) == (self.solution is None):
            raise ValueError("expected a sample or a solution")
        return self


class _CostRecord(_Model):
    tokens: Count | None
    prm_calls: Count
    seconds: Seconds


class _Metadata(_Model):
    """What of a problem's metadata has a meaning here; groups are anything."""

    also: list[str] = []
    gold_tolerance: float | None = None


class _Record(_Model):
    task: str
    row: Count
    problem_id: str
    question: str
    gold: str
    metadata: _Metadata
    prompt: str
    samples: list[_SolutionRecord]
    decoded: dict[str, _DecodedRecord]
    cost: dict[str, _CostRecord]


class _Source(ArtifactRef):
    split: str


class _TaskConfig(_Model):
    title: str
    problems: Count
    rows: Count | None
    digest: str
    tolerance: Annotated[float, Field(ge=0, lt=1)] | None
    source: _Source


class _Beam(_Model):
    first_keep: str
    aggregate: str
    max_steps: Count
    step_tokens: Count


class _Config(_Model):
    """What a run is; tasks by their names, which name files."""

    kind: Literal["bench"]
    config_digest: str
    model: ArtifactRef
    template: TemplateRef
    sampling: SamplingSection
    engine: EngineRef
    segmenter: str
    grader: str
    prm: ArtifactRef | None
    decoders: Annotated[list[str], Field(min_length=1)]
    beam: _Beam | None
    tasks: dict[Annotated[str, Field(pattern=r"^[^/\x00]+$")], _TaskConfig]


def _check(model: type[_Model], value: Any, where: str) -> None:
    try:
        model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise InputError(
            f"{where}: {place}: {first['msg']}. Expected what `fsdpo-bench run` wrote."
        ) from None


def record_key(record: Mapping[str, Any]) -> str:
    """Name a record by its problem and its row: ASDiv asks one question twice."""
    return f"{record['problem_id']}/{int(record['row'])}"


def own_decoders(record: Mapping[str, Any]) -> list[str]:
    """Name the decoders that made solutions of their own of a problem."""
    return [name for name, found in record["decoded"].items() if found.get("sample") is None]


def record_file(out: Path, task: str) -> Path:
    """Return where the records of a benchmark are."""
    return out / RECORDS / f"{task}.jsonl"


def open_records(out: Path, task: str) -> AbstractContextManager[JsonlLog]:
    """Open the records of a benchmark for appending."""
    file = record_file(out, task)
    file.parent.mkdir(exist_ok=True)
    return JsonlLog.open(file, record_key)


def read_config(out: Path) -> dict[str, Any]:
    """Read what a run is; its benchmarks stand in the order of the table.

    Raises:
        InputError: if there is no run of ``fsdpo-bench`` in ``out``.
    """
    try:
        config = json.loads((out / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict) or config.get("kind") != "bench":
        raise InputError(
            f"{out}: expected a directory that `fsdpo-bench run` wrote, with {CONFIG_FILE} and "
            f"{RECORDS}/."
        )
    _check(_Config, config, str(out / CONFIG_FILE))
    ranks = {name: rank for rank, name in enumerate(builtin_tasks())}
    names = sorted(config["tasks"], key=lambda name: ranks.get(name, len(ranks)))
    return {**config, "tasks": {name: config["tasks"][name] for name in names}}


def decoder_of(out: Path, wanted: str | None) -> str:
    """Return a decoder of a run, the first if none is ``wanted``; InputError if it has no such."""
    decoders: list[str] = read_config(out)["decoders"]
    decoder = wanted or decoders[0]
    if decoder not in decoders:
        near = suggest_names(decoder, decoders)
        raise InputError(f"{out} has {', '.join(decoders)}.{near}", field="decoder", value=decoder)
    return decoder


def read_records(out: Path, task: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a run: benchmarks in its order, problems in the order of the source.

    Raises:
        InputError: if there is no run, it has no such benchmark, or a record was changed.
    """
    tasks = list(read_config(out)["tasks"])
    if task is not None and task not in tasks:
        raise InputError(f"{out} has no records of {task!r}: expected one of {', '.join(tasks)}.")
    for name in [task] if task else tasks:
        path, spans, start = record_file(out, name), dict[str, LineSpan](), 0
        for key, length in scan_lines(path, record_key) if path.exists() else ():
            if key is not None:
                spans.setdefault(key, LineSpan(start, length))
            start += length
        keys = sorted(spans, key=lambda key: int(key.rpartition("/")[2]))
        for record in read_spans(path, [spans[key] for key in keys]) if keys else ():
            _check(_Record, record, f"{path}, problem {record_key(record)}")
            if record["task"] != name:
                raise InputError(f"{path}: a record of {record['task']!r}, expected {name!r}.")
            yield record
