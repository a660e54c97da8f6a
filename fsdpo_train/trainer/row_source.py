"""Sources of training rows: a sealed dataset, a dataset on the Hub, or a file."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.row_files import data_suffix, read_records, suggest_entries
from fsdpo_data.core.urls import is_url
from fsdpo_data.dataset.benchmark_problems import (
    HubContent,
    check_no_benchmark_problems,
    download_content,
    download_solutions,
)
from fsdpo_data.dataset.chat_prompts import prompt_renderer
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.remote import errors_with_urls, local_copy
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.separate_thinking import (
    THINKING_IS_MISSING,
    find_solutions_without_thinking,
    is_thinking_missing,
    may_lack_thinking,
)
from fsdpo_data.dataset.stage_records import lacks_chat_format
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.exchange.formats import matching_formats, step_label_formats
from fsdpo_data.hub.client import is_path, resolve_commit
from fsdpo_data.problems.hub_datasets import HubSource, load_hub
from fsdpo_train.trainer.row_formats import RowFormat

log = logging.getLogger(__name__)

#: Columns with the ids of a row, by config.
_ID_COLUMNS = {"pairs": ("problem_id", "chosen_id", "rejected_id")}
#: Maximum number of rows in which the columns of a file are searched.
MAX_SEARCHED_ROWS = 1000

Row = Mapping[str, Any]
LocatedRow = tuple[str, Row]  #: A location (file and row number) for error messages, and the row.


@dataclass(frozen=True, slots=True)
class RowSource:
    """An opened source of training rows."""

    identity: str  #: Digest of the content, or name and commit on the Hub.
    #: A URL, a pinned name on the Hub, or the last part of a local path, whose folders are private.
    name: str
    rows: Callable[[], Iterator[LocatedRow]]  #: Reads all rows. It may be called several times.
    #: Whether the rows have all columns of a dataset config, and not only the data format's.
    is_dataset: bool = True
    #: Origin of the rows for the model card: the ``dataset``, and the ``prm`` that scored it.
    provenance: Mapping[str, str] = field(default_factory=dict)
    manifest: Manifest | None = None  #: Manifest of a sealed dataset; None for others.

    def count_rows(self) -> int:
        """Return the number of rows; a file is read again."""
        return sum(1 for _ in self.rows())


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The opened sources of a training run. Their rows follow each other."""

    sources: tuple[RowSource, ...]  #: The sources, in the order of the options.

    @property
    def identity(self) -> str:
        """The identities of the sources."""
        return ", ".join(source.identity for source in self.sources)

    @property
    def provenance(self) -> dict[str, str]:
        """The origin of the rows for the model card, with the values of all sources."""
        values: dict[str, dict[str, None]] = {}
        for source in self.sources:
            for name, value in source.provenance.items():
                values.setdefault(name, {})[value] = None
        return {name: ", ".join(texts) for name, texts in values.items()}

    @property
    def manifests(self) -> list[Manifest]:
        """The manifests of the sealed datasets."""
        return [source.manifest for source in self.sources if source.manifest]

    def rows(self) -> Iterator[LocatedRow]:
        """Read all rows, source by source."""
        return chain.from_iterable(source.rows() for source in self.sources)


def render_chat_prompts(data: TrainingData, tokenizer: Any, model: str) -> TrainingData:
    """Return the data with the prompts that the model saw.

    Args:
        data: The opened sources.
        tokenizer: The tokenizer of the model that is trained.
        model: The model, for messages.

    Raises:
        InputError: if prompts lack the chat format of the server that sampled them, and the
            tokenizer has no chat template.
    """
    return TrainingData(tuple(_with_model_prompts(item, tokenizer, model) for item in data.sources))


def _with_model_prompts(source: RowSource, tokenizer: Any, model: str) -> RowSource:
    """Return a source with the prompts that the model saw."""
    if source.manifest is None or not lacks_chat_format(source.manifest):
        return source
    render = prompt_renderer(source.manifest, source.name, lambda: tokenizer, model)

    def rows() -> Iterator[LocatedRow]:
        for location, row in source.rows():
            yield location, {**row, "prompt": render(row["prompt"])}

    return replace(source, rows=rows)


def read_question(row: Row) -> str | None:
    """Return the question of a row of a dataset; None if only the prompt is known."""
    question = row.get("question")
    return question if isinstance(question, str) else None


def open_data(
    data: Sequence[str | Path], row_format: RowFormat, *, allow_benchmark: bool = False
) -> TrainingData:
    """Open the datasets and files in ``data``; see :func:`open_source`."""
    sources = (open_source(item, row_format, allow_benchmark=allow_benchmark) for item in data)
    return TrainingData(tuple(sources))


