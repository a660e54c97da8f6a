"""The manifest: everything a sealed dataset says about itself, checked once where it is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, field_validator

from fsdpo_data import __version__
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.statistics import clustered_interval, wilson_interval
from fsdpo_data.dataset.parts import (
    Accuracy,
    Contamination,
    Cost,
    FileEntry,
    Growing,
    PairCounts,
    PassAtM,
    Regraded,
    Rewards,
    Rollouts,
    Rows,
    Spec,
    Statistics,
)
from fsdpo_data.dataset.run import CONFIG, MANIFEST
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Tally

#: What is wrong with a manifest is named at most so many times.
SHOWN = 3

T = TypeVar("T", bound=BaseModel)


class Manifest(Growing):
    """Everything a sealed dataset says about itself."""

    schema_version: int
    digest: str
    parent: str
    made_by: str
    spec: Spec
    rows: Rows
    quarantined: dict[str, int]
    outcomes: dict[str, int]
    labels: dict[str, int]
    grader_rules: dict[str, int]
    statistics: Statistics
    cost: Cost
    files: list[FileEntry]
    rewards: Rewards | None = None
    rollouts: Rollouts | None = None
    pairs: PairCounts | None = None
    contamination: Contamination | None = None
    regraded: Regraded | None = None

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
        """Return the manifest as its file has it."""
        return json.dumps(self.plain(), indent=2, ensure_ascii=False) + "\n"


def make_manifest(
    spec: Mapping[str, Any], files: list[FileEntry], tally: Tally, quarantined: Mapping[str, int]
) -> Manifest:
    """Describe a dataset whose files are all in place.

    Args:
        spec: The run's config as in ``config.json``.
        files: The one file of ``problems``, then those of ``solutions``.
        tally: The counts over all solutions.
        quarantined: Rejected input rows by reason.
    """
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest=files_digest(files),
        parent=digest(spec["sources"]),
        made_by=f"fsdpo {__version__}",
        spec=Spec.of({"digest": digest(spec), **spec}),
        rows=Rows(problems=files[0].rows, solutions=tally.solutions, pairs=0),
        quarantined=dict(sorted(quarantined.items())),
        **tally.counts(),
        statistics=Statistics(
            **outcome_statistics(tally),
            truncated=tally.truncated,
            unique_solutions=tally.unique,
            tokens_per_second=round(tally.tokens / tally.seconds, 1) if tally.seconds else None,
        ),
        cost=Cost(tokens=tally.tokens, prm_calls=0, seconds=round(tally.seconds, 3)),
        files=files,
    )


def files_digest(files: Iterable[FileEntry]) -> str:
    """Return the digest of a dataset: of its files' names and contents."""
    return digest(SCHEMA_VERSION, [(file.path, file.sha256) for file in files])


def outcome_statistics(tally: Tally) -> dict[str, Any]:
    """Derive what the counts by outcome mean, as fields of :class:`Statistics`.

    Accuracy is the mean over graded solutions. The samples of one problem are alike, so its 95 %
    interval is clustered by problem; pass@M counts problems, so its interval is Wilson's.
    """
    graded = sum(n for _, n in tally.accuracies)
    correct = sum(right for right, _ in tally.accuracies)
    with_gold = [(right, n) for right, n in tally.accuracies if n]
    solved, n = sum(right > 0 for right, _ in with_gold), len(with_gold)
    return {
        "accuracy": Accuracy(
            value=_share(correct, graded),
            correct=correct,
            n=graded,
            ci95=clustered_interval(with_gold),
        ),
        "pass_at_m": PassAtM(
            value=_share(solved, n), solved=solved, n=n, ci95=wilson_interval(solved, n)
        ),
        "mixed_problems": sum(0 < right < n for right, n in with_gold),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


class _Versioned(BaseModel):
    """What a manifest of any version says."""

    schema_version: int


def schema_version(root: Path) -> int:
    """Return the schema version of a dataset of whatever version.

    Raises:
        SchemaError: if there is no manifest, or it does not tell.
    """
    return _checked(root, _Versioned).schema_version


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if there is none, it is not one, or its schema is of another major version.
    """
    version = schema_version(root)
    if version == SCHEMA_VERSION:
        return _checked(root, Manifest)
    raise SchemaError(
        f"{root / MANIFEST} is of schema version {version}; this release reads version "
        f"{SCHEMA_VERSION}. "
        + (
            "Install a newer release of fsdpo."
            if version > SCHEMA_VERSION
            else f"Bring it up to date with `fsdpo-data migrate {root}`."
        )
    )


def _checked(root: Path, kind: type[T]) -> T:
    file = root / MANIFEST
    try:
        return kind.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        raise SchemaError(_no_manifest(root)) from None
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors()
        ]
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise SchemaError(
            f"{file} is not a manifest: {'; '.join(wrong[:SHOWN])}{more}. Fetch or build it again."
        ) from None


def _no_manifest(root: Path) -> str:
    if (root / CONFIG).exists():
        return (
            f"{root} holds a run that has not been sealed. Finish it with the command that "
            "started it and `resume=True`."
        )
    return (
        f"{root} holds no dataset ({MANIFEST} is missing). Expected what "
        "`fsdpo-data build` has sealed."
    )
