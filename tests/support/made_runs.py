"""Runs of benchmarks without models: fake engines in place of resolved models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from fakes import Judge, Writer
from fsdpo_bench.benchmark_run import BenchmarkRun, execute_run, make_run
from fsdpo_bench.run_options import RunOptions
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.problems import limit_problems
from fsdpo_bench.tasks.table import builtin_tasks
from killing import TIMED_FILES, file_digests

from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.load import ResolvedPolicy, ResolvedRewardModel
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import ResolvedModel, ResolvedWeights
from fsdpo_data.stages.judge_answers import AnswerJudge

ALL_DECODERS = "greedy,first,sc,weighted,bon,sbs"
SAMPLER_ENGINE = EngineRef(name="replay", dtype="auto")
SCORER_ENGINE = EngineRef(name="transformers", dtype="auto")


def embedded_task(count: int = 7) -> LoadedTask:
    """Return some problems of the embedded benchmark."""
    return limit_problems(_load_embedded(), count)


@cache
def _load_embedded() -> LoadedTask:
    """Generate the problems of the embedded benchmark once: they take half a CPU second."""
    return load_task(builtin_tasks()["embedded"])


def prepare(
    *,
    decoder: str = ALL_DECODERS,
    tasks: Sequence[LoadedTask] | None = None,
    make_writer: Callable[[], Any] = lambda: Writer(0),
    make_judge: Callable[[], Any] = lambda: Judge(0),
    batch_size: int = 3,
    answer_judge: AnswerJudge | None = None,
    **options: Any,
) -> BenchmarkRun:
    """Return a run with fake engines that is ready to start."""
    needs_prm = {"weighted", "bon", "sbs"} & {*decoder.split(",")}
    samples = {"sc", "weighted", "bon"} & {*decoder.split(",")}
    values: dict[str, Any] = {"segmenter": "newline", "workers": 1}
    values |= {"k": (1, 2, 4)} if samples else {}
    values |= {"beam": BeamSpec(b1=2)} if "sbs" in decoder else {}
    values |= {"prm": "judge"} if needs_prm else {}
    run_options = RunOptions(model="writer", decoder=(decoder,), **(values | options))
    policy = ResolvedPolicy(
        model=ResolvedModel(Writer.model, path="", template=get_template("problem")),
        author=Writer.model,
        engine=SAMPLER_ENGINE,
        unknown_fields=(),
        batch_size=batch_size,
        make_sampler=make_writer,
    )
    weights = ResolvedWeights(Judge.model, path="")
    return make_run(
        run_options,
        tasks or [embedded_task()],
        run_options.setups(),
        policy,
        ResolvedRewardModel(weights, SCORER_ENGINE, make_judge) if needs_prm else None,
        answer_judge=answer_judge,
    )


def make(
    out: Path, *, resume: bool = False, progress: Progress = NO_PROGRESS, **settings: Any
) -> Path:
    """Make a run with fake engines; ``settings`` are those of :func:`prepare`."""
    execute_run(prepare(**settings), out, resume=resume, progress=progress)
    return out


def solutions(out: Path, part: str) -> dict[str, list[dict[str, Any]]]:
    """Return the solutions of a part by question, in the order of the problems."""
    problems = pl.read_parquet(out / part / "problems/*.parquet")
    questions = dict(problems.select("problem_id", "question").iter_rows())
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in pl.read_parquet(out / part / "solutions/*.parquet").iter_rows(named=True):
        rows.setdefault(questions[row["problem_id"]], []).append(row)
    return rows


def written(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_long_problem(file: Path) -> Path:
    """Write three problems, one of which exceeds the context of every model; return the file."""
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(3)]
    rows[1]["question"] = "Some words. " * 2_000 + rows[1]["question"]
    return written(file, rows)


def table_digests(out: Path) -> dict[str, str]:
    """Return the digests of all files of a run without seconds."""
    return file_digests(out, without=TIMED_FILES)
