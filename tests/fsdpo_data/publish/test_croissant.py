"""Tests of the Croissant metadata that a push writes, with MLCommons' own library."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import mlcroissant
import polars as pl
import pytest
from helpers import build_spec, label_with_rollouts, problem_set, small_build
from hub_server import TOKEN, HubServer, client_env, run_client, running_hub
from paired_data import paired_dataset

from fsdpo_data.core.identity import SourceRef
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.croissant import Publication, croissant_metadata
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import CONFIGS, arrow_schema
from fsdpo_data.exchange.step_label_dataset import import_dataset

# mlcroissant 1.1.1 calls functions of rdflib and pandas that their newest releases call outdated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

EARLIER = Publication(
    "o/r", "https://hub.example", "v2.0", date=date(2026, 1, 2), owner_type="Organization"
)
#: Reads the metadata from its address, and the rows from the addresses in it.
READ_ROWS = """
import pathlib, pickle, mlcroissant
dataset = mlcroissant.Dataset({url!r})
rows = {{name: list(dataset.records(name)) for name in ("problems", "solutions", "pairs")}}
pathlib.Path("rows.pickle").write_bytes(pickle.dumps(rows))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def push(hub: HubServer, home: Path, dataset: Path) -> dict[str, Any]:
    """Push a dataset as ``o/r``, and return the published metadata."""
    code = f"import fsdpo_data\nfsdpo_data.push({str(dataset)!r}, 'o/r', public=True)"
    ran = run_client(code, client_env(hub.url, home, HF_TOKEN=TOKEN))
    assert ran.returncode == 0, ran.stderr
    metadata: dict[str, Any] = json.loads(hub.repos["dataset", "o/r"].at()["croissant.json"])
    return metadata


def metadata_of(dataset: Path, publication: Publication = EARLIER) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(
        croissant_metadata(dataset, read_manifest(dataset), publication)
    )
    return metadata


def plain_rows(records: Any, config: str) -> list[dict[str, Any]]:
    """Return records of mlcroissant as rows of polars."""
    return [
        {name.removeprefix(f"{config}/"): plain_value(value) for name, value in record.items()}
        for record in records
    ]


