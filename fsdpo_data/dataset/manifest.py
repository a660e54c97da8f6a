"""The manifest: everything a sealed dataset says about itself, checked once where it is read."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, field_validator

from fsdpo_data import __version__
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.rows import some
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset import parts
from fsdpo_data.dataset.parts import FileEntry
from fsdpo_data.dataset.run import CONFIG, MANIFEST
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Tally

T = TypeVar("T", bound=BaseModel)


class Manifest(parts.Growing):
    """Everything a sealed dataset says about itself."""

    schema_version: int
    digest: str
    parent: str
    made_by: str
    spec: parts.Spec
    rows: parts.Rows
    quarantined: dict[str, int]
    outcomes: dict[str, int]
    labels: dict[str, int]
    grader_rules: dict[str, int]
    statistics: parts.Statistics
    cost: parts.Cost
    files: list[FileEntry]
    rewards: parts.Rewards | None = None
    rollouts: parts.Rollouts | None = None
    thinking: parts.Thoughts | None = None
    judged: parts.Judged | None = None
    pairs: parts.PairCounts | None = None
    contamination: parts.Contamination | None = None
    regraded: parts.Regraded | None = None
    manifest_digest: str = ""

    @field_validator("files")
    @classmethod
    def _once_each(cls, files: list[FileEntry]) -> list[FileEntry]:
        paths = [entry.path for entry in files]
        if len(set(paths)) < len(paths):
            raise ValueError("names a file twice")
        return files

    def of_config(self, config: str) -> list[FileEntry]:
        """Return the files of a config."""
        return [entry for entry in self.files if entry.path.startswith(f"{config}/")]

    def paths(self, root: Path, config: str) -> list[Path]:
        """Return where the files of a config are, for the dataset in ``root``."""
        return [root / entry.path for entry in self.of_config(config)]

    def text(self) -> str:
        """Return the manifest as its file has it, with a digest of all that it says."""
        said = self.plain()
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
        spec=parts.Spec.model_validate({"digest": digest(spec), **spec}),
        rows=parts.Rows(problems=files[0].rows, solutions=tally.solutions, pairs=0),
        quarantined=dict(sorted(quarantined.items())),
        **tally.counts(),
        statistics=tally.statistics(),
        thinking=tally.thoughts(),
        cost=parts.Cost(
            tokens=UNKNOWN if tally.uncounted else tally.tokens,
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


class _Versioned(BaseModel):
    """What a manifest of any version says."""

    schema_version: int


def schema_version(root: Path) -> int:
    """Return the schema version of a dataset; SchemaError if no manifest tells."""
    return _checked(root, _Versioned).schema_version


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if there is none, it is not one or was changed since it was sealed, or its
            schema is of another major version.
    """
    version = schema_version(root)
    if version == SCHEMA_VERSION:
        manifest = _checked(root, Manifest)
        said = json.loads((root / MANIFEST).read_bytes())
        if said.pop("manifest_digest", None) != _digest(said):
            raise SchemaError(
                f"{root / MANIFEST} was changed since it was sealed (its digest differs, or is "
                "gone). Build the dataset again, or fetch it again from where it came."
            )
        return manifest
    older = f"Bring it up to date with `fsdpo-data migrate {root}`."
    raise SchemaError(
        f"{root / MANIFEST} is of schema version {version}; this release reads version "
        f"{SCHEMA_VERSION}. "
        + ("Install a newer release of fsdpo." if version > SCHEMA_VERSION else older)
    )


def _checked(root: Path, kind: type[T]) -> T:
    file = root / MANIFEST
    try:
        return kind.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        begun = " One that was stopped is finished by the same command with `resume=True`."
        raise SchemaError(
            f"{root} holds no dataset ({MANIFEST} is missing). Expected a directory that "
            f"`fsdpo-data build` or the like has sealed.{begun if (root / CONFIG).exists() else ''}"
        ) from None
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors()
        ]
        raise SchemaError(
            f"{file} is not a manifest: {some(wrong, '; ')}. Fetch or build it again."
        ) from None
