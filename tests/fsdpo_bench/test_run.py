"""Benchmark runs: records, exact resume after SIGKILL, refused options and regrading."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_runs import read_rows
from fakes import Judge, Writer
from fsdpo_bench.cli.app import app
from fsdpo_bench.decode.plan import DecodingPlan, make_plan
from fsdpo_bench.report.render import write_report
from fsdpo_bench.runs.make_job import check_tokenizer
from fsdpo_bench.runs.records import read_config, record_file
from fsdpo_bench.runs.regrade import regrade_run
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import builtin_tasks
from pages import blocks
from paused_commands import kill_when_written
from random_model import save_random_model, save_random_prm
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.grading.pool import grade_requests
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import CHECKPOINT, resolve, resolve_weights
from fsdpo_data.stages.requests import grading_request
from fsdpo_data.steps.rewards import AGGREGATES, Aggregate
from fsdpo_data.steps.segment import SEGMENTERS, Segmenter

KS = (1, 2, 4)
PLAN = DecodingPlan(("greedy", "sc", "weighted", "bon", "sbs"), KS, "min", (BeamSpec(b1=2, b2=1),))
NAMES = ["greedy", "sc@1", "sc@2", "sc@4", "weighted@1:min", "weighted@2:min", "weighted@4:min"]
NAMES += ["bon@1:min", "bon@2:min", "bon@4:min", "sbs@2,1"]
TIMES = ("seconds", "scoring_seconds")


def embedded_task(count: int = 7) -> LoadedTask:
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
    tasks = parts or [embedded_task()]
    batch = options.pop("batch", 3)
    job = BenchJob(spec or run_spec(), tasks, writer, lambda: Judge(0), batch, workers=1)
    decode_tasks(job, out, **({"progress": LineProgress()} | options))
    return out


def remove_times(value: Any) -> Any:
    """Return a record without its measured times."""
    if isinstance(value, dict):
        return {key: remove_times(item) for key, item in value.items() if key not in TIMES}
    return [remove_times(item) for item in value] if isinstance(value, list) else value


def records(out: Path) -> list[dict[str, Any]]:
    return [remove_times(record) for record in read_rows(out)]


def test_a_record_contains_all_decoded_solutions(tmp_path: Path) -> None:
    problem = embedded_task().problems[0]
    first = read_rows(small_run(tmp_path / "run"))[0]
    assert list(first["decoded"]) == list(first["cost"]) == NAMES
    assert (first["question"], first["gold"]) == (problem.question, problem.answer)
    assert first["prompt"] == get_template("problem").render(problem.question)
    assert len(first["samples"]) == 4
    decoded_solutions = [first["decoded"][name]["solution"] for name in ("greedy", "sbs@2,1")]
    for row in [*first["samples"], *decoded_solutions]:
        assert "".join(row["steps"]) == row["text"] and len(row["rewards"]) == len(row["steps"])
        [verdict] = grade_requests([grading_request(problem, row["text"])])
        assert (row["status"], row["rule"]) == (verdict.status, verdict.rule)
    assert first["cost"]["greedy"]["prm_calls"] == 0  # greedy decoding does not use rewards


def test_the_cost_of_a_decoder_is_the_cost_of_its_k_samples(tmp_path: Path) -> None:
    for record in read_rows(small_run(tmp_path / "run")):
        for k in KS:
            tokens = sum(row["n_tokens"] for row in record["samples"][:k])
            assert record["cost"][f"sc@{k}"]["tokens"] == tokens
            assert record["cost"][f"sc@{k}"]["prm_calls"] == 0
            assert record["cost"][f"bon@{k}:min"]["tokens"] == tokens
            assert record["cost"][f"bon@{k}:min"]["prm_calls"] == k


def test_all_k_share_one_set_of_samples(tmp_path: Path) -> None:
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


def test_every_decoder_passes_the_question_to_the_scorer(tmp_path: Path) -> None:
    """Published reward models put the question into their own prompts."""
    scored_questions = set()

    class RecordingJudge(Judge):
        def score(self, items: Any) -> Any:
            scored_questions.update((item.prompt, item.question) for item in items)
            return super().score(items)

    for name in ("bon", "sbs"):
        scored_questions.clear()
        spec = run_spec(DecodingPlan((name,), KS, "min", PLAN.beams if name == "sbs" else ()))
        parts = [embedded_task(2)]
        job = BenchJob(spec, parts, lambda: Writer(0), lambda: RecordingJudge(0))
        decode_tasks(job, tmp_path / name, progress=LineProgress())
        questions = [problem.question for problem in parts[0].problems]
        assert scored_questions == {
            (get_template("problem").render(question), question) for question in questions
        }


def test_the_batch_size_does_not_change_the_records(tmp_path: Path) -> None:
    assert records(small_run(tmp_path / "a")) == records(small_run(tmp_path / "b", batch=100))


class InterruptedWriter(Writer):
    """Writer that is interrupted at the fifth problem."""

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
        if any(embedded_task().problems[4].question in prompt for prompt in prompts):
            raise KeyboardInterrupt
        return super().sample(prompts, spec)


def test_an_interrupted_run_resumes_to_the_same_records(tmp_path: Path) -> None:
    all_records = records(small_run(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path / "run", writer=lambda: InterruptedWriter(0))
    n_records = len(records(tmp_path / "run"))
    assert n_records == 3
    writers: list[Writer] = []

    def writer() -> Writer:
        writers.append(Writer(0))
        return writers[0]

    small_run(tmp_path / "run", writer=writer, resume=True)
    assert records(tmp_path / "run") == all_records
    prompts = {record["prompt"] for record in all_records[:n_records]}
    assert not prompts & {prompt for prompt, _ in writers[0].requests}
    small_run(tmp_path / "run", writer=lambda: pytest.fail("all records exist"), resume=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-9],
        lambda raw: raw.splitlines(keepends=True)[0] + raw[-700:],
        lambda raw: b"\x00\n" + raw,
        lambda raw: b"",
    ],
)
def test_damaged_records_are_computed_again(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    out = small_run(tmp_path / "run")
    all_records = records(out)
    file = record_file(out, "embedded")
    file.write_bytes(damage(file.read_bytes()))
    small_run(out, resume=True)
    assert records(out) == all_records


def test_a_repeated_question_has_two_records(tmp_path: Path) -> None:
    twice = embedded_task(2)
    doubled = LoadedTask(twice.task, twice.problems * 2, twice.ids * 2, twice.ref, twice.digest)
    out = small_run(tmp_path / "run", [doubled], batch=2)
    small_run(out, [doubled], resume=True, writer=lambda: pytest.fail("all records exist"))
    run_records = records(out)
    assert [record["row"] for record in run_records] == [0, 1, 2, 3]
    assert run_records[0] == run_records[2] | {"row": 0}


def test_resuming_with_another_config_names_the_different_keys(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    difference = f"sampling.temperature: {SamplingSpec().temperature} in the run, 1.5 now"
    hotter = run_spec(sampling=SamplingSpec(n=4, temperature=1.5))
    with pytest.raises(RunMismatchError, match=re.escape(difference)):
        small_run(out, spec=hotter, resume=True)
    with pytest.raises(RunMismatchError, match=r"tasks\.embedded\.problems: 7 in the run, 3 now"):
        small_run(out, [embedded_task(3)], resume=True)
    with pytest.raises(RunMismatchError, match=r"holds this run\. Continue it with `resume=True`"):
        small_run(out)


def test_the_config_contains_all_settings_that_change_the_output(tmp_path: Path) -> None:
    config = read_config(small_run(tmp_path / "run")).to_json()
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


def test_benchmarks_are_ordered_as_in_the_task_table(tmp_path: Path, shared: Path) -> None:
    names = ("svamp", "addsub", "gsm8k")
    parts = [
        limit_problems(load_task(builtin_tasks()[name], shared / "data/benchmarks"), 1)
        for name in names
    ]
    out = small_run(tmp_path / "run", parts, spec=run_spec(DecodingPlan()))
    assert [record["task"] for record in records(out)] == ["gsm8k", "svamp", "addsub"]
    assert list(write_report(out).to_json()["tasks"]) == ["gsm8k", "svamp", "addsub"]


def test_problems_without_gold_are_not_counted(tmp_path: Path, shared: Path) -> None:
    loaded_task = load_task(builtin_tasks()["gk2023"], shared / "data/benchmarks")
    row = next(i for i, problem in enumerate(loaded_task.problems) if not problem.answer)
    only = LoadedTask(
        loaded_task.task,
        [loaded_task.problems[row]],
        [loaded_task.ids[row]],
        loaded_task.ref,
        loaded_task.digest,
    )
    [record] = records(small_run(tmp_path / "run", [only], spec=run_spec(DecodingPlan())))
    assert record["decoded"]["greedy"]["correct"] is None
    assert record["decoded"]["greedy"]["status"] == "gold_unparsed"


def test_tolerant_benchmarks_record_both_verdicts(tmp_path: Path, shared: Path) -> None:
    ocw = limit_problems(load_task(builtin_tasks()["ocw"], shared / "data/benchmarks"), 2)
    for record in records(small_run(tmp_path / "run", [ocw], spec=run_spec(DecodingPlan()))):
        assert {"correct", "strict"} <= record["decoded"]["greedy"].keys()


def regrade_to(source: Path, out: Path, *ks: int, aggregate: str | None = None) -> Path:
    regrade_run(source, out, ks, aggregate, 1, LineProgress())
    return out


def test_regrading_gives_the_same_records(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    again = regrade_to(out, tmp_path / "again")
    assert records(again) == records(out)
    assert (
        read_config(again).to_json()["regraded_from"] == read_config(out).to_json()["config_digest"]
    )


def test_regrading_repairs_verdicts(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    all_records = records(out)
    file = record_file(out, "embedded")
    file.write_bytes(file.read_bytes().replace(b'"status":"incorrect"', b'"status":"correct"'))
    assert records(out) != all_records
    assert records(regrade_to(out, tmp_path / "again")) == all_records


def test_regrading_with_another_k_and_aggregate_uses_the_same_samples(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    regraded_run = regrade_to(out, tmp_path / "three", 3, 4, aggregate="mean")
    ours = run_spec(DecodingPlan(PLAN.decoders, (3, 4), "mean", PLAN.beams))
    assert records(regraded_run) == records(small_run(tmp_path / "fresh", spec=ours))


def test_regrading_with_a_larger_k_is_refused(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    with pytest.raises(
        InputError, match=r"k = 5: .* contains 4 samples of each problem. Use `k=4`"
    ):
        regrade_to(out, tmp_path / "five", 5)
    greedy_run = small_run(tmp_path / "alone", spec=run_spec(DecodingPlan()))
    with pytest.raises(InputError, match="contains no samples"):
        regrade_to(greedy_run, tmp_path / "none", 2)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_inspect_filters_by_id_verdict_and_level(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    run_records = records(tmp_path / "run")
    problem_id = run_records[2]["problem_id"][:8]
    result = invoke("inspect", str(out), problem_id, "--json")
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [2]
    for status in ("correct", "incorrect"):
        lines = invoke(
            "inspect", str(out), "--outcome", status, "--decoder", "sc@4", "--json"
        ).stdout
        rows = [
            record["row"] for record in run_records if record["decoded"]["sc@4"]["status"] == status
        ]
        assert [json.loads(line)["row"] for line in lines.splitlines()] == rows
    level = run_records[0]["metadata"]["level"]
    lines = invoke("inspect", str(out), "--level", level, "--json").stdout.splitlines()
    assert len(lines) == sum(record["metadata"]["level"] == level for record in run_records)
    text = invoke("inspect", str(out), problem_id).stdout
    assert run_records[2]["question"][:40] in text and "matching problems: 1" in text


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
            "--decoder '': expected names",
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
def test_invalid_options_are_named(arguments: list[str], message: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code != 0 and isinstance(done.exception, InputError)
    assert re.search(message, str(done.exception), re.S), done.exception


def test_inspect_names_the_existing_decoders_and_verdicts(tmp_path: Path) -> None:
    out = str(small_run(tmp_path / "run"))
    assert "Nearest: sbs@2,1" in str(invoke("inspect", out, "--decoder", "sbs").exception)
    assert "expected one of correct" in str(invoke("inspect", out, "--outcome", "wrong").exception)
    assert "no records of 'math'" in str(invoke("inspect", out, "--task", "math").exception)


def test_plans_keep_the_order_of_the_table_and_drop_what_is_not_used() -> None:
    plan = make_plan(["bon,greedy", "greedy"], [15, 5, 5], "mean", [BeamSpec()])
    assert plan.result_names == ["greedy", "bon@5:mean", "bon@15:mean"]
    assert (plan.n_samples, plan.beams, plan.beam_config()) == (15, (), None)
    assert make_plan(["greedy"], [5], "min", []).n_samples == 0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Save a random policy and a random reward model on top of it."""
    folder = tmp_path_factory.mktemp("models")
    policy = save_random_model(folder / "policy")
    return policy, save_random_prm(folder / "prm", policy)


