"""Tests of the loopback Hub: it answers the real clients as the Hub does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import READ_TOKEN, TOKEN, HubServer, running_hub
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    HfFileSystem,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

# huggingface-hub 2.4 sends a file in a way that its own HTTP library calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

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
    entries = api(hub).list_repo_tree("o/r", recursive=True)
    assert sorted(entry.path for entry in entries) == sorted([*FILES, "data", "data/deep"])
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


def writer(hub: HubServer) -> HfApi:
    return api(hub, TOKEN)


@pytest.fixture(autouse=True)
def plain_lfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """This test uploads large files by LFS; ``test_publish`` uses Xet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


def additions(files: dict[str, bytes]) -> list[CommitOperationAdd]:
    return [CommitOperationAdd(path, data) for path, data in files.items()]


def push(hub: HubServer, files: dict[str, bytes], parent: str | None = None) -> CommitInfo:
    return writer(hub).create_commit(
        "o/r",
        additions(files),
        commit_message="files",
        repo_type="dataset",
        parent_commit=parent,
    )


def test_repositories_are_made_once(hub: HubServer) -> None:
    for _ in range(2):
        url = writer(hub).create_repo("o/r", repo_type="dataset", private=True, exist_ok=True)
        assert str(url) == f"{hub.url}/datasets/o/r"
    assert hub.repos["dataset", "o/r"].private
    with pytest.raises(HfHubHTTPError, match="409"):
        writer(hub).create_repo("o/r", repo_type="dataset")
    writer(hub).update_repo_settings("o/r", repo_type="dataset", private=False)
    assert not hub.repos["dataset", "o/r"].private


def test_a_commit_holds_small_and_large_files(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    first = push(hub, {"data/a.parquet": b"parquet", "README.md": b"---\nlicense: mit\n---\n"})
    assert repo.refs["main"] == first.oid
    assert repo.at()["data/a.parquet"] == b"parquet"
    assert repo.at()["data/deep/b.txt"] == b"b"
    assert hub.messages[first.oid] == "files"
    (info,) = writer(hub).get_paths_info("o/r", ["data/a.parquet"], repo_type="dataset")
    assert info.lfs.sha256 == hashlib.sha256(b"parquet").hexdigest()
    # What is there already is neither sent nor committed again.
    hub.requests.clear()
    push(hub, {"data/b.parquet": b"parquet"})
    assert not [request for request in hub.requests if request.startswith("PUT")]
    head = repo.refs["main"]
    assert push(hub, {"data/b.parquet": b"parquet"}).oid == head == repo.refs["main"]


def test_deletions_and_branches(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    writer(hub).create_branch("o/r", branch="draft", repo_type="dataset")
    operations = [CommitOperationDelete("README.md"), CommitOperationDelete("data/deep/")]
    writer(hub).create_commit(
        "o/r", operations, commit_message="m", repo_type="dataset", revision="draft"
    )
    assert sorted(repo.at("draft")) == ["data/a.txt"]
    assert sorted(repo.at("main")) == sorted(FILES)


def test_a_commit_on_an_outdated_parent_is_refused(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    old = repo.refs["main"]
    new = push(hub, {"a": b"1"}, parent=old).oid
    with pytest.raises(HfHubHTTPError, match="412"):
        push(hub, {"b.parquet": b"2"}, parent=old)
    assert repo.refs["main"] == new


def test_tags_stay_where_they_are(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    first = repo.refs["main"]
    writer(hub).create_tag("o/r", tag="v1.0", repo_type="dataset")
    second = push(hub, {"a": b"1"}).oid
    with pytest.raises(HfHubHTTPError, match="409"):
        writer(hub).create_tag("o/r", tag="v1.0", repo_type="dataset")
    refs = writer(hub).list_repo_refs("o/r", repo_type="dataset")
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1.0", first)]
    assert [(branch.name, branch.target_commit) for branch in refs.branches] == [("main", second)]
    assert writer(hub).dataset_info("o/r", revision="v1.0").sha == first


def test_only_writers_write(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    for token, status in ((READ_TOKEN, "403"), ("hf_wrong", "401")):
        with pytest.raises(HfHubHTTPError, match=status):
            api(hub, token).create_tag("o/r", tag="v1.0", repo_type="dataset")
    assert not repo.tags


def test_a_broken_card_is_refused(hub: HubServer) -> None:
    hub.add("dataset", "o/r", FILES)
    with pytest.raises(ValueError, match=r"Invalid metadata in README\.md"):
        push(hub, {"README.md": b"---\nlicense: [\n---\n"})


def test_a_large_file_survives_a_cut_connection(hub: HubServer) -> None:
    repo = hub.add("dataset", "o/r", FILES)
    hub.cut("PUT /lfs/", body_bytes=100_000, times=1)
    push(hub, {"a.parquet": bytes(1_000_000)})
    assert repo.at()["a.parquet"] == bytes(1_000_000)
    assert len([request for request in hub.requests if request.startswith("PUT /lfs/")]) == 2


def test_faults_pass(hub: HubServer) -> None:
    hub.add("dataset", "o/r", FILES)
    hub.fail("/preupload/", 429, times=1, Retry_After="0")
    assert push(hub, {"a": b"1"}).oid
