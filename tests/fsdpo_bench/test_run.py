"""Benchmark runs: what they keep, exact resume after SIGKILL, refusals, decisions made anew."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import Judge, Writer
from fsdpo_bench.cli.app import app
from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_bench.decode.plan import DecodingPlan, make_plan
from fsdpo_bench.report.render import write_report
from fsdpo_bench.runs.make_job import check_tokenizer
from fsdpo_bench.runs.records import read_config, read_records, record_file
from fsdpo_bench.runs.regrade import regrade_run
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.grade import TaskResponse, grade_task_responses
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import builtin_tasks
from random_model import save_random_model, save_random_prm
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import CHECKPOINT, resolve, resolve_weights

KS = (1, 2, 4)
PLAN = DecodingPlan(("greedy", "sc", "weighted", "bon", "sbs"), KS, "min", (BeamSpec(b1=2, b2=1),))
NAMES = ["greedy", "sc@1", "sc@2", "sc@4", "weighted@1:min", "weighted@2:min", "weighted@4:min"]
NAMES += ["bon@1:min", "bon@2:min", "bon@4:min", "sbs@2,1"]
TIMES = ("seconds", "scoring_seconds")


def part(count: int = 7) -> LoadedTask:
    return limit_problems(load_task(builtin_tasks()["embedded"]), count)


def run_spec(plan: DecodingPlan = PLAN, **changes: Any) -> RunSpec:
    settings: dict[str, Any] = {
        "model": Writer.model,
        "template": get_template("problem"),
        "sampling": SamplingSpec(n=max(1, plan.n_samples)),
        "engine": {"name": "replay", "dtype": "auto"},
        "segmenter": "newline@1",
        "plan": plan,
        "prm": {"name": "judge", "revision": "0"} if plan.needs_prm else None,
    }
    return RunSpec(**(settings | changes))


def small_run(
    out: Path,
    parts: Sequence[LoadedTask] | None = None,
    *,
    spec: RunSpec | None = None,
    writer: Callable[[], Writer] = lambda: Writer(0),
    **options: Any,
) -> Path:
    found = parts or [part()]
    batch = options.pop("batch", 3)
    job = BenchJob(spec or run_spec(), found, writer, lambda: Judge(0), batch, workers=1)
    decode_tasks(job, out, **({"progress": LineProgress()} | options))
    return out


def untimed(value: Any) -> Any:
    """Return a record without what a clock measured."""
    if isinstance(value, dict):
        return {key: untimed(each) for key, each in value.items() if key not in TIMES}
    return [untimed(each) for each in value] if isinstance(value, list) else value


def records(out: Path) -> list[dict[str, Any]]:
    return [untimed(each) for each in read_records(out)]


def test_a_record_holds_everything_that_was_decoded(tmp_path: Path) -> None:
    problem = part().problems[0]
    first = next(read_records(small_run(tmp_path / "run")))
    assert list(first["decoded"]) == list(first["cost"]) == NAMES
    assert (first["question"], first["gold"]) == (problem.question, problem.answer)
    assert first["prompt"] == get_template("problem").render(problem.question)
    assert len(first["samples"]) == 4
    own = [first["decoded"][name]["solution"] for name in ("greedy", "sbs@2,1")]
    for row in [*first["samples"], *own]:
        assert "".join(row["steps"]) == row["text"] and len(row["rewards"]) == len(row["steps"])
        [judged] = grade_task_responses(
            builtin_tasks()["embedded"], [TaskResponse(problem, row["text"])]
        )
        assert (row["status"], row["rule"]) == (judged.verdict.status, judged.verdict.rule)
    assert first["cost"]["greedy"]["prm_calls"] == 0  # its rewards decide nothing


def test_what_is_decided_of_k_samples_costs_what_k_samples_cost(tmp_path: Path) -> None:
    for record in read_records(small_run(tmp_path / "run")):
        for k in KS:
            tokens = sum(row["n_tokens"] for row in record["samples"][:k])
            assert record["cost"][f"sc@{k}"]["tokens"] == tokens
            assert record["cost"][f"sc@{k}"]["prm_calls"] == 0
            assert record["cost"][f"bon@{k}:min"]["tokens"] == tokens
            assert record["cost"][f"bon@{k}:min"]["prm_calls"] == k


def test_one_set_of_samples_serves_every_k(tmp_path: Path) -> None:
    """The first two samples of four are the samples of two."""
    many = records(small_run(tmp_path / "many"))
    few = records(
        small_run(
            tmp_path / "few", spec=run_spec(DecodingPlan(PLAN.decoders, (2,), "min", PLAN.beams))
        )
    )
    for four, two in zip(many, few, strict=True):
        assert two["samples"] == four["samples"][:2]
        for name in two["decoded"]:
            assert two["decoded"][name] == four["decoded"][name]
            assert two["cost"][name] == four["cost"][name]


def test_every_decoder_hands_the_question_to_the_scorer(tmp_path: Path) -> None:
    """Reward models of others put it into prompts of their own."""
    asked = set()

    class Asking(Judge):
        def score(self, items: Any) -> Any:
            asked.update((item.prompt, item.question) for item in items)
            return super().score(items)

    for name in ("bon", "sbs"):
        asked.clear()
        spec = run_spec(DecodingPlan((name,), KS, "min", PLAN.beams if name == "sbs" else ()))
        parts = [part(2)]
        job = BenchJob(spec, parts, lambda: Writer(0), lambda: Asking(0))
        decode_tasks(job, tmp_path / name, progress=LineProgress())
        questions = [each.question for each in parts[0].problems]
        assert asked == {(get_template("problem").render(each), each) for each in questions}


def test_batches_change_nothing(tmp_path: Path) -> None:
    assert records(small_run(tmp_path / "a")) == records(small_run(tmp_path / "b", batch=100))


class Dying(Writer):
    """Dies over the fifth problem."""

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
        if any(part().problems[4].question in prompt for prompt in prompts):
            raise KeyboardInterrupt
        return super().sample(prompts, spec)


def test_a_run_that_was_broken_off_goes_on_to_the_same_records(tmp_path: Path) -> None:
    whole = records(small_run(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path / "run", writer=lambda: Dying(0))
    there = len(records(tmp_path / "run"))
    assert there == 3
    asked: list[Writer] = []

    def writer() -> Writer:
        asked.append(Writer(0))
        return asked[0]

    small_run(tmp_path / "run", writer=writer, resume=True)
    assert records(tmp_path / "run") == whole
    prompts = {record["prompt"] for record in whole[:there]}
    assert not prompts & {prompt for prompt, _ in asked[0].asked}
    small_run(tmp_path / "run", writer=lambda: pytest.fail("all is there"), resume=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-9],
        lambda raw: raw.splitlines(keepends=True)[0] + raw[-700:],
        lambda raw: b"\x00\n" + raw,
        lambda raw: b"",
    ],
)
def test_damaged_records_are_owed_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    out = small_run(tmp_path / "run")
    whole, file = records(out), record_file(out, "embedded")
    file.write_bytes(damage(file.read_bytes()))
    small_run(out, resume=True)
    assert records(out) == whole


def test_a_question_asked_twice_has_two_records(tmp_path: Path) -> None:
    twice = part(2)
    doubled = LoadedTask(twice.task, twice.problems * 2, twice.ids * 2, twice.ref, twice.digest)
    out = small_run(tmp_path / "run", [doubled], batch=2)
    small_run(out, [doubled], resume=True, writer=lambda: pytest.fail("all is there"))
    found = records(out)
    assert [each["row"] for each in found] == [0, 1, 2, 3]
    assert found[0] == found[2] | {"row": 0}


def test_another_config_is_refused_by_the_keys_that_differ(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    hotter = run_spec(sampling=SamplingSpec(n=4, temperature=1.0))
    with pytest.raises(RunMismatchError, match=r"sampling\.temperature: 0\.8 in the run, 1\.0 now"):
        small_run(out, spec=hotter, resume=True)
    with pytest.raises(RunMismatchError, match=r"tasks\.embedded\.problems: 7 in the run, 3 now"):
        small_run(out, [part(3)], resume=True)
    with pytest.raises(RunMismatchError, match=r"holds this run\. Continue it with `resume=True`"):
        small_run(out)


def test_the_config_names_all_that_decides_the_output(tmp_path: Path) -> None:
    config = read_config(small_run(tmp_path / "run"))
    assert {
        "model",
        "template",
        "sampling",
        "engine",
        "segmenter",
        "grader",
        "prm",
    } <= config.keys()
    assert config["decoders"] == NAMES
    task = config["tasks"]["embedded"]
    assert (task["version"], task["rows"], task["problems"]) == (1, 500, 7)


def test_benchmarks_stand_in_the_order_of_the_table(tmp_path: Path, shared: Path) -> None:
    names = ("svamp", "addsub", "gsm8k")
    parts = [
        limit_problems(load_task(builtin_tasks()[name], shared / "data/benchmarks"), 1)
        for name in names
    ]
    out = small_run(tmp_path / "run", parts, spec=run_spec(DecodingPlan()))
    assert [record["task"] for record in records(out)] == ["gsm8k", "svamp", "addsub"]
    assert list(write_report(out)["tasks"]) == ["gsm8k", "svamp", "addsub"]


def test_golds_that_are_missing_leave_the_count(tmp_path: Path, shared: Path) -> None:
    whole = load_task(builtin_tasks()["gk2023"], shared / "data/benchmarks")
    row = next(i for i, each in enumerate(whole.problems) if not each.answer)
    only = LoadedTask(whole.task, [whole.problems[row]], [whole.ids[row]], whole.ref, whole.digest)
    [record] = records(small_run(tmp_path / "run", [only], spec=run_spec(DecodingPlan())))
    assert record["decoded"]["greedy"]["correct"] is None
    assert record["decoded"]["greedy"]["status"] == "gold_unparsed"


def test_tolerant_benchmarks_keep_both_verdicts(tmp_path: Path, shared: Path) -> None:
    ocw = limit_problems(load_task(builtin_tasks()["ocw"], shared / "data/benchmarks"), 2)
    for record in records(small_run(tmp_path / "run", [ocw], spec=run_spec(DecodingPlan()))):
        assert {"correct", "strict"} <= record["decoded"]["greedy"].keys()


def regraded(source: Path, out: Path, *ks: int, aggregate: str | None = None) -> Path:
    regrade_run(source, out, ks, aggregate, 1, LineProgress())
    return out


def test_grading_again_without_the_model_gives_the_same(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    again = regraded(out, tmp_path / "again")
    assert records(again) == records(out)
    assert read_config(again)["regraded_from"] == read_config(out)["config_digest"]


def test_grading_again_repairs_verdicts(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    whole, file = records(out), record_file(out, "embedded")
    file.write_bytes(file.read_bytes().replace(b'"status":"incorrect"', b'"status":"correct"'))
    assert records(out) != whole
    assert records(regraded(out, tmp_path / "again")) == whole


def test_other_ks_and_aggregates_are_decided_from_the_same_samples(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    found = regraded(out, tmp_path / "three", 3, 4, aggregate="mean")
    ours = run_spec(DecodingPlan(PLAN.decoders, (3, 4), "mean", PLAN.beams))
    assert records(found) == records(small_run(tmp_path / "fresh", spec=ours))


def test_more_samples_than_there_are_cannot_be_decided_among(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    with pytest.raises(
        InputError, match=r"k = 5: .* contains 4 samples of each problem. Use `k=4`"
    ):
        regraded(out, tmp_path / "five", 5)
    alone = small_run(tmp_path / "alone", spec=run_spec(DecodingPlan()))
    with pytest.raises(InputError, match="contains no samples"):
        regraded(alone, tmp_path / "none", 2)


def ran(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_show_filters_by_id_verdict_and_level(tmp_path: Path) -> None:
    out, found = small_run(tmp_path / "run"), records(tmp_path / "run")
    wanted = found[2]["problem_id"][:8]
    shown = ran("inspect", str(out), wanted, "--json")
    assert [json.loads(line)["row"] for line in shown.stdout.splitlines()] == [2]
    for status in ("correct", "incorrect"):
        lines = ran("inspect", str(out), "--outcome", status, "--decoder", "sc@4", "--json").stdout
        rows = [each["row"] for each in found if each["decoded"]["sc@4"]["status"] == status]
        assert [json.loads(line)["row"] for line in lines.splitlines()] == rows
    level = found[0]["metadata"]["level"]
    lines = ran("inspect", str(out), "--level", level, "--json").stdout.splitlines()
    assert len(lines) == sum(each["metadata"]["level"] == level for each in found)
    text = ran("inspect", str(out), wanted).stdout
    assert found[2]["question"][:40] in text and "matching problems: 1" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--suite", "odo", "--model", "tiny"], r"--suite odo: .*Nearest: ood"),
        (["run", "--task", "gsm9k", "--model", "tiny"], r"--task gsm9k: .*Nearest: gsm8k"),
        (["run", "--task", "math", "--model", "tiny", "--data", "/nowhere"], "contains no MATH"),
        (["run", "--suite", "smoke"], "--model: missing"),
        (["run", "--suite", "smoke", "--model", "tiny", "--decoder", "bom"], "Nearest: bon"),
        (
            ["run", "--suite", "smoke", "--model", "tiny", "--decoder", ""],
            "--decoder : expected names",
        ),
        (["run", "--suite", "smoke", "--model", "tiny", "--decoder", "sc", "--k", "0"], "--k 0"),
        (["run", "--suite", "smoke", "--model", "tiny", "--decoder", "bon"], "--prm"),
        (
            ["run", "--suite", "smoke", "--model", "tiny", "--prm", "p"],
            "--prm p: no decoder needs step rewards",
        ),
        (["run", "--suite", "smoke", "--model", "tiny", "--limit", "0"], "--limit 0"),
        (
            ["run", "--suite", "smoke", "--model", "tiny", "--decoder", "sc", "--temperature", "0"],
            "every sample would be the greedy one",
        ),
        (["inspect", "/nowhere"], "expected a directory that `fsdpo-bench run"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str) -> None:
    done = ran(*arguments)
    assert done.exit_code != 0 and isinstance(done.exception, InputError)
    assert re.search(message, str(done.exception), re.S), done.exception


def test_show_names_the_decoders_and_verdicts_there_are(tmp_path: Path) -> None:
    out = str(small_run(tmp_path / "run"))
    assert "Nearest: sbs@2,1" in str(ran("inspect", out, "--decoder", "sbs").exception)
    assert "expected one of correct" in str(ran("inspect", out, "--outcome", "wrong").exception)
    assert "no records of 'math'" in str(ran("inspect", out, "--task", "math").exception)


def test_plans_keep_the_order_of_the_table_and_drop_what_is_not_used() -> None:
    plan = make_plan(["bon,greedy", "greedy"], [15, 5, 5], "mean", [BeamSpec()])
    assert plan.result_names == ["greedy", "bon@5:mean", "bon@15:mean"]
    assert (plan.n_samples, plan.beams, plan.beam_config()) == (15, (), None)
    assert make_plan(["greedy"], [5], "min", []).n_samples == 0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy that babbles, and a process reward model on top of it."""
    folder = tmp_path_factory.mktemp("models")
    policy = save_random_model(folder / "policy")
    return policy, save_random_prm(folder / "prm", policy)


