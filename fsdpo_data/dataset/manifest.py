"""The manifest of a sealed dataset: its model, how it is made, and how it is read and checked."""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, field_validator

from fsdpo_data.core.errors import FsdpoError, SchemaError
from fsdpo_data.core.identity import RELEASE, digest
from fsdpo_data.core.input_files import parse_json, read_file
from fsdpo_data.core.row_files import suggest_entries, summarize_list
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset import manifest_sections
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.run import CONFIG_FILE, MANIFEST_FILE
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Tally

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)


class Manifest(manifest_sections.SparseSection):
    """The content of ``manifest.json``, which describes a sealed dataset."""

    schema_version: int  #: Version of the schema.
    digest: str  #: Digest of the names and contents of the files.
    parent: str  #: Digest of the parent dataset, or of the sources of a first build.
    made_by: str  #: Release that wrote the dataset.
    spec: manifest_sections.SpecSection  #: Options that determine the content.
    rows: manifest_sections.RowCounts  #: Number of rows in each config.
    quarantined: dict[str, int]  #: Input rows that could not be used, by reason.
    #: Items that the engine refused, by stage: problems (``sample``), prefixes or prompts of a
    #: judge (``label``) and solutions (``score``); None without failed items.
    failed: dict[str, int] | None = None
    outcomes: dict[str, int]  #: Solutions by outcome.
    labels: dict[str, int]  #: Steps by the outcome label of their solution; ``steps`` is the total.
    grader_rules: dict[str, int]  #: Solutions by the grader's rule that decided their outcome.
    statistics: manifest_sections.SolutionStats  #: Statistics of the solutions.
    cost: manifest_sections.CostStats  #: Cost, summed over all stages.
    files: list[FileEntry]  #: Parquet files; the file of ``problems`` comes first.
    rewards: manifest_sections.RewardStats | None = None  #: Set by the score stage.
    rollouts: manifest_sections.RolloutStats | None = None  #: Set for Monte-Carlo labels.
    thinking: manifest_sections.ThinkingStats | None = None  #: Set if solutions contain thinking.
    judge: manifest_sections.JudgeStats | None = None  #: Set for labels by a judge.
    step_labels: manifest_sections.StepLabelStats | None = None  #: Set for imported labels.
    pairs: manifest_sections.PairStats | None = None  #: Set by the pair stage.
    contamination: manifest_sections.ContaminationStats | None = None  #: Set by decontamination.
    regraded: manifest_sections.RegradeStats | None = None  #: Set by the grade stage.
    #: Set by the grade stage for a judge of undecided answers.
    answer_judge: manifest_sections.AnswerJudgeStats | None = None
    selection: manifest_sections.SelectionStats | None = None  #: Set by the select stage.
    #: Plug-ins that were loaded; None without plug-ins.
    plugins: list[manifest_sections.PluginEntry] | None = None
    manifest_digest: str = ""  #: Digest of all other fields; empty until the manifest is written.

    @field_validator("files")
    @classmethod
    def _check_unique_paths(cls, files: list[FileEntry]) -> list[FileEntry]:
        paths = [entry.path for entry in files]
        if len(set(paths)) < len(paths):
            raise ValueError("a file is listed twice")
        return files

    def config_files(self, config: str) -> list[FileEntry]:
        """Return the file entries of a config."""
        return [entry for entry in self.files if entry.path.startswith(f"{config}/")]

    def config_paths(self, root: Path, config: str) -> list[Path]:
        """Return the paths of a config's files, for the dataset in ``root``."""
        return [root / entry.path for entry in self.config_files(config)]

    def set_failed(self, stage: str, count: int) -> None:
        """Set the number of items that failed in a stage; zero removes the stage."""
        counts = {**(self.failed or {}), stage: count}
        self.failed = {name: count for name, count in counts.items() if count} or None

    def to_json(self) -> str:
        """Return the text of ``manifest.json``, with a digest of all other fields at its end."""
        data = self.to_dict()
        data.pop("manifest_digest", None)
        data["manifest_digest"] = digest(data)
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def make_manifest(
    spec: Mapping[str, Any],
    files: list[FileEntry],
    tally: Tally,
    quarantined: Mapping[str, int],
) -> Manifest:
    """Describe a newly built dataset, whose ``files`` are finished.

    Args:
        spec: The options that determine the content.
        files: Entries of all files; the file of ``problems`` comes first.
        tally: Counts over all solutions.
        quarantined: Number of unusable input rows, by reason.
    """
    counts = tally.manifest_counts()
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest=files_digest(files),
        parent=digest(spec["sources"]),
        made_by=RELEASE,
        spec=manifest_sections.SpecSection.model_validate({"digest": digest(spec), **spec}),
        rows=manifest_sections.RowCounts(
            problems=files[0].rows, solutions=tally.solutions, pairs=0
        ),
        quarantined=dict(sorted(quarantined.items())),
        outcomes=counts["outcomes"],
        labels=counts["labels"],
        grader_rules=counts["grader_rules"],
        statistics=tally.statistics(),
        thinking=tally.thinking_stats(),
        cost=manifest_sections.CostStats(
            tokens=UNKNOWN if tally.solutions_without_token_count else tally.tokens,
            prm_calls=tally.prm_calls,
            seconds=round(tally.seconds, 3),
        ),
        files=files,
        plugins=manifest_sections.plugin_entries(),
    )


def files_digest(files: Iterable[FileEntry]) -> str:
    """Return the digest of a dataset, computed from its files' names and contents."""
    return digest(SCHEMA_VERSION, [(file.path, file.sha256) for file in files])


def _compute_manifest_digest(data: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's fields; empty for NaN and infinity, which have none."""
    try:
        return digest(data)
    except ValueError:
        return ""


class _VersionOnly(BaseModel):
    """The only field that manifests of all schema versions share."""

    schema_version: int


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if the manifest is missing, is malformed or was changed after the seal, or if
            its schema has another version.
    """
    version = _parse_manifest(root, _VersionOnly).schema_version
    file = root / MANIFEST_FILE
    if version != SCHEMA_VERSION:
        raise SchemaError(
            f"{file} is of schema version {version}; this release reads version "
            f"{SCHEMA_VERSION}. Build the dataset again with this release, or install the release "
            "that wrote it."
        )
    manifest = _parse_manifest(root, Manifest)
    data = parse_json(read_file(file))
    stored_digest = data.pop("manifest_digest", None)
    if stored_digest != _compute_manifest_digest(data):
        raise SchemaError(
            f"{file} was changed since it was sealed (its digest is different or missing). "
            "Build the dataset again, or download it again."
        )
    return manifest


def _parse_manifest(root: Path, model_class: type[ModelT]) -> ModelT:
    """Parse ``manifest.json`` as ``model_class``; raise a SchemaError with advice if it fails."""
    file = root / MANIFEST_FILE
    try:
        data = read_file(file)
        parse_json(data)  # refuses deep nesting, which pydantic accepts
        return model_class.model_validate_json(data)
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
        if (root / CONFIG_FILE).exists():
            message += " A run that was stopped is finished by the same command with `resume=True`."
        raise SchemaError(message) from None
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}.") from None
    except FsdpoError:
        raise
    except ValueError as error:
        problems = [str(error)]
        if isinstance(error, ValidationError):
            problems = [
                f"{'.'.join(map(str, detail['loc'])) or 'the file'}: {detail['msg']}"
                for detail in error.errors()
            ]
        raise SchemaError(
            f"{file} is not a manifest: {summarize_list(problems, '; ')}. Download the dataset "
            "again, or build it again with this release."
        ) from None
