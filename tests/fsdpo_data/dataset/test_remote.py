"""Tests of datasets and shards behind URLs, in the memory of this process and in a folder."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from command_line import run
from hashes import hashes
from helpers import build_spec, small_build
from replayed_build import build_line, write_recording

from fsdpo_data import api
from fsdpo_data.core.errors import FsdpoError, InputError, RunMismatchError, SchemaError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.urls import hide_credentials
from fsdpo_data.dataset.remote import expand_folders, local_paths
from fsdpo_data.dataset.remote_copies import local_copy
from fsdpo_data.dataset.remote_outputs import upload
from fsdpo_data.dataset.upload_index import INDEX_FILE, UploadIndex
from fsdpo_data.dataset.validate import validate
from fsdpo_data.stages.pipeline import BuildOptions

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
    """Return the content of the files below a URL in memory, without the index."""
    prefix = "/" + url.partition("://")[2] + "/"
    return {
        key.removeprefix(prefix): data
        for key, data in memory().items()
        if key.startswith(prefix) and not key.endswith(f"/{INDEX_FILE}")
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
    upload(tmp_path / "a", RemoteFolder(f"{STORE}/a"), resume=False)
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
def test_an_upload_that_stops_anywhere_is_completed(
    protocol: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_build(tmp_path / "a")
    n_files = len(local_files(tmp_path / "a"))
    file_system = type(fsspec.filesystem(protocol))
    put_file = file_system.put_file
    for limit in range(n_files):
        root = STORE if protocol == "memory" else f"file://{tmp_path}/store [1] b"
        folder = RemoteFolder(f"{root}/{limit}")
        counts = {"calls": 0}

        def stop_in_the_middle(
            self: Any, source: str, target: str, counts: dict[str, int] = counts, **options: Any
        ) -> None:
            counts["calls"] += 1
            if counts["calls"] > limit:  # noqa: B023
                # Half of the file is there, which object storage never shows, but folders do.
                content = Path(source).read_bytes()
                if content:
                    self.pipe_file(target, content[: len(content) // 2])
                raise ConnectionResetError("the line is dead")
            put_file(self, source, target, **options)

        with monkeypatch.context() as patch:
            patch.setattr(file_system, "put_file", stop_in_the_middle)
            with pytest.raises(FsdpoError, match="the line is dead"):
                upload(tmp_path / "a", folder, resume=False)
        if limit < n_files - 1:
            with pytest.raises(SchemaError, match="is an unfinished upload"):
                api.open_dataset(folder.url)
        else:
            with pytest.raises(SchemaError, match="differs from"):
                api.open_dataset(folder.url)
        patched_counts = {"calls": 0}

        def count_calls(
            self: Any,
            source: str,
            target: str,
            counts: dict[str, int] = patched_counts,
            **options: Any,
        ) -> None:
            counts["calls"] += 1
            put_file(self, source, target, **options)

        with monkeypatch.context() as patch:
            patch.setattr(file_system, "put_file", count_calls)
            upload(tmp_path / "a", folder, resume=True)
        assert patched_counts["calls"] == n_files - limit  # finished files are not sent again
        copy = local_copy(folder.url)
        validate(copy)
        uploaded = {path: (copy / path).read_bytes() for path in local_files(copy)}
        expected_files = local_files(tmp_path / "a")
        assert uploaded == {path: expected_files[path] for path in uploaded}
        files = folder.list_files()
        files.pop(INDEX_FILE)
        assert files == {path: len(data) for path, data in expected_files.items()}


def test_another_machine_continues_an_unfinished_upload(
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = [*build_line(recording), "--out", f"{STORE}/x"]
    put_file = fsspec.get_filesystem_class("memory").put_file

    def stop_at_parquet(self: Any, source: str, target: str, **options: Any) -> None:
        if target.endswith(".parquet"):
            raise ConnectionResetError("the machine is gone")
        put_file(self, source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fsspec.get_filesystem_class("memory"), "put_file", stop_at_parquet)
        assert "the machine is gone" in expect_error(capsys, *line)
    assert "completions.jsonl" in stored_files(f"{STORE}/x")
    shutil.rmtree(cache)
    err = expect_error(capsys, *line)
    assert f"{STORE}/x already holds a run" in err and "--resume" in err
    other_err = expect_error(capsys, *line, "--temperature", "0.5", "--resume")
    assert "sampling.temperature: 'unknown' in the run, 0.5 now" in other_err
    shutil.rmtree(cache)
    text = run_command(capsys, *line, "--resume")
    assert "sample:" not in text  # the completions of the lost machine are there
    finished_files = stored_files(f"{STORE}/x")
    run_command(capsys, *build_line(recording), "--out", str(tmp_path / "built"))
    assert finished_files == local_files(tmp_path / "built")
    # A finished run is finished again, with and without the local copy.
    run_command(capsys, *line, "--resume")
    shutil.rmtree(cache)
    run_command(capsys, *line, "--resume")
    assert stored_files(f"{STORE}/x") == finished_files


def test_other_content_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path
) -> None:
    change_memory(f"{STORE}/x/notes.txt", b"mine")
    err = expect_error(capsys, *build_line(recording), "--out", f"{STORE}/x")
    assert "holds other files (notes.txt) and no run" in err and "sample" not in err
    change_memory(f"{STORE}/x/notes.txt", None)
    small_build(tmp_path / "a")
    upload(tmp_path / "a", RemoteFolder(f"{STORE}/x"), resume=False)
    capsys.readouterr()
    old_content = memory()
    err = expect_error(capsys, *build_line(recording), "--out", f"{STORE}/x")
    assert "already holds a run" in err and "sample" not in err
    assert "keys differ" in expect_error(
        capsys, *build_line(recording), "--out", f"{STORE}/x", "--resume"
    )
    small_build(tmp_path / "b", spec=build_spec(temperature=0.5))
    with pytest.raises(RunMismatchError, match="holds another run"):
        upload(tmp_path / "b", RemoteFolder(f"{STORE}/x"), resume=True)
    with pytest.raises(InputError, match="a sealed dataset is never changed"):
        api.open_dataset(f"{STORE}/x").grade(out=f"{STORE}/x/")
    assert memory() == old_content
    # Unrelated files that come later do not disturb readers.
    change_memory(f"{STORE}/x/later.txt", b"mine")
    validate(local_copy(f"{STORE}/x"))


def same_run_other_bytes(root: Path, target: Path) -> Path:
    """Copy a dataset with another time in its log, as another machine would measure it."""
    shutil.copytree(root, target)
    log = target / "completions.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"seconds":0', b'"seconds":1'))
    assert log.read_bytes() != (root / "completions.jsonl").read_bytes()
    return target


def test_jobs_that_upload_to_one_folder_never_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "a"
    small_build(first)
    other = tmp_path / "b"
    small_build(other, spec=build_spec(temperature=0.5))
    twin = same_run_other_bytes(first, tmp_path / "twin")
    put_file = fsspec.get_filesystem_class("memory").put_file

    def upload_during(second: Path, url: str, *, resume: bool) -> list[type[Exception]]:
        """Upload ``first``, and in the middle of it ``second``; return the errors of both."""
        errors: list[type[Exception]] = []
        inner_uploads = iter([second])

        def put(self: Any, source: str, target: str, **options: Any) -> None:
            put_file(self, source, target, **options)
            inner = next(inner_uploads, None) if target.endswith("completions.jsonl") else None
            if inner is not None:
                try:
                    upload(inner, RemoteFolder(url), resume=resume)
                except FsdpoError as error:
                    errors.append(type(error))

        with monkeypatch.context() as patch:
            patch.setattr(fsspec.get_filesystem_class("memory"), "put_file", put)
            try:
                upload(first, RemoteFolder(url), resume=False)
            except FsdpoError as error:
                errors.append(type(error))
        return errors

    # The same files twice: both jobs succeed.
    assert upload_during(first, f"{STORE}/1", resume=False) == []
    assert stored_files(f"{STORE}/1") == local_files(first)
    # Another run, or the same run without `resume`: the second job is refused.
    for number, second in ((2, other), (3, twin)):
        url = f"{STORE}/{number}"
        assert upload_during(second, url, resume=second is other) == [RunMismatchError]
        assert stored_files(url) == local_files(first)
    # With `resume`, the second job takes over, and the first one stops before the manifest.
    assert upload_during(twin, f"{STORE}/4", resume=True) == [RunMismatchError]
    assert stored_files(f"{STORE}/4") == local_files(twin)


def test_a_resumed_run_replaces_its_own_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry of failed items changes a run that is complete."""
    url = f"{STORE}/a"
    first = tmp_path / "a"
    small_build(first)
    (first / "failures.jsonl").write_text('{"id": "1", "reason": "too long"}\n')
    upload(first, RemoteFolder(url), resume=False)
    (first / "failures.jsonl").unlink()
    retried = same_run_other_bytes(first, tmp_path / "retried")
    # A job that has not started from this upload does not replace it.
    with pytest.raises(RunMismatchError, match="another job has uploaded the same run"):
        upload(retried, RemoteFolder(url), resume=True)
    options = BuildOptions(out=url, resume=True)

    def retry_failed_items() -> None:
        with local_paths(options) as local_options:
            for path, content in local_files(retried).items():
                (Path(str(local_options.out)) / path).write_bytes(content)
            (Path(str(local_options.out)) / "failures.jsonl").unlink(missing_ok=True)

    with monkeypatch.context() as patch:

        def stop(*_: Any, **__: Any) -> None:
            raise ConnectionResetError("the line is dead")

        patch.setattr(fsspec.get_filesystem_class("memory"), "put_file", stop)
        with pytest.raises(FsdpoError, match="the line is dead"):
            retry_failed_items()
    with pytest.raises(SchemaError, match="is an unfinished upload"):
        api.open_dataset(url)
    retry_failed_items()
    assert stored_files(url) == local_files(retried)
    assert validate(local_copy(url)).digest
    with local_paths(options) as local_options:  # nothing changes, nothing is sent
        assert local_files(Path(str(local_options.out))) == local_files(retried)
    assert stored_files(url) == local_files(retried)


