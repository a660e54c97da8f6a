"""Runs behind URLs, in the memory of this process."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsdpo_bench
import fsspec
import pytest
from command_line import run
from fsdpo_bench.cli.app import main
from made_runs import table_digests, write_long_problem

from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.remote import local_copy

pytest.importorskip("torch")

URL = "memory://bucket/runs/bench"
LINE = ["--task", "embedded", "--model", "tiny", "--limit", "4", "--max-tokens", "32"]
DECODERS = ["--decoder", "greedy,sc", "--k", "2"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Give each test an empty cache and an empty store in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory").store
    files.clear()
    yield files
    files.clear()


def call(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    code, out, err = run(capsys, *line, main=main)
    assert code == 0, err
    return out


def test_a_run_at_a_url_is_the_local_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    local = tmp_path / "bench"
    call(capsys, "run", *LINE, *DECODERS, "--out", str(local))
    printed = call(capsys, "run", *LINE, *DECODERS, "--out", URL)
    assert f"fsdpo-bench report {URL}" in printed
    stored = {key.removeprefix("/bucket/runs/bench/"): file for key, file in store.items()}
    local_files = {
        file.relative_to(local).as_posix()
        for file in local.rglob("*")
        if file.is_file() and file.name != ".lock"
    }
    assert stored.keys() == local_files
    assert {"run.json", "results.json", "report.html", "samples/manifest.json"} <= stored.keys()
    downloaded = tmp_path / "downloaded"
    fsspec.filesystem("memory").get("/bucket/runs/bench/", str(downloaded), recursive=True)
    assert table_digests(downloaded) == table_digests(local)

    shutil.rmtree(tmp_path / "cache")  # the report is made on another machine
    stored_bytes = {key: file.getvalue() for key, file in store.items()}
    out = call(capsys, "report", URL, "--json")
    assert (
        json.loads(out)["tasks"]
        == json.loads(call(capsys, "report", str(local), "--json"))["tasks"]
    )
    printed = call(capsys, "report", f"{URL}/samples", f"{URL}/greedy")
    assert "problems: samples 4, greedy 4" in printed
    assert {key: file.getvalue() for key, file in store.items()} == stored_bytes
    call(capsys, "report", URL, "--out", str(tmp_path / "page"))
    assert (tmp_path / "page/report.html").is_file()


def test_a_page_has_no_date_which_a_copy_of_the_run_would_change(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    call(capsys, "run", *LINE, *DECODERS, "--out", URL)
    for file in store.values():
        file.modified = datetime(2020, 2, 20, tzinfo=UTC)
    shutil.rmtree(tmp_path / "cache")
    call(capsys, "report", URL, "--out", str(tmp_path / "page"))
    call(capsys, "diff", URL, URL, "--html", str(tmp_path / "diff.html"))
    for page in (tmp_path / "page/report.html", tmp_path / "diff.html"):
        title = re.findall(r"<title>([^<]*)</title>", page.read_text())[0]
        assert title and not re.search(r"\d{4}-\d\d-\d\d", title)


def test_a_second_reader_keeps_the_files_of_the_first(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    store: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call(capsys, "run", *LINE, *DECODERS, "--out", URL)
    shutil.rmtree(tmp_path / "cache")
    copy = local_copy(URL)
    tables = sorted(copy.rglob("*.parquet"))
    assert len(tables) >= 4
    files = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    downloaded: list[str] = []
    file_system = type(fsspec.filesystem("memory"))
    get_file = file_system.get_file

    def download(self: Any, key: str, target: str, **options: Any) -> None:
        get_file(self, key, target, **options)
        downloaded.append(key.removeprefix("/bucket/runs/bench/"))
        assert {file: file.read_bytes() for file in files} == files

    monkeypatch.setattr(file_system, "get_file", download)
    assert local_copy(URL) == copy
    own_files = {file.name for file in copy.iterdir() if file.is_file()}
    assert {"run.json", "results.json"} <= own_files
    assert {*downloaded} == own_files | {"samples/manifest.json", "greedy/manifest.json"}
    tables[0].write_bytes(b"damaged")
    del files[tables[0]]
    local_copy(URL)
    assert (
        tables[0].read_bytes()
        == store[f"/bucket/runs/bench/{tables[0].relative_to(copy)}"].getvalue()
    )


def test_a_run_at_a_url_resumes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    line = ["run", *LINE, "--decoder", "greedy", "--out", URL]
    call(capsys, *line)
    code, _, err = run(capsys, *line, main=main)
    assert code == 1 and "already holds a run" in err
    shutil.rmtree(tmp_path / "cache")
    completions = store["/bucket/runs/bench/greedy/completions.jsonl"].getvalue()
    call(capsys, *line, "--resume")
    assert store["/bucket/runs/bench/greedy/completions.jsonl"].getvalue() == completions


def test_messages_name_the_url(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    task = write_long_problem(tmp_path / "task.jsonl")
    line = ["--task", str(task), "--model", "tiny", "--max-tokens", "8", "--max-failed", "50%"]
    code, _, err = run(capsys, "run", *line, "--out", URL, main=main)
    assert code == 0 and f"failures.jsonl in {URL} have the reasons" in " ".join(err.split())
    assert "/bucket/runs/bench/greedy/failures.jsonl" in store
    shard = "memory://bucket/shards/1"
    other = [*line, "--seed", "1"]
    printed = call(capsys, "run", *other, "--shard", "1/1", "--out", shard)
    assert f"1 failed items, with reasons in {shard}/greedy/failures.jsonl" in printed
    for command in (["run", *other, "--resume"], ["merge", shard]):
        code, _, err = run(capsys, *command, "--out", URL, main=main)
        assert code == 1 and f"{URL} was started with a different config" in err
        assert str(tmp_path / "cache") not in err


def test_an_unfinished_run_at_a_url_names_its_local_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    task = write_long_problem(tmp_path / "task.jsonl")
    line = ["run", "--task", str(task), "--model", "tiny", "--max-tokens", "8", "--out", URL]
    cache = str(tmp_path / "cache")
    code, _, err = run(capsys, *line, main=main)
    assert code == 1 and cache in err and not store
    code, _, err = run(capsys, *line, "--resume", "--limit", "2", main=main)
    assert code == 1 and f"{URL} (not uploaded yet, in {cache}" in err


def test_a_run_in_python_at_a_url(store: dict[str, Any]) -> None:
    results = fsdpo_bench.run(
        fsdpo_bench.RunOptions(
            task="embedded",
            model="tiny",
            limit=2,
            sampling=SamplingSpec(n=1, max_tokens=16),
            out=URL,
        )
    )
    stored = json.loads(store["/bucket/runs/bench/results.json"].getvalue())
    assert stored["tasks"].keys() == results.tasks.keys()


def test_shards_at_urls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    for index in (1, 2):
        out = f"memory://bucket/shards/{index}"
        printed = call(capsys, "run", *LINE, "--shard", f"{index}/2", "--out", out)
        assert f"{out} contains shard {index}/2" in printed
    shutil.rmtree(tmp_path / "cache")
    call(capsys, "merge", "memory://bucket/shards/*", "--out", URL)
    call(capsys, "run", *LINE, "--out", str(tmp_path / "bench"))
    completions = store["/bucket/runs/bench/greedy/completions.jsonl"].getvalue()
    assert len(completions.splitlines()) == 4
    printed = call(capsys, "report", URL, "--json")
    expected = call(capsys, "report", str(tmp_path / "bench"), "--json")
    assert json.loads(printed)["tasks"] == json.loads(expected)["tasks"]


def test_runs_at_urls_are_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: dict[str, Any]
) -> None:
    other = str(tmp_path / "other")
    local = str(tmp_path / "bench")
    call(capsys, "run", *LINE, *DECODERS, "--out", local)
    call(capsys, "run", *LINE, *DECODERS, "--seed", "1", "--out", other)
    call(capsys, "run", *LINE, *DECODERS, "--out", URL)
    shutil.rmtree(tmp_path / "cache")
    page = tmp_path / "page.html"
    printed = call(capsys, "diff", URL, other, "--html", str(page), "--json")
    assert page.is_file()
    expected = json.loads(call(capsys, "diff", local, other, "--json"))
    assert expected["differences"] and json.loads(printed) == expected
    code, _, err = run(capsys, "diff", other, f"{URL}-none", main=main)
    assert code == 1 and f"{URL}-none holds no dataset" in err
