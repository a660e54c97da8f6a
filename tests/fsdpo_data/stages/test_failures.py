"""Items that an engine refuses: recorded, counted, tried again, and the number that stops a job."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import openai_server
import polars as pl
import pytest
from command_line import run
from fsdpo_bench.cli.app import main as bench_main
from hashes import hashes
from helpers import remove_times
from openai_server import Script, says, serving
from random_model import save_random_model, save_random_prm

import fsdpo_data as fd
from fsdpo_data.core.failures import FAILURES_FILE
from fsdpo_data.dataset.validate import validate
from fsdpo_data.models.untrusted import read_tokenizer

CaptureFixture: TypeAlias = pytest.CaptureFixture[str]

N_PROBLEMS = 8
REFUSED = ("the 2th time", "the 5th time")
#: Two steps; half of the solutions and half of the continuations are right.
REPLY = "Step 1: 20 + 22 is {}.\nStep 2: The answer is: {}"


@pytest.fixture(autouse=True)
def short_retry_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdpo_data.core.http_client.MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr("fsdpo_data.engines.server_client.IDLE_TIMEOUT_SECONDS", 0.3)


@pytest.fixture
def script() -> Script:
    return Script(reply=lambda body, i: REPLY.format(i, 42 if i % 2 else 7))


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    rows = [
        {"question": f"What is 20 + 22, the {index}th time?", "answer": "42"}
        for index in range(N_PROBLEMS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def build_line(problems: Path, url: str) -> list[str]:
    options = ["--problems", str(problems), "--samples", "2", "--template", "problem"]
    return ["build", *options, *server_options(url)]


def server_options(url: str) -> list[str]:
    options = ["--engine", "openai", "--base-url", url, "--concurrency", "1", "--batch-size", "4"]
    return [*options, "--model", "tiny"]


def content(out: Path) -> dict[str, Any]:
    """Return the files of a run without times, and the lines of its logs as sets."""
    files: dict[str, Any] = dict(hashes(out))
    for path in out.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        remove_times(manifest)
        files[path.relative_to(out).as_posix()] = manifest
    for path in out.rglob("README.md"):
        files[path.relative_to(out).as_posix()] = [
            line for line in path.read_text().splitlines() if "tokens/s" not in line
        ]
    for path in out.rglob("completions.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        files[path.relative_to(out).as_posix()] = {
            row["problem_id"]: [completion["text"] for completion in row["completions"]]
            for row in rows
        }
    return files


def failures(folder: Path) -> list[dict[str, Any]]:
    path = folder / FAILURES_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def shard_folders(tmp_path: Path) -> list[str]:
    return [str(tmp_path / f"shard-{index}") for index in (1, 2)]


def write_shards(
    capsys: CaptureFixture, line: Sequence[str], parts: Sequence[str], *options: str
) -> list[str]:
    """Write the first shards of two, and return what each command printed.

    Args:
        capsys: The fixture.
        line: The command, up to the value of ``--out``.
        parts: The folders of the shards.
        options: More options of each command.
    """
    printed = []
    for index, part in enumerate(parts, 1):
        code, stdout, err = run(capsys, *line, part, "--shard", f"{index}/2", *options)
        assert code == 0, err
        printed.append(stdout)
    return printed


def merge_shards(script: Script, capsys: CaptureFixture, parts: Sequence[str], out: Path) -> str:
    """Merge shards without a request to the server, and return what the command printed."""
    script.requests.clear()
    code, stdout, err = run(capsys, "merge", *parts, "--out", str(out))
    assert code == 0 and not script.requests, err
    return stdout


def test_refused_prompts_do_not_stop_a_build_and_are_retried(
    script: Script,
    build_line: list[str],
    tmp_path: Path,
    capsys: CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    out = tmp_path / "out"
    assert run(capsys, *build_line, "--out", str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    line = [*build_line, "--max-failed", "50%", "--out", str(out)]
    code, stdout, err = run(capsys, *line)
    assert code == 0, err
    assert "2 problems without samples" in " ".join(stdout.split())
    manifest = validate(out)
    assert manifest.failed == {"sample": 2}
    assert manifest.rows.problems == N_PROBLEMS
    assert manifest.rows.solutions == 2 * (N_PROBLEMS - 2)
    [first, second] = failures(out)
    assert first.keys() == {"id", "reason"} and first["id"] != second["id"]
    assert "the server answered 400" in first["reason"] and "too long" in first["reason"]
    assert b"sk-very-secret" not in (out / FAILURES_FILE).read_bytes()
    parts = {"all": {}, "stopped": {"filter": "finish_reason = 'stop'"}}
    for name, options in parts.items():
        selected = fd.open_dataset(out).select(out=tmp_path / name, **options).manifest
        # The failures of an earlier stage are a fact, which no selection changes.
        assert (selected.rows.problems, selected.failed) == (N_PROBLEMS - 2, {"sample": 2}), name
    # One more failed try changes nothing.
    old_hashes = hashes(out)
    assert run(capsys, *line, "--resume")[0] == 0
    assert hashes(out) == old_hashes
    script.refuses = set()
    script.requests.clear()
    code, stdout, err = run(capsys, *line, "--resume")
    assert code == 0 and "without samples" not in stdout, err
    assert len(script.requests) == 2
    assert content(out) == content(tmp_path / "clean")
    assert content(out).keys() == content(tmp_path / "clean").keys()
    script.requests.clear()
    assert run(capsys, *line, "--resume")[0] == 0
    assert not script.requests


def test_a_build_stops_above_the_percentage_and_can_be_resumed(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    out = tmp_path / "out"
    assert run(capsys, *build_line, "--out", str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    for percentage, n_failed in (("1%", 1), ("13%", 2)):
        script.requests.clear()
        line = [*build_line, "--out", str(out)]
        line += [] if percentage == "1%" else ["--max-failed", percentage, "--resume"]
        code, _, err = run(capsys, *line)
        assert code == 1
        assert f"{n_failed} of 8 problems failed, more than --max-failed {percentage}" in err
        assert "too long" in err and "--resume" in err
        assert len(failures(out)) == n_failed and not (out / "manifest.json").exists()
        assert len({request["prompt"] for request in script.requests}) < N_PROBLEMS
    script.refuses = set()
    assert run(capsys, *build_line, "--out", str(out), "--resume")[0] == 0
    assert content(out) == content(tmp_path / "clean")


def test_zero_stops_at_the_first_failure(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    script.refuses = set(REFUSED)
    code, _, err = run(capsys, *build_line, "--max-failed", "0", "--out", str(tmp_path / "out"))
    assert code == 1 and "the server answered 400" in err and "failed" not in err
    assert not (tmp_path / "out" / FAILURES_FILE).exists()
    code, _, err = run(capsys, *build_line, "--max-failed", "1", "--out", str(tmp_path / "b"))
    assert code == 1 and "expected a percentage such as 1%, or 0" in err


@pytest.mark.parametrize("status", [400, 404, 500])
def test_failures_of_the_server_stop_at_once(
    script: Script,
    build_line: list[str],
    tmp_path: Path,
    capsys: CaptureFixture,
    status: int,
) -> None:
    """All prompts refused, a wrong model, and a broken server are not failures of an item."""
    script.tricks = [says({"error": "no"}, status)] * 10_000
    line = [*build_line, "--max-failed", "100%", "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *line)
    assert code == 1
    messages = {400: "all of the first 4 problems failed", 404: "answered 404", 500: "no response"}
    assert messages[status] in err
    assert bool(failures(tmp_path / "out")) == (status == 400)
    script.tricks = []
    assert run(capsys, *line, "--resume")[0] == 0
    assert validate(tmp_path / "out").failed == {}


def test_a_refused_prompt_does_not_slow_the_others(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    """A server that refuses a prompt still takes several samples per request."""
    script.refuses = {REFUSED[0]}
    line = [*build_line, "--max-failed", "50%", "--out", str(tmp_path / "out")]
    assert run(capsys, *line)[0] == 0
    assert [body["n"] for body in script.requests].count(1) == 1


@pytest.mark.parametrize("search", [[], ["--search", "first-error"]], ids=["all", "search"])
def test_refused_prefixes_leave_solutions_without_labels(
    script: Script,
    build_line: list[str],
    url: str,
    tmp_path: Path,
    capsys: CaptureFixture,
    search: list[str],
) -> None:
    data = tmp_path / "data"
    assert run(capsys, *build_line, "--out", str(data))[0] == 0
    line = ["label", str(data), "--rollouts", "2", *search, *server_options(url)]
    line += ["--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    code, stdout, err = run(capsys, *line, str(tmp_path / "out"))
    assert code == 0, err
    manifest = validate(tmp_path / "out")
    n_failed = len(failures(tmp_path / "out/rollouts"))
    assert manifest.failed == {"label": n_failed} and n_failed in (2, 4)
    assert f"{n_failed} prompts without continuations" in " ".join(stdout.split())
    solutions = pl.read_parquet(tmp_path / "out/solutions/*.parquet")
    is_refused = solutions["prompt"].str.contains_any(REFUSED)
    if search:
        is_refused &= solutions["outcome"] != "correct"
    assert (solutions["rollouts"].is_null() == is_refused).all()
    labelled = fd.open_dataset(tmp_path / "out")
    selected = labelled.select(out=tmp_path / "selected", filter="rollouts IS NOT NULL")
    assert selected.manifest.failed == manifest.failed
    assert labelled.select(out=tmp_path / "all").manifest.failed == manifest.failed
    if not search:
        parts = shard_folders(tmp_path)
        for stdout in write_shards(capsys, line, parts):
            assert "failed items" in stdout
        merge_shards(script, capsys, parts, tmp_path / "merged")
        assert content(tmp_path / "merged").keys() == content(tmp_path / "out").keys()
        assert validate(tmp_path / "merged").failed == manifest.failed
        shutil.copytree(tmp_path / "merged", tmp_path / "merged-again")
    script.refuses = set()
    if not search:
        write_shards(capsys, line, parts, "--resume")
        merge_shards(script, capsys, parts, tmp_path / "merged-again")
        assert content(tmp_path / "merged-again") == content(tmp_path / "clean")
    for name in ("out", "merged") if not search else ("out",):
        assert run(capsys, *line, str(tmp_path / name), "--resume")[0] == 0
        assert content(tmp_path / name) == content(tmp_path / "clean")


def test_refused_prompts_of_a_judge(
    script: Script,
    build_line: list[str],
    url: str,
    tmp_path: Path,
    capsys: CaptureFixture,
) -> None:
    data = tmp_path / "data"
    assert run(capsys, *build_line, "--out", str(data))[0] == 0
    script.reply = lambda body, i: "The first paragraph is wrong: \\boxed{0}"
    server = [word for word in server_options(url) if word not in ("--model", "tiny")]
    line = ["label", str(data), "--judge", "tiny", "--api", "chat", *server]
    line += ["--max-failed", "50%", "--out"]
    code, _, err = run(capsys, *line, str(tmp_path / "clean"))
    assert code == 0, err
    script.refuses = set(REFUSED)
    code, _, err = run(capsys, *line, str(tmp_path / "out"))
    assert code == 0, err
    assert validate(tmp_path / "out").failed == {"label": 4}
    script.refuses = set()
    assert run(capsys, *line, str(tmp_path / "out"), "--resume")[0] == 0
    assert content(tmp_path / "out") == content(tmp_path / "clean")


def test_merged_shards_of_a_build_keep_their_failures(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    line = [*build_line, "--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    parts = shard_folders(tmp_path)
    for stdout in write_shards(capsys, line, parts):
        assert "1 failed items" in stdout
    merge_shards(script, capsys, parts, tmp_path / "merged")
    assert validate(tmp_path / "merged").failed == {"sample": 2}
    merged = hashes(tmp_path / "merged")
    merge_shards(script, capsys, parts, tmp_path / "merged")
    assert hashes(tmp_path / "merged") == merged
    script.refuses = set()
    assert run(capsys, *line, str(tmp_path / "merged"), "--resume")[0] == 0
    assert content(tmp_path / "merged") == content(tmp_path / "clean")
    # The old shards do not bring the failures back.
    merge_shards(script, capsys, parts, tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "clean")


def test_a_repeated_merge_has_the_new_samples_of_a_resumed_shard(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    line = [*build_line, "--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    parts = shard_folders(tmp_path)
    for n_failed in (2, 1, 0):
        write_shards(capsys, line, parts, "--resume")
        stdout = merge_shards(script, capsys, parts, tmp_path / "merged")
        manifest = validate(tmp_path / "merged")
        assert manifest.failed == ({"sample": n_failed} if n_failed else {})
        assert manifest.rows.solutions == 2 * (N_PROBLEMS - n_failed)
        assert len(failures(tmp_path / "merged")) == n_failed
        assert ("resume the shards" in " ".join(stdout.split())) == bool(n_failed)
        script.refuses = set(REFUSED[: n_failed - 1]) if n_failed else set()
    assert content(tmp_path / "merged") == content(tmp_path / "clean")


#: Requests with which a scorer checks that the server classifies tokens.
N_CHECKS = 2


def token_text(prm: Path, text: str) -> str:
    """Return the token ids of a text as they are in the body of a request."""
    ids = read_tokenizer(str(prm))(text, add_special_tokens=False)["input_ids"]
    return json.dumps(ids)[1:-1]


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prm")
    return save_random_prm(folder / "prm", save_random_model(folder / "policy"))


def test_a_build_with_a_reward_model_is_scored_again_after_a_retry(
    script: Script,
    build_line: list[str],
    prm: Path,
    tmp_path: Path,
    capsys: CaptureFixture,
) -> None:
    line = [*build_line, "--prm", str(prm), "--device", "cpu", "--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    code, _, err = run(capsys, *line, str(tmp_path / "out"))
    assert code == 0, err
    assert validate(tmp_path / "out").failed == {"sample": 2}
    script.refuses = set()
    assert run(capsys, *line, str(tmp_path / "out"), "--resume")[0] == 0
    assert validate(tmp_path / "out").rows.solutions == 2 * N_PROBLEMS
    assert content(tmp_path / "out") == content(tmp_path / "clean")


def test_refused_solutions_have_no_rewards(
    script: Script,
    build_line: list[str],
    url: str,
    prm: Path,
    tmp_path: Path,
    capsys: CaptureFixture,
) -> None:
    data = tmp_path / "data"
    assert run(capsys, *build_line, "--out", str(data))[0] == 0
    script.prm = str(prm)
    line = ["score", str(data), "--prm", str(prm), "--engine", "openai", "--base-url", url]
    line += ["--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = {token_text(prm, " is 1.")}  # half of the solutions
    code, stdout, err = run(capsys, *line, str(tmp_path / "out"))
    assert code == 0, err
    assert f"{N_PROBLEMS} solutions without rewards" in " ".join(stdout.split())
    assert validate(tmp_path / "out").failed == {"score": N_PROBLEMS}
    solutions = pl.read_parquet(tmp_path / "out/solutions/*.parquet")
    unscored = solutions.filter(pl.col("step_rewards").is_null())
    assert set(unscored["solution_id"]) == {row["id"] for row in failures(tmp_path / "out")}
    assert run(capsys, *line, str(tmp_path / "out"), "--resume")[0] == 0
    assert validate(tmp_path / "out").failed == {"score": N_PROBLEMS}
    code, _, err = run(capsys, *line, str(tmp_path / "few"), "--max-failed", "10%")
    assert code == 1 and "2 of 16 solutions failed, more than --max-failed 10%" in err
    # A resumed command sends only the failed solutions.
    script.refuses = set()
    script.requests.clear()
    assert run(capsys, *line, str(tmp_path / "out"), "--resume")[0] == 0
    assert len(script.requests) == N_PROBLEMS + N_CHECKS
    assert run(capsys, *line, str(tmp_path / "few"), "--resume")[0] == 0
    assert content(tmp_path / "out") == content(tmp_path / "clean")
    assert content(tmp_path / "few") == content(tmp_path / "clean")


def test_a_repeated_merge_has_the_new_rewards_of_a_resumed_shard(
    script: Script,
    build_line: list[str],
    url: str,
    prm: Path,
    tmp_path: Path,
    capsys: CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 8)
    data = tmp_path / "data"
    assert run(capsys, *build_line, "--out", str(data))[0] == 0
    script.prm = str(prm)
    line = ["score", str(data), "--prm", str(prm), "--engine", "openai", "--base-url", url]
    line += ["--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = {token_text(prm, " is 1.")}
    parts = shard_folders(tmp_path)
    for n_resumed, n_failed in ((2, N_PROBLEMS), (1, N_PROBLEMS // 2), (2, 0)):
        write_shards(capsys, line, parts[:n_resumed], "--resume")
        merge_shards(script, capsys, parts, tmp_path / "merged")
        manifest = validate(tmp_path / "merged")
        assert manifest.failed == ({"score": n_failed} if n_failed else {})
        assert len(failures(tmp_path / "merged")) == n_failed
        script.refuses = set()
    assert content(tmp_path / "merged") == content(tmp_path / "clean")


@pytest.mark.proof
def test_a_server_of_rewards_refuses_large_bodies(
    script: Script,
    build_line: list[str],
    url: str,
    prm: Path,
    tmp_path: Path,
    capsys: CaptureFixture,
) -> None:
    long_step = "Step 1: " + "so " * 40

    def reply(body: dict[str, Any], i: int) -> str:
        start = long_step if i and REFUSED[0] in body["prompt"] else "Step 1: so"
        return f"{start}\nStep 2: The answer is: {42 if i else 7}"

    script.reply = reply
    data = tmp_path / "data"
    assert run(capsys, *build_line, "--out", str(data))[0] == 0
    script.prm = str(prm)
    line = ["score", str(data), "--prm", str(prm), "--engine", "openai", "--max-failed", "10%"]
    line += ["--base-url", url, "--out", str(tmp_path / "out")]
    script.max_body_bytes = 600
    code, _, err = run(capsys, *line)
    assert code == 0, err
    assert validate(tmp_path / "out").failed == {"score": 1}
    assert "413" in failures(tmp_path / "out")[0]["reason"]
    script.max_body_bytes = 2**20
    assert run(capsys, *line, "--resume")[0] == 0
    assert validate(tmp_path / "out").failed == {}


class _StoppedError(BaseException):
    """The process ends here, as after SIGKILL: nothing handles the exception."""


@pytest.mark.parametrize(
    "step",
    [
        "fsdpo_data.stages.sample.discard_dataset",
        "fsdpo_data.dataset.stage.discard_dataset",
        "fsdpo_data.dataset.run_directory.RunDir.append",
        "fsdpo_data.core.failures.FailureLog.save",
        "fsdpo_data.stages.write_solutions.write_shard",
        "fsdpo_data.dataset.stage.write_parquet",
        "fsdpo_data.dataset.stage.check_invariants",
    ],
)
@pytest.mark.parametrize("command", ["build", "label"])
@pytest.mark.proof
def test_a_retry_that_is_stopped_anywhere_ends_in_the_same_bytes(
    script: Script,
    build_line: list[str],
    url: str,
    tmp_path: Path,
    capsys: CaptureFixture,
    command: str,
    step: str,
) -> None:
    line = build_line
    if command == "label":
        assert run(capsys, *build_line, "--out", str(tmp_path / "data"))[0] == 0
        line = ["label", str(tmp_path / "data"), "--rollouts", "2", *server_options(url)]
    line = [*line, "--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = set(REFUSED)
    assert run(capsys, *line, str(tmp_path / "out"))[0] == 0
    script.refuses = {REFUSED[0]}  # the second session resolves only a part
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            _stop_after(patch, step)
            try:
                run(capsys, *line, str(tmp_path / "out"), "--resume")
            except _StoppedError:
                capsys.readouterr()
        script.refuses = set()
    assert run(capsys, *line, str(tmp_path / "out"), "--resume")[0] == 0
    assert content(tmp_path / "out") == content(tmp_path / "clean")


def _stop_after(patch: pytest.MonkeyPatch, step: str) -> None:
    """End the process after a function, which its dotted name identifies, has run."""
    function = pkgutil.resolve_name(step)

    def run_and_stop(*args: Any, **options: Any) -> Any:
        function(*args, **options)
        raise _StoppedError

    patch.setattr(step, run_and_stop)


def test_a_killed_build_with_failures_ends_in_the_same_bytes(
    script: Script, build_line: list[str], tmp_path: Path, capsys: CaptureFixture
) -> None:
    out = tmp_path / "out"
    line = [*build_line, "--max-failed", "50%", "--out"]
    assert run(capsys, *line, str(tmp_path / "clean"))[0] == 0
    script.refuses = {"the 0th time"}

    killed = threading.Event()

    def wait_for_the_kill(handler: openai_server.Handler) -> bool:
        killed.wait(1.5)  # a build saves the failure with a later answer
        return False

    script.tricks = [wait_for_the_kill] * 100
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdpo_data", *line, str(out)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ,
    )
    while not (out / FAILURES_FILE).exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    killed.set()
    script.tricks = []
    script.refuses = set()
    assert run(capsys, *line, str(out), "--resume")[0] == 0
    assert content(out) == content(tmp_path / "clean")


def test_a_prompt_longer_than_the_context_is_a_failed_item(
    tmp_path: Path, capsys: CaptureFixture
) -> None:
    """The transformers engine and servers agree; a benchmark counts the problem as failed, too."""
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(3)]
    rows[1]["question"] = "Some words. " * 2_000 + rows[1]["question"]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["build", "--model", "tiny", "--problems", str(file), "--samples", "2"]
    line += ["--max-tokens", "8", "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *line)
    assert code == 1 and "longer than the context" in err
    code, _, err = run(capsys, *line, "--resume", "--max-failed", "50%")
    assert code == 0, err
    manifest = validate(tmp_path / "out")
    assert manifest.failed == {"sample": 1} and manifest.rows.solutions == 4
    bench = ["run", "--task", str(file), "--model", "tiny", "--decoder", "greedy"]
    bench += ["--max-tokens", "8", "--max-failed", "50%", "--out", str(tmp_path / "bench")]
    code, stdout, err = run(capsys, *bench, main=bench_main)
    assert code == 0, err
    assert (
        "1 of 3" in stdout + err
        and "longer than the context" in (tmp_path / "bench/greedy" / FAILURES_FILE).read_text()
    )