def test_racing_jobs_leave_one_dataset_or_none(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root, temperature in zip(roots, (0.8, 0.5), strict=True):
        small_build(root, spec=build_spec(temperature=temperature))
    expected_digests = {
        json.loads((root / "manifest.json").read_text())["digest"] for root in roots
    }
    n_opened = 0
    for number in range(10):
        url = f"{STORE}/{number}"
        barrier = threading.Barrier(2)
        errors: list[FsdpoError] = []

        def race(
            root: Path, url: str = url, barrier: threading.Barrier = barrier, errors: Any = errors
        ) -> None:
            barrier.wait()
            try:
                upload(root, RemoteFolder(url), resume=False)
            except FsdpoError as error:
                errors.append(error)

        threads = [threading.Thread(target=race, args=(root,)) for root in roots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors  # at most one of two different runs gets the folder
        if len(errors) == 1:
            assert validate(local_copy(url)).digest in expected_digests
            n_opened += 1
    assert n_opened


def test_damage_is_found_on_the_way_back(tmp_path: Path, cache: Path) -> None:
    small_build(tmp_path / "a")
    url = f"{STORE}/a"
    upload(tmp_path / "a", RemoteFolder(url), resume=False)
    path = "solutions/train-00000-of-00001.parquet"
    content = stored_files(url)[path]
    change_memory(f"{url}/{path}", content[:-9] + bytes(byte ^ 1 for byte in content[-9:]))
    with pytest.raises(SchemaError, match=r"solutions.*differs from the SHA-256"):
        api.open_dataset(url)
    assert not any((cache / "copies").glob("?" * 64))
    change_memory(f"{url}/{path}", content)
    data = api.open_dataset(url)
    # A damaged copy is repaired.
    (data.path / path).write_bytes(content[:-1] + b"x")
    assert validate(api.open_dataset(url).path) == data.manifest
    manifest = stored_files(url)["manifest.json"]
    change_memory(f"{url}/manifest.json", manifest.replace(b"fixed", b"other"))
    with pytest.raises(SchemaError, match=r"manifest\.json differs from upload\.json"):
        api.open_dataset(url)
    change_memory(f"{url}/{INDEX_FILE}", None)
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        api.open_dataset(url)
    # A dataset that another program has copied has no index; its manifest has the digests.
    change_memory(f"{url}/manifest.json", manifest)
    assert api.open_dataset(url).manifest == data.manifest


def test_an_index_cannot_leave_the_folder(tmp_path: Path) -> None:
    small_build(tmp_path / "a")
    url = f"{STORE}/a"
    upload(tmp_path / "a", RemoteFolder(url), resume=False)
    index = json.loads(memory()[f"/{url.partition('://')[2]}/{INDEX_FILE}"])
    for path in ("../evil", "/evil", "a/../../evil", "a\\..\\evil", ""):
        fields = {"run": index["run"], "files": [*index["files"]]}
        fields["files"].insert(0, {"path": path, "bytes": 1, "sha256": "0" * 64})
        data = json.dumps({**fields, "digest": digest(fields)}).encode()
        with pytest.raises(SchemaError, match="is damaged"):
            UploadIndex.parse(data, url)
        change_memory(f"{url}/{INDEX_FILE}", data)
        with pytest.raises(SchemaError, match="is damaged"):
            api.open_dataset(url)


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

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "info", refuse)
    with pytest.raises(FsdpoError) as caught:
        api.open_dataset(f"{STORE}/a")
    message = str(caught.value)
    assert "cannot read memory://" in message and "credentials in the environment" in message
    assert "MDENG" not in message and "password@" not in message and "1234" not in message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dropbox://x/y", "dropbox:// needs the package dropboxdrivefs. Install it."),
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


def test_hashes_of_a_local_build_do_not_change(tmp_path: Path) -> None:
    """A local output has no index and no copy."""
    small_build(tmp_path / "a")
    assert INDEX_FILE not in hashes(tmp_path / "a")
