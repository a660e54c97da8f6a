"""Runs: the datasets of the decoders, exact resume, and refused options."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import Judge, Writer
from fsdpo_bench.benchmark_run import check_tokenizer
from fsdpo_bench.cli.app import app
from fsdpo_bench.decoders.decoders import parse_result_name
from fsdpo_bench.metrics.result_records import read_results
from fsdpo_bench.run_folder import is_run, read_run_record
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.problems import benchmark_problems, limit_problems
from fsdpo_bench.tasks.table import builtin_tasks
from helpers import read_sample_settings
from made_runs import embedded_task, make, prepare, solutions, table_digests
from paused_commands import kill_when_written
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model, save_random_prm
from typer.testing import CliRunner
from verdicts import grade_requests

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import CHECKPOINT, resolve, resolve_weights
from fsdpo_data.models.trained_template import write_trained_template
from fsdpo_data.problems.benchmark_rows import benchmark_rows
from fsdpo_data.stages.verdicts import grading_request
from fsdpo_data.steps.rewards import AGGREGATES, Aggregate
from fsdpo_data.steps.segment import SEGMENTERS, Segmenter
from fsdpo_train.config import PrmConfig
from fsdpo_train.prm.train import train_prm

PARTS = ["greedy", "samples", "sbs@2,1"]


def test_a_run_has_one_sealed_dataset_per_set_of_solutions(tmp_path: Path) -> None:
    out = make(tmp_path / "run")
    record = read_run_record(out)
    assert record.parts == PARTS
    names = ["greedy", "first", "sc@1", "sc@2", "sc@4"]
    names += [f"{name}@{k}:min" for name in ("weighted", "bon") for k in (1, 2, 4)]
    assert record.decoders == [*names, "sbs@2,1"]
    for name in record.decoders:
        setup = parse_result_name(name)
        assert setup is not None and setup.part in record.parts
    problems = embedded_task().problems
    for part in PARTS:
        validate(out / part)
        rows = solutions(out, part)
        assert [*rows] == [problem.question for problem in problems]
        for problem in problems:
            count = 4 if part == "samples" else 1
            assert [row["sample_index"] for row in rows[problem.question]] == [*range(count)]
            for row in rows[problem.question]:
                assert row["prompt"] == get_template("problem").render(problem.question)
                [verdict] = grade_requests([grading_request(problem, "".join(row["completions"]))])
                assert (row["outcome"], row["answer"]) == (verdict.status, verdict.answer)


def test_samples_and_searches_have_step_rewards(tmp_path: Path) -> None:
    out = make(tmp_path / "run")
    for part in ("samples", "sbs@2,1"):
        for rows in solutions(out, part).values():
            for row in rows:
                steps = row["completions"]
                assert row["step_rewards"] == pytest.approx(Judge(0).one(row["prompt"], steps))
                assert (row["search_cost"] is None) == (part == "samples")
    without = make(tmp_path / "without", decoder="greedy,sc")
    for part in ("greedy", "samples"):
        assert all(row["step_rewards"] is None for [row, *_] in solutions(without, part).values())


def test_one_greedy_solution_and_the_samples_of_the_largest_k_are_requested(tmp_path: Path) -> None:
    specs: list[SamplingSpec] = []

    class RecordingWriter(Writer):
        def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
            specs.append(spec)
            return super().complete_texts(prompts, spec)

    make(tmp_path / "run", decoder="greedy,sc", make_writer=lambda: RecordingWriter(0))
    stop = get_template("problem").stop
    greedy = SamplingSpec(n=1, temperature=0.0, stop=stop)
    assert [*dict.fromkeys(map(str, specs))] == [str(greedy), str(SamplingSpec(n=4, stop=stop))]


def test_all_parts_share_one_policy_and_one_reward_model(tmp_path: Path) -> None:
    loaded: list[str] = []

    class Closable:
        """Mix-in of engines that can be closed."""

        def close(self) -> None:
            loaded.append(f"close {type(self).__name__}")

    class ClosableWriter(Closable, Writer):
        pass

    class ClosableJudge(Closable, Judge):
        pass

    def make_engine(engine: Callable[[int], Any]) -> Any:
        loaded.append(getattr(engine, "__name__", ""))
        return engine(0)

    make(
        tmp_path / "run",
        b2=(1, 2),
        make_writer=lambda: make_engine(ClosableWriter),
        make_judge=lambda: make_engine(ClosableJudge),
    )
    assert sorted(loaded) == [
        "ClosableJudge",
        "ClosableWriter",
        "close ClosableJudge",
        "close ClosableWriter",
    ]


def test_the_ids_of_solutions_of_different_parts_differ(tmp_path: Path) -> None:
    out = make(tmp_path / "run", b2=(1, 2))
    ids = [
        row["solution_id"]
        for part in (*PARTS, "sbs@2,2")
        for rows in solutions(out, part).values()
        for row in rows
    ]
    assert len(ids) == len(set(ids)) == 7 * (1 + 4 + 1 + 1)


def test_smaller_k_have_the_first_samples(tmp_path: Path) -> None:
    many = solutions(make(tmp_path / "many", decoder="bon"), "samples")
    few = solutions(make(tmp_path / "few", decoder="bon", k=(2,)), "samples")
    assert few == {question: rows[:2] for question, rows in many.items()}


def test_every_decoder_passes_the_question_to_the_scorer(tmp_path: Path) -> None:
    """Published reward models put the question into their own prompts."""
    scored_questions = set()

    class RecordingJudge(Judge):
        def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
            scored_questions.update((item.prompt, item.question) for item in items)
            return super().compute_rewards(items)

    for name in ("bon", "sbs"):
        scored_questions.clear()
        task = embedded_task(2)
        make(tmp_path / name, decoder=name, tasks=[task], make_judge=lambda: RecordingJudge(0))
        questions = [problem.question for problem in task.problems]
        assert scored_questions == {
            (get_template("problem").render(question), question) for question in questions
        }


def test_the_batch_size_does_not_change_the_datasets(tmp_path: Path) -> None:
    small = make(tmp_path / "small")
    assert table_digests(small) == table_digests(make(tmp_path / "large", batch_size=100))


class InterruptedWriter(Writer):
    """A writer that is interrupted at the fifth problem."""

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> Any:
        if any(embedded_task().problems[4].question in prompt for prompt in prompts):
            raise KeyboardInterrupt
        return super().complete_texts(prompts, spec)


@pytest.mark.parametrize("decoder", ["greedy,sc,bon,sbs", "sbs", "bon"])
def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path: Path, decoder: str) -> None:
    uninterrupted = make(tmp_path / "whole", decoder=decoder)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        make(out, decoder=decoder, make_writer=lambda: InterruptedWriter(0))
    assert not is_run(out)
    writer = Writer(0)
    make(out, decoder=decoder, make_writer=lambda: writer, resume=True)
    assert table_digests(out) == table_digests(uninterrupted)
    prompts = [get_template("problem").render(p.question) for p in embedded_task().problems[:3]]
    requested = {prompt for prompt, _ in writer.requests}
    if decoder == "bon":
        assert requested.isdisjoint(prompts)

    def fail() -> Any:
        pytest.fail("all solutions exist")

    make(out, decoder=decoder, make_writer=fail, make_judge=fail, resume=True)
    assert table_digests(out) == table_digests(uninterrupted)


def test_an_interrupted_reward_model_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    class InterruptedJudge(Judge):
        def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        make(out, decoder="bon", make_judge=lambda: InterruptedJudge(0))

    def fail() -> Any:
        pytest.fail("all samples exist")

    make(out, decoder="bon", make_writer=fail, resume=True)
    assert table_digests(out) == table_digests(make(tmp_path / "whole", decoder="bon"))


def test_resuming_with_another_config_names_the_different_keys(tmp_path: Path) -> None:
    out = make(tmp_path / "run", decoder="sc")
    temperature = SamplingSpec().temperature
    key = r"parts\.samples\.stages\.sample\.sampling\.temperature"
    with pytest.raises(RunMismatchError, match=rf"{key}: {temperature} in the run, 1.5 now"):
        make(out, decoder="sc", sampling=SamplingSpec(n=1, temperature=1.5), resume=True)
    with pytest.raises(
        RunMismatchError, match=r"benchmarks\.embedded\.problems: 7 in the run, 3 now"
    ):
        make(out, decoder="sc", tasks=[embedded_task(3)], resume=True)
    with pytest.raises(RunMismatchError, match="decoders: "):
        make(out, decoder="greedy,sc", resume=True)
    with pytest.raises(RunMismatchError, match=r"holds this run\. Continue it with `resume=True`"):
        make(out, decoder="sc")


def test_the_record_of_a_run_describes_its_benchmarks(tmp_path: Path) -> None:
    entry = read_run_record(make(tmp_path / "run")).benchmarks["embedded"]
    task = entry.task
    assert (task.title, task.version, task.count) == ("Embedded problems", 1, 500)
    assert entry.problems == 7
    loaded = load_task(builtin_tasks()["embedded"])
    assert entry.digest == loaded.digest != entry.selected
    assert entry.source == loaded.ref
    with pytest.raises(InputError, match=r"Expected a run that `fsdpo-bench run` wrote"):
        read_run_record(tmp_path)


# Problems


def test_problems_without_gold_have_the_outcome_gold_unparsed(tmp_path: Path, shared: Path) -> None:
    loaded = load_task(builtin_tasks()["gk2023"], shared / "data/benchmarks")
    row = next(i for i, problem in enumerate(loaded.problems) if not problem.answer)
    out = make(tmp_path / "run", decoder="greedy", tasks=[loaded.subset([row])])
    [[solution]] = solutions(out, "greedy").values()
    assert solution["outcome"] == "gold_unparsed"


def test_tolerant_benchmarks_have_a_strict_verdict(tmp_path: Path, shared: Path) -> None:
    ocw = limit_problems(load_task(builtin_tasks()["ocw"], shared / "data/benchmarks"), 2)
    out = make(tmp_path / "run", decoder="greedy", tasks=[ocw])
    assert all(row["exactly_correct"] is not None for [row] in solutions(out, "greedy").values())


def test_a_problem_of_several_benchmarks_is_one_row_with_its_places(shared: Path) -> None:
    data = shared / "data/benchmarks"
    math, math500 = (load_task(builtin_tasks()[name], data) for name in ("math", "math500"))
    problems = benchmark_problems([math500, math]).problems
    assert len(problems) == len({problem.id for problem in problems}) == 5000
    assert [problem.source for problem in problems[:501]] == ["math500"] * 500 + ["math"]
    [first, second] = benchmark_rows(problems[0].metadata)
    assert (first.name, first.row, second.name) == ("math500", 0, "math")
    assert math.problems[second.row].id == problems[0].id
    assert first.groups.keys() == {"subject", "level"}
    only_second = benchmark_rows(problems[500].metadata)
    assert [problem_place.name for problem_place in only_second] == ["math"]


def test_a_problem_that_a_benchmark_lists_twice_has_two_places(shared: Path) -> None:
    asdiv = load_task(builtin_tasks()["asdiv"], shared / "data/benchmarks")
    problem_set = benchmark_problems([asdiv])
    assert len(problem_set.problems) == len(asdiv.problems) - 1
    [rows] = [
        [problem_place.row for problem_place in problem_places]
        for problem_places in (benchmark_rows(p.metadata) for p in problem_set.problems)
        if len(problem_places) > 1
    ]
    assert len(rows) == 2 and asdiv.ids[rows[0]] == asdiv.ids[rows[1]]


def test_a_corrected_gold_changes_the_id_and_keeps_the_row(shared: Path) -> None:
    math = load_task(builtin_tasks()["math"], shared / "data/benchmarks")
    changed = [
        row
        for row, problem in enumerate(math.problems)
        if problem.id != math.ids[row] and problem.metadata.get("gold_note")
    ]
    part = math.subset(changed[:2])
    problems = benchmark_problems([part]).problems
    assert changed and [problem.id for problem in problems] == [
        math.problems[row].id for row in changed[:2]
    ]
    assert [benchmark_rows(problem.metadata)[0].row for problem in problems] == changed[:2]
    assert all(problem.metadata["gold_note"] for problem in problems)


def test_benchmarks_that_grade_a_problem_differently_are_refused() -> None:
    exact = embedded_task(2)
    tolerant = replace(
        exact,
        problems=[replace(problem, metadata={"gold_tolerance": 0.1}) for problem in exact.problems],
    )
    with pytest.raises(InputError, match="with different tolerances or further golds"):
        benchmark_problems([exact, tolerant])


def test_the_metadata_of_a_dataset_have_what_grading_and_reports_read(tmp_path: Path) -> None:
    out = make(tmp_path / "run", decoder="greedy")
    rows = pl.read_parquet(out / "greedy/problems/*.parquet")
    metadata = [json.loads(text) for text in rows["metadata"]]
    assert {key for entry in metadata for key in entry} == {"benchmarks"}
    assert rows["source"].unique().to_list() == ["embedded"]
    all_rows = [benchmark_rows(entry)[0].row for entry in metadata]
    assert all_rows == sorted(all_rows) and all_rows == [*embedded_task().rows]


def test_a_limit_selects_a_seeded_subset() -> None:
    loaded = load_task(builtin_tasks()["embedded"])
    few, many, other = (limit_problems(loaded, n, seed) for n, seed in ((5, 0), (10, 0), (5, 1)))
    assert set(few.ids) < set(many.ids) and few.ids != other.ids
    assert few.ids == [i for i in many.ids if i in few.ids]
    assert [loaded.ids[row] for row in few.rows] == few.ids


# The command


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "odo", "--model", "tiny"], r"--suite odo: .*Nearest: ood"),
        (["--task", "gsm9k", "--model", "tiny"], r"--task gsm9k: .*Nearest: gsm8k"),
        (["--task", "math", "--model", "tiny", "--data", "/nowhere"], "contains no MATH"),
        (["--suite", "smoke"], "--model: missing"),
        (["--suite", "smoke", "--model", "tiny", "--decoder", "bom"], "Nearest: bon"),
        (["--suite", "smoke", "--model", "tiny", "--decoder", ""], "--decoder '': expected names"),
        (["--suite", "smoke", "--model", "tiny", "--decoder", "sc", "--k", "0"], "--k 0"),
        (["--suite", "smoke", "--model", "tiny", "--decoder", "bon"], "--prm"),
        (
            ["--suite", "smoke", "--model", "tiny", "--prm", "p"],
            "--prm p: no decoder needs step rewards",
        ),
        (["--suite", "smoke", "--model", "tiny", "--limit", "0"], "--limit 0"),
        (
            ["--suite", "smoke", "--model", "tiny", "--decoder", "sc", "--temperature", "0"],
            "every sample would be the greedy one",
        ),
    ],
)
def test_invalid_options_are_named(arguments: list[str], message: str) -> None:
    done = invoke("run", *arguments)
    assert done.exit_code != 0 and isinstance(done.exception, InputError)
    assert re.search(message, str(done.exception), re.S), done.exception


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Save a random policy and a random reward model on top of it."""
    folder = tmp_path_factory.mktemp("models")
    policy = save_random_model(folder / "policy")
    return policy, save_random_prm(folder / "prm", policy)


