"""Benchmark problems do not slip into training or onto the Hub."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from hub_server import TOKEN, HubServer, client_env, run_client, running_hub
from paired_data import paired_dataset

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.benchmark_problems import check_no_benchmark_problems
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.problems.benchmark_rows import BenchmarkRow, benchmark_rows
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import open_pairs
from fsdpo_train.prm.data import open_solutions


def test_a_dataset_with_a_benchmark_problem_is_refused(tmp_path: Path) -> None:
    problem_place = BenchmarkRow("ocw", row=3, groups={"level": "5"}, cluster="base")
    metadata = {"benchmarks": [problem_place.to_json()], "level": 5}
    root = paired_dataset(tmp_path, metadata=metadata)
    with pytest.raises(InputError, match=r"has 3 problems of benchmarks \(ocw\)"):
        check_no_benchmark_problems(root, read_manifest(root))
    assert benchmark_rows(json.loads(json.dumps(metadata))) == [problem_place]
    shutil.rmtree(root / "problems")
    check_no_benchmark_problems(root, read_manifest(root))  # a copy without the problems


@pytest.mark.parametrize("value", [[], ["ocw"], "ocw", 3, [{"name": "ocw", "place": 1}]])
def test_a_field_of_a_source_with_the_same_name_is_no_place(tmp_path: Path, value: Any) -> None:
    root = paired_dataset(tmp_path, metadata={"benchmarks": value})
    check_no_benchmark_problems(root, read_manifest(root))


@pytest.mark.parametrize(
    "line",
    [
        "pair {data} --out {out} --no-require-outcome",
        "push {data} org/name --dry-run",
        "export {data} --to trl-preference --out {out}",
    ],
)
def test_the_commands_refuse_benchmark_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    problem_place = BenchmarkRow("ocw", row=0)
    data = paired_dataset(tmp_path, metadata={"benchmarks": [problem_place.to_json()]})
    arguments = line.format(data=data, out=tmp_path / "out").split()
    code, out, err = run(capsys, *arguments)
    assert code == 1 and "problems of benchmarks (ocw)" in err
    assert err.rstrip().endswith("Use other problems, or add --allow-benchmark.")
    code, out, err = run(capsys, *arguments, "--allow-benchmark")
    assert "problems of benchmarks" not in out + err


def test_trainings_refuse_benchmark_problems(tmp_path: Path) -> None:
    problem_place = BenchmarkRow("ocw", row=0)
    data = paired_dataset(tmp_path, metadata={"benchmarks": [problem_place.to_json()]})
    loss = PREFERENCE_LOSSES["full-step"]
    for open_rows in (open_solutions, partial(open_pairs, loss=loss)):
        with pytest.raises(InputError, match=r"problems of benchmarks \(ocw\)"):
            open_rows([data])
        assert list(open_rows([data], allow_benchmark=True).rows())


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def open_on_hub(hub: HubServer, home: Path, *, allow: bool = False, **env: str) -> list[str]:
    """Open o/r for a PRM and for preference training; return an error or "opened" for each."""
    code = f"""
from fsdpo_data.core.errors import FsdpoError
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import open_pairs
from fsdpo_train.prm.data import open_solutions
loss = PREFERENCE_LOSSES["full-step"]
for open_rows, options in ((open_solutions, {{}}), (open_pairs, {{"loss": loss}})):
    try:
        next(open_rows(["o/r"], allow_benchmark={allow}, **options).rows())
        print("opened")
    except FsdpoError as error:
        print(error)
"""
    env = client_env(hub.url, home, HF_TOKEN=TOKEN, PYTHONWARNINGS="default", **env)
    ran = run_client(code, env)
    assert ran.returncode == 0, ran.stderr
    assert "No files matched" not in ran.stderr
    return ran.stdout.splitlines()


def files_on_hub(root: Path) -> dict[str, bytes]:
    """Return the rows and the card of a dataset, as a repository without a manifest."""
    card = dataset_card(root, read_manifest(root))
    rows = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("*/*")}
    return {**rows, "README.md": card.encode()}


def test_trainings_refuse_benchmark_problems_of_the_hub(hub: HubServer, tmp_path: Path) -> None:
    problem_place = BenchmarkRow("ocw", row=0)
    root = paired_dataset(tmp_path, metadata={"benchmarks": [problem_place.to_json()]})
    hub.add("dataset", "o/r", files_on_hub(root))
    refusals = ["dataset o/r has 3 problems of benchmarks (ocw)"] * 2
    home = tmp_path / "home"
    hub.requests.clear()
    assert [line.partition(".")[0] for line in open_on_hub(hub, home)] == refusals
    downloads = [request for request in hub.requests if "/resolve/" in request]
    assert any("/problems/" in request for request in downloads)
    assert not any("/solutions/" in request or "/pairs/" in request for request in downloads)
    assert open_on_hub(hub, home, allow=True) == ["opened"] * 2
    offline = open_on_hub(hub, home, HF_HUB_OFFLINE="1")
    assert [line.partition(".")[0] for line in offline] == refusals


@pytest.mark.parametrize("has_other_problems", [False, True])
def test_a_repository_without_our_problems_trains(
    hub: HubServer, tmp_path: Path, has_other_problems: bool
) -> None:
    files = files_on_hub(paired_dataset(tmp_path))
    [path] = (path for path in files if path.startswith("problems/"))
    del files[path]
    if has_other_problems:
        metadata = json.dumps({"benchmarks": [BenchmarkRow("ocw", row=0).to_json()]})
        buffer = io.BytesIO()
        pl.DataFrame({"metadata": [metadata]}).write_parquet(buffer)
        files[path] = buffer.getvalue()
    hub.add("dataset", "o/r", files)
    assert open_on_hub(hub, tmp_path / "home") == ["opened"] * 2
