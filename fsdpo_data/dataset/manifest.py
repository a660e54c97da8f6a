"""The manifest of a sealed dataset: its records, and how it is read and checked.

It has the facts that rows cannot tell. :mod:`fsdpo_data.dataset.statistics` computes the rest.

``stages`` has one entry per stage. The models of the entries belong to the stages, and
:meth:`Manifest.find` validates an entry when it is used. The entry of an unknown stage, such as one
of a plug-in, therefore stays readable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import RELEASE, digest, file_sha256
from fsdpo_data.core.input_files import parse_json, read_file
from fsdpo_data.core.options import FROM_FILE
from fsdpo_data.core.plugins import PluginRef, loaded_plugins
from fsdpo_data.core.row_files import suggest_entries, summarize_list
from fsdpo_data.dataset.run_directory import CONFIG_FILE, MANIFEST_FILE, SHARD_FILE
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION, is_readable, major_version
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.steps.rewards import default_pair_aggregate

RecordT = TypeVar("RecordT", bound="StageRecord[Any, Any]")
OptionsT = TypeVar("OptionsT")
CountsT = TypeVar("CountsT")

SCORE_STAGE = "score"  #: Name of the stage that gives step rewards.
PROBABILITY = "probability"  #: The meaning of the rewards of ``fsdpo-train prm``.
MAX_FILE_NAME_BYTES = 255  #: Length limit of a file name on usual file systems, in bytes.


class StageCounts(FileModel):
    """The counts of a stage. Each stage adds its own."""

    failed: int = 0  #: Items that the engine of the stage refused.
    #: Input rows that could not be used, by reason.
    quarantined: dict[str, int] = Field(default_factory=dict)


class StageRecord(FileModel, Generic[OptionsT, CountsT]):
    """The entry of a stage in a manifest. The models of the stages type its options and counts."""

    name: str  #: Name of the stage; a stage with the same name replaces the entry.
    options: OptionsT  #: Everything that determines the rows of the stage.
    #: Columns and configs with the result of the stage. A stage that writes one of them replaces
    #: the entry.
    writes: list[str] = Field(default_factory=list)
    counts: CountsT  #: The counts of the stage.
    cost: Cost = NO_COST  #: The cost of the stage.


#: The entry of any stage.
AnyRecord: TypeAlias = StageRecord[Any, Any]
#: The entry of any stage, as JSON values.
RawRecord: TypeAlias = StageRecord[dict[str, Any], dict[str, Any]]


class RowCounts(NamedTuple):
    """The number of rows in each config of the dataset, as Hugging Face calls its tables."""

    problems: int  #: Rows of ``problems``.
    solutions: int  #: Rows of ``solutions``.
    pairs: int  #: Rows of ``pairs``.


class FileEntry(FileModel):
    """A parquet file of the dataset."""

    path: str  #: Path in the dataset, always ``config/name.parquet``.
    sha256: str  #: SHA-256 of the file.
    bytes: int  #: Size of the file, in bytes.
    rows: int  #: Number of rows.
    text_sha256: str | None = None  #: SHA-256 of the texts before segmentation; solutions only.

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        folder, _, name = path.partition("/")
        is_one_name = "/" not in name and "\\" not in name and name.isprintable()
        is_short = len(name.encode(errors="replace")) <= MAX_FILE_NAME_BYTES
        if folder not in CONFIGS or not is_one_name or not is_short or name[-8:] != ".parquet":
            raise ValueError(f"the path {path[:80]!r} is not of the form config/name.parquet")
        return path

    @classmethod
    def from_file(cls, root: Path, path: str, rows: int, text_sha256: str | None = None) -> Self:
        """Describe the finished file at ``path`` in the dataset directory ``root``."""
        file = root / path
        return cls(
            path=path,
            sha256=file_sha256(file),
            bytes=file.stat().st_size,
            rows=rows,
            text_sha256=text_sha256,
        )


class Manifest(FileModel):
    """The content of ``manifest.json``, which describes a sealed dataset."""

    model_config = ConfigDict(extra="allow")

    schema_version: str  #: Version MAJOR.MINOR of the schema.
    digest: str  #: Digest of the names and contents of the files.
    parent: str  #: Digest of the parent dataset, or of the sources of a first build.
    made_by: str  #: Release that wrote the dataset.
    #: The stages whose results the dataset has, in the order in which they ran.
    stages: list[RawRecord]
    cost: Cost  #: Cost of all stages, also of those whose results other stages replaced.
    files: list[FileEntry]  #: Parquet files; the file of ``problems`` comes first.
    #: Plug-ins that were loaded in any stage.
    plugins: list[PluginRef] = Field(default_factory=list)
    manifest_digest: str = ""  #: Digest of all other fields; empty until the manifest is written.
    _location: str = PrivateAttr("the manifest")  #: The file, for errors.

    @field_validator("files")
    @classmethod
    def _check_unique_paths(cls, files: list[FileEntry]) -> list[FileEntry]:
        paths = [entry.path for entry in files]
        if len(set(paths)) < len(paths):
            raise ValueError("a file is listed twice")
        return files

    @field_validator("stages")
    @classmethod
    def _check_unique_names(cls, stages: list[RawRecord]) -> list[RawRecord]:
        names = [record.name for record in stages]
        if len(set(names)) < len(names):
            raise ValueError("a stage is listed twice")
        return stages

    def __eq__(self, other: object) -> bool:
        """Whether two manifests have the same content, wherever their files are."""
        return isinstance(other, Manifest) and self.to_dict() == other.to_dict()

    def find(self, name: str, model: type[RecordT]) -> RecordT | None:
        """Return the entry of a stage as ``model``; None if the dataset has no such stage.

        Raises:
            SchemaError: if the entry does not fit.
        """
        record = next((record for record in self.stages if record.name == name), None)
        if record is None:
            return None
        try:
            return model.model_validate_json(json.dumps(record.to_dict()), context=FROM_FILE)
        except ValidationError as error:
            problems = _describe_errors(error, f"stages.{name}")
            raise _invalid_manifest_error(self._location, problems) from None

    def get(self, name: str, model: type[RecordT]) -> RecordT:
        """Return the entry of a stage that this dataset must have; SchemaError without it."""
        record = self.find(name, model)
        if record is None:
            raise SchemaError(f"{self._location} has no entry of the stage {name!r}.")
        return record

    def is_written(self, column: str) -> bool:
        """Whether a stage of the dataset has written a column or config."""
        return any(column in record.writes for record in self.stages)

    def put(self, record: AnyRecord) -> None:
        """Replace the entry of a stage, at its place, or add it at the end."""
        plain_record = RawRecord.model_validate(record.to_dict())
        for index, other_record in enumerate(self.stages):
            if other_record.name == record.name:
                self.stages[index] = plain_record
                return
        self.stages.append(plain_record)

    def remove(self, name: str) -> None:
        """Remove the entry of a stage, if the dataset has it."""
        self.stages = [record for record in self.stages if record.name != name]

    def remove_writers(self, columns: Collection[str], keep: str = "") -> None:
        """Remove the entries of the stages that wrote a column or config, except one stage."""
        self.stages = [
            record
            for record in self.stages
            if record.name == keep or not set(record.writes) & set(columns)
        ]

    def add_result(self, record: AnyRecord) -> None:
        """Add the entry of a stage that has run, without those whose results it has replaced."""
        self.remove_writers(record.writes, keep=record.name)
        self.put(record)
        self.cost += record.cost

    @property
    def options(self) -> dict[str, Any]:
        """The options of each stage as JSON values; together, they determine the rows."""
        return {record.name: record.options for record in self.stages}

    @property
    def failed(self) -> dict[str, int]:
        """The number of failed items of each stage that has any."""
        counts = {record.name: record.counts.get("failed", 0) for record in self.stages}
        return {name: count for name, count in counts.items() if count}

    @property
    def score_settings(self) -> ScoreSettings | None:
        """The reward model of the step rewards; None without one."""
        record = self.find(SCORE_STAGE, StageRecord[ScoreSettings, dict[str, Any]])
        return None if record is None else record.options

    @property
    def has_outcome_rewards(self) -> bool:
        """Whether only the rewards of last steps are trained, by an outcome reward model."""
        return self.score_settings is not None and self.score_settings.last_step_only

    @property
    def pair_aggregate(self) -> str:
        """The aggregate that ranks solutions if no other one is named."""
        return default_pair_aggregate(is_outcome_model=self.has_outcome_rewards)

    @property
    def reward_meaning(self) -> str:
        """The meaning of a step reward; ``probability`` without a PRM format or without rewards."""
        settings = self.score_settings
        if settings is None or settings.prm_format is None:
            return PROBABILITY
        return settings.prm_format.meaning

    @property
    def rewards_are_probabilities(self) -> bool:
        """Whether step rewards are probabilities, as from models of ``fsdpo-train prm``."""
        return self.reward_meaning == PROBABILITY

    @property
    def labels_are_searched(self) -> bool:
        """Whether ``labels`` has the result of a search, and steps without rollouts are null."""
        return self.is_written("labels")

    @property
    def rows(self) -> RowCounts:
        """The number of rows in each config."""
        return RowCounts(
            *(sum(entry.rows for entry in self.config_files(config)) for config in CONFIGS)
        )

    def config_files(self, config: str) -> list[FileEntry]:
        """Return the file entries of a config."""
        return [entry for entry in self.files if entry.path.startswith(f"{config}/")]

    def config_paths(self, root: Path, config: str) -> list[Path]:
        """Return the paths of a config's files, for the dataset in ``root``."""
        return [root / entry.path for entry in self.config_files(config)]

    def to_json(self) -> str:
        """Return the text of ``manifest.json``, with a digest of all other fields at its end."""
        data = self.to_dict()
        data.pop("manifest_digest", None)
        data["manifest_digest"] = digest(data)
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def merge_plugins(earlier: Iterable[PluginRef] = ()) -> list[PluginRef]:
    """Return the loaded plug-ins, and the plug-ins of earlier stages."""
    return sorted({*loaded_plugins(), *earlier})


