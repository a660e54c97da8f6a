"""Datasets on an S3 server: shards that are killed during their upload, and merged there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import run
from helpers import RIGHT, SILENT, WRONG

from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.prompts import get_template

pytest.importorskip("s3fs")
pytest.importorskip("moto")

import boto3
from s3_server import BUCKET, SECRET, S3Server, running_s3

pytestmark = pytest.mark.s3

#: A key whose characters are patterns elsewhere.
STORE = f"s3://{BUCKET}/runs [1] é"
SHARDS = 4
PROBLEMS = 10


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(server: S3Server) -> Any:
    """Return a client of the server, whose bucket is empty."""
    client = boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    for key in read_objects(client):
        client.delete_object(Bucket=BUCKET, Key=key)
    return client


def read_objects(client: Any, prefix: str = "") -> dict[str, bytes]:
    """Return the content of each object below a prefix, by the rest of its key."""
    entries = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {
        entry["Key"].removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=entry["Key"])[
            "Body"
        ].read()
        for entry in entries
    }


@pytest.fixture
def recording(tmp_path: Path) -> list[str]:
    """Write problems and recorded completions; return the command that builds from them."""
    problems = tmp_path / "problems.jsonl"
    recorded = tmp_path / "recorded.jsonl"
    template = get_template("problem")
    with problems.open("wb") as problem_file, recorded.open("wb") as recorded_file:
        for index in range(PROBLEMS):
            question = f"What is 20 + 22, the {index}th time?"
            problem_file.write(orjson.dumps({"question": question, "answer": "42"}) + b"\n")
            completions = [
                asdict(Completion(text, "stop", 9, seconds=0.1)) for text in (RIGHT, WRONG, SILENT)
            ]
            record = {"prompt": template.render(question), "completions": completions}
            recorded_file.write(orjson.dumps(record) + b"\n")
    options = ["--problems", str(problems), "--samples", "3", "--template", "problem"]
    return ["build", *options, "--engine", "replay", "--replay", str(recorded)]


class Machine:
    """Commands of one machine: its cache, its credentials, and everything that they printed."""

    def __init__(self, server: S3Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.env = server.env | {"XDG_CACHE_HOME": str(folder / "cache")}
        self.output = ""
        self._server = server
        self._capsys = capsys

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command in this process, check its exit code, and return its output."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            exit_code, out, err = run(self._capsys, *arguments)
        self.output += out + err
        assert exit_code == code, out + err
        return out + err

    @contextlib.contextmanager
    def stopped_at_write(self, key: str, *arguments: str) -> Iterator[None]:
        """Start a command in a process of its own; kill it by SIGKILL while it writes an object."""
        line = [sys.executable, "-m", "fsdpo_data", *arguments]
        pipe = subprocess.PIPE
        with self._server.hold(key):
            process = subprocess.Popen(
                line, env=os.environ | self.env, stdout=pipe, stderr=pipe, text=True
            )
            assert self._server.reached.wait(120), process.communicate()
            yield
            process.send_signal(signal.SIGKILL)
            self.output += "".join(process.communicate())
        assert process.returncode == -signal.SIGKILL

    def kill_at_write(self, key: str, *arguments: str) -> None:
        """Kill a command by SIGKILL while it writes an object."""
        with self.stopped_at_write(key, *arguments):
            pass


def test_shards_that_are_killed_during_their_upload_merge_to_the_local_bytes(
    server: S3Server,
    s3: Any,
    recording: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = Machine(server, tmp_path / "a", capsys)
    machine.run(*recording, "--out", str(tmp_path / "local"))
    lines = {
        index: [*recording, "--shard", f"{index}/{SHARDS}", "--out", f"{STORE}/demo-shards/{index}"]
        for index in range(1, SHARDS + 1)
    }
    # Shard 2 is killed during the upload of its samples, shard 3 before its last file.
    killed_at = {2: "completions.jsonl", 3: "shard.json"}
    for index, line in lines.items():
        if index in killed_at:
            machine.kill_at_write(f"{index}/{killed_at[index]}", *line)
        else:
            machine.run(*line)
    prefix = STORE.removeprefix(f"s3://{BUCKET}/")
    merge = ["merge", f"{STORE}/demo-shards/*", "--out", f"{STORE}/demo"]
    for index in killed_at:
        files = read_objects(s3, f"{prefix}/demo-shards/{index}/")
        assert "config.json" in files and "shard.json" not in files
        url = f"{STORE}/demo-shards/{index}"
        assert "is an unfinished upload" in machine.run("validate", url, code=1)
    assert "is an unfinished upload" in machine.run(*merge, code=1)
    # Shard 2 continues on its machine, shard 3 on another one.
    machine.run(*lines[2], "--resume")
    other_machine = Machine(server, tmp_path / "b", capsys)
    assert "already holds a run" in other_machine.run(*lines[3], code=1)
    assert "sample:" not in other_machine.run(*lines[3], "--resume")
    # A mark of a folder, as consoles write it, and another file are not shards.
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}/demo-shards/", Body=b"")
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}/demo/", Body=b"")
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}/demo-shards/notes.txt", Body=b"mine")

    # The merge is killed too, before its manifest.
    other_machine.kill_at_write("demo/manifest.json", *merge)
    assert "is an unfinished upload" in machine.run("validate", f"{STORE}/demo", code=1)
    other_machine.run(*merge)
    local_files = {
        file.relative_to(tmp_path / "local").as_posix(): file.read_bytes()
        for file in (tmp_path / "local").rglob("*")
        if file.is_file() and file.name != ".lock"
    }
    merged_files = read_objects(s3, f"{prefix}/demo/")
    assert merged_files.pop("") == b"" and merged_files.pop("upload.json")
    assert merged_files == local_files
    assert "is valid" in Machine(server, tmp_path / "c", capsys).run("validate", f"{STORE}/demo")

    # The secret is nowhere: not in objects, caches or outputs.
    contents = [*read_objects(s3).values(), machine.output.encode(), other_machine.output.encode()]
    contents += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [content for content in contents if SECRET.encode() in content]


def test_the_first_of_two_runs_gets_the_folder(
    server: S3Server,
    s3: Any,
    recording: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machines = [Machine(server, tmp_path / name, capsys) for name in "ab"]
    line = [*recording, "--out", f"{STORE}/demo"]
    other_line = [*line, "--temperature", "0.5"]
    with machines[0].stopped_at_write("demo/config.json", *line):
        assert "already holds a run" in machines[1].run(*other_line, code=1)
    assert "holds another run" in machines[1].run(*other_line, "--resume", code=1)
    machines[0].run(*line, "--resume")
    assert "is valid" in machines[1].run("validate", f"{STORE}/demo")
    # The store writes a file only if it is missing, in one step.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in machines[0].env.items():
            patch.setenv(name, value)
        folder = RemoteFolder(f"{STORE}/demo")
        assert not folder.create("upload.json", b"mine")
        assert folder.create("new.json", b"mine") and not folder.create("new.json", b"yours")
        assert folder.read("new.json") == b"mine"


def test_a_missing_bucket_is_found_before_any_work(
    server: S3Server, recording: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(server, tmp_path, capsys)
    for line in ([*recording, "--out", "s3://no-bucket/x"], ["validate", "s3://no-bucket/x"]):
        output = machine.run(*line, code=1)
        assert "cannot read s3://no-bucket/x" in output and "bucket does not exist" in output
        assert "credentials in the environment" in output and "sample:" not in output
