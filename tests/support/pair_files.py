"""Scored datasets to pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from helpers import seal_json

from fsdpo_data.core.identity import file_sha256
from fsdpo_data.dataset.manifest import AnyRecord
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.dataset.stage import Stage


class Rewards(Stage):
    """A stage that sets the rewards of every solution by a table of texts."""

    name = "score"
    writes = ("step_rewards",)

    def __init__(self, table: dict[str, Sequence[float] | None]) -> None:
        self.table = table

    def options(self) -> dict[str, Any]:
        return {
            "prm": {"name": "table", "revision": "0"},
            "engine": {"name": "none", "dtype": "float32"},
        }

    def check(self, source: Path, manifest: dict[str, Any]) -> None:
        pass

    def run(self, draft: Any) -> AnyRecord:
        draft.rewrite_config("solutions", "score", self._add_rewards)
        draft.update_pairs()
        return self.make_record()

    def _add_rewards(self, table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        for row in rows:
            row["step_rewards"] = self.table["".join(row["completions"])]
        return pa.Table.from_pylist(rows, schema=arrow_schema("solutions"))


def rewrite(root: Path, **fields: Any) -> None:
    """Change the first pair and re-seal the file."""
    file = root / "pairs/train-00000-of-00001.parquet"
    rows = pq.read_table(file).to_pylist()
    rows[0].update(fields)
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema("pairs")), file)
    manifest = json.loads((root / "manifest.json").read_text())
    for entry in manifest["files"]:
        entry["sha256"] = file_sha256(root / entry["path"])
    (root / "manifest.json").write_text(seal_json(manifest))
