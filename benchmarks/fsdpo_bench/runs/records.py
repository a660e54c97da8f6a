"""The files of a run: its config, and its records with one JSON line per problem."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_serializer,
    model_validator,
)

from fsdpo_bench.decode.records import Count, ProblemRecord, record_validator
from fsdpo_bench.tasks.table import builtin_tasks
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.files import open_atomic, store_errors
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.input_files import parse_json, read_json
from fsdpo_data.core.jsonl_log import JsonlLog, LineSpan, encode_line, read_lines, scan_lines
from fsdpo_data.dataset.run import CONFIG_FILE
from fsdpo_data.models.prompts import TemplateRef

RECORDS_FOLDER = "records"  #: Folder in a run directory, with one file per benchmark.


class _Model(BaseModel):
    """Base class of models without type conversion."""

    model_config = ConfigDict(strict=True)


class ArtifactConfig(FileModel):
    """A model or a source with its revision."""

    name: str  #: Repository or file name.
    revision: str  #: Commit or content digest.


class TaskSource(ArtifactConfig):
    """The source of a benchmark's problems."""

    split: str  #: Split of the source.


class SamplingConfig(FileModel):
    """The fields of a :class:`~fsdpo_data.core.sampling.SamplingSpec`, some of them unknown."""

    max_tokens: int | Literal["unknown"]  #: Most tokens of one completion.
    n: int  #: Samples per problem.
    seed: int | Literal["unknown"]  #: Seed of the random sampling.
    stop: list[str]  #: Strings that end a completion.
    temperature: float | Literal["unknown"]  #: Softmax temperature; 0 is greedy decoding.
    top_p: float | Literal["unknown"]  #: Probability mass of nucleus sampling.


class TaskConfig(_Model):
    """A benchmark of a run."""

    title: str  #: Name in reports.
    problems: Count  #: Number of decoded problems.
    rows: Count | None  #: Number of problems of the complete benchmark.
    digest: str  #: Digest of the complete benchmark.
    tolerance: Annotated[float, Field(ge=0, lt=1)] | None  #: Relative error of numeric answers.
    base_task: str = ""  #: Benchmark from which the problems derive; empty for none.
    spread_group: str = ""  #: Group whose parts the reports compare; empty for none.
    source: TaskSource  #: Source of the problems.


class BeamConfig(_Model):
    """The settings that all beam searches of a run share."""

    first_keep: str  #: Beam size after the first step: ``b1`` or ``b2``.
    aggregate: str  #: Name of the aggregate of step rewards.
    max_steps: Count  #: Maximum number of generations per solution.
    step_tokens: Count  #: Maximum number of tokens per generation.


class AnswerJudgeConfig(_Model):
    """The judge of undecided answers; see :class:`~fsdpo_data.engines.answer_judge.AnswerJudge`."""

    model: ArtifactConfig  #: The model.
    #: ``name`` of the format, its ``digest``, and ``prompt_sha256`` of its prompt.
    format: dict[str, str]
    template: TemplateRef  #: The prompt template.
    sampling: SamplingConfig  #: The sampling settings.
    engine: EngineRef  #: The engine.