def with_prm(policy: Path, prm: Path, out: Path, *more: str) -> Any:
    line = ["run", "--task", "embedded", "--limit", "2", "--model", str(policy), "--prm", str(prm)]
    line += ["--engine", "transformers", "--template", "problem", "--k", "2", "--out", str(out)]
    return ran(*line, "--max-tokens", "16", "--max-steps", "3", *more)


def test_every_decoder_runs_on_real_models(models: tuple[Path, Path], tmp_path: Path) -> None:
    done = with_prm(*models, tmp_path / "run", "--decoder", "greedy,sc,weighted,bon,sbs")
    assert done.exit_code == 0, done.exception
    assert read_config(tmp_path / "run")["prm"]["revision"].startswith("sha256:")
    for record in records(tmp_path / "run"):
        assert list(record["decoded"])[-1] == "sbs@5,1"
        found = record["decoded"]["sbs@5,1"]["solution"]
        assert record["cost"]["sbs@5,1"]["prm_calls"] >= 5
        assert len(found["rewards"] or []) == len(found["steps"]) <= 3


def test_a_prm_with_the_wrong_tokenizer_is_refused(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    policy, prm = models
    wrong = tmp_path / "wrong"
    shutil.copytree(prm, wrong)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CHECKPOINT / file, wrong / file)
    done = with_prm(policy, wrong, tmp_path / "run", "--decoder", "bon")
    assert "the tokenizer has ids up to 752, but the weights have only" in str(done.exception)


