"""Tests of datasets and shards behind URLs, in the memory of this process and in a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pytest
from command_line import run
from helpers import small_build
from replayed_build import build_line, write_recording

from fsdpo_data import api
from fsdpo_data.core.errors import (
    FsdpoError,
    InputError,
    RunMismatchError,
    SchemaError,
    UnavailableError,
)
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.urls import hide_credentials
from fsdpo_data.dataset.manifest import AnyRecord, read_manifest
from fsdpo_data.dataset.remote import expand_folders, local_copy, upload
from fsdpo_data.dataset.stage import DatasetDraft
from fsdpo_data.dataset.validate import validate
from fsdpo_data.stages.select import SelectStage

#: A key whose characters are patterns elsewhere.
STORE = "memory://bucket/a [1] b*"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test an empty cache and an empty store in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield tmp_path / "cache" / "fsdpo"
    store.store.clear()


def memory() -> dict[str, bytes]:
    """Return the content of each file in memory."""
    return {key: file.getvalue() for key, file in fsspec.filesystem("memory").store.items()}


def stored_files(url: str) -> dict[str, bytes]:
    """Return the content of the files below a URL in memory."""
    prefix = "/" + url.partition("://")[2] + "/"
    return {
        key.removeprefix(prefix): data for key, data in memory().items() if key.startswith(prefix)
    }


def local_files(root: Path) -> dict[str, bytes]:
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def change_memory(url: str, change: bytes | None) -> None:
    """Replace a file in memory, or delete it."""
    store = fsspec.filesystem("memory")
    key = "/" + url.partition("://")[2]
    if change is None:
        del store.store[key]
    else:
        store.pipe_file(key, change)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("recording"))


def run_command(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    code, out, err = run(capsys, *line)
    assert code == 0, err
    return out + err


def expect_error(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    code, out, err = run(capsys, *line)
    assert code == 1, out
    return err


def test_builds_and_labels_in_shards_have_the_bytes_of_local_ones(
    capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path, cache: Path
) -> None:
    line = build_line(recording)
    run_command(capsys, *line, "--out", str(tmp_path / "built"))
    for index in (1, 2, 3):
        out = f"{STORE}/x-shards/{index}"
        text = run_command(capsys, *line, "--shard", f"{index}/3", "--out", out)
        assert f"fsdpo-data merge '{out}'" in text
    shutil.rmtree(cache)  # the merge runs on another machine
    # Objects that are not shards do not disturb, and neither does a folder with a longer name.
    change_memory(f"{STORE}/x-shards/notes.txt", b"shards of x")
    text = run_command(capsys, "merge", f"{STORE}/x-shards/*", "--out", f"{STORE}/x")
    assert f"sealed {STORE}/x" in text and "load the model" not in text
    assert stored_files(f"{STORE}/x") == local_files(tmp_path / "built")

    replay = ["--engine", "replay", "--replay", str(recording / "recorded.jsonl")]
    label = ["--rollouts", "4", *replay, "--model", "tiny"]
    run_command(
        capsys, "label", str(tmp_path / "built"), *label, "--out", str(tmp_path / "labelled")
    )
    for index in (1, 2):
        out = f"{STORE}/y-shards/{index}"
        run_command(capsys, "label", f"{STORE}/x", *label, "--shard", f"{index}/2", "--out", out)
    description = json.loads(stored_files(f"{STORE}/y-shards/1")["shard.json"])
    assert description["options"]["data"] == f"{STORE}/x"
    shutil.rmtree(cache)
    shards = [f"{STORE}/y-shards/{index}" for index in (2, 1)]
    run_command(capsys, "merge", *shards, "--out", f"{STORE}/y")
    expected_files = local_files(tmp_path / "labelled")
    assert "rollouts/completions.jsonl" in expected_files
    assert stored_files(f"{STORE}/y") == expected_files


def test_readers_take_urls(capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path) -> None:
    small_build(tmp_path / "a")
    upload(tmp_path / "a", RemoteFolder(f"{STORE}/a"))
    data = api.open_dataset(f"{STORE}/a")
    assert data.url == f"{STORE}/a" and data.path.is_relative_to(cache / "copies")
    assert validate(data.path) == data.manifest
    assert data.solutions().collect().equals(api.open_dataset(tmp_path / "a").solutions().collect())
    assert not (data.path / "completions.jsonl").exists()
    with pytest.raises(InputError, match=r"memory://.*has no pairs"):
        data.pairs()
    assert "is valid" in run_command(capsys, "validate", f"{STORE}/a")
    assert f"{STORE}/a" in run_command(capsys, "inspect", f"{STORE}/a", "--count", "1")
    assert "12 in both" in run_command(capsys, "diff", f"{STORE}/a", str(tmp_path / "a"))
    err = expect_error(capsys, "pair", f"{STORE}/a", "--out", f"{STORE}/pairs")
    assert f"{STORE}/a has no step rewards" in err and "copies" not in err
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        run_command(capsys, "view", f"{STORE}/a")
    assert (tmp_path / "a.html").is_file()
    selected = data.select(out=f"{STORE}/chosen", split=["validation=0.4"])
    assert selected.url == f"{STORE}/chosen"
    validation = api.open_dataset(f"{STORE}/chosen-validation")
    rows = [part.manifest.rows.problems for part in (selected, validation)]
    assert sum(rows) == 3 and all(rows)


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_nothing_opens_before_the_last_file_and_resume_completes_the_upload(
    protocol: str,
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = STORE if protocol == "memory" else f"file://{tmp_path}/store [1] b"
    line = [*build_line(recording), "--out", f"{root}/x"]
    file_system = type(fsspec.filesystem(protocol))
    put_file = file_system.put_file

    def stop_at_manifest(self: Any, source: str, target: str, **options: Any) -> None:
        if target.endswith("manifest.json"):
            raise ConnectionResetError("the line is dead")
        put_file(self, source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(file_system, "put_file", stop_at_manifest)
        assert "the line is dead" in expect_error(capsys, *line)
    with pytest.raises(SchemaError, match=r"holds no dataset \(manifest.json is missing\)"):
        api.open_dataset(f"{root}/x")
    assert "sample:" not in run_command(capsys, *line, "--resume")  # the samples are on this disk
    run_command(capsys, *build_line(recording), "--out", str(tmp_path / "built"))
    folder = RemoteFolder(f"{root}/x")
    assert folder.list_files() == sorted(local_files(tmp_path / "built"))
    for path, content in local_files(tmp_path / "built").items():
        folder.download(path, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == content
    assert validate(local_copy(folder.url)).digest


def test_a_complete_run_is_resumed_on_another_machine(
    capsys: pytest.CaptureFixture[str], recording: Path, cache: Path
) -> None:
    line = [*build_line(recording), "--out", f"{STORE}/x"]
    run_command(capsys, *line)
    finished_files = stored_files(f"{STORE}/x")
    shutil.rmtree(cache)
    err = expect_error(capsys, *line)
    assert f"{STORE}/x already holds a run" in err and "--resume" in err
    other_err = expect_error(capsys, *line, "--temperature", "0.5", "--resume")
    assert "sampling.temperature: 'unknown' in the run, 0.5 now" in other_err
    assert "sample:" not in run_command(capsys, *line, "--resume")
    assert stored_files(f"{STORE}/x") == finished_files


def test_a_new_upload_replaces_the_files_of_an_old_one(tmp_path: Path) -> None:
    small_build(tmp_path / "a")
    folder = RemoteFolder(f"{STORE}/a")
    (tmp_path / "a/failures.jsonl").write_text('{"id": "1", "reason": "too long"}\n')
    upload(tmp_path / "a", folder)
    assert "failures.jsonl" in folder.list_files()
    (tmp_path / "a/failures.jsonl").unlink()
    upload(tmp_path / "a", folder)
    assert stored_files(folder.url) == local_files(tmp_path / "a")


def test_a_copy_has_only_the_files_of_the_newest_version(tmp_path: Path) -> None:
    """The first version has a file per problem, and the second one has one file."""
    url = (tmp_path / "store").as_uri()
    small_build(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "edited")
    file = tmp_path / "edited/solutions/train-00000-of-00001.parquet"
    for part in pl.read_parquet(file).partition_by("problem_id"):
        part.write_parquet(file.with_name(f"{part['problem_id'][0]}.parquet"))
    file.unlink()
    first = api.seal(tmp_path / "edited", out=tmp_path / "first")
    assert len(first.manifest.config_files("solutions")) > 1
    for version in (first.path, tmp_path / "data"):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        shutil.copytree(version, tmp_path / "store")
        assert api.open_dataset(url).validate().manifest == read_manifest(version)


def test_other_content_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path
) -> None:
    change_memory(f"{STORE}/x/notes.txt", b"mine")
    err = expect_error(capsys, *build_line(recording), "--out", f"{STORE}/x")
    assert "holds other files (notes.txt) and no run" in err and "sample" not in err
    change_memory(f"{STORE}/x/notes.txt", None)
    small_build(tmp_path / "a")
    upload(tmp_path / "a", RemoteFolder(f"{STORE}/x"))
    capsys.readouterr()
    old_content = memory()
    err = expect_error(capsys, *build_line(recording), "--out", f"{STORE}/x")
    assert "already holds a run" in err and "sample" not in err
    with pytest.raises(InputError, match="datasets are never changed"):
        api.open_dataset(f"{STORE}/x").grade(out=f"{STORE}/x/")
    assert memory() == old_content
    # Unrelated files that come later do not disturb readers.
    change_memory(f"{STORE}/x/later.txt", b"mine")
    validate(local_copy(f"{STORE}/x"))


@pytest.mark.parametrize("content", ["files", "dataset", "input"])
def test_a_split_does_not_replace_what_its_url_holds(tmp_path: Path, content: str) -> None:
    small_build(tmp_path / "a")
    upload(tmp_path / "a", RemoteFolder(f"{STORE}/a"))
    if content == "files":
        change_memory(f"{STORE}/x-test/notes.txt", b"mine")
    else:
        upload(tmp_path / "a", RemoteFolder(f"{STORE}/x-test"))
    data = api.open_dataset(f"{STORE}/{'x-test' if content == 'input' else 'a'}")
    old_content = memory()
    with pytest.raises(RunMismatchError, match=r"x-test (holds other files|was started with)"):
        data.select(out=f"{STORE}/x", split=["test=0.4"])
    assert memory() == old_content


def test_splits_of_a_stopped_command_are_not_uploaded_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_build(tmp_path / "a")
    data = api.open_dataset(tmp_path / "a")
    run_stage = SelectStage.run

    def stop_at_rest(self: SelectStage, draft: DatasetDraft) -> AnyRecord:
        if self.split == "train":
            raise KeyboardInterrupt
        return run_stage(self, draft)

    with monkeypatch.context() as patch:
        patch.setattr(SelectStage, "run", stop_at_rest)
        with pytest.raises(KeyboardInterrupt):
            data.select(out=f"{STORE}/x", split=["test=0.4"])
    with pytest.raises(RunMismatchError, match="stopped after it had written x-test"):
        data.select(out=f"{STORE}/x", unique=True)
    assert not memory()
    data.select(out=f"{STORE}/x", split=["test=0.4"], resume=True)
    assert api.open_dataset(f"{STORE}/x-test").manifest.rows.problems


def test_a_dry_run_uploads_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_build(tmp_path / "a")
    line = ["select", str(tmp_path / "a"), "--unique", "--out", f"{STORE}/x"]

    def refuse(self: RemoteFolder, file: Path, path: str) -> None:
        raise UnavailableError("the line is dead")

    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "upload", refuse)
        assert "the line is dead" in expect_error(capsys, *line)
    assert "unique: dropped" in run_command(capsys, *line, "--dry-run")
    assert not memory()
    run_command(capsys, *line, "--resume")
    assert "unique: dropped" in run_command(capsys, *line, "--dry-run")


def test_damage_is_found_on_the_way_back(tmp_path: Path) -> None:
    small_build(tmp_path / "a")
    url = f"{STORE}/a"
    upload(tmp_path / "a", RemoteFolder(url))
    path = "solutions/train-00000-of-00001.parquet"
    content = stored_files(url)[path]
    change_memory(f"{url}/{path}", content[:-9] + bytes(byte ^ 1 for byte in content[-9:]))
    with pytest.raises(SchemaError, match=r"(?s)memory://.*solutions.*SHA-256 differs"):
        api.open_dataset(url)
    change_memory(f"{url}/{path}", content)
    data = api.open_dataset(url)
    # A damaged copy is downloaded again.
    (data.path / path).write_bytes(content[:-1] + b"x")
    assert validate(api.open_dataset(url).path) == data.manifest
    manifest = stored_files(url)["manifest.json"]
    change_memory(f"{url}/manifest.json", manifest.replace(b"fixed", b"other"))
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        api.open_dataset(url)


def test_a_second_reader_of_a_shard_keeps_the_files_of_the_first(
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"{STORE}/shard"
    run_command(capsys, *build_line(recording), "--shard", "1/2", "--out", url)
    change_memory(f"{url}/failures.jsonl", b"")
    shutil.rmtree(cache)
    copy = local_copy(url)
    files = local_files(copy)
    assert files.keys() >= {"shard.json", "completions.jsonl", "failures.jsonl"}
    file_system = type(fsspec.filesystem("memory"))
    get_file = file_system.get_file

    def download(self: Any, key: str, target: str, **options: Any) -> None:
        Path(target).write_bytes(b"")  # an incomplete download
        assert {path: (copy / path).read_bytes() for path in files} == files
        get_file(self, key, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(file_system, "get_file", download)
        assert local_copy(url) == copy
    # A shard that continues has other files.
    change_memory(f"{url}/completions.jsonl", b"{}\n")
    change_memory(f"{url}/failures.jsonl", None)
    assert local_files(local_copy(url)) == stored_files(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:hunter2secret@bucket/x",
        "s3://hunter2secret@bucket/x",
        "s3://bucket/x?X-Amz-Signature=hunter2secret",
        "https://hunter2secret@host/x",
        "abfs://container:hunter2secret@account/x",
        "gs://bucket?token=hunter2secret/x",
    ],
)
def test_credentials_in_urls_are_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    for line in (
        ["validate", url],
        ["build", "--shard", "1/2", "--out", url],
        ["merge", url, "--out", "runs/x"],
        ["label", url, "--out", url],
        ["push", url, "org/name", "--dry-run"],
    ):
        code, out, err = run(capsys, *line)
        assert code == 1 and "without a password, a key or a query" in err
        assert "hunter2" not in out + err
    with pytest.raises(InputError) as caught:
        api.open_dataset(url)
    assert "hunter2" not in str(caught.value)


def test_errors_of_stores_hide_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    text = "denied: wJalrXUtnFEMI/K7MDENG at http://me:password@host:9000/a?sig=1234 (really?)"
    assert hide_credentials(text) == "denied: … at http://host:9000/a (really?)"

    def refuse(*_: Any, **__: Any) -> bytes:
        raise PermissionError(text)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", refuse)
    with pytest.raises(FsdpoError) as caught:
        api.open_dataset(f"{STORE}/a")
    message = str(caught.value)
    assert "cannot list memory://" in message and "credentials in the environment" in message
    assert "MDENG" not in message and "password@" not in message and "1234" not in message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dropbox://x/y", "dropbox:// needs another package."),
        ("nothing://x/y", "nothing reads nothing://"),
        ("://x", "expected a local path, or PROTOCOL://PATH"),
        ("simplecache::s3://bucket/x", "expected a local path, or PROTOCOL://PATH"),
        ("memory://bucket/../x", "expected a path without"),
        ("memory://bucket/none", "holds no dataset"),
    ],
)
def test_unusable_urls_are_refused(
    capsys: pytest.CaptureFixture[str], url: str, message: str
) -> None:
    assert message in expect_error(capsys, "validate", url)


def test_only_datasets_have_urls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small_build(tmp_path / "a")
    err = expect_error(capsys, "view", str(tmp_path / "a"), "--out", f"{STORE}/a.html")
    assert "--out" in err and "this option takes no URL" in err
    with pytest.raises(InputError, match="holds no folders"):
        expand_folders([f"{STORE}/nothing/*"])
    assert expand_folders([tmp_path / "*"]) == [tmp_path / "*"]