def with_prm(policy: Path, prm: Path, out: Path, *arguments: str) -> Any:
    line = ["run", "--task", "embedded", "--limit", "2", "--model", str(policy), "--prm", str(prm)]
    line += ["--engine", "transformers", "--template", "problem", "--k", "2", "--out", str(out)]
    if any("sbs" in argument for argument in arguments):
        line += ["--max-steps", "3"]
    return invoke(*line, "--max-tokens", "16", *arguments)


def test_every_decoder_runs_on_real_models(models: tuple[Path, Path], tmp_path: Path) -> None:
    done = with_prm(*models, tmp_path / "run", "--decoder", "greedy,sc,weighted,bon,sbs")
    assert done.exit_code == 0, done.exception
    assert read_config(tmp_path / "run").to_json()["prm"]["revision"].startswith("sha256:")
    for record in records(tmp_path / "run"):
        assert list(record["decoded"])[-1] == "sbs@5,1"
        solution = record["decoded"]["sbs@5,1"]["solution"]
        assert record["cost"]["sbs@5,1"]["prm_calls"] >= 5
        assert len(solution["rewards"] or []) == len(solution["steps"]) <= 3


def test_beam_search_and_best_of_n_use_a_segmenter_and_an_aggregate_of_a_plugin(
    models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segmenter has no stop strings: it cuts the generated text itself."""
    for registry in (SEGMENTERS, AGGREGATES):
        monkeypatch.setattr(registry, "data", dict(registry.data))

    def split_in_couples(text: str) -> list[str]:
        return re.findall(r"\s*\S\s*\S?\s*", text)

    SEGMENTERS.register(Segmenter("couples@1", "after every two letters", split_in_couples))
    AGGREGATES.register(Aggregate("max", max))
    line = ("--decoder", "bon,sbs", "--segmenter", "couples", "--aggregate", "max")
    done = with_prm(*models, tmp_path / "run", *line, "--beam-aggregate", "max")
    assert done.exit_code == 0, done.exception
    config = read_config(tmp_path / "run").to_json()
    assert config["segmenter"] == "couples@1" and config["decoders"] == ["bon@2:max", "sbs@5,1"]
    for record in records(tmp_path / "run"):
        for row in (*record["samples"], record["decoded"]["sbs@5,1"]["solution"]):
            assert row["steps"] == split_in_couples(row["text"])
        assert 1 <= len(record["decoded"]["sbs@5,1"]["solution"]["steps"]) <= 3
        best = max(record["samples"], key=lambda sample: max(sample["rewards"] or [-math.inf]))
        assert record["samples"][record["decoded"]["bon@2:max"]["sample"]] == best


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


def test_a_prm_with_another_vocabulary_causes_a_warning(models: tuple[Path, Path]) -> None:
    warnings: list[str] = []
    check_tokenizer(resolve_weights(str(models[1])), resolve("tiny"), warnings.append)
    assert "another vocabulary than tiny" in warnings.pop()
    check_tokenizer(
        resolve_weights(str(models[1])), resolve_weights(str(models[0])), warnings.append
    )
    assert warnings == []


def bench_command(out: Path, *arguments: str) -> list[str]:
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
    return [*line, "--max-tokens", "96", "--out", str(out), *arguments]


@pytest.mark.proof
def test_a_killed_run_resumes_to_the_same_records(tmp_path: Path) -> None:
    """Kill the command twice with SIGKILL while it decodes."""
    out = tmp_path / "killed"
    file = record_file(tmp_path / "killed", "embedded")
    for min_records in (8, 20):
        kill_when_written(
            bench_command(out, "--resume")[3:], file, min_records, pause_at=min_records + 8
        )
        assert min_records <= len(records(out)) < 40
    for line in (bench_command(out, "--resume"), bench_command(tmp_path / "whole")):
        assert subprocess.run(line, stdout=subprocess.DEVNULL).returncode == 0
    assert records(out) == records(tmp_path / "whole")
    assert len(records(out)) == 40


def test_an_interrupted_regrading_can_be_resumed(tmp_path: Path) -> None:
    out = small_run(tmp_path / "run")
    uninterrupted = regrade_to(out, tmp_path / "whole")
    file = record_file(regrade_to(out, tmp_path / "again"), "embedded")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]) + b'{"torn')
    with pytest.raises(RunMismatchError, match="resume=True"):
        regrade_to(out, tmp_path / "again")
    regrade_run(out, tmp_path / "again", (), None, 1, LineProgress(), resume=True)
    assert file.read_bytes() == record_file(uninterrupted, "embedded").read_bytes()


def test_a_custom_benchmark_runs_from_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": "1 + 1?", "answer": 2}, {"question": "2 + 2?", "answer": "4"}]
    Path("my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["run", "--task", "my.jsonl", "--model", "tiny", "--engine", "transformers"]
    done = invoke(*line, "--max-tokens", "8", "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout[done.stdout.index("{") :])
    assert results["tasks"]["my"]["decoders"]["greedy"]["n"] == 2
    assert Path("runs").is_dir()


@pytest.mark.proof
def test_the_commands_in_the_docs_take_less_than_two_minutes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/tutorials/own-benchmark.md").read_text(
        encoding="utf-8"
    )
    steps = "".join(block.body for block in blocks(page))
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
def test_help_does_not_truncate_options_at_80_columns(name: str) -> None:
    output = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"}).output
    assert "--json" in output and "…" not in output


def test_a_limit_selects_a_seeded_subset() -> None:
    loaded_task = load_task(builtin_tasks()["embedded"])
    few_ids, more_ids, other_ids = (
        limit_problems(loaded_task, n, seed).ids for n, seed in ((5, 0), (10, 0), (5, 1))
    )
    assert (
        set(few_ids) < set(more_ids)
        and few_ids != other_ids
        and few_ids == [i for i in more_ids if i in few_ids]
    )


def test_the_seed_of_the_samples_leaves_the_problems(tmp_path: Path) -> None:
    import fsdpo_bench
    from fsdpo_bench.runs.records import read_records

    from fsdpo_data.core.sampling import SamplingSpec
    from fsdpo_data.engines.options import SamplerOptions
    from fsdpo_data.stages import pipeline

    file = tmp_path / "rows.jsonl"
    rows = [
        {"question": f"{number} + 1?", "answer": str(number + 1), "response": "2"}
        for number in range(40)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def measured_problems(seed: int, limit_seed: int) -> list[str]:
        options = fsdpo_bench.RunOptions(
            task=("embedded",),
            model="tiny",
            engine=SamplerOptions(engine="transformers", device="cpu"),
            limit=5,
            limit_seed=limit_seed,
            sampling=SamplingSpec(n=1, seed=seed, max_tokens=2),
            out=tmp_path / f"{seed}-{limit_seed}",
        )
        fsdpo_bench.run(options)
        return [record.problem_id for record in read_records(options.out)]

    assert measured_problems(0, 0) == measured_problems(7, 0) != measured_problems(0, 1)

    def built_problems(seed: int, limit_seed: int) -> list[str]:
        options = pipeline.BuildOptions(
            problems=(str(file),),
            limit=5,
            limit_seed=limit_seed,
            sampling=SamplingSpec(seed=seed),
        )
        return [problem.question for problem in pipeline.limited_problems(options).problems]

    assert built_problems(0, 0) == built_problems(7, 0) != built_problems(0, 1)


def test_the_public_interface_runs_without_printing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import fsdpo_bench

    from fsdpo_data.engines.options import SamplerOptions

    file = tmp_path / "rows.jsonl"
    rows = [{"question": "1 + 1?", "answer": "2", "response": "The answer is 2.", "correct": True}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = fsdpo_bench.RunOptions(
        engine=SamplerOptions(engine="replay", replay=file), out=tmp_path / "run"
    )
    results = fsdpo_bench.run(options)
    assert results.tasks["rows"].decoders["greedy"].correct == 1
    assert capfd.readouterr().out == ""
