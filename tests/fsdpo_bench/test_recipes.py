"""Recipes: every command parses, and the settings equal the paper's."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import typer
from bench_runs import measure_paths, write_run
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.recipes.load import load_recipe, shipped_recipes
from fsdpo_bench.recipes.recipe import (
    Recipe,
    RecipeStage,
    measured_cost,
    pending_command,
    run_stages,
)
from fsdpo_bench.report.published import published_results
from parsed_options import parse_options
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_train.cli.app import app as train_app

ROOT = Path(__file__).parents[2]
PROGRAMS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
RECIPES = shipped_recipes()
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


def test_each_row_of_the_papers_tables_has_a_recipe() -> None:
    rows = {(result.backbone, result.method) for result in published_results() if result.method}
    ours = [(recipe.backbone, recipe.method) for recipe in RECIPES.values() if recipe.backbone]
    assert len(rows) == 16
    assert sorted(ours) == sorted(rows)
    assert set(RECIPES) - {name for name in RECIPES if RECIPES[name].backbone} >= {
        "demo",
        "embedded",
        "prm-curve",
    }


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
    if template == "chat-boxed":  # the tokenizer is on the Hub
        assert "/" in model
    elif template:
        get_template(template)


@pytest.mark.parametrize("name", RECIPES)
def test_every_input_of_a_stage_is_an_output_of_an_earlier_stage(name: str) -> None:
    created_paths: set[str] = set()
    for stage in RECIPES[name].stages:
        argv = stage.argv
        out = argv[argv.index("--out") + 1] if "--out" in argv else ""
        caches = {argv[i + 1] for i, argument in enumerate(argv) if argument == "--reference-cache"}
        inputs = {argument for argument in argv if argument.startswith("runs/")} - {out} - caches
        known_inputs = [
            path
            for path in inputs
            if path in created_paths or str(Path(path).parent) in created_paths
        ]
        assert inputs - {stage.done_file} == set(known_inputs), stage.name
        assert not out or stage.done_file.startswith(out)
        created_paths |= {out, stage.done_file} - {""}


def test_shared_stages_have_the_same_command_in_all_recipes() -> None:
    outs: dict[str, str] = {}
    for _, stage in STAGES:
        if stage.done_file:
            assert outs.setdefault(stage.done_file, stage.command) == stage.command


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("full-step-dpo")])
def test_full_step_dpo_recipes_use_the_settings_of_the_paper(name: str) -> None:
    recipe = RECIPES[name]
    samples = stage_options(recipe, "samples")
    assert (samples.sampling.n, samples.sampling.temperature) == (32, 0.8)
    assert samples.problems == ("math-step-dpo-10k",)
    prm = stage_options(recipe, "prm")
    gpus = 8
    assert (prm.lr, prm.epochs, prm.loss_reduction) == (5e-7, 1, "sum")
    assert gpus * prm.batch_size * prm.grad_accum == 256
    pairs = stage_options(recipe, "pairs")
    assert (pairs.top, pairs.aggregate, pairs.require_outcome) == (4, "mean", True)
    train = stage_options(recipe, "train")
    assert (train.loss, train.lr, train.beta, train.gamma) == ("full-step", 5e-7, 0.05, 0.5)
    assert (train.schedule, train.warmup, train.epochs) == ("linear", 0.05, 1)
    stage = next(candidate for candidate in recipe.stages if candidate.name == "train")
    assert stage.gpus * train.batch_size * train.grad_accum * 16 == 64
    decoders = stage_options(recipe, "decoders")
    assert (decoders.k, decoders.b1, decoders.b2) == ((5, 15), 5, (1, 3))


def test_a_dry_run_shows_commands_and_the_papers_numbers() -> None:
    arguments = ["recipe", "qwen2-7b-sft-full-step-dpo", "--dry-run"]
    result = CliRunner().invoke(bench_app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for expected in ("GPU-hours", "torchrun --nproc-per-node 8", "gsm8k 89.3"):
        assert expected in result.output
    stages = json.loads(CliRunner().invoke(bench_app, [*arguments[:2], "--json"]).output)["stages"]
    assert [stage["name"] for stage in stages][:2] == ["samples", "prm"]
    assert stages[0]["spent"] is None
    listing = CliRunner().invoke(bench_app, ["recipe"], env={"COLUMNS": "160"}).output
    assert all(name in listing for name in RECIPES)


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
    costs["greedy"]["tokens"] = "unknown"
    file.write_text(json.dumps(content))
    assert measured_cost(run) == (None, pytest.approx(19 / 3600))
    assert measured_cost(RecipeStage("train", "", "x", str(tmp_path / "README.md"), 1)) is None
    pending = RecipeStage("bench", "", "x", str(tmp_path / "no/results.json"), 1)
    assert measured_cost(pending) is None


def test_unknown_recipes_and_stages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Nearest: qwen2-7b-sft"):
        load_recipe("qwen2-7b-stf")
    with pytest.raises(InputError, match=r"--stage pears: .* pairs"):
        CliRunner().invoke(
            bench_app, ["recipe", "embedded", "--stage", "pears"], catch_exceptions=False
        )
    broken = tmp_path / "mine.toml"
    broken.write_text("title = 3", encoding="utf-8")
    with pytest.raises(InputError, match="is not a recipe"):
        load_recipe(str(broken))


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
    assert sum(message.startswith("good: done") for message in messages) == 1


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