def open_source(
    data: str | Path, row_format: RowFormat, *, allow_benchmark: bool = False
) -> RowSource:
    """Open the rows in ``data``.

    Args:
        data: A JSONL or parquet file, ``org/name[@revision]`` on the Hub, or a directory or URL of
            a sealed dataset.
        row_format: The format of the rows.
        allow_benchmark: Whether a dataset may have benchmark problems. The rows of a file do not
            name benchmarks, so they are not checked.

    Raises:
        InputError: if ``data`` does not contain such rows, or has benchmark problems.
        SchemaError: if the dataset is not sealed, or its rows were changed later.
        UnavailableError: if the Hub or a store cannot be reached, or refuses access.
    """
    if is_url(data):
        copy = local_copy(data)
        with errors_with_urls({copy: str(data)}):
            source = _open_sealed(copy, row_format, allow_benchmark=allow_benchmark)
            return replace(source, name=str(data).rstrip("/"))
    check_source(data, row_format)
    data = Path(data)
    if data.is_dir():
        return _open_sealed(data, row_format, allow_benchmark=allow_benchmark)
    if data.exists():
        identity = "sha256:" + file_sha256(data)
        return RowSource(identity, data.resolve().name, lambda: _file_rows(data), is_dataset=False)
    hub_source = _hub_source(data, row_format)
    assert hub_source is not None  # check_source refuses other names
    return _open_hub_dataset(hub_source, row_format.config, allow_benchmark=allow_benchmark)


def check_data(data: Sequence[str | Path], row_format: RowFormat) -> None:
    """Check the sources in ``data`` that are on this machine; see :func:`check_source`."""
    for item in data:
        if not is_url(item):
            check_source(item, row_format)


def check_source(data: str | Path, row_format: RowFormat) -> None:
    """Check whether a local file or directory has the columns of a format.

    The check reads little of the source, and does not load torch.

    Raises:
        InputError: if ``data`` does not contain such rows.
        SchemaError: if the dataset is not sealed.
    """
    path = Path(data)
    if row_format.config and path.is_dir():
        _read_sealed(path, row_format.config)
    elif path.is_file() and data_suffix(path):
        _check_columns(path, row_format)
    elif path.exists():
        raise _source_error(path, row_format, "")
    elif data_suffix(path) or is_path(str(data)) or _hub_source(path, row_format) is None:
        reason = f"no such file or directory.{suggest_entries(path)} "
        raise _source_error(path, row_format, reason)


def _hub_source(data: Path, row_format: RowFormat) -> HubSource | None:
    """Return the dataset on the Hub that a text names; None for another text."""
    return HubSource.parse(f"{data}:{row_format.config}" if row_format.config else str(data), {})


def _source_error(data: Path, row_format: RowFormat, reason: str) -> InputError:
    """Return the error for data that is neither a dataset nor a file of rows.

    Args:
        data: The data.
        row_format: The format of the rows.
        reason: Sentences before the expectation; empty for none.
    """
    # Only a text without a folder may lack the organization of a name on the Hub.
    may_be_name = not data.exists() and not data_suffix(data) and "/" not in str(data)
    hub_text = ", or org/name of a dataset on the Hub" if may_be_name else ""
    dataset_text = ""
    if row_format.config:
        dataset_text = f"a dataset with {row_format.config}, {'' if may_be_name else 'or '}"
    export_text = f" `fsdpo-data export {data} --to trl-sft` makes one." if data.is_dir() else ""
    return InputError(
        f"{reason}{'Expected' if reason else 'expected'} {dataset_text}a .jsonl or .parquet file "
        f"with the columns {row_format.file_columns}{hub_text}.{export_text}",
        field="data",
        value=str(data),
    )


def _check_columns(file: Path, row_format: RowFormat) -> None:
    """Raise an InputError if a file is empty, or a column is missing in all of its first rows."""
    first_row: Row = {}
    columns: dict[str, None] = {}  # an ordered set
    for _, row in islice(_file_rows(file), MAX_SEARCHED_ROWS):
        first_row = first_row or row
        columns |= dict.fromkeys(row)
        if not row_format.missing_columns(columns):
            return
    expected = row_format.file_columns
    if not columns:
        raise InputError(
            f"the file is empty; {row_format.purpose} needs rows with the columns {expected}.",
            field="data",
            value=str(file),
        )
    missing = ", ".join(row_format.missing_columns(columns))
    advice = f" {row_format.advice}" if row_format.advice else ""
    raise InputError(
        f"the columns {missing} are missing; {row_format.purpose} needs {expected}. The rows have "
        f"{', '.join(columns)}.{_import_hint(file, first_row, row_format)}{advice}",
        field="data",
        value=str(file),
    )


def _import_hint(file: Path, row: Row, row_format: RowFormat) -> str:
    """Return the commands that import a row with step labels; empty for other rows."""
    if row_format.config != "solutions":
        return ""
    commands = [
        f"`fsdpo-data import {file} --from {name} --out DATA`"
        for name in matching_formats(row, step_label_formats())
    ]
    return f" Import step labels first: {' or '.join(commands)}." if commands else ""


def _read_sealed(root: Path, config: str) -> Manifest:
    """Return the manifest of a sealed dataset; InputError if it lacks the config."""
    manifest = read_manifest(root)
    if not manifest.config_files(config):
        raise InputError(
            f"the dataset has no {config}. Score and pair it first: fsdpo-data score {root} "
            "--prm PATH --out SCORED, then fsdpo-data pair SCORED --out NEW.",
            field="data",
            value=str(root),
        )
    return manifest


