"""The manifest: everything a sealed dataset says about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_data import __version__
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.core.statistics import clustered_interval, wilson_interval
from fsdpo_data.dataset.run import CONFIG, MANIFEST
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.tally import Shard, Tally

Manifest = dict[str, Any]


def make_manifest(
    root: Path,
    spec: Mapping[str, Any],
    problems_file: Path,
    n_problems: int,
    shards: Sequence[Shard],
    quarantined: Mapping[str, int],
) -> Manifest:
    """Describe a dataset whose files are all in place.

    Args:
        root: The dataset's directory.
        spec: The run's config as in ``config.json``.
        problems_file: The one file of the ``problems`` config.
        n_problems: Its rows.
        shards: The files of the ``solutions`` config.
        quarantined: Rejected input rows by reason.
    """
    tally = Tally()
    for shard in shards:
        tally.add(shard.tally)
    files = [file_entry(root, problems_file, n_problems)]
    files += [
        {**file_entry(root, shard.file, shard.rows), "text_sha256": shard.text_sha256}
        for shard in shards
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "digest": files_digest(files),
        "parent": digest(spec["sources"]),
        "made_by": f"fsdpo {__version__}",
        "spec": {"digest": digest(spec), **spec},
        "rows": {"problems": n_problems, "solutions": tally.solutions, "pairs": 0},
        "quarantined": dict(sorted(quarantined.items())),
        **tally.counts(),
        "statistics": statistics(tally),
        "cost": {"tokens": tally.tokens, "prm_calls": 0, "seconds": round(tally.seconds, 3)},
        "files": files,
    }


def files_digest(files: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest of a dataset: of its files' names and contents."""
    return digest(SCHEMA_VERSION, [(file["path"], file["sha256"]) for file in files])


def file_entry(root: Path, file: Path, rows: int) -> dict[str, Any]:
    """Describe a finished file of the dataset in ``root``."""
    return {
        "path": file.relative_to(root).as_posix(),
        "sha256": file_sha256(file),
        "bytes": file.stat().st_size,
        "rows": rows,
    }


def statistics(tally: Tally) -> dict[str, Any]:
    """Derive what the counts mean; every share carries its denominator."""
    return {
        **outcome_statistics(tally),
        "truncated": tally.truncated,
        "unique_solutions": tally.unique,
        "tokens_per_second": round(tally.tokens / tally.seconds, 1) if tally.seconds else None,
    }


def outcome_statistics(tally: Tally) -> dict[str, Any]:
    """Derive what the counts by outcome mean.

    Accuracy is the mean over graded solutions. The samples of one problem are alike, so its 95 %
    interval is clustered by problem; pass@M counts problems, so its interval is Wilson's.
    """
    graded = sum(n for _, n in tally.accuracies)
    correct = sum(right for right, _ in tally.accuracies)
    with_gold = [(right, n) for right, n in tally.accuracies if n]
    solved = sum(right > 0 for right, _ in with_gold)
    return {
        "accuracy": {
            "value": _share(correct, graded),
            "correct": correct,
            "n": graded,
            "ci95": clustered_interval(with_gold),
        },
        "pass_at_m": {
            "value": _share(solved, len(with_gold)),
            "solved": solved,
            "n": len(with_gold),
            "ci95": wilson_interval(solved, len(with_gold)),
        },
        "mixed_problems": sum(0 < right < n for right, n in with_gold),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a sealed dataset.

    Raises:
        SchemaError: if there is none, it is not JSON, or its schema is of another major version.
    """
    file = root / MANIFEST
    if not file.exists():
        started = (root / CONFIG).exists()
        raise SchemaError(
            f"{root} holds a run that has not been sealed. Finish it with the command that "
            "started it and --resume."
            if started
            else f"{root} holds no dataset ({MANIFEST} is missing). Expected the --out directory "
            "of `fsdpo-data build`."
        )
    try:
        manifest: Manifest = json.loads(file.read_text())
        version = int(manifest["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaError(
            f"{file} is not a manifest: {error!r}. Fetch or build it again."
        ) from None
    if version != SCHEMA_VERSION:
        raise SchemaError(
            f"{file} is of schema version {version}; this release reads version {SCHEMA_VERSION}. "
            + (
                "Install a newer release of fsdpo."
                if version > SCHEMA_VERSION
                else f"Bring it up to date: fsdpo-data migrate {root} --out NEW."
            )
        )
    return manifest