def plain_value(value: Any) -> Any:
    """Return a value of mlcroissant as polars returns it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name.rpartition("/")[2]: plain_value(item) for name, item in value.items()}
    if isinstance(value, list):
        items = [plain_value(item) for item in value]
        # mlcroissant returns a missing list of structs as one struct without values
        is_missing = items and isinstance(items[0], dict) and not any(items[0].values())
        return None if is_missing else items
    return value.item() if hasattr(value, "item") else value


def stream_local_rows(root: Path, config: str) -> list[dict[str, Any]]:
    """Return the rows that mlcroissant reads from the files of a local dataset."""
    files = {entry.path: root / entry.path for entry in read_manifest(root).files}
    records = mlcroissant.Dataset(metadata_of(root), mapping=files).records(config)
    return plain_rows(records, config)


def rows_of(root: Path, config: str) -> list[dict[str, Any]]:
    return pl.read_parquet(root / config / "*.parquet").to_dicts()


def test_mlcroissant_streams_the_pushed_rows(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    push(hub, tmp_path / "home", dataset)
    url = f"{hub.url}/datasets/o/r/resolve/v2.0/croissant.json"
    env = client_env(hub.url, tmp_path / "reader", PYTHONWARNINGS="")
    ran = run_client(READ_ROWS.format(url=url), env)
    assert ran.returncode == 0, ran.stderr
    rows = pickle.loads((tmp_path / "reader/rows.pickle").read_bytes())
    for config in CONFIGS:
        assert plain_rows(rows[config], config) == rows_of(dataset, config)

    path = next(path for path in hub.repos["dataset", "o/r"].at() if path.startswith("pairs/"))
    hub.repos["dataset", "o/r"].at()[path] += b"x"
    env = client_env(hub.url, tmp_path / "second-reader", PYTHONWARNINGS="")
    ran = run_client(READ_ROWS.format(url=url), env)
    assert ran.returncode != 0 and "is not identical with the reference" in ran.stderr


def test_mlcroissant_streams_several_files_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 4)
    small_build(tmp_path / "run", problem_set(3))
    assert len(list(tmp_path.glob("run/solutions/*.parquet"))) == 3
    metadata = metadata_of(tmp_path / "run")
    (tmp_path / "run/croissant.json").write_text(json.dumps(metadata))
    records = mlcroissant.Dataset(tmp_path / "run/croissant.json").records("solutions")
    assert plain_rows(records, "solutions") == rows_of(tmp_path / "run", "solutions")


def test_mlcroissant_streams_rollouts(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(2))
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled")
    rows = stream_local_rows(tmp_path / "labelled", "solutions")
    assert rows == rows_of(tmp_path / "labelled", "solutions")
    assert any(row["rollouts"] for row in rows)


def test_mlcroissant_streams_imported_labels(tmp_path: Path) -> None:
    row = {"question": "2+2?", "process": "a ки\nb ки", "labels": [1, 0]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    import_dataset(tmp_path / "rows.jsonl", "openr", tmp_path / "labels")
    rows = stream_local_rows(tmp_path / "labels", "solutions")
    assert rows == rows_of(tmp_path / "labels", "solutions")
    assert rows[0]["step_labels"] == [1.0, 0.0]
    metadata = metadata_of(tmp_path / "labels")
    assert "rai:annotationsPerItem" not in metadata  # the manifest does not say who labelled
    assert metadata["rai:dataAnnotationProtocol"][-1].startswith(
        "Labels: imported from openr: 1 and + are right;"
    )


def test_the_metadata_states_what_the_manifest_knows_and_nothing_else(dataset: Path) -> None:
    metadata = metadata_of(dataset)
    manifest = read_manifest(dataset)
    issues = mlcroissant.Dataset(metadata).metadata.ctx.issues
    assert not issues.errors
    assert [warning.partition("] ")[2] for warning in issues.warnings] == [
        'Property "https://schema.org/license" is recommended, but does not exist.'
    ]
    assert "The licence of the problems is not known." in metadata["rai:dataLimitations"]
    files = {entry["@id"]: entry for entry in metadata["distribution"]}
    assert {path: entry["sha256"] for path, entry in files.items()} == {
        entry.path: entry.sha256 for entry in manifest.files
    }
    for record_set in metadata["recordSet"]:
        names = [field["name"] for field in record_set["field"]]
        assert names == arrow_schema(record_set["@id"]).names
        assert all(field["description"] for field in record_set["field"])
    assert metadata["rai:machineAnnotationTools"] == [
        f"grader {manifest.spec.grader} of {manifest.made_by}",
        "process reward model made-up-prm at sha256:0",
    ]
    assert metadata["rai:annotationsPerItem"].startswith("0 human labels")
    assert "rai:annotatorDemographics" not in metadata
    assert "rai:dataSocialImpact" not in metadata
    assert metadata["creator"] == {
        "@type": "sc:Organization",
        "name": "o",
        "url": "https://hub.example/o",
    }
    unknown_owner = replace(EARLIER, owner_type=None)
    assert "creator" not in metadata_of(dataset, unknown_owner)


def test_a_known_licence_leaves_no_warning(tmp_path: Path) -> None:
    sources = (SourceRef("openai/gsm8k", "1", "train"), SourceRef("embedded", "1", "train"))
    problems = replace(problem_set(1), source_refs=list(sources))
    small_build(tmp_path / "run", problems, spec=replace(build_spec(), sources=sources))
    metadata = metadata_of(tmp_path / "run")
    issues = mlcroissant.Dataset(metadata).metadata.ctx.issues
    assert not issues.errors and not issues.warnings
    assert metadata["license"] == [
        "https://spdx.org/licenses/Apache-2.0",
        "https://spdx.org/licenses/MIT",
    ]


def test_an_equal_version_keeps_its_date_and_a_new_one_gets_today(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    hub.organizations.add("o")
    earlier = replace(EARLIER, hub_url=hub.url)
    manifest = read_manifest(dataset)
    files = {entry.path: (dataset / entry.path).read_bytes() for entry in manifest.files}
    files["manifest.json"] = (dataset / "manifest.json").read_bytes()
    files["README.md"] = dataset_card(dataset, manifest, name="o/r", revision="v2.0").encode()
    files["croissant.json"] = croissant_metadata(dataset, manifest, earlier).encode()
    repo = hub.add("dataset", "o/r", files)
    repo.refs["v2.0"] = repo.refs["main"]
    repo.tags.add("v2.0")
    metadata = push(hub, tmp_path / "home", dataset)
    assert metadata["datePublished"] == "2026-01-02" and len(repo.commits) == 1

    changed = paired_dataset(tmp_path / "changed", salt="2")
    metadata = push(hub, tmp_path / "home", changed)
    assert metadata["datePublished"] == datetime.now(UTC).date().isoformat()
    assert metadata["version"] == "2.1.0" and "v2.1" in repo.tags
    assert all("/resolve/v2.1/" in entry["contentUrl"] for entry in metadata["distribution"])


def test_metadata_of_another_tool_is_replaced(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    repo = hub.add("dataset", "o/r", {"croissant.json": b'{"datePublished": 3}'})
    metadata = push(hub, tmp_path / "home", dataset)
    assert metadata["creator"]["@type"] == "sc:Person"
    assert repo.resolve("v2.0") == repo.refs["main"]
