"""Shards of runs: together they give the run without shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsdpo_bench
import pytest
from command_line import run
from fsdpo_bench.cli.app import main
from made_runs import solutions, write_long_problem
from random_model import save_random_prm

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.validate import validate
from fsdpo_data.models.resolve import CHECKPOINT

pytest.importorskip("torch")

LINE = ["run", "--task", "embedded", "--model", "tiny", "--limit", "5", "--batch-size", "2"]


def call(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    code, out, err = run(capsys, *line, main=main)
    assert code == 0, err
    return out + err


def without_seconds(value: Any) -> Any:
    """Return JSON values without the times."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if "seconds" not in key}
    return [*map(without_seconds, value)] if isinstance(value, list) else value


def numbers(run: Path) -> Any:
    """Return the results of the benchmarks, without times."""
    return without_seconds(json.loads((run / "results.json").read_text())["tasks"])


def texts(root: Path, part: str) -> dict[str, list[list[str]]]:
    """Return the steps of the solutions of a part, by question."""
    return {
        question: [row["completions"] for row in rows]
        for question, rows in solutions(root, part).items()
    }


def test_two_shards_give_the_numbers_of_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    line = [*LINE, "--decoder", "greedy,sc,bon,sbs", "--k", "2", "--b1", "2", "--prm", str(prm)]
    complete = tmp_path / "complete"
    call(capsys, *line, "--out", str(complete))
    shards = [tmp_path / f"shard-{index}" for index in (1, 2)]
    for index, shard in enumerate(shards, start=1):
        printed = call(capsys, *line, "--shard", f"{index}/2", "--out", str(shard))
        assert f"fsdpo-bench merge {shard}" in printed
    merged = tmp_path / "merged"
    call(capsys, "merge", *map(str, shards[::-1]), "--out", str(merged))
    assert (merged / "report.html").is_file()
    assert numbers(merged) == numbers(complete)
    for part in ("greedy", "samples", "sbs@2,1"):
        validate(merged / part)
        assert texts(merged, part) == texts(complete, part)
        assert len(texts(merged, part)) == 5
    # Shards have other batches, so the rewards of a search may differ in their last bits.
    for part in ("greedy", "samples"):
        assert read_manifest(merged / part).files == read_manifest(complete / part).files
    # Each line has the time of its samples, so equal lines were not sampled again.
    for log in ("greedy", "samples/build", "sbs@2,1"):
        logs = [(root / log / "completions.jsonl").read_text() for root in (*shards, merged)]
        assert logs[0] and logs[1] and logs[0] + logs[1] == logs[2]


def test_a_shard_states_its_failed_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_long_problem(tmp_path / "task.jsonl")
    line = ["run", "--task", str(task), "--model", "tiny", "--max-tokens", "8"]
    line += ["--max-failed", "50%", "--shard", "1/1", "--out"]
    printed = call(capsys, *line, str(tmp_path / "shard"))
    file = tmp_path / "shard/greedy/failures.jsonl"
    assert f"1 failed items, with reasons in {file}; --resume tries them again" in printed
    code, out, _ = run(capsys, *line, str(tmp_path / "again"), "--json", main=main)
    assert code == 0
    assert json.loads(out) == {
        "shard": "1/1",
        "out": str(tmp_path / "again"),
        "failed": {"greedy/failures.jsonl": 1},
    }


def test_shards_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard, other = (str(tmp_path / name) for name in ("shard", "other"))
    line = [*LINE, "--max-tokens", "16"]
    call(capsys, *line, "--shard", "1/2", "--out", shard)
    call(capsys, *line, "--max-tokens", "17", "--shard", "2/2", "--out", other)
    for shards, message in (
        ([shard], "shard 2 is missing"),
        ([shard, other], "the shard is not of the same run"),
    ):
        code, _, err = run(capsys, "merge", *shards, "--out", str(tmp_path / "out"), main=main)
        assert code == 1 and message in " ".join(err.split())
    another_count = str(tmp_path / "another-count")
    call(capsys, *line, "--shard", "2/3", "--out", another_count)
    complete = str(tmp_path / "complete")
    call(capsys, *line, "--out", complete)
    for shards, message in (
        ([shard, another_count], f"this is shard 2/3, and {shard} is shard 1/2"),
        ([complete, complete], "this directory is a complete run"),
    ):
        code, _, err = run(capsys, "merge", *shards, "--out", str(tmp_path / "out"), main=main)
        assert code == 1 and message in " ".join(err.split())
    code, _, err = run(capsys, "merge", shard, "--out", str(tmp_path / "out"))
    assert code == 1 and "`fsdpo-bench run` wrote this shard. Use `fsdpo-bench merge`" in err
    code, _, err = run(capsys, "report", shard, main=main)
    assert code == 1 and f"{shard} is a shard, and no dataset" in err
    assert "with `fsdpo-bench merge` for a benchmark run" in " ".join(err.split())
    code, _, err = run(capsys, *line, "--out", shard, "--resume", main=main)
    assert code == 1 and "was started with a different config" in err
    with pytest.raises(InputError, match="a shard has no results"):
        fsdpo_bench.run(fsdpo_bench.RunOptions(model="tiny", task="embedded", shard="1/2"))