def files_digest(files: Iterable[FileEntry]) -> str:
    """Return the digest of a dataset, computed from its files' names and contents."""
    return digest([(file.path, file.sha256) for file in files])


def _compute_manifest_digest(data: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's fields; empty for NaN and infinity, which have none."""
    try:
        return digest(data)
    except ValueError:
        return ""


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if the manifest is missing, is malformed or was changed after the seal, or if
            its schema has another version.
    """
    file = root / MANIFEST_FILE
    text = _read_manifest_file(root)
    try:
        data = parse_json(text)  # refuses deep nesting, which pydantic accepts
        _check_schema_version(file, data)
        manifest = Manifest.model_validate_json(text)
    except SchemaError:
        raise
    except ValueError as error:
        problems = _describe_errors(error) if isinstance(error, ValidationError) else [str(error)]
        raise _invalid_manifest_error(str(file), problems) from None
    manifest._location = str(file)
    stored_digest = data.pop("manifest_digest", None)
    if stored_digest != _compute_manifest_digest(data):
        raise SchemaError(
            f"{file} was changed since it was sealed (its digest is different or missing). "
            "Build the dataset again, or download it again."
        )
    return manifest


def _check_schema_version(file: Path, data: Any) -> None:
    """Raise a SchemaError for a manifest whose schema this release does not read."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, str | int | float) and not is_readable(str(version)):
        raise SchemaError(
            f"{file} is of schema version {version}; {RELEASE} reads the versions "
            f"{major_version(SCHEMA_VERSION)}.x. Install "
            f"{data.get('made_by', 'the release that wrote it')}, or build the dataset again with "
            "this release."
        )


def _read_manifest_file(root: Path) -> bytes:
    """Return the content of ``manifest.json``; raise a SchemaError with advice if it fails."""
    file = root / MANIFEST_FILE
    try:
        return read_file(file)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(root):
            raise SchemaError(
                f"no such file or directory: {root}.{suggest_entries(root)} Expected a dataset, "
                "which is a directory that `fsdpo-data build` or another stage has written."
            ) from None
        message = (
            f"{root} holds no dataset ({MANIFEST_FILE} is missing). Expected a directory that "
            "`fsdpo-data build` or another stage has written to the end."
        )
        if (root / SHARD_FILE).exists():
            message = (
                f"{root} is a shard, and no dataset. Join it with the other shards of its command: "
                "with `fsdpo-bench merge` for a benchmark run, else with `fsdpo-data merge`."
            )
        elif (root / CONFIG_FILE).exists():
            message += " A run that was stopped is finished by the same command with `resume=True`."
        raise SchemaError(message) from None
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}.") from None


def _describe_errors(error: ValidationError, prefix: str = "") -> list[str]:
    """Return one line for each value that does not fit."""
    lines = []
    for detail in error.errors():
        path = ".".join(map(str, [*([prefix] if prefix else []), *detail["loc"]]))
        lines.append(f"{path or 'the file'}: {detail['msg']}")
    return lines


def _invalid_manifest_error(location: str, problems: list[str]) -> SchemaError:
    return SchemaError(
        f"{location} is not a manifest: {summarize_list(problems, '; ')}. Download the dataset "
        "again, or build it again with this release."
    )