def _open_sealed(root: Path, row_format: RowFormat, *, allow_benchmark: bool) -> RowSource:
    config = row_format.config
    manifest = _read_sealed(root, config)
    if not allow_benchmark:
        check_no_benchmark_problems(root, manifest)
    # Only these files are read, so a copy of the dataset without the other files is enough.
    check_files(root, manifest.config_files(config))
    dropped_ids: set[str] = set()
    if config == "pairs":
        dropped_ids = find_solutions_without_thinking(root, manifest)
    problem_files = manifest.config_paths(root, "problems")
    if all(file.exists() for file in problem_files):
        check_files(root, manifest.config_files("problems"))
    # A training reads its rows several times, and the problems once.
    questions = cache(partial(_read_questions, problem_files))
    shards = manifest.config_paths(root, config)
    columns = [*row_format.columns, *row_format.optional_columns]
    return RowSource(
        manifest.digest,
        root.resolve().name,
        lambda: _keep_thinking(_shard_rows(config, shards, columns, questions()), dropped_ids),
        provenance=_provenance(manifest),
        manifest=manifest,
    )


def _provenance(manifest: Manifest) -> dict[str, str]:
    """Return the origin of the rows of a sealed dataset, for the model card."""
    provenance = {"dataset": manifest.digest}
    scoring = manifest.score_settings
    if scoring is not None:
        prm = scoring.prm
        provenance["prm"] = f"{prm.name}@{prm.revision}"
    return provenance


def _read_questions(files: Sequence[Path]) -> dict[str, str]:
    """Return the questions in files of problems, by problem id."""
    # A copy for a training may lack the problems.
    present = [file for file in files if file.exists()]
    if not present:
        return {}
    rows = collect_rows(scan_rows("problems", present).select("problem_id", "question"))
    return dict(rows.iter_rows())


def _shard_rows(
    config: str, files: Sequence[Path], columns: Sequence[str], questions: Mapping[str, str]
) -> Iterator[LocatedRow]:
    """Yield the rows of files, with their ``question`` if the dataset has it."""
    id_columns = _ID_COLUMNS.get(config, ("problem_id",))
    selected = list(dict.fromkeys([*columns, *id_columns]))
    for file in files:
        rows = collect_rows(scan_rows(config, [file]).select(selected))
        for row_number, row in enumerate(rows.iter_rows(named=True), 1):
            yield f"{file}, row {row_number}", _with_question(row, questions)


def _with_question(row: dict[str, Any], questions: Mapping[str, str]) -> Row:
    """Return a row with its question, if the dataset has it."""
    question = questions.get(row.get("problem_id", ""))
    return row if question is None else {**row, "question": question}


def _keep_thinking(
    rows: Iterator[LocatedRow], dropped_ids: Collection[str]
) -> Iterator[LocatedRow]:
    """Yield the pairs whose texts have the thinking of their solutions.

    Raises:
        InputError: if no pair has it.
    """
    n_rows = n_dropped = 0
    for location, row in rows:
        n_rows += 1
        if is_thinking_missing(row, dropped_ids):
            n_dropped += 1
        else:
            yield location, row
    if n_dropped == n_rows > 0:
        raise InputError(
            f"no pair is left: {THINKING_IS_MISSING}. Sample with `api=completions`, or name the "
            "model by the directory or the Hub repository of its tokenizer, which shows the tags."
        )
    if n_dropped:
        log.warning(f"dropped {n_dropped:,} of {n_rows:,} pairs: {THINKING_IS_MISSING}")


def _file_rows(file: Path) -> Iterator[LocatedRow]:
    for record in read_records(file):
        location = f"{file}, row {record.row_number}"
        if record.error:
            raise InputError(f"{location}: {record.error}. Correct the row, or leave it out.")
        yield location, dict(record.fields)


def _open_hub_dataset(source: HubSource, config: str, *, allow_benchmark: bool) -> RowSource:
    content = HubContent()
    # Rows of no config, which SFT reads, have no problems next to them.
    if config:
        # Manifest and problems are small, so they are checked before the download of the rows.
        commit = resolve_commit(source.repo)
        content = download_content(source.repo, commit)
        if not allow_benchmark:
            content.check_no_benchmark_problems(str(source.repo))
        source = replace(source, repo=replace(source.repo, revision=commit))
    commit, (records,) = load_hub(source, "train")
    identity = f"{source.repo.name}@{commit}"
    questions = _read_questions(content.problem_files)

    def read_rows() -> Iterator[LocatedRow]:
        for record in records.rows:
            location = f"{records.location}, row {record.row_number}"
            yield location, _with_question(dict(record.fields), questions)

    manifest = content.manifest
    dropped_ids: set[str] = set()
    if config == "pairs" and manifest is not None and may_lack_thinking(manifest):
        folder = download_solutions(source.repo, commit, manifest)
        dropped_ids = find_solutions_without_thinking(folder, manifest)
    return RowSource(
        identity=identity,
        name=identity,
        rows=lambda: _keep_thinking(read_rows(), dropped_ids),
        is_dataset=bool(config),
        provenance={**(_provenance(manifest) if manifest else {}), "dataset": identity},
        manifest=manifest,
    )
