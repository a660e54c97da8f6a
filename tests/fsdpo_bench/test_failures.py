"""Benchmark runs in which engines refuse prompts and solutions of some problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from fakes import Judge, Writer
from fsdpo_bench import benchmark_run, run_shards
from fsdpo_bench.benchmark_run import BenchmarkRun, describe_failures
from fsdpo_bench.cli.app import app
from fsdpo_bench.run_folder import is_run, read_run_record
from fsdpo_bench.run_options import RunOptions
from made_runs import embedded_task, make, prepare, solutions, table_digests, written
from openai_server import Script, serving
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import FailedItemsError, ItemError
from fsdpo_data.core.failures import FAILURES_FILE
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.stages.merge import MergeOptions
from fsdpo_train.cli.app import app as train_app

QUESTIONS = [problem.question for problem in embedded_task().problems]
PARTS = ("greedy", "samples", "sbs@2,1")


class FussyWriter(Writer):
    """A writer that raises an error for prompts with some texts."""

    refused: Sequence[str] = ()

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
        if any(text in prompt for text in self.refused for prompt in prompts):
            raise ValueError("the prompt is too long")
        return super().complete_texts(prompts, spec)


class FussyJudge(Judge):
    """A judge that raises an error for solutions of some questions, after their first step."""

    refused: Sequence[str] = ()

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        if any(
            text in item.prompt and len(item.steps) > 1 for text in self.refused for item in items
        ):
            raise ItemError("the solution is too long")
        return super().compute_rewards(items)


@pytest.fixture(autouse=True)
def accept_everything() -> Iterator[None]:
    yield
    FussyWriter.refused = ()
    FussyJudge.refused = ()


def fussy_run(out: Path, max_failed: str = "50%") -> Path:
    return make(
        out,
        decoder="greedy,sc,bon,sbs",
        k=(2,),
        make_writer=lambda: FussyWriter(0),
        make_judge=lambda: FussyJudge(0),
        max_failed=max_failed,
        resume=True,
    )


def failures(out: Path) -> list[str]:
    return describe_failures(out, read_run_record(out).parts, location=out)


def test_refused_prompts_do_not_stop_a_run_and_are_retried(tmp_path: Path) -> None:
    clean = fussy_run(tmp_path / "clean")
    assert failures(clean) == []
    FussyWriter.refused = (QUESTIONS[1], QUESTIONS[5])
    out = fussy_run(tmp_path / "run")
    for part in PARTS:
        assert read_manifest(out / part).failed == {"sample": 2}
        expected = solutions(clean, part)
        del expected[QUESTIONS[1]], expected[QUESTIONS[5]]
        assert solutions(out, part) == expected
    assert [line.partition(":")[0] for line in failures(out)] == list(PARTS)
    assert all("2 of 7 problems failed" in line for line in failures(out))
    FussyWriter.refused = ()
    assert table_digests(fussy_run(out)) == table_digests(clean)
    assert failures(out) == []


def test_refused_solutions_have_no_rewards_and_are_retried(tmp_path: Path) -> None:
    """A search without rewards has no solution; a sample without rewards stays a sample."""
    clean = fussy_run(tmp_path / "clean")
    FussyJudge.refused = (QUESTIONS[1], QUESTIONS[5])
    out = fussy_run(tmp_path / "run")
    assert read_manifest(out / "greedy").failed == {}
    n_failed = read_manifest(out / "samples").failed or {}
    rows = [row for rows in solutions(out, "samples").values() for row in rows]
    assert n_failed == {"score": sum(row["step_rewards"] is None for row in rows)} != {"score": 0}
    assert "sample" in (read_manifest(out / "sbs@2,1").failed or {})
    assert len(failures(out)) == 2 and "of 14 solutions failed" in failures(out)[0]
    FussyJudge.refused = ()
    assert table_digests(fussy_run(out)) == table_digests(clean)


def test_a_run_stops_above_the_percentage(tmp_path: Path) -> None:
    out = tmp_path / "run"
    FussyWriter.refused = (QUESTIONS[1], QUESTIONS[5])
    with pytest.raises(FailedItemsError, match=r"1 of 7 problems failed, more than .*1%"):
        fussy_run(out, "1%")
    with pytest.raises(ValueError, match="too long"):
        fussy_run(out, "0")
    assert not is_run(out)
    FussyWriter.refused = ()
    assert table_digests(fussy_run(out, "1%")) == table_digests(fussy_run(tmp_path / "clean"))


def test_a_run_stops_if_everything_fails(tmp_path: Path) -> None:
    FussyWriter.refused = QUESTIONS
    with pytest.raises(FailedItemsError, match="all of the first 3 problems failed"):
        fussy_run(tmp_path / "run", "100%")
    FussyWriter.refused = ()
    clean = fussy_run(tmp_path / "clean")
    assert table_digests(fussy_run(tmp_path / "run")) == table_digests(clean)


def test_repeated_merges_have_the_results_of_resumed_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge scores the part `samples` itself; the other parts have no further stages."""

    def prepare_fussy_run(options: RunOptions) -> BenchmarkRun:
        return prepare(
            decoder="greedy,sc,bon,sbs",
            k=(2,),
            make_writer=lambda: FussyWriter(0),
            make_judge=lambda: FussyJudge(0),
            max_failed="50%",
            retry_failed=options.retry_failed,
        )

    for module in (run_shards, benchmark_run):
        monkeypatch.setattr(module, "prepare_run", prepare_fussy_run)
    clean = fussy_run(tmp_path / "clean")
    shards = [tmp_path / f"shard-{index}" for index in (1, 2)]
    merge_options = MergeOptions(shards=shards, out=tmp_path / "merged")

    def merge_resumed_shards() -> list[str]:
        n_failed = 0
        for index, shard in enumerate(shards, start=1):
            options = RunOptions(shard=f"{index}/2", out=shard, resume=True)
            n_failed += sum(run_shards.run_shard(options, print).failed.values())
        assert n_failed == len(PARTS) * len(FussyWriter.refused)
        warnings: list[str] = []
        with run_shards.merged_shards(merge_options) as run_options:
            benchmark_run.run_benchmarks(
                run_options, warnings.append, location="s3://bucket/run", is_merge=True
            )
        for part in PARTS:
            manifest = read_manifest(tmp_path / "merged" / part)
            assert manifest.failed.get("sample", 0) == len(FussyWriter.refused)
        return warnings

    FussyWriter.refused = (QUESTIONS[1], QUESTIONS[5])
    warnings = merge_resumed_shards()
    assert [line.partition(":")[0] for line in warnings] == list(PARTS)
    for line in warnings:
        assert "2 of 7 problems failed" in line and f"{FAILURES_FILE} in s3://bucket/run" in line
        assert "resume the shards with --resume, and repeat the merge" in line
    FussyWriter.refused = (QUESTIONS[5],)
    assert len(merge_resumed_shards()) == len(PARTS)
    FussyWriter.refused = ()
    assert merge_resumed_shards() == []
    assert table_digests(tmp_path / "merged") == table_digests(clean)


