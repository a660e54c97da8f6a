"""Recipes: every command parses, and the settings equal the paper's."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import typer
from bench_runs import measure_paths, write_run
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.cli.recipe_printing import print_plan
from fsdpo_bench.recipes.load import load_recipes, shipped_recipes
from fsdpo_bench.recipes.paper_tables import CLOSED_MODELS, paper_cells
from fsdpo_bench.recipes.recipe import (
    MeasuredRow,
    Recipe,
    RecipeStage,
    measured_cost,
)
from fsdpo_bench.recipes.run_stages import (
    StageMeasurement,
    estimate_time,
    pending_command,
    read_measurements,
    run_stages,
)
from fsdpo_bench.report.published import published_results
from fsdpo_bench.tasks.table import select_tasks
from parsed_options import parse_options
from recorded_imports import import_labels
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.dataset.stage_records import PROBLEMS_STAGE, ProblemsRecord
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_data.problems.hub_datasets import DATASETS
from fsdpo_train.cli.app import app as train_app

ROOT = Path(__file__).parents[3]
PROGRAMS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
RECIPES = {
    **shipped_recipes(),
    **{
        f"{name}-{recipe.name}": recipe
        for name in ("real", "curve")
        for recipe in load_recipes(str(ROOT / f"benchmarks/evidence/{name}.toml"))
    },
}
STAGES = [(name, stage) for name, recipe in RECIPES.items() for stage in recipe.stages]


def parse_stage(stage: RecipeStage) -> Any:
    """Return the options of a stage's command, or ``None`` for a script."""
    argv = stage.argv
    if argv[0] == "torchrun":
        assert argv[1] == "--nproc-per-node" and int(argv[2]) == stage.gpus
        assert argv[3:5] == ["-m", "fsdpo_train"]
        argv = ["fsdpo-train", *argv[5:]]
    if argv[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(argv[2])
        return None
    if argv[0] == "python":
        assert (ROOT / argv[1]).is_file()
        return None
    group = typer.main.get_command(PROGRAMS[argv[0]])
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    return parse_options(group.commands[argv[1]], argv[2:])


def stage_options(recipe: Recipe, name: str) -> Any:
    options = parse_stage(next(stage for stage in recipe.stages if stage.name == name))
    assert options
    return options


def test_each_number_of_the_paper_has_a_stage() -> None:
    """Only the closed models of OpenAI have no recipe."""
    measured_rows = [stage.measures for _, stage in STAGES if stage.measures]
    unmeasured = {
        result.backbone
        for result in published_results()
        if not any(row.includes(result) for row in measured_rows)
    }
    assert unmeasured == set(CLOSED_MODELS)
    cells = paper_cells(load_recipes("paper"), closed_models=True)
    assert [cell.published for cell in cells] == list(published_results())
    assert {"demo", "embedded", "one-gpu", "figure-gamma", "case-study"} <= RECIPES.keys()
    # A row of a table is measured once, apart from decoders and reward models.
    rows = [
        (row.backbone, row.method)
        for _, stage in STAGES
        if (row := stage.measures) and row.backbone and stage.name in ("bench", "released")
    ]
    assert len(rows) == len(set(rows)) == 16 + 7


@pytest.mark.parametrize(
    ("name", "stage"), STAGES, ids=lambda parameter: getattr(parameter, "name", parameter)
)
def test_every_command_of_a_recipe_parses(name: str, stage: RecipeStage) -> None:
    options = parse_stage(stage)
    if options is None:
        return
    for option in ("model", "prm"):
        value = str(getattr(options, option, None) or "")
        if value and "/" not in value:
            assert value in MODELS, value
    template, model = (getattr(options, name, None) for name in ("template", "model"))
    if template in ("chat", "chat-boxed"):  # the tokenizer has the chat template
        assert "/" in model
    elif template and not template.startswith("runs/"):  # the output of a stage
        get_template(template)


@pytest.mark.parametrize("name", RECIPES)
def test_every_input_of_a_stage_is_an_output_of_an_earlier_stage(name: str) -> None:
    created_paths: set[str] = set()
    for stage in RECIPES[name].stages:
        argv = stage.argv
        out = argv[argv.index("--out") + 1] if "--out" in argv else ""
        flags = ("--reference-cache", "--results")
        written = {argv[i + 1] for i, argument in enumerate(argv) if argument in flags}
        inputs = {argument for argument in argv if argument.startswith("runs/")} - {out} - written
        folders = {str(parent) for path in created_paths for parent in Path(path).parents}
        known_inputs = [
            path
            for path in inputs
            if path in created_paths | folders or str(Path(path).parent) in created_paths
        ]
        assert inputs - {stage.done_file} == set(known_inputs), stage.name
        # A sampled part is complete when it is recorded.
        is_recorded = stage.done_file.endswith(".jsonl.gz")
        assert not out or stage.done_file.startswith(out) or is_recorded
        created_paths |= {out, stage.done_file} - {""}


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("weights", ["full", "lora"])
def test_the_batches_of_the_paper_do_not_depend_on_the_gpus(gpus: int, weights: str) -> None:
    settings = [f"gpus={gpus}", f"weights={weights}"]
    for recipe in load_recipes("paper", settings=settings):
        for stage in recipe.stages:
            if "fsdpo_train" not in stage.argv:
                continue
            assert stage.gpus == gpus
            options = parse_stage(stage)
            assert bool(options.lora) == (weights == "lora")
            if options.stage == "dpo" and options.loss != "step-dpo":
                assert options.batch_pairs == 64 and options.grad_accum == 1
                continue
            batch = gpus * options.batch_size * options.grad_accum
            assert batch == (256 if options.stage == "prm" else 128)


def test_values_of_the_figures_and_losses_can_be_set() -> None:
    [recipe] = load_recipes("metamath-mistral-full-step", settings=["gamma=2"])
    train = stage_options(recipe, "train")
    assert train.gamma == 2
    assert train.out == Path("runs/paper/metamath-mistral/full-step-beta-0.05-gamma-2")
    [recipe] = load_recipes("metamath-mistral-full-step", settings=["loss=dpo", "beta=0.1"])
    train = stage_options(recipe, "train")
    assert (train.loss, train.beta) == ("dpo", 0.1)
    [default_recipe] = load_recipes("qwen2-7b-full-step")
    [fresh_recipe] = load_recipes("qwen2-7b-full-step", settings=["pair_samples=fresh"])
    assert stage_options(default_recipe, "score").data == Path("runs/paper/prm-samples")
    samples = stage_options(fresh_recipe, "samples")
    assert (samples.model, samples.sampling.seed) == ("qwen2-7b-sft", 1)
    assert stage_options(fresh_recipe, "score").data == Path("runs/paper/qwen2-7b-fresh/samples")


@pytest.mark.parametrize(
    "setting", ["gamma=2", "beta=0.1", "loss=dpo", "weights=lora", "pair_samples=fresh"]
)
def test_stages_with_other_settings_have_other_outputs(setting: str) -> None:
    """Otherwise, a stage with another setting would count as done."""
    commands = {
        stage.done_file: stage.command
        for recipe in load_recipes("paper")
        for stage in recipe.stages
        if stage.done_file
    }
    n_new_outputs = 0
    for recipe in load_recipes("paper", settings=[setting]):
        for stage in recipe.stages:
            if stage.done_file:
                assert commands.get(stage.done_file, stage.command) == stage.command
                n_new_outputs += stage.done_file not in commands
    assert n_new_outputs


def test_figures_vary_the_right_options() -> None:
    [gammas] = load_recipes("figure-gamma")
    policies = {
        stage_options(gammas, stage.name).gamma
        for stage in gammas.stages
        if stage.name.startswith("train")
    }
    assert 0.5 in policies and len(policies) == 7
    [figure] = load_recipes("figure-n")
    rollouts = [
        stage_options(figure, stage.name).rollouts
        for stage in figure.stages
        if stage.name.startswith("labels")
    ]
    assert rollouts == [2, 4, 8]
    for stage in figure.stages:
        if stage.name.startswith("bench"):
            bench = stage_options(figure, stage.name)
            assert (bench.decoders, bench.k, bench.aggregate) == (["sc", "bon"], (15,), "min")
    [table] = load_recipes("table-prms")
    for name in ("bench-ours", "bench-math-shepherd"):
        bench = stage_options(table, name)
        assert (bench.k, bench.sampling.temperature, bench.aggregate) == ((8,), 0.7, "min")


def test_the_numbers_of_samples_are_those_of_the_benchmarks() -> None:
    problems = {task.name: task.count or 0 for task in select_tasks("all")}
    two_benchmarks = problems["gsm8k"] + problems["math"]
    expected = {
        ("qwen2-7b-full-step", "bench"): sum(problems.values()),
        ("qwen2-7b-full-step", "decoders"): 36 * problems["gsm8k"],
        ("wizardmath", "bench"): two_benchmarks,
        ("figure-n", "bench-n1"): 15 * two_benchmarks,
        ("table-prms", "bench-ours"): 9 * two_benchmarks,
        ("figure-gamma", "bench-gamma-2"): two_benchmarks,
    }
    counts = {key: f"{count:,}" for key, count in expected.items()}
    # Rows of the data set repeat questions.
    n_samples = 32 * DATASETS["math-step-dpo-10k"].rows["train"]
    counts["table-prms", "prm-samples"] = f"at most {n_samples:,}"
    for (recipe, name), count in counts.items():
        [stage] = [stage for stage in RECIPES[recipe].stages if stage.name == name]
        assert stage.samples == count


def test_only_baselines_with_code_of_their_own_need_a_server() -> None:
    served = {
        name: recipe
        for name, recipe in RECIPES.items()
        if any("--base-url" in stage.argv for stage in recipe.stages)
    }
    assert served.keys() == {"internlm-math-7b", "internlm-math-20b"}
    urls = {stage_options(recipe, "bench").engine.server.base_url for recipe in served.values()}
    assert urls == {"http://localhost:8000/v1", "http://localhost:8001/v1"}
    for name, recipe in RECIPES.items():
        assert ("vllm serve" in recipe.about) == (name in served)
    assert "vllm serve internlm/internlm2-math-20b" in served["internlm-math-20b"].about
    assert "--port 8001" in served["internlm-math-20b"].about


def test_the_published_step_dpo_checkpoints_get_the_prompt_of_their_script() -> None:
    for name in ("qwen2-7b-step-dpo", "deepseekmath-step-dpo"):
        released = stage_options(RECIPES[name], "released")
        assert (released.template, released.sampling.max_tokens) == ("alpaca-cot", 2048)


def test_the_papers_tables_show_our_results_and_what_has_not_run(tmp_path: Path) -> None:
    stage = RecipeStage(
        "bench",
        "",
        "fsdpo-bench run",
        str(tmp_path / "results.json"),
        1,
        measures=MeasuredRow("Qwen2-7B-SFT", "sft"),
    )
    recipe = Recipe("row", "", "", (stage,), tmp_path)
    cells = {cell.published.task: cell for cell in paper_cells([recipe])}
    assert cells["gsm8k"].published.value == 88.3
    assert cells.keys() >= {"math", "ocw", "average"}
    assert {cell.ours for cell in cells.values()} == {""}

    def task_results(correct: int, problems: int, count: int) -> dict[str, Any]:
        value = correct / problems
        greedy = {
            "accuracy": {"value": value, "n": problems, "ci95": [0.5, 0.75], "clusters": None},
            "outcomes": {"correct": correct},
            "cost": {"tokens": 1, "prm_calls": 0},
        }
        names = ("numbers", "groups", "group_spread", "accuracy_drops")
        empty: dict[str, Any] = {name: {} for name in names}
        sizes = {"problems": problems, "distinct_problems": problems, "task_problems": count}
        sizes |= {"samples": 1, "mixed_problems": 0}
        return {"title": "T", **sizes, "decoders": {"greedy": greedy}, **empty}

    content = measure_paths(write_run(tmp_path / "made", {"gsm8k": 2})).to_json()
    content["tasks"] = {"gsm8k": task_results(3, 4, 1319), "ocw": task_results(136, 272, 272)}
    names = ("svamp", "addsub", "asdiv", "gsm_ic2", "gsm_icm")
    content["tasks"] |= {name: task_results(k, 10, 10) for k, name in enumerate(names, 5)}
    (tmp_path / "results.json").write_text(json.dumps(content))
    ours = {cell.published.task: cell.ours for cell in paper_cells([recipe])}
    assert ours["gsm8k"] == "75.0 [50.0, 75.0], n=4"
    assert ours["ocw"] == "50.0 [50.0, 75.0]"
    assert ours["average"] == "70.0 over 5 benchmarks"
    assert ours["math"] == ""


def test_the_cost_of_sampling_is_next_to_the_papers_hours(tmp_path: Path) -> None:
    manifest = {"cost": {"tokens": 9, "prm_calls": 0, "seconds": 1800}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    row = MeasuredRow("MetaMath-Mistral-7B", "full-step-dpo", "N=1")
    done_file = str(tmp_path / "manifest.json")
    stage = RecipeStage("samples", "", "fsdpo-data build", done_file, 8, measures=row)
    [cell] = [
        cell
        for cell in paper_cells([Recipe("row", "", "", (stage,), tmp_path)])
        if cell.published.task == "gpu-hours"
    ]
    assert (cell.published.value, cell.ours) == (8.5, "4.00")


def test_shared_stages_have_the_same_command_in_all_recipes() -> None:
    outs: dict[str, str] = {}
    for _, stage in STAGES:
        if stage.done_file:
            assert outs.setdefault(stage.done_file, stage.command) == stage.command


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("full-step")])
def test_full_step_dpo_recipes_use_the_settings_of_the_paper(name: str) -> None:
    recipe = RECIPES[name]
    for stage in recipe.stages:
        if stage.name in ("prm-samples", "samples"):
            samples = stage_options(recipe, stage.name)
            assert (samples.sampling.n, samples.sampling.temperature) == (32, 0.8)
            assert samples.problems == ("math-step-dpo-10k",)
    prm = stage_options(recipe, "prm")
    gpus = 8
    assert (prm.lr, prm.epochs, prm.loss_reduction) == (5e-7, 1, "sum")
    assert prm.held_out == 0
    assert gpus * prm.batch_size * prm.grad_accum == 256
    pairs = stage_options(recipe, "pairs")
    assert (pairs.top, pairs.aggregate, pairs.require_outcome) == (4, "mean", True)
    train = stage_options(recipe, "train")
    assert (train.loss, train.lr, train.beta, train.gamma) == ("full-step", 5e-7, 0.05, 0.5)
    assert (train.schedule, train.warmup, train.epochs) == ("linear", 0.05, 1)
    assert train.batch_pairs == 64
    decoders = stage_options(recipe, "decoders")
    assert (decoders.k, decoders.beam.b1, decoders.b2) == ((5, 15), 5, (1, 3))


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("step-dpo")])
def test_step_dpo_recipes_use_the_published_pairs_and_settings(name: str) -> None:
    recipe = RECIPES[name]
    names = [stage.name for stage in recipe.stages if stage.name not in ("rows", "sft", "released")]
    assert names == ["step-pairs", "train", "bench"]
    pairs = stage_options(recipe, "step-pairs")
    assert (str(pairs.file), pairs.source) == ("xinlai/Math-Step-DPO-10K", "step-dpo-10k")
    assert pairs.template == "alpaca-newline"
    train = stage_options(recipe, "train")
    assert train.data == (pairs.out,)
    assert (train.loss, train.lr, train.beta) == ("step-dpo", 5e-7, 0.5)
    assert (train.schedule, train.warmup, train.epochs) == ("cosine", 0.1, 8)
    assert train.shuffle == "pairs"


