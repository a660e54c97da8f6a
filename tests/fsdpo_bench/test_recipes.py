"""Recipes: every command is one the programs take, and says what the paper says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import typer
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.recipes.recipe import (
    GPUS,
    UTILISATION,
    Recipe,
    RecipeStage,
    Workload,
    estimate,
    load_recipe,
    measured_cost,
    pending_command,
    recipe_names,
    run_stages,
)
from fsdpo_bench.results.published import published_results
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_train.cli.app import app as train_app

ROOT = Path(__file__).parents[2]
PROGRAMS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
RECIPES = {name: load_recipe(name) for name in recipe_names()}
STAGES = [(name, stage) for name, recipe in RECIPES.items() for stage in recipe.stages]


def parsed(stage: RecipeStage) -> tuple[str, click.Context] | None:
    """Parse a stage's command by the program it names; None for a script."""
    argv = stage.argv
    if argv[0] == "torchrun":
        assert argv[1] == "--nproc-per-node" and int(argv[2]) == stage.gpus
        assert argv[3:5] == ["-m", "fsdpo_train"]
        argv = ["fsdpo-train", *argv[5:]]
    if argv[0] == "python":
        assert (ROOT / argv[1]).is_file()
        return None
    group = typer.main.get_command(PROGRAMS[argv[0]])
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands[argv[1]]
    return argv[1], command.make_context(argv[1], argv[2:])


def of_stage(recipe: Recipe, name: str) -> click.Context:
    found = parsed(next(stage for stage in recipe.stages if stage.name == name))
    assert found
    return found[1]


def test_there_is_one_recipe_for_each_row_of_the_tables() -> None:
    rows = {(each.backbone, each.method) for each in published_results() if each.method}
    ours = [(each.backbone, each.method) for each in RECIPES.values() if each.backbone]
    assert len(rows) == 16
    assert sorted(ours) == sorted(rows)
    assert set(RECIPES) - {name for name in RECIPES if RECIPES[name].backbone} == {
        "decoders",
        "demo",
        "embedded",
        "pairs",
        "prm-curve",
        "smollm2",
        "smollm2-small",
    }


@pytest.mark.parametrize(("name", "stage"), STAGES, ids=lambda each: getattr(each, "name", each))
def test_every_command_is_one_the_program_takes(name: str, stage: RecipeStage) -> None:
    found = parsed(stage)
    if found is None:
        return
    for option in ("model", "prm"):
        value = str(found[1].params.get(option) or "")
        if value and "/" not in value:
            assert value in MODELS, value
    template, model = (found[1].params.get(each) for each in ("template", "model"))
    if template == "chat-boxed":  # of a tokenizer that is not here yet
        assert "/" in model
    elif template:
        get_template(template)


@pytest.mark.parametrize("name", RECIPES)
def test_every_input_is_what_an_earlier_stage_leaves(name: str) -> None:
    made: set[str] = set()
    for stage in RECIPES[name].stages:
        argv = stage.argv
        out = argv[argv.index("--out") + 1] if "--out" in argv else ""
        caches = {argv[i + 1] for i, each in enumerate(argv) if each == "--reference-cache"}
        inputs = {each for each in argv if each.startswith("runs/")} - {out} - caches
        known = [each for each in inputs if each in made or str(Path(each).parent) in made]
        assert inputs - {stage.done_file} == set(known), stage.name
        assert not out or stage.done_file.startswith(out)
        made |= {out, stage.done_file} - {""}


def test_stages_that_recipes_share_are_the_same() -> None:
    outs: dict[str, str] = {}
    for _, stage in STAGES:
        if stage.done_file:
            assert outs.setdefault(stage.done_file, stage.command) == stage.command


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("full-step-dpo")])
def test_settings_are_the_papers(name: str) -> None:
    recipe = RECIPES[name]
    samples = of_stage(recipe, "samples").params
    assert (samples["samples"], samples["temperature"]) == (32, 0.8)
    assert samples["problems"] == ["math-step-dpo-10k"]
    prm, gpus = of_stage(recipe, "prm").params, 8
    assert (prm["lr"], prm["epochs"], prm["reduce"]) == (5e-7, 1, "sum")
    assert gpus * prm["batch_size"] * prm["grad_accum"] == 256
    pairs = of_stage(recipe, "pairs").params
    assert (pairs["top"], pairs["aggregate"], pairs["require_outcome"]) == (4, "mean", True)
    train = of_stage(recipe, "train").params
    assert (train["loss"], train["lr"], train["beta"], train["gamma"]) == (
        "full-step",
        5e-7,
        0.05,
        0.5,
    )
    assert (train["schedule"], train["warmup"], train["epochs"]) == ("linear", 0.05, 1)
    stage = next(each for each in recipe.stages if each.name == "train")
    assert stage.gpus * train["batch_size"] * train["grad_accum"] * 16 == 64
    decoders = of_stage(recipe, "decoders").params
    assert (decoders["k"], decoders["b1"], decoders["b2"]) == ([5, 15], 5, [1, 3])