def test_a_served_model_that_refuses_a_prompt(tmp_path: Path) -> None:
    script = Script(reply=lambda body, i: f"The answer is: {body['n']}")
    rows = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
    file = written(tmp_path / "own.jsonl", rows)
    run: Callable[..., Any] = CliRunner().invoke
    with serving(script) as url:
        line = ["run", "--task", str(file), "--model", "tiny", "--engine", "openai"]
        line += ["--base-url", url, "--decoder", "greedy,sc", "--k", "2"]
        line += ["--max-failed", "20%", "--out"]
        assert run(app, [*line, str(tmp_path / "clean")]).exit_code == 0
        script.refuses = {"What is 3"}
        result = run(app, [*line, str(tmp_path / "run")])
        assert result.exit_code == 0, result.output
        assert "greedy: 1 of 6 problems failed and do not count" in result.stderr
        script.refuses = set()
        result = run(app, [*line, str(tmp_path / "run"), "--resume"])
        assert result.exit_code == 0 and "failed" not in result.stderr
    assert table_digests(tmp_path / "run") == table_digests(tmp_path / "clean")


def test_only_commands_that_go_on_offer_the_option() -> None:
    offered = set()
    for program in (app, data_app, train_app):
        group: Any = typer.main.get_command(program)
        assert group.commands
        for name, command in group.commands.items():
            if any("--max-failed" in parameter.opts for parameter in command.params):
                offered.add(name)
    assert offered == {"build", "label", "score", "run"}