def test_small_runs_have_pairs_of_the_published_format(tmp_path: Path) -> None:
    [recipe] = load_recipes("metamath-mistral-step-dpo", smoke=True)
    pairs = stage_options(recipe, "step-pairs")
    manifest, _ = import_labels(ROOT / pairs.file, pairs.source, tmp_path, template=pairs.template)
    problems = manifest.get(PROBLEMS_STAGE, ProblemsRecord)
    assert manifest.rows.pairs == 16 and not problems.counts.quarantined


def test_a_dry_run_shows_commands_and_the_papers_numbers() -> None:
    arguments = ["recipe", "qwen2-7b-full-step", "--dry-run"]
    result = CliRunner().invoke(bench_app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for expected in ("GPU-hours", "torchrun --nproc-per-node 8", "89.3", "not run"):
        assert expected in result.output
    stages = json.loads(CliRunner().invoke(bench_app, [*arguments[:2], "--json"]).output)["stages"]
    assert [stage["name"] for stage in stages][:2] == ["prm-samples", "prm"]
    assert stages[0]["spent"] is None
    listing = CliRunner().invoke(bench_app, ["recipe"], env={"COLUMNS": "160"}).output
    assert all(name in listing for name in shipped_recipes())


def test_measured_cost_is_read_from_the_output_of_a_stage(tmp_path: Path) -> None:
    """A manifest includes the cost of its parents; results have the cost of each dataset."""

    def write_cost(folder: str, file: str, cost: object) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(json.dumps({"cost": cost}))
        return str(tmp_path / folder / file)

    sample_cost_file = write_cost(
        "samples", "manifest.json", {"tokens": 900, "prm_calls": 0, "seconds": 60}
    )
    score_cost_file = write_cost(
        "scored", "manifest.json", {"tokens": 900, "prm_calls": 9, "seconds": 96}
    )
    score = RecipeStage("score", "", f"fsdpo-data score {tmp_path}/samples", score_cost_file, 2)
    assert measured_cost(score) == (0, pytest.approx(36 * 2 / 3600))
    assert measured_cost(RecipeStage("samples", "", "fsdpo-data build", sample_cost_file, 0)) == (
        900,
        pytest.approx(60 / 3600),
    )
    content = measure_paths(write_run(tmp_path / "made", {"gsm8k": 2})).to_json()
    costs = {name: dataset["cost"] for name, dataset in content["run"]["datasets"].items()}
    costs["greedy"] |= {"tokens": 10, "seconds": 1}
    costs["samples"] |= {"tokens": 150, "seconds": 15}
    costs["sbs@2,1"] |= {"tokens": 30, "seconds": 3}
    file = tmp_path / "results.json"
    file.write_text(json.dumps(content))
    run = RecipeStage("bench", "", "fsdpo-bench run", str(file), 1)
    assert measured_cost(run) == (190, pytest.approx(19 / 3600))
    costs["greedy"]["tokens"] = None
    file.write_text(json.dumps(content))
    assert measured_cost(run) == (None, pytest.approx(19 / 3600))
    del costs["greedy"]["seconds"]
    file.write_text(json.dumps(content))
    assert measured_cost(run) == (None, None)
    assert measured_cost(RecipeStage("train", "", "x", str(tmp_path / "README.md"), 1)) is None
    pending = RecipeStage("bench", "", "x", str(tmp_path / "no/results.json"), 1)
    assert measured_cost(pending) is None


def test_results_of_another_version_count_as_not_measured_and_stop_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"version": 2, "run": 3}))
    row = MeasuredRow("Qwen2-7B-SFT", "sft")
    stage = RecipeStage("bench", "", "fsdpo-bench run", str(file), 1, measures=row)
    recipe = Recipe("row", "title", "about", (stage,), tmp_path)
    print_plan(recipe, recipe.stages)
    assert "fsdpo-bench run" in capsys.readouterr().out
    assert recipe.plan_dict(recipe.stages)["stages"][0]["spent"] is None
    assert {cell.ours for cell in paper_cells([recipe])} == {""}
    earlier = _script(tmp_path, "earlier", "raise SystemExit(3)")
    with pytest.raises(InputError, match=r"results\.json is of version 2; .* reads version 3"):
        run_stages([earlier, stage], print)