PEAK, WRITES = GPUS["a100"].peak * 1e12, GPUS["a100"].decode_tokens_per_second


def test_estimates_follow_the_formulas_that_are_stated() -> None:
    written = estimate(Workload("generate", sequences=1000, tokens=300, parameters=7))
    assert written.tokens == 300_000
    assert written.gpu_hours == pytest.approx(300_000 / WRITES / 3600)
    flop = 8 * 7e9 * 2 * 1000 * 450
    trained = estimate(
        Workload("train", sequences=1000, prompt_tokens=150, tokens=300, parameters=7, epochs=2)
    )
    assert trained.gpu_hours == pytest.approx(flop / (PEAK * UTILISATION) / 3600)
    pairs = Workload("pairs", sequences=80, prompts=10, prompt_tokens=150, tokens=300, parameters=7)
    assert estimate(pairs).tokens == 10 * 150 + 80 * 300
    scored = Workload("score", sequences=80, prompt_tokens=150, tokens=300, parameters=7)
    assert estimate(pairs).gpu_hours > 4 * estimate(scored).gpu_hours * 25_500 / 36_000
    assert estimate(Workload("none")).gpu_hours == 0


def test_sampling_costs_what_the_paper_says() -> None:
    [stage] = [each for each in RECIPES["qwen2-7b-sft-dpo"].stages if each.name == "samples"]
    assert 7 < estimate(stage.work).gpu_hours < 10


def test_a_plan_shows_commands_costs_and_the_papers_numbers() -> None:
    arguments = ["recipe", "qwen2-7b-sft-full-step-dpo", "--dry-run"]
    shown = CliRunner().invoke(bench_app, arguments, env={"COLUMNS": "160"})
    assert shown.exit_code == 0
    for expected in ("GPU-hours", "torchrun --nproc-per-node 8", "gsm8k 89.3", "40 % of 312"):
        assert expected in shown.output
    plan = json.loads(CliRunner().invoke(bench_app, [*arguments[:2], "--json"]).output)
    assert [each["name"] for each in plan["stages"]][:2] == ["samples", "prm"]
    assert plan["stages"][0]["tokens"] == 10_795 * 32 * 300
    listed = CliRunner().invoke(bench_app, ["recipe"], env={"COLUMNS": "160"}).output
    assert all(name in listed for name in RECIPES)


def test_a_plan_for_another_gpu_and_its_price() -> None:
    a100, h100 = GPUS["a100"], GPUS["h100"]
    written = Workload("generate", sequences=1000, tokens=300, parameters=7)
    faster = estimate(written).gpu_hours / estimate(written, h100).gpu_hours
    assert faster == pytest.approx(h100.bandwidth / a100.bandwidth)
    trained = Workload("train", sequences=1000, tokens=300, parameters=7)
    faster = estimate(trained).gpu_hours / estimate(trained, h100).gpu_hours
    assert faster == pytest.approx(h100.peak / a100.peak)
    line = ["recipe", "qwen2-7b-sft-dpo", "--dry-run", "--gpu", "h100", "--price", "2.5"]
    shown = CliRunner().invoke(bench_app, line, env={"COLUMNS": "200"}).output
    total = sum(estimate(stage.work, h100).gpu_hours for stage in RECIPES[line[1]].stages)
    assert f"{2.5 * total:,.2f}" in shown and "of one H100-80GB" in shown and "989" in shown
    with pytest.raises(InputError, match="--gpu h10: expected one of a100, h100"):
        CliRunner().invoke(bench_app, [*line[:3], "--gpu", "h10"], catch_exceptions=False)


def test_measuring_costs_something() -> None:
    for recipe in RECIPES.values():
        for stage in recipe.stages:
            if stage.name in ("bench", "decoders"):
                assert estimate(stage.work).gpu_hours > 0.1


