"""Migrate datasets of older schemas to the schema of this release, one version at a time."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.files import store_errors
from fsdpo_data.dataset.manifest import read_schema_version
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.stage import copy_file
from fsdpo_data.dataset.validate import validate

#: Functions that change a copy of a dataset, with its manifest, from a version to the next.
#: Schema 1 is the first version, so the table is empty.
MIGRATIONS: Mapping[int, Callable[[Path], None]] = {}


def migrate_dataset(
    root: Path, out: Path, *, migrations: Mapping[int, Callable[[Path], None]] = MIGRATIONS
) -> int:
    """Write the dataset in ``root`` to ``out`` in the schema of this release.

    Returns:
        The schema version of the dataset in ``root``.

    Raises:
        InputError: if the dataset has this release's version already, or ``out`` exists.
        SchemaError: if ``root`` is not a dataset, if its version is newer, or if the result is not
            valid.
        StoreError: if ``out`` cannot be written.
    """
    version = read_schema_version(root)
    if version == SCHEMA_VERSION:
        raise InputError(f"{root} is of schema {version} already: there is nothing to migrate.")
    versions = range(version, SCHEMA_VERSION)
    missing_migrations = [old_version for old_version in versions if old_version not in migrations]
    if version > SCHEMA_VERSION or missing_migrations:
        raise SchemaError(
            f"{root} is of schema {version}, which this release cannot bring to {SCHEMA_VERSION}. "
            "Install the newest release of fsdpo."
        )
    if out.exists():
        raise InputError(
            "the directory exists already. Choose a new directory.", field="out", value=out
        )
    draft = out.with_name(f".{out.name}.partial")
    with store_errors(out):
        shutil.rmtree(draft, ignore_errors=True)
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        copy_file(file, draft / file.relative_to(root))
    for old_version in versions:
        migrations[old_version](draft)
    validate(draft)
    with store_errors(out):
        draft.rename(out)
    return version