def test_unknown_recipes_and_stages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Nearest: qwen2-7b-sft"):
        load_recipes("qwen2-7b-stf")
    with pytest.raises(InputError, match=r"--stage pears: .* pairs"):
        CliRunner().invoke(
            bench_app, ["recipe", "embedded", "--stage", "pears"], catch_exceptions=False
        )
    broken = tmp_path / "mine.toml"
    broken.write_text("title = 3", encoding="utf-8")
    with pytest.raises(InputError, match="is not a recipe"):
        load_recipes(str(broken))


def _script(tmp_path: Path, name: str, code: str) -> RecipeStage:
    run = f'{sys.executable} -c "{code}" --out {tmp_path / name}'
    return RecipeStage(name, "", run, str(tmp_path / name / "done"), 0)


def test_stages_run_once_in_order_and_resume_after_a_failure(tmp_path: Path) -> None:
    make = "import sys, pathlib; p = pathlib.Path(sys.argv[2]); p.mkdir(exist_ok=True); "
    note = "(p / 'args').write_text(' '.join(sys.argv[3:])); (p / 'done').touch()"
    good = _script(tmp_path, "good", make + note)
    bad = _script(tmp_path, "bad", make + "sys.exit(3)")
    messages: list[str] = []
    with pytest.raises(FsdpoError, match="stage bad ended with exit code 3"):
        run_stages([good, bad], messages.append)
    assert pending_command(good) is None
    repaired = _script(tmp_path, "bad", make + note)
    run_stages([good, repaired], messages.append)
    assert (tmp_path / "bad" / "args").read_text() == "--resume"
    assert sum(message.startswith("good: done (") for message in messages) == 1