def with_prm(policy: Path, prm: Path, out: Path, *arguments: str) -> Any:
    line: list[object] = ["run", "--task", "embedded", "--limit", "2"]
    line += ["--model", policy, "--prm", prm, "--engine", "transformers", "--template", "problem"]
    line += ["--k", "2", "--max-tokens", "16", "--out", out]
    if any("sbs" in argument for argument in arguments):
        line += ["--max-steps", "3"]
    return invoke(*line, *arguments)


@pytest.mark.parametrize("trained", ["problem@1", "alpaca@1"])
def test_decoding_by_a_reward_model_of_another_template_is_a_warning(
    models: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, trained: str
) -> None:
    policy, prm = models
    other_prm = shutil.copytree(prm, tmp_path / "prm")
    write_trained_template(other_prm, get_template(trained).ref)
    message = "prompts of the template alpaca@1, and the solutions have prompts of problem@1"
    for decoder in (("bon",), ("sc,sbs", "--b2", "1", "--b2", "2")):
        caplog.clear()
        done = with_prm(policy, other_prm, tmp_path / decoder[0], "--decoder", *decoder)
        assert done.exit_code == 0, done.exception
        assert caplog.text.count(message) == (trained == "alpaca@1")


def test_every_decoder_runs_on_real_models(models: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = with_prm(*models, out, "--decoder", "greedy,sc,weighted,bon,sbs")
    assert done.exit_code == 0, done.exception
    for part in ("greedy", "samples", "sbs@5,1"):
        manifest = validate(out / part)
        assert manifest.rows.problems == 2
    score = validate(out / "samples").score_settings
    assert score is not None and score.prm.revision.startswith("sha256:")
    for [row] in solutions(out, "sbs@5,1").values():
        assert row["search_cost"]["prm_calls"] >= 5
        assert len(row["step_rewards"] or []) == len(row["completions"]) <= 3


def test_an_outcome_reward_model_chooses_by_the_reward_of_the_last_step(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    policy, process_model = models
    outcome_model = tmp_path / "orm"
    train_prm(
        PrmConfig(
            data=write_rows(tmp_path / "rows.jsonl", stepwise_rows(problems=4)),
            model=str(policy),
            out=outcome_model,
            last_step_only=True,
            max_steps=1,
            batch_size=8,
            grad_accum=1,
            held_out=0,
        )
    )
    expected = {
        outcome_model: ["sc@2", "weighted@2:last", "bon@2:last"],
        process_model: ["sc@2", "weighted@2:min", "bon@2:min"],
    }
    for reward_model, decoders in expected.items():
        out = tmp_path / f"run-{reward_model.name}"
        done = with_prm(policy, reward_model, out, "--decoder", "sc,weighted,bon")
        assert done.exit_code == 0, done.exception
        assert read_run_record(out).decoders == decoders
        manifest = validate(out / "samples")
        assert manifest.has_outcome_rewards == (reward_model == outcome_model)
        aggregate = "last" if reward_model == outcome_model else "min"
        results = read_results(out / "results.json")
        [statistics] = results.rewards.values()
        assert statistics.default_aggregate == statistics.distribution.aggregate == aggregate
        for path in (out, out / "samples"):
            report = invoke("report", path)
            assert re.findall(r"(\w+) \(default\)", report.output) == [aggregate]
    out = tmp_path / "run-min"
    done = with_prm(policy, outcome_model, out, "--decoder", "bon", "--aggregate", "min")
    assert done.exit_code == 0, done.exception
    assert read_run_record(out).decoders == ["bon@2:min"]
    assert "last (default)" in invoke("report", out).output


def test_a_segmenter_and_an_aggregate_of_a_plugin(
    models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segmenter has no stop strings: it cuts the generated text itself."""
    for registry in (SEGMENTERS, AGGREGATES):
        monkeypatch.setattr(registry, "data", dict(registry.data))

    def split_in_couples(text: str) -> list[str]:
        return re.findall(r"\s*\S\s*\S?\s*", text)

    SEGMENTERS.register(Segmenter("couples@1", "after every two letters", split_in_couples))
    AGGREGATES.register(Aggregate("max", max))
    out = tmp_path / "run"
    line = ("--decoder", "bon,sbs", "--segmenter", "couples", "--aggregate", "max")
    done = with_prm(*models, out, *line)
    assert done.exit_code == 0, done.exception
    record = read_run_record(out)
    assert record.decoders == ["bon@2:max", "sbs@5,1"]
    for part in record.parts:
        assert read_sample_settings(validate(out / part)).segmenter == "couples@1"
        for rows in solutions(out, part).values():
            for row in rows:
                assert row["completions"] == split_in_couples("".join(row["completions"]))


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
    policy, prm = (resolve_weights(str(path)) for path in models)
    [warning] = check_tokenizer(prm, resolve("tiny"))
    assert "another vocabulary than tiny" in warning
    assert check_tokenizer(prm, policy) == check_tokenizer(prm, None) == []


def test_a_custom_benchmark_runs_from_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": "1 + 1?", "answer": 2}, {"question": "2 + 2?", "answer": "4"}]
    Path("my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["run", "--task", "my.jsonl", "--model", "tiny", "--engine", "transformers"]
    done = invoke(*line, "--max-tokens", "8", "--json")
    assert done.exit_code == 0, done.output
    [out] = Path("runs").iterdir()
    assert re.fullmatch(r"bench-tiny-[0-9a-f]{8}", out.name)
    assert [*solutions(out, "greedy")] == ["1 + 1?", "2 + 2?"]


def test_the_seed_of_the_samples_leaves_the_problems(tmp_path: Path) -> None:
    def problems(seed: int, limit_seed: int) -> list[str]:
        task = limit_problems(load_task(builtin_tasks()["embedded"]), 5, limit_seed)
        run = prepare(decoder="sc", tasks=[task], sampling=SamplingSpec(n=1, seed=seed))
        return [problem.id for problem in run.parts["samples"].job.source.problems]

    assert problems(0, 0) == problems(7, 0) != problems(0, 1)


def test_the_public_interface_runs_without_printing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import fsdpo_bench

    from fsdpo_data.engines.options import SamplerOptions

    file = tmp_path / "completions.jsonl"
    prompt = get_template("problem").render("1 + 1?")
    completion = {"text": "The answer is 2.", "finish_reason": "stop"}
    file.write_text(json.dumps({"prompt": prompt, "completions": [completion]}) + "\n")
    task = tmp_path / "rows.jsonl"
    task.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    options = fsdpo_bench.RunOptions(
        task=(str(task),),
        template="problem",
        engine=SamplerOptions(engine="replay", replay=file),
        out=tmp_path / "run",
    )
    fsdpo_bench.run(options)
    [[row]] = solutions(tmp_path / "run", "greedy").values()
    assert row["outcome"] == "correct"
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", ["run", "prm"])
def test_help_does_not_truncate_options_at_80_columns(name: str) -> None:
    output = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"}).output
    assert "--json" in output and "…" not in output


def bench_command(out: Path, *arguments: str) -> list[str]:
    line = [sys.executable, "-m", "fsdpo_bench", "run", "--task", "embedded", "--limit", "40"]
    line += ["--model", "tiny", "--decoder", "greedy,sc", "--k", "2", "--k", "4"]
    return [*line, "--batch-size", "4", "--max-tokens", "96", "--out", str(out), *arguments]


@pytest.mark.proof
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """Kill the command twice with SIGKILL: while it decodes greedily, and while it samples."""
    out = tmp_path / "killed"
    for part, min_records in (("greedy", 8), ("samples", 20)):
        log = out / part / "completions.jsonl"
        kill_when_written(
            bench_command(out, "--resume")[3:], log, min_records, pause_at=min_records + 8
        )
        assert min_records <= len(log.read_bytes().splitlines()) < 40
        assert not is_run(out)
    for line in (bench_command(out, "--resume"), bench_command(tmp_path / "whole")):
        assert subprocess.run(line, stdout=subprocess.DEVNULL).returncode == 0
    assert table_digests(out) == table_digests(tmp_path / "whole")