def test_a_prm_of_another_vocabulary_is_remarked_upon(models: tuple[Path, Path]) -> None:
    said: list[str] = []
    check_tokenizer(resolve_weights(str(models[1])), resolve("tiny"), said.append)
    assert "another vocabulary than tiny" in said.pop()
    check_tokenizer(resolve_weights(str(models[1])), resolve_weights(str(models[0])), said.append)
    assert said == []


def bench(out: Path, *more: str) -> list[str]:
    line = [sys.executable, "-m", "fsdpo_bench", "run", "--task", "embedded", "--limit", "40"]
    line += [
        "--model",
        "tiny",
        "--decoder",
        "greedy,sc",
        "--k",
        "2",
        "--k",
        "4",
        "--batch-size",
        "4",
    ]
    return [*line, "--max-tokens", "96", "--out", str(out), *more]


#: Runs the command line, and holds it once so many records are written: however late the kill
#: comes, there is something left to do.
HELD = """
import sys, time
from fsdpo_data.core.jsonl_log import JsonlLog
append, most = JsonlLog.append, int(sys.argv.pop(1))
def held(self, lines):
    append(self, lines)
    if len(self.line_spans) >= most:
        time.sleep(600)
JsonlLog.append = held
from fsdpo_bench.cli.app import main
main()
"""