def test_what_was_spent_is_what_the_stages_counted(tmp_path: Path) -> None:
    """A manifest counts its parents, too; decoders that share samples count them."""

    def counted(name: str, file: str, cost: object) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(json.dumps({"cost": cost}))
        return str(tmp_path / name / file)

    first = counted("samples", "manifest.json", {"tokens": 900, "prm_calls": 0, "seconds": 60})
    then = counted("scored", "manifest.json", {"tokens": 900, "prm_calls": 9, "seconds": 96})
    score = RecipeStage(
        "score", "", f"fsdpo-data score {tmp_path}/samples", then, 2, Workload("none")
    )
    assert measured_cost(score) == (0, pytest.approx(36 * 2 / 3600))
    assert measured_cost(
        RecipeStage("samples", "", "fsdpo-data build", first, 0, Workload("none"))
    ) == (
        900,
        pytest.approx(60 / 3600),
    )
    costs = {
        name: {"tokens": tokens, "prm_calls": 0, "seconds": tokens / 10}
        for name, tokens in (("greedy", 10), ("sc@5", 50), ("sc@15", 150), ("sbs@5,1", 30))
    }
    run = RecipeStage(
        "bench", "", "fsdpo-bench run", counted("run", "results.json", costs), 1, Workload("none")
    )
    assert measured_cost(run) == (190, pytest.approx(19 / 3600))
    costs["greedy"]["tokens"] = "unknown"
    again = counted("again", "results.json", costs)
    assert measured_cost(RecipeStage("bench", "", "x", again, 1, Workload("none"))) == (
        None,
        pytest.approx(19 / 3600),
    )
    assert (
        measured_cost(
            RecipeStage("train", "", "x", str(tmp_path / "README.md"), 1, Workload("none"))
        )
        is None
    )
    owing = RecipeStage("bench", "", "x", str(tmp_path / "no/results.json"), 1, Workload("none"))
    assert measured_cost(owing) is None


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
    return RecipeStage(name, "", run, str(tmp_path / name / "done"), 0, Workload("none"))


def test_stages_run_once_in_order_and_go_on_after_a_failure(tmp_path: Path) -> None:
    make = "import sys, pathlib; p = pathlib.Path(sys.argv[2]); p.mkdir(exist_ok=True); "
    note = "(p / 'args').write_text(' '.join(sys.argv[3:])); (p / 'done').touch()"
    good, bad = (
        _script(tmp_path, "good", make + note),
        _script(tmp_path, "bad", make + "sys.exit(3)"),
    )
    said: list[str] = []
    with pytest.raises(FsdpoError, match="stage bad ended with exit code 3"):
        run_stages([good, bad], said.append)
    assert pending_command(good) is None
    mended = _script(tmp_path, "bad", make + note)
    run_stages([good, mended], said.append)
    assert (tmp_path / "bad" / "args").read_text() == "--resume"
    assert sum(each.startswith("good: done") for each in said) == 1


def script(name: str) -> ModuleType:
    """Import a script that lies beside the recipes."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/recipes/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_for_fine_tuning_have_the_prompt_that_is_asked_later() -> None:
    module = script("sft_rows")
    source = [{"query": "1+1?", "response": "The answer is: 2"}, {"query": "x", "response": None}]
    [line] = module.rows(source, *module.METAMATH[1:])
    assert json.loads(line) == {
        "prompt": get_template("alpaca").render("1+1?"),
        "completion": "The answer is: 2",
    }


@pytest.mark.parametrize(
    ("formula", "solution"),
    [
        ("(10-3)*2=14", "10 - 3 = 7\n7 * 2 = 14\nThe answer is \\boxed{14}."),
        ("436-(132+236)=68", "132 + 236 = 368\n436 - 368 = 68\nThe answer is \\boxed{68}."),
        (
            "(44.68/2)*6=134.04",
            "44.68 / 2 = 22.34\n22.34 * 6 = 134.04\nThe answer is \\boxed{134.04}.",
        ),
        ("7+2=10", ""),
        ("40/7=5 r5", ""),
        ("LCM[8,20]=40", ""),
        ("5/0=0", ""),
        ("-5+3=2", ""),
        ("12", ""),
    ],
)
def test_a_formula_is_worked_an_operation_a_line(formula: str, solution: str) -> None:
    assert script("equations").solve(formula) == solution
