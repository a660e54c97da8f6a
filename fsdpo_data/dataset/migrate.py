"""Datasets of older schemas, brought to the schema of this release one version at a time."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.files import store_errors
from fsdpo_data.dataset.manifest import read_schema_version
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.stage import copy_file
from fsdpo_data.dataset.validate import validate

#: From a version to the next: changes the dataset in a directory of its own, manifest and all.
#: Schema 1 is the first, so there is nothing to come from yet.
MIGRATIONS: Mapping[int, Callable[[Path], None]] = {}


def migrate_dataset(
    root: Path, out: Path, *, migrations: Mapping[int, Callable[[Path], None]] = MIGRATIONS
) -> int:
    """Write the dataset in ``root`` to ``out`` in this release's schema; return what it was of.

    Raises:
        InputError: if it is of that version already, or ``out`` is taken.
        SchemaError: if it is no dataset, of a newer version, or not valid after all.
    """
    version = read_schema_version(root)
    if version == SCHEMA_VERSION:
        raise InputError(f"{root} is of schema {version} already: there is nothing to migrate.")
    missing = [step for step in range(version, SCHEMA_VERSION) if step not in migrations]
    if version > SCHEMA_VERSION or missing:
        raise SchemaError(
            f"{root} is of schema {version}, which this release cannot bring to {SCHEMA_VERSION}. "
            "Install the newest release of fsdpo."
        )
    if out.exists():
        raise InputError("it exists already. Choose a new directory.", field="out", value=out)
    draft = out.with_name(f".{out.name}.partial")
    with store_errors(out):
        shutil.rmtree(draft, ignore_errors=True)
    for file in sorted(each for each in root.rglob("*") if each.is_file()):
        copy_file(file, draft / file.relative_to(root))
    for step in range(version, SCHEMA_VERSION):
        migrations[step](draft)
    validate(draft)
    with store_errors(out):
        draft.rename(out)
    return version