def test_a_stage_that_takes_too_long_stops_alone(tmp_path: Path) -> None:
    """The stages that read its output are not run; the others are."""
    make = "import sys, pathlib; p = pathlib.Path(sys.argv[-1]); p.mkdir(); (p / 'done').touch()"
    slow = dataclasses.replace(
        _script(tmp_path, "slow", "import time; time.sleep(60)"), minutes=0.02, purpose="be slow"
    )
    child = _script(tmp_path, "child", make)
    command = child.command.replace("--out", f"{tmp_path / 'slow'} --out")
    child = dataclasses.replace(child, command=command)
    quick = _script(tmp_path, "quick", make)
    file = tmp_path / "stages.csv"
    messages: list[str] = []
    with pytest.raises(FsdpoError, match=r"^stage slow was stopped after 0\.02 minutes\. Fix"):
        run_stages([slow, child, quick], messages.append, stages_file=file)
    assert "child: not run, because it reads the output of slow" in messages
    assert (tmp_path / "quick/done").exists()
    slow_row, quick_row = read_measurements(file)
    assert (slow_row.stage, slow_row.purpose) == ("slow", "be slow")
    assert slow_row.status == "was stopped after 0.02 minutes" and slow_row.seconds < 30
    assert quick_row.status == "done" and shlex.split(quick_row.command) == quick.argv


