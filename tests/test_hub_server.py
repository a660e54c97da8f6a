"""The loopback Hub answers the real clients as the Hub does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import TOKEN, HubServer, running_hub
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

FILES = {"README.md": b"# r", "data/a.txt": b"0123456789", "data/deep/b.txt": b"b"}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def api(hub: HubServer, token: str | bool = False) -> HfApi:
    return HfApi(endpoint=hub.url, token=token)


def test_info_names_the_commit_of_each_revision(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    first = repo.refs["main"]
    repo.refs["v1"] = repo.refs["refs/pr/1"] = first
    second = repo.commit({**FILES, "new": b""})
    assert first != second
    assert api(hub).dataset_info("o/r").sha == second
    for revision in ("v1", first, "refs/pr/1"):
        assert api(hub).dataset_info("o/r", revision=revision).sha == first


def test_listings(hub: HubServer) -> None:
    hub.add("model", "o/r", FILES)
    found = api(hub).list_repo_tree("o/r", recursive=True)
    assert sorted(entry.path for entry in found) == sorted([*FILES, "data", "data/deep"])
    assert [entry.path for entry in api(hub).list_repo_tree("o/r", "data")] == [
        "data/a.txt",
        "data/deep",
    ]
    (info,) = api(hub).get_paths_info("o/r", ["data/a.txt", "nope"])
    assert info.path == "data/a.txt"
    assert info.size == 10
    assert info.blob_id == hashlib.sha1(b"blob 10\x000123456789").hexdigest()


def test_downloads_carry_commit_and_etag_and_take_ranges(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.add("dataset", "o/r", FILES).refs["main"]
    path = api(hub).hf_hub_download("o/r", "data/a.txt", repo_type="dataset", cache_dir=tmp_path)
    assert Path(path).read_bytes() == b"0123456789"
    assert commit in Path(path).parts
    files = HfFileSystem(endpoint=hub.url, token=False, use_listings_cache=False)
    with files.open("datasets/o/r/data/a.txt", block_size=4) as file:
        file.seek(3)
        assert file.read(3) == b"345"


def test_refusals_have_the_hubs_error_codes(hub: HubServer, tmp_path: Path) -> None:
    hub.add("model", "o/private", FILES, private=True)
    hub.add("model", "o/gated", FILES, gated=True)
    with pytest.raises(RepositoryNotFoundError):
        api(hub).model_info("o/nope")
    with pytest.raises(RepositoryNotFoundError):
        api(hub).model_info("o/private")
    assert api(hub, TOKEN).model_info("o/private").private
    with pytest.raises(RevisionNotFoundError):
        api(hub).model_info("o/gated", revision="nope")
    with pytest.raises(GatedRepoError):
        api(hub).hf_hub_download("o/gated", "README.md", cache_dir=tmp_path)
    assert api(hub, TOKEN).hf_hub_download("o/gated", "README.md", cache_dir=tmp_path)
    with pytest.raises(RemoteEntryNotFoundError):
        api(hub, TOKEN).hf_hub_download("o/gated", "nope", cache_dir=tmp_path)
    with pytest.raises(HfHubHTTPError, match="401"):
        api(hub, "hf_wrong").model_info("o/gated")


def test_faults_on_demand(hub: HubServer) -> None:
    hub.add("model", "o/r", FILES)
    hub.fail("/api/models/o/r", 503)
    with pytest.raises(HfHubHTTPError, match="503"):
        api(hub).model_info("o/r")
    hub.faults.clear()
    assert api(hub).model_info("o/r").sha
    assert hub.requests == ["GET /api/models/o/r"] * 2
