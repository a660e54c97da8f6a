"""Downloads of benchmark files from public repositories: verification, cache and errors."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run
from fsdpo_bench.cli.app import main
from fsdpo_bench.tasks import fetch
from fsdpo_bench.tasks.fetch import PublicFile, fetch_file
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks, read_task

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.http_client import MAX_ATTEMPTS

ROWS = json.dumps([{"question": "1 + 1?", "answer": "2"}, {"question": "2 + 2?", "answer": "4"}])
FILE = PublicFile("o/r", "c" * 40, "data/Rows.json", hashlib.sha256(ROWS.encode()).hexdigest())


class Repository:
    """Files of a fake GitHub server, status codes to answer first, and the requested paths."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {f"/o/r/{'c' * 40}/data/Rows.json": ROWS.encode()}
        self.codes: list[int] = []
        self.requested_paths: list[str] = []


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    fake_repository = Repository()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake_repository.requested_paths.append(self.path)
            body = fake_repository.files.get(self.path)
            code = 404 if body is None else 200
            if fake_repository.codes:
                code = fake_repository.codes.pop(0)
            self.send_response(code)
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body or b"" if code == 200 else b"<html>busy</html>")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield fake_repository
    server.shutdown()
    server.server_close()


def test_a_file_is_downloaded_once_and_verified_on_every_use(repository: Repository) -> None:
    repository.codes = [503, 429]
    file = fetch_file("rows", FILE)
    assert file == fetch.cache_folder() / "rows/Rows.json" and file.read_text() == ROWS
    assert fetch_file("rows", FILE) == file and len(repository.requested_paths) == 3
    file.write_text("[]")
    with pytest.raises(InputError, match="differs from the file of o/r for rows"):
        fetch_file("rows", FILE)


def test_a_wrong_download_is_not_saved(repository: Repository) -> None:
    repository.files = {path: b"other" for path in repository.files}
    with pytest.raises(UnavailableError, match="SHA-256 differs"):
        fetch_file("rows", FILE)
    repository.files = {}
    with pytest.raises(UnavailableError, match="the server answered 404"):
        fetch_file("rows", FILE)
    assert len(repository.requested_paths) == 2 and not (fetch.cache_folder() / "rows").exists()
    repository.codes = [500] * 9
    with pytest.raises(UnavailableError, match="the server answered 500"):
        fetch_file("rows", FILE)
    assert len(repository.requested_paths) == 2 + MAX_ATTEMPTS


def test_an_unreachable_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, "http://127.0.0.1:9")
    with pytest.raises(UnavailableError, match=r"ConnectError.*give its file as `data`"):
        fetch_file("rows", FILE)


def test_loading_a_task_downloads_its_file(repository: Repository, tmp_path: Path) -> None:
    task = tmp_path / "mine.toml"
    fields = {"repo": FILE.repo, "commit": FILE.commit, "path": FILE.path, "sha256": FILE.sha256}
    task.write_text("".join(f'fetch.{key} = "{value}"\n' for key, value in fields.items()))
    loaded = load_task(read_task(task))
    assert [problem.answer for problem in loaded.problems] == ["2", "4"]
    assert loaded.ref.revision == f"sha256:{FILE.sha256}"


def test_the_command_refuses_hub_tasks_and_reports_download_errors(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "fetch", "gsm8k", main=main)
    assert code == 1 and "gsm8k" in err and "the benchmark is on the Hub" in err
    code, _, err = run(capsys, "fetch", "addsub", main=main)
    assert code == 1 and "the server answered 404" in err and fetch.MIRROR_VARIABLE in err


def test_all_tasks_that_are_not_on_the_hub_are_downloaded_with_the_expected_rows(
    repository: Repository, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_files = {}
    for folder in ("data", "data/newer"):
        for entry in json.loads((shared / folder / "manifest.json").read_text())["files"]:
            path = f"/{entry['source_repo']}/{entry['source_commit']}/{entry['source_path']}"
            if entry["transform"].startswith("none"):
                local = shared / entry["path"]
                local_files[path] = (
                    local if local.is_file() else shared / "data/newer" / entry["path"]
                )
    tasks = [task for task in builtin_tasks().values() if task.fetch is not None]
    for task in tasks:
        assert task.fetch is not None
        path = f"/{task.fetch.repo}/{task.fetch.commit}/{task.fetch.path}"
        repository.files[path] = local_files[path].read_bytes()
    code, out, err = run(capsys, "fetch", "--out", str(tmp_path / "bench"), main=main)
    assert code == 0, err
    for task in tasks:
        assert f"{task.name}: {tmp_path / 'bench'}" in out and task.licence in out
        for data in (None, tmp_path / "bench"):
            loaded = load_task(task, data)
            assert loaded.warnings == [] and len(loaded.problems) == task.count
    for name in ("all", "ood", "robustness", "olympiad"):
        assert all(t.hub or t.fetch or t.make for t in builtin_tasks().values() if name in t.suites)