def test_the_time_and_memory_of_a_stage_are_measured_with_its_child_processes(
    tmp_path: Path,
) -> None:
    pytest.importorskip("psutil")
    child = "import time; block = bytearray(150_000_000); time.sleep(1)"
    (tmp_path / "script.py").write_text(
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    )
    stage = RecipeStage("memory", "", f"python {tmp_path}/script.py", "", 0)
    run_stages([stage], print, stages_file=tmp_path / "stages.csv")
    [row] = read_measurements(tmp_path / "stages.csv")
    assert row.seconds > 1 and row.peak_mb > 150 and row.tokens == 0


def test_measured_stages_give_the_estimated_time_of_the_next_ones(tmp_path: Path) -> None:
    def stage(name: str, command: str, work: float) -> RecipeStage:
        return RecipeStage(name, "", command, str(tmp_path / name / "README.md"), 0, work=work)

    def measurement(name: str, status: str, seconds: float) -> StageMeasurement:
        return StageMeasurement(name, status, seconds, 0, 0, 0, "", "")

    small = stage("small", "fsdpo-train dpo pairs", 10)
    large = stage("large", "fsdpo-train dpo more-pairs", 100)
    prm = stage("prm", "fsdpo-train prm samples", 100)
    quick = stage("quick", "fsdpo-data select samples", 0)
    stages = [small, large, prm, quick]
    rows = [measurement("small", "ended with exit code 1", 1), measurement("small", "done", 360)]
    # The output of the measured stage is not here: another machine ran it.
    assert estimate_time(stages, [large], rows).startswith("not measured yet")
    (tmp_path / "small").mkdir()
    (tmp_path / "small/README.md").touch()
    assert estimate_time(stages, [large, quick], rows) == (
        "estimated time of the next 1 long stages: 1.0 hours"
    )
    assert estimate_time(stages, [large, prm], rows).endswith(
        "1.0 hours, without fsdpo-train prm, not measured yet"
    )
    assert estimate_time(stages, [prm], rows) == "not measured yet: the time of fsdpo-train prm"
    rows.append(measurement("small", "done", 60))
    assert estimate_time(stages, [large], rows).endswith(": 10 minutes")
    assert estimate_time(stages, [quick], rows) == ""