def killed(line: Sequence[str], file: Path, most: int, held: int) -> None:
    """Kill a command as soon as it has written so many records; at ``held`` of them it waits."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", HELD, str(held), *line]
    child = subprocess.Popen(command, start_new_session=True, **quiet)
    while child.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= most):
        time.sleep(0.005)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


@pytest.mark.proof
def test_killed_and_started_again_it_ends_in_the_same_records(tmp_path: Path) -> None:
    """The real command, killed with SIGKILL in the middle of decoding, twice."""
    out, file = tmp_path / "killed", record_file(tmp_path / "killed", "embedded")
    for most in (8, 20):
        killed(bench(out, "--resume")[3:], file, most, held=most + 8)
        assert most <= len(records(out)) < 40
    for line in (bench(out, "--resume"), bench(tmp_path / "whole")):
        assert subprocess.run(line, stdout=subprocess.DEVNULL).returncode == 0
    assert records(out) == records(tmp_path / "whole")
    assert len(records(out)) == 40


def test_a_regrading_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    whole = regraded(out, tmp_path / "whole")
    file = record_file(regraded(out, tmp_path / "again"), "embedded")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]) + b'{"torn')
    with pytest.raises(RunMismatchError, match="resume=True"):
        regraded(out, tmp_path / "again")
    regrade_run(out, tmp_path / "again", (), None, 1, LineProgress(), resume=True)
    assert file.read_bytes() == record_file(whole, "embedded").read_bytes()


@pytest.mark.proof
def test_a_regrading_that_was_killed_ends_in_the_same_records(tmp_path: Path) -> None:
    parts = [limit_problems(load_task(builtin_tasks()["embedded"]), 400)]
    out = small_run(tmp_path / "run", parts, batch=400)
    line = ["grade", str(out), "--workers", "1", "--out", str(tmp_path / "killed")]
    killed(line, record_file(tmp_path / "killed", "embedded"), 1, held=1)
    assert 0 < len(records(tmp_path / "killed")) < 400
    again = [sys.executable, "-m", "fsdpo_bench", *line, "--resume"]
    assert subprocess.run(again, stdout=subprocess.DEVNULL).returncode == 0
    assert records(tmp_path / "killed") == records(regraded(out, tmp_path / "whole"))


def test_a_benchmark_of_ones_own_from_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": "1 + 1?", "answer": 2}, {"question": "2 + 2?", "answer": "4"}]
    Path("my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["run", "--task", "my.jsonl", "--model", "tiny", "--engine", "transformers"]
    done = ran(*line, "--max-tokens", "8", "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout[done.stdout.index("{") :])
    assert results["tasks"]["my"]["decoders"]["greedy"]["n"] == 2
    assert Path("runs").is_dir()


@pytest.mark.proof
def test_the_steps_in_the_docs_take_less_than_two_minutes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/benchmarks.md").read_text(encoding="utf-8")
    steps = page.partition("```bash\n")[2].partition("```")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", steps], cwd=tmp_path, env=env, timeout=120, check=True
    )
    results = json.loads((tmp_path / "second/results.json").read_text())["tasks"]["my"]
    assert (
        set(results["groups"]["kind"]) == {"sum", "product"} and results["avg_at_k"]["2"]["n"] == 2
    )


@pytest.mark.parametrize("name", ["run", "inspect", "diff", "grade", "report", "prm", "validate"])
def test_help_names_every_option_whole_at_80_columns(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"}).output
    assert "--json" in shown and "…" not in shown


def test_the_old_words_still_work_and_are_not_shown() -> None:
    commands = CliRunner().invoke(app, ["-h"]).output
    assert "regrade" not in commands and "compare" not in commands.replace("comparison", "")
    assert ran("regrade", "/nowhere", "--out", "x").exit_code != 0
    assert CliRunner().invoke(app, ["show", "-h"]).exit_code == 0


def test_a_limit_is_drawn_by_the_seed_as_a_datasets_is() -> None:
    whole = load_task(builtin_tasks()["embedded"])
    few, more, other = (limit_problems(whole, n, seed).ids for n, seed in ((5, 0), (10, 0), (5, 1)))
    assert set(few) < set(more) and few != other and few == [i for i in more if i in few]


def test_the_public_face_runs_without_printing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import fsdpo_bench

    file = tmp_path / "rows.jsonl"
    rows = [{"question": "1 + 1?", "answer": "2", "response": "The answer is 2.", "correct": True}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = fsdpo_bench.RunOptions(engine="replay", replay=file, out=tmp_path / "run")
    results = fsdpo_bench.run(options)
    assert results["tasks"]["rows"]["decoders"]["greedy"]["correct"] == 1
    assert capfd.readouterr().out == ""
