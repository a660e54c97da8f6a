"""Plans of builds and scorings: nothing is written, and the tokens follow from the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from hashes import hashes
from helpers import small_build
from random_model import save_random_model, save_random_prm

from fsdpo_data.stages.pipeline import BuildOptions
from fsdpo_data.stages.plans import plan_build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model, a reward model, problems and a dataset."""
    folder = tmp_path_factory.mktemp("plans")
    save_random_model(folder / "model")
    save_random_prm(folder / "prm", folder / "model")
    problems = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]
    text = "".join(json.dumps(problem) + "\n" for problem in problems)
    (folder / "problems.jsonl").write_text(text)
    small_build(folder / "built")
    return folder


@pytest.mark.parametrize("rate", [["--rate", "100"], []])
def test_a_build_is_planned_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, rate: list[str]
) -> None:
    digests = hashes(folder)
    line = ["build", "--model", folder / "model", "--problems", folder / "problems.jsonl"]
    line += ["--samples", 3, "--max-tokens", 50, "--template", "problem", "--out", folder / "new"]
    code, out, err = run(capsys, *map(str, line), "--plan", *rate)
    assert code == 0, err
    assert "tokens    900 (at most: 6 problems × 3 samples × 50 tokens)" in out
    assert ("as given" if rate else "measured here on") in out
    gpu_lines = [text for text in out.splitlines() if "GPU  " in text or "hours of one" in text]
    assert len(gpu_lines) == 2 and all(text.endswith("not measured") for text in gpu_lines)
    assert hashes(folder) == digests


@pytest.mark.parametrize("rate", [["--rate", "100"], []])
def test_a_scoring_is_planned_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, rate: list[str]
) -> None:
    digests = hashes(folder)
    line = ["score", folder / "built", "--prm", folder / "prm", "--out", folder / "scored"]
    code, out, err = run(capsys, *map(str, line), "--plan", *rate)
    assert code == 0, err
    assert "solutions of" in out and ("as given" if rate else "measured here on") in out
    assert hashes(folder) == digests


def test_replicas_and_shards_divide_the_work(folder: Path) -> None:
    def plan_hours(**options: object) -> float:
        build = BuildOptions(
            model=str(folder / "model"),
            problems=(str(folder / "problems.jsonl"),),
            template="problem",
            **options,
        )
        return plan_build(build, tokens_per_second=100).hours

    hours = plan_hours()
    assert plan_hours(shard="1/2") == hours / 2
    assert plan_hours(data_parallel_size=2) == hours / 2


def test_the_plan_of_vllm_needs_no_vllm_and_has_its_cache_on_a_cpu(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["build", "--model", folder / "model", "--problems", folder / "problems.jsonl"]
    line += ["--template", "problem", "--engine", "vllm", "--plan", "--rate", "100"]
    for variable, cache in (("", "cache 2.15"), ("3", "cache 3.22")):
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", variable)
        code, out, err = run(capsys, *map(str, line))
        assert code == 0, err
        [cpu_line] = [text for text in out.splitlines() if text.startswith("CPU")]
        assert cache in cpu_line
