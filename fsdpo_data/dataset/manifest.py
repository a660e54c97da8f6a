"""The manifest: everything a sealed dataset says about itself, checked once where it is read."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, field_validator

from fsdpo_data import __version__
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset import manifest_sections
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.run import CONFIG_FILE, MANIFEST_FILE
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Tally

T = TypeVar("T", bound=BaseModel)


class Manifest(manifest_sections.SparseSection):
    """Everything a sealed dataset says about itself."""

    schema_version: int
    digest: str
    parent: str
    made_by: str
    spec: manifest_sections.SpecSection
    rows: manifest_sections.RowCounts
    quarantined: dict[str, int]
    outcomes: dict[str, int]
    labels: dict[str, int]
    grader_rules: dict[str, int]
    statistics: manifest_sections.SolutionStats
    cost: manifest_sections.CostStats
    files: list[FileEntry]
    rewards: manifest_sections.RewardStats | None = None
    rollouts: manifest_sections.RolloutStats | None = None
    thinking: manifest_sections.ThinkingStats | None = None
    judge: manifest_sections.JudgeStats | None = None
    pairs: manifest_sections.PairStats | None = None
    contamination: manifest_sections.ContaminationStats | None = None
    regraded: manifest_sections.RegradeStats | None = None
    manifest_digest: str = ""

    @field_validator("files")
    @classmethod
    def _once_each(cls, files: list[FileEntry]) -> list[FileEntry]:
        paths = [entry.path for entry in files]
        if len(set(paths)) < len(paths):
            raise ValueError("names a file twice")
        return files

    def config_files(self, config: str) -> list[FileEntry]:
        """Return the files of a config."""
        return [entry for entry in self.files if entry.path.startswith(f"{config}/")]

    def config_paths(self, root: Path, config: str) -> list[Path]:
        """Return where the files of a config are, for the dataset in ``root``."""
        return [root / entry.path for entry in self.config_files(config)]

    def to_json(self) -> str:
        """Return the manifest as its file has it, with a digest of all that it says."""
        said = self.to_dict()
        said.pop("manifest_digest", None)
        sealed = {**said, "manifest_digest": digest(said)}
        return json.dumps(sealed, indent=2, ensure_ascii=False) + "\n"


def make_manifest(
    spec: Mapping[str, Any], files: list[FileEntry], tally: Tally, quarantined: Mapping[str, int]
) -> Manifest:
    """Describe a dataset whose files are all in place, that of ``problems`` first."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest=files_digest(files),
        parent=digest(spec["sources"]),
        made_by=f"fsdpo {__version__}",
        spec=manifest_sections.SpecSection.model_validate({"digest": digest(spec), **spec}),
        rows=manifest_sections.RowCounts(
            problems=files[0].rows, solutions=tally.solutions, pairs=0
        ),
        quarantined=dict(sorted(quarantined.items())),
        **tally.manifest_counts(),
        statistics=tally.statistics(),
        thinking=tally.thinking_stats(),
        cost=manifest_sections.CostStats(
            tokens=UNKNOWN if tally.solutions_without_token_count else tally.tokens,
            prm_calls=0,
            seconds=round(tally.seconds, 3),
        ),
        files=files,
    )


def files_digest(files: Iterable[FileEntry]) -> str:
    """Return the digest of a dataset: of its files' names and contents."""
    return digest(SCHEMA_VERSION, [(file.path, file.sha256) for file in files])


def _digest(said: Mapping[str, Any]) -> str:
    """Return the digest of what a manifest says; empty if no seal can have said it."""
    try:
        return digest(said)
    except ValueError:  # NaN or infinity
        return ""


class _VersionOnly(BaseModel):
    """What a manifest of any version says."""

    schema_version: int


def read_schema_version(root: Path) -> int:
    """Return the schema version of a dataset; SchemaError if no manifest tells."""
    return _parse_manifest(root, _VersionOnly).schema_version


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if there is none, it is not one or was changed since it was sealed, or its
            schema is of another major version.
    """
    version = read_schema_version(root)
    if version == SCHEMA_VERSION:
        manifest = _parse_manifest(root, Manifest)
        said = json.loads((root / MANIFEST_FILE).read_bytes())
        if said.pop("manifest_digest", None) != _digest(said):
            raise SchemaError(
                f"{root / MANIFEST_FILE} was changed since it was sealed (its digest differs, or is "
                "gone). Build the dataset again, or fetch it again from where it came."
            )
        return manifest
    older = f"Bring it up to date with `fsdpo-data migrate {root}`."
    raise SchemaError(
        f"{root / MANIFEST_FILE} is of schema version {version}; this release reads version "
        f"{SCHEMA_VERSION}. "
        + ("Install a newer release of fsdpo." if version > SCHEMA_VERSION else older)
    )


def _parse_manifest(root: Path, kind: type[T]) -> T:
    file = root / MANIFEST_FILE
    try:
        return kind.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        begun = " One that was stopped is finished by the same command with `resume=True`."
        raise SchemaError(
            f"{root} holds no dataset ({MANIFEST_FILE} is missing). Expected a directory that "
            f"`fsdpo-data build` or the like has sealed.{begun if (root / CONFIG_FILE).exists() else ''}"
        ) from None
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors()
        ]
        raise SchemaError(
            f"{file} is not a manifest: {summarize_list(wrong, '; ')}. Fetch or build it again."
        ) from None
