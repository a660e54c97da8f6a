"""Benchmarks with vLLM: agreement with transformers, and decoding with a reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_runs import read_rows
from fsdpo_bench.runs.make_job import run_job
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.tasks.load import find_file
from fsdpo_bench.tasks.table import Task, builtin_tasks
from hub_only import save_hub_only
from near import TIE, gap
from random_model import save_random_prm

from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.models.resolve import CHECKPOINT

# The imports of vLLM cause warnings.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def decode_embedded(out: Path, engine: str, **options: Any) -> list[dict[str, Any]]:
    run_job(
        make_options(
            RunOptions,
            {"out": out, "task": ["embedded"], "model": "tiny", "engine": engine, "workers": 1}
            | options,
        )
    )
    return read_rows(out)


def test_greedy_solutions_agree_between_engines(tmp_path: Path) -> None:
    """Compare 500 greedy solutions; texts may only differ after a tie of logits."""
    ours, theirs = (
        decode_embedded(tmp_path / engine, engine, max_tokens=256)
        for engine in ("transformers", "vllm")
    )
    assert [record["problem_id"] for record in ours] == [record["problem_id"] for record in theirs]
    differing = [pair for pair in zip(ours, theirs, strict=True) if len(set(map(text, pair))) > 1]
    for our_record, their_record in differing:
        print(our_record["problem_id"], our_record["decoded"]["greedy"]["answer"], "and", end=" ")
        print(their_record["decoded"]["greedy"]["answer"], "for", our_record["gold"])
        assert (
            gap(str(CHECKPOINT), our_record["prompt"], text(our_record), text(their_record)) < TIE
        )
    print(f"{len(differing)} of {len(ours)} greedy solutions differ")
    assert len(ours) == 500 and len(differing) <= 5


def test_every_benchmark_runs_on_both_engines(tmp_path: Path, shared: Path) -> None:
    """Run 20 problems of each task, with generated files for tasks that are only on the Hub."""
    engines_by_task: dict[str, list[str]] = {}
    folders = {folder: shared / "data" / folder for folder in ("benchmarks", "newer/benchmarks")}
    folders["made"] = save_hub_only(tmp_path / "made")
    for folder, data in folders.items():
        names = [
            name
            for name, task in builtin_tasks().items()
            if is_here(task, data) and name not in engines_by_task
        ]
        for engine in ("transformers", "vllm"):
            out = tmp_path / folder.replace("/", "-") / engine
            run_job(
                RunOptions(
                    out=out,
                    task=names,
                    data=data,
                    model="tiny",
                    engine=SamplerOptions(engine=engine),
                    workers=1,
                    limit=20,
                    decoder=("greedy",),
                    sampling=SamplingSpec(n=1, max_tokens=16),
                )
            )
            for record in read_rows(out):
                engines_by_task.setdefault(record["task"], []).append(engine)
    assert {*engines_by_task} == {*builtin_tasks()}
    for name, engines in engines_by_task.items():
        assert engines.count("vllm") == engines.count("transformers") == 20, name


def is_here(task: Task, data: Path) -> bool:
    try:
        return task.make is not None or find_file(task, data).is_file()
    except InputError:
        return False


def text(record: dict[str, Any]) -> str:
    return str(record["decoded"]["greedy"]["solution"]["text"])


def test_every_decoder_runs_with_a_reward_model(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    plan = {"decoder": ("greedy,sc,weighted,bon,sbs",), "k": (2,), "b1": 2, "prm": str(prm)}
    run_records = decode_embedded(tmp_path / "run", "vllm", limit=4, max_tokens=128, **plan)
    for record in run_records:
        search = record["decoded"]["sbs@2,1"]["solution"]
        assert search["finish_reason"] == "stop" and len(search["steps"]) >= 2
        assert len(search["rewards"]) == len(search["steps"])