class RunConfig(_Model):
    """The config of a run: everything that decides its content.

    :meth:`to_json` returns all values of the file, in its order. It has values that no field shows.
    """

    kind: Literal["bench"]  #: Marks runs of ``fsdpo-bench``.
    config_digest: str  #: Digest of the fields that decide the content.
    model: ArtifactConfig  #: The model that wrote the solutions.
    template: TemplateRef  #: The prompt template.
    sampling: SamplingConfig  #: The sampling settings.
    engine: EngineRef  #: The engine of the sampler.
    segmenter: str  #: Full name of the segmenter.
    grader: str  #: Version of the grader.
    prm: ArtifactConfig | None  #: The process reward model.
    answer_judge: AnswerJudgeConfig | None = None  #: The judge of undecided answers.
    decoders: Annotated[list[str], Field(min_length=1)]  #: Result names, such as ``sc@5``.
    beam: BeamConfig | None  #: Settings of beam searches.
    prm_format_evidence: str = ""  #: How the PRM format was recognised; empty without a PRM format.
    #: Benchmarks by name. The names are also file names.
    tasks: dict[Annotated[str, Field(pattern=r"^[^/\x00]+$")], TaskConfig]
    _json: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_json(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the config, and keep the values of the file."""
        config = handler(data)
        if isinstance(data, dict):
            config._json = data
        return config

    @model_serializer
    def to_json(self) -> dict[str, Any]:
        """Return the values of the file."""
        return self._json


def _invalid_file_error(location: str, error: ValidationError) -> InputError:
    """Return the error for a value that does not fit; the message names the first wrong field."""
    first_error = error.errors()[0]
    field_path = ".".join(map(str, first_error["loc"])) or "the value"
    return InputError(
        f"{location}: {field_path}: {first_error['msg']}. Expected a file that "
        "`fsdpo-bench run` wrote."
    )


def record_key(problem_id: str, row: int) -> str:
    """Return the key of a record: the problem's id and row, because an id can occur twice."""
    return f"{problem_id}/{row}"


def _line_key(line: Mapping[str, Any]) -> str:
    """Return the key of the record in a line."""
    return record_key(line["problem_id"], int(line["row"]))


def record_file(out: Path, task: str) -> Path:
    """Return the path of the records of a benchmark in a run directory."""
    return out / RECORDS_FOLDER / f"{task}.jsonl"


def open_records(out: Path, task: str) -> AbstractContextManager[JsonlLog]:
    """Open the records of a benchmark for appending."""
    file = record_file(out, task)
    file.parent.mkdir(exist_ok=True)
    return JsonlLog.open(file, _line_key)


def append_records(log: JsonlLog, records: Iterable[ProblemRecord]) -> None:
    """Append records, and wait until they are on disk.

    Raises:
        StoreError: if the disk is full or missing.
    """
    lines = {record_key(record.problem_id, record.row): record for record in records}
    log.append({key: encode_line(record.to_json()) for key, record in lines.items()})


def replace_records(log: JsonlLog, records: Iterable[ProblemRecord]) -> None:
    """Add or replace records, in the order of their rows.

    Raises:
        StoreError: if the disk is full or missing; the old records stay valid.
    """
    lines = {
        record_key(record.problem_id, record.row): encode_line(record.to_json())
        for record in records
    }
    log.replace(lines, sort_key=_key_row)


def _key_row(key: str) -> int:
    """Return the row in the key of a record."""
    return int(key.rpartition("/")[2])


def write_records(out: Path, task: str, records: Iterable[ProblemRecord]) -> None:
    """Replace the records of a benchmark; the old records stay until all new ones are on disk.

    ``records`` may come from the old file.

    Raises:
        StoreError: if the disk is full or missing.
    """
    file = record_file(out, task)
    with store_errors(file.parent), open_atomic(file) as stream:
        for record in records:
            stream.write(encode_line(record.to_json()))


def read_config(out: Path) -> RunConfig:
    """Read the config of a run, with the benchmarks in the order of the built-in tasks.

    Raises:
        InputError: if ``out`` is not a run of ``fsdpo-bench``.
    """
    try:
        config = read_json(out / CONFIG_FILE)
    except (OSError, InputError):
        config = None
    if not isinstance(config, dict) or config.get("kind") != "bench":
        raise InputError(
            f"{out}: expected a directory that `fsdpo-bench run` wrote, with {CONFIG_FILE} and "
            f"{RECORDS_FOLDER}/."
        )
    if isinstance(config.get("tasks"), dict):
        ranks = {name: rank for rank, name in enumerate(builtin_tasks())}
        names = sorted(config["tasks"], key=lambda name: ranks.get(name, len(ranks)))
        config["tasks"] = {name: config["tasks"][name] for name in names}
    try:
        return RunConfig.model_validate(config)
    except ValidationError as error:
        raise _invalid_file_error(str(out / CONFIG_FILE), error) from None


def select_decoder(out: Path, name: str | None) -> str:
    """Return the decoder with this name, by default the first decoder of the run.

    Raises:
        InputError: if the run has no such decoder.
    """
    decoders = read_config(out).decoders
    decoder = name or decoders[0]
    if decoder not in decoders:
        suggestion = suggest_names(decoder, decoders)
        raise InputError(
            f"{out} has the decoders {', '.join(decoders)}.{suggestion}",
            field="decoder",
            value=decoder,
        )
    return decoder


def read_records(out: Path, task: str | None = None) -> Iterator[ProblemRecord]:
    """Yield the records of a run, by benchmark and by row.

    Args:
        out: Directory of the run.
        task: Name of a benchmark; all benchmarks by default.

    Raises:
        InputError: if there is no run or no such benchmark, or a record is damaged.
    """
    tasks = list(read_config(out).tasks)
    if task is not None and task not in tasks:
        raise InputError(f"{out} has no records of {task!r}: expected one of {', '.join(tasks)}.")
    for name in [task] if task else tasks:
        path = record_file(out, name)
        spans = _first_spans(path) if path.exists() else {}
        keys = sorted(spans, key=_key_row)
        if not keys:
            continue
        for line in read_lines(path, [spans[key] for key in keys]):
            yield parse_record(line, path, task=name)


def parse_record(line: bytes, path: Path, task: str) -> ProblemRecord:
    """Check and return the record in a line of a file.

    Args:
        line: The line.
        path: The file, for error messages.
        task: Name of the benchmark of the file.

    Raises:
        InputError: if the record is damaged, or belongs to another benchmark.
    """
    try:
        record = record_validator().validate_json(line, strict=True)
    except ValidationError as error:
        key = _line_key(parse_json(line))
        raise _invalid_file_error(f"{path}, problem {key}", error) from None
    if record.task != task:
        raise InputError(f"{path}: a record of {record.task!r}, expected {task!r}.")
    return record


def _first_spans(path: Path) -> dict[str, LineSpan]:
    """Return the span of the first line of each record, by key."""
    spans: dict[str, LineSpan] = {}
    start = 0
    for key, length in scan_lines(path, _line_key):
        if key is not None:
            spans.setdefault(key, LineSpan(start, length))
        start += length
    return spans
