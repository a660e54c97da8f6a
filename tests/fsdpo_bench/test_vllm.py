"""Benchmarks with vLLM: agreement with transformers, and decoding with a reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.benchmark_run import run_benchmarks
from fsdpo_bench.run_folder import read_run_record
from fsdpo_bench.run_options import RunOptions
from fsdpo_bench.tasks.load import find_file
from fsdpo_bench.tasks.table import Task, builtin_tasks
from hub_only import save_hub_only
from made_runs import solutions
from near import TIE, gap
from random_model import save_random_prm

from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.models.resolve import CHECKPOINT

# The imports of vLLM cause warnings.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def solve_embedded(out: Path, engine: str, **options: Any) -> Path:
    values = {"out": out, "task": ["embedded"], "model": "tiny", "engine": engine, "workers": 1}
    return run_benchmarks(make_options(RunOptions, values | options))


def test_greedy_solutions_agree_between_engines(tmp_path: Path) -> None:
    """Compare 500 greedy solutions; texts may only differ after a tie of logits."""
    ours, theirs = (
        solutions(solve_embedded(tmp_path / engine, engine, max_tokens=256), "greedy")
        for engine in ("transformers", "vllm")
    )
    assert [*ours] == [*theirs] and len(ours) == 500
    n_differing = 0
    for question, [our_row] in ours.items():
        [their_row] = theirs[question]
        texts = ["".join(row["completions"]) for row in (our_row, their_row)]
        if texts[0] != texts[1]:
            n_differing += 1
            print(question, our_row["answer"], "and", their_row["answer"])
            assert gap(str(CHECKPOINT), our_row["prompt"], *texts) < TIE
    print(f"{n_differing} of {len(ours)} greedy solutions differ")
    assert n_differing <= 5


def test_every_benchmark_runs_on_both_engines(tmp_path: Path, shared: Path) -> None:
    """Run 20 problems of each task, with generated files for tasks that are only on the Hub."""
    engines_by_task: dict[str, dict[str, int]] = {}
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
            run_benchmarks(
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
            validate(out / "greedy")
            for name, entry in read_run_record(out).benchmarks.items():
                engines_by_task.setdefault(name, {})[engine] = entry.problems
    assert {*engines_by_task} == {*builtin_tasks()}
    for name, problems in engines_by_task.items():
        assert problems == {"vllm": 20, "transformers": 20}, name


def is_here(task: Task, data: Path) -> bool:
    try:
        return task.make is not None or find_file(task, data).is_file()
    except InputError:
        return False


def test_every_decoder_runs_with_a_reward_model(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    decoders = {"decoder": ("greedy,sc,weighted,bon,sbs",), "k": (2,), "b1": 2, "prm": str(prm)}
    out = solve_embedded(tmp_path / "run", "vllm", limit=4, max_tokens=128, **decoders)
    for [row] in solutions(out, "sbs@2,1").values():
        assert row["finish_reason"] == "stop" and len(row["completions"]) >= 2
        assert len(row["step_rewards"]) == len(row["completions"])