def test_a_recipe_sets_the_environment_of_its_commands(tmp_path: Path) -> None:
    code = f"import os, pathlib; pathlib.Path('{tmp_path}/seen').write_text(os.environ['COLOUR'])"
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "mine.toml").write_text(
        'title = "t"\nabout = "a"\nstages_file = "{folder}/stages.csv"\n'
        '[environment]\nCOLOUR = "{colour}"\n'
        f'[values]\ncolour = "red"\nfolder = "{tmp_path}"\n'
        f'[[stage]]\nname = "s"\npurpose = "p"\ncommand = "python {tmp_path}/script.py"\n'
    )
    result = CliRunner().invoke(bench_app, ["recipe", str(tmp_path / "mine.toml")])
    assert result.exit_code == 0 and (tmp_path / "seen").read_text() == "red"
    assert [row.stage for row in read_measurements(tmp_path / "stages.csv")] == ["s"]


def test_a_script_of_a_recipe_starts_again_without_resume(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; sys.exit('--resume' in sys.argv)")
    command = f"python {tmp_path / 'script.py'} --out {tmp_path}"
    stage = RecipeStage("data", "", command, str(tmp_path / "done"), 0)
    run_stages([stage], print)
    resumable_stage = dataclasses.replace(stage, command=f"fsdpo-data build --out {tmp_path}")
    assert pending_command(resumable_stage) == [*resumable_stage.argv, "--resume"]


def script(name: str) -> ModuleType:
    """Import a script from the folder of the recipes."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/recipes/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sft_rows_use_the_alpaca_prompt() -> None:
    module = script("sft_rows")
    source = [{"query": "1+1?", "response": "The answer is: 2"}, {"query": "x", "response": None}]
    [line] = module.format_rows(source, module.METAMATH)
    assert json.loads(line) == {
        "prompt": get_template("alpaca").render("1+1?"),
        "completion": "The answer is: 2",
    }
