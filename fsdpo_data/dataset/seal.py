"""Sealing: the last step of every run that makes a dataset."""

from __future__ import annotations

from pathlib import Path

from fsdpo_data.core.files import explained, write_atomic
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import MANIFEST
from fsdpo_data.dataset.validate import check_invariants


def seal(root: Path, manifest: Manifest, *, saved: int = 0) -> None:
    """Check the finished files in ``root``, write the card, and the manifest last of all.

    Args:
        root: The dataset's directory.
        manifest: What it will say about itself.
        saved: Problems whose samples are safe there whatever happens, for error messages.

    Raises:
        SchemaError: if the files break an invariant.
        StoreError: if the disk fails.
    """
    check_invariants(root, manifest)
    with explained(root, saved=saved):
        write_atomic(root / "README.md", dataset_card(root, manifest).encode())
        write_atomic(root / MANIFEST, manifest.text().encode())
