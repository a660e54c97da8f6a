"""Benchmark problems do not slip into training or onto the Hub."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from paired_data import paired_dataset

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.benchmark_problems import check_no_benchmark_problems
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.problems.benchmark_places import BenchmarkPlace, benchmark_places
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import open_pairs
from fsdpo_train.prm.data import open_solutions


def test_a_dataset_with_a_benchmark_problem_is_refused(tmp_path: Path) -> None:
    problem_place = BenchmarkPlace("ocw", row=3, groups={"level": "5"}, cluster="base")
    metadata = {"benchmarks": [problem_place.to_json()], "level": 5}
    root = paired_dataset(tmp_path, metadata=metadata)
    with pytest.raises(InputError, match=r"has 3 problems of benchmarks \(ocw\)"):
        check_no_benchmark_problems(root, read_manifest(root))
    assert benchmark_places(json.loads(json.dumps(metadata))) == [problem_place]
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
    problem_place = BenchmarkPlace("ocw", row=0)
    data = paired_dataset(tmp_path, metadata={"benchmarks": [problem_place.to_json()]})
    arguments = line.format(data=data, out=tmp_path / "out").split()
    code, out, err = run(capsys, *arguments)
    assert code == 1 and "problems of benchmarks (ocw)" in err
    assert err.rstrip().endswith("Use other problems, or add --allow-benchmark.")
    code, out, err = run(capsys, *arguments, "--allow-benchmark")
    assert "problems of benchmarks" not in out + err


def test_trainings_refuse_benchmark_problems(tmp_path: Path) -> None:
    problem_place = BenchmarkPlace("ocw", row=0)
    data = paired_dataset(tmp_path, metadata={"benchmarks": [problem_place.to_json()]})
    loss = PREFERENCE_LOSSES["full-step"]
    for open_rows in (open_solutions, partial(open_pairs, loss=loss)):
        with pytest.raises(InputError, match=r"problems of benchmarks \(ocw\)"):
            open_rows([data])
        assert list(open_rows([data], allow_benchmark=True).rows())
