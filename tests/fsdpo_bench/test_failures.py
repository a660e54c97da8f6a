"""Benchmark runs in which engines refuse prompts and solutions of some problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from bench_runs import read_rows
from fakes import Judge, Writer
from fsdpo_bench.cli.app import app
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.report.render import write_report
from fsdpo_bench.runs.failures import BatchFailures
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import builtin_tasks
from openai_server import Script, serving
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import FailedItemsError, ItemError
from fsdpo_data.core.failures import FailurePolicy, read_failures
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.prompts import get_template
from fsdpo_train.cli.app import app as train_app

PLAN = DecodingPlan(("greedy", "sc", "bon", "sbs"), (2,), "min", (BeamSpec(b1=2, b2=1),))
TASK = limit_problems(load_task(builtin_tasks()["embedded"]), 7)
QUESTIONS = [problem.question for problem in TASK.problems]


class FussyWriter(Writer):
    """A writer that raises an error for prompts with some texts."""

    refused: Sequence[str] = ()

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
        if any(text in prompt for text in self.refused for prompt in prompts):
            raise ValueError("the prompt is too long")
        return super().sample(prompts, spec)


class FussyJudge(Judge):
    """A judge that raises an error for solutions of some questions, after their first step."""

    refused: Sequence[str] = ()

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        if any(
            text in item.prompt and len(item.steps) > 1 for text in self.refused for item in items
        ):
            raise ItemError("the solution is too long")
        return super().score(items)


@pytest.fixture(autouse=True)
def accept_everything() -> Iterator[None]:
    yield
    FussyWriter.refused = ()
    FussyJudge.refused = ()


def small_run(out: Path, max_failed: str = "50%", *, tasks: Sequence[LoadedTask] = (TASK,)) -> Path:
    spec = RunSpec(
        model=Writer.model,
        template=get_template("problem"),
        sampling=SamplingSpec(n=2),
        engine={"name": "replay", "dtype": "auto"},
        segmenter="newline@1",
        plan=PLAN,
        prm={"name": "judge", "revision": "0"},
    )
    job = BenchJob(
        spec,
        tasks,
        lambda: FussyWriter(0),
        lambda: FussyJudge(0),
        batch_size=3,
        workers=1,
        failure_policy=FailurePolicy(max_failed),
    )
    decode_tasks(job, out, resume=True, progress=NO_PROGRESS)
    return out


def records(out: Path) -> list[Any]:
    return [_remove_times(row) for row in read_rows(out)]


def lines(out: Path) -> list[Any]:
    """Return the lines of the file, in their order."""
    text = (out / "records/embedded.jsonl").read_text()
    return [_remove_times(json.loads(line)) for line in text.splitlines()]


def _remove_times(value: Any) -> Any:
    if isinstance(value, dict):
        times = ("seconds", "scoring_seconds")
        return {key: _remove_times(item) for key, item in value.items() if key not in times}
    return [_remove_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("engine", [FussyWriter, FussyJudge])
def test_refused_problems_do_not_stop_a_run_and_are_retried(
    tmp_path: Path, engine: type[FussyWriter | FussyJudge]
) -> None:
    clean = lines(small_run(tmp_path / "clean"))
    engine.refused = (QUESTIONS[1], QUESTIONS[5])
    out = small_run(tmp_path / "run")
    failures = list(read_failures(out))
    failed_rows = [int(record["id"].rpartition("/")[2]) for record in failures]
    assert set(failed_rows) <= {1, 5} and failed_rows
    assert {record["task"] for record in failures} == {"embedded"}
    assert all("too long" in record["reason"] for record in failures)
    assert records(out) == [row for row in clean if row["row"] not in failed_rows]
    results = write_report(out).tasks["embedded"]
    assert (results.problems, results.failed) == (7 - len(failed_rows), len(failed_rows))
    assert f"({len(failed_rows)} failed)" in (out / "report.md").read_text()
    engine.refused = ()
    assert lines(small_run(tmp_path / "run")) == clean
    assert not list(read_failures(out)) and not (out / "failures.jsonl").exists()
    assert write_report(out).tasks["embedded"].failed is None
    assert "failed" not in json.loads((out / "results.json").read_text())["tasks"]["embedded"]


def test_the_other_problems_of_the_batch_are_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch with a failed problem, the last bits of the other rewards may differ."""
    clean = lines(small_run(tmp_path / "clean"))
    with monkeypatch.context() as patch:
        reward_steps = Judge.one

        def drift(self: Judge, prompt: str, steps: Sequence[str]) -> list[float] | None:
            rewards = reward_steps(self, prompt, steps)
            return rewards and [reward + 1e-7 for reward in rewards]

        patch.setattr(Judge, "one", drift)
        FussyWriter.refused = (QUESTIONS[1],)
        small_run(tmp_path / "run")
    FussyWriter.refused = ()
    again = lines(small_run(tmp_path / "run"))
    assert again[:3] == clean[:3] and again[3:] != clean[3:]


def test_a_run_stops_above_the_percentage(tmp_path: Path) -> None:
    clean = lines(small_run(tmp_path / "clean"))
    FussyWriter.refused = (QUESTIONS[1], QUESTIONS[5])
    with pytest.raises(FailedItemsError, match=r"1 of 7 problems failed, more than .*1%"):
        small_run(tmp_path / "run", "1%")
    assert [row["row"] for row in records(tmp_path / "run")] == [0, 2]
    with pytest.raises(ValueError, match="too long"):
        small_run(tmp_path / "run", "0")
    FussyWriter.refused = ()
    assert lines(small_run(tmp_path / "run", "1%")) == clean


def test_a_run_stops_if_everything_fails(tmp_path: Path) -> None:
    FussyWriter.refused = QUESTIONS
    with pytest.raises(FailedItemsError, match="all of the first 3 problems failed"):
        small_run(tmp_path / "run", "100%")
    FussyWriter.refused = ()
    assert lines(small_run(tmp_path / "run")) == lines(small_run(tmp_path / "clean"))


def test_a_failure_belongs_to_the_longest_prompt() -> None:
    failures = BatchFailures(["2+2?", "2+2? Yes", "other", "2+2? Yes"])
    failures.add("2+2? Yes, and", ItemError("too long"))
    failures.add("other", ItemError("filtered"))
    assert failures.errors.keys() == {1, 3, 2}


def test_a_served_model_that_refuses_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(reply=lambda body, i: f"The answer is: {body['n']}")
    file = tmp_path / "own.jsonl"
    rows = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run: Callable[..., Any] = CliRunner().invoke
    with serving(script) as url:
        line = ["run", "--task", str(file), "--model", "tiny", "--engine", "openai"]
        line += ["--base-url", url, "--decoder", "greedy,sc", "--k", "2"]
        line += ["--max-failed", "20%", "--out"]
        assert run(app, [*line, str(tmp_path / "clean")]).exit_code == 0
        script.refuses = {"What is 3"}
        result = run(app, [*line, str(tmp_path / "run")])
        assert result.exit_code == 0, result.output
        assert "1 of 6 problems failed and do not count" in result.stderr
        script.refuses = set()
        result = run(app, [*line, str(tmp_path / "run"), "--resume"])
        assert result.exit_code == 0 and "failed" not in result.stderr
    assert records(tmp_path / "run") == records(tmp_path / "clean")


def test_only_commands_that_go_on_offer_the_option() -> None:
    offered = set()
    for program in (app, data_app, train_app):
        group: Any = typer.main.get_command(program)
        assert group.commands
        for name, command in group.commands.items():
            if any("--max-failed" in parameter.opts for parameter in command.params):
                offered.add(name)
    assert offered == {"build", "label", "score", "run"}
