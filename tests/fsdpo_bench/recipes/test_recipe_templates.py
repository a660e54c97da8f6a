"""Recipe files with values, grids, groups and conditions, and their errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.recipes.load import load_recipes, read_recipes
from fsdpo_bench.recipes.recipe import MeasuredRow, Recipe, RecipeStage
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

ROOT = Path(__file__).parents[3]
HEAD = 'title = "T"\nabout = "A"\n'
PLAIN = """
[[stage]]
name = "first"
purpose = " Say  hello. "
command = "echo   '{\\"a\\": {\\"b\\": 1}}'"
done_file = "first.txt"
gpus = 2
"""


def write_recipe(folder: Path, text: str, *, head: str = HEAD) -> Path:
    file = folder / "mine.toml"
    file.write_text(head + text, encoding="utf-8")
    return file


def one_recipe(folder: Path, text: str) -> Recipe:
    [recipe] = read_recipes(write_recipe(folder, text))
    return recipe


def test_a_plain_file_is_a_recipe_and_keeps_braces_of_json(tmp_path: Path) -> None:
    file = write_recipe(tmp_path, PLAIN)
    [recipe] = load_recipes(str(file))
    stage = RecipeStage(
        name="first",
        purpose="Say hello.",
        command="""echo '{"a": {"b": 1}}'""",
        done_file="first.txt",
        gpus=2,
    )
    assert recipe == Recipe("mine", "T", "A", (stage,), file)


def test_a_stage_needs_only_name_purpose_and_command(tmp_path: Path) -> None:
    recipe = one_recipe(tmp_path, '[[stage]]\nname = "a"\npurpose = "P"\ncommand = "true"\n')
    assert recipe.stages == (RecipeStage("a", "P", "true", "", 0),)


def test_grids_groups_and_conditions_expand_in_order(tmp_path: Path) -> None:
    recipe = one_recipe(
        tmp_path,
        """
        [values]
        folder = "runs/{n}"
        size = "small"
        [[stage]]
        for.n = [1, 2]
        [[stage.stage]]
        name = "build-{n}"
        purpose = "P"
        command = "build --out {folder}"
        [[stage.stage]]
        for.seed = [0, 1]
        for.loss = [
          { loss = "dpo" },
          { loss = "sft", size = "big", when.n = [2], when.size = ["big"] },
        ]
        name = "{loss}-{n}-{seed}"
        purpose = "A {size} one."
        command = "train {folder} --loss {loss}"
        [[stage]]
        when.size = ["big"]
        name = "absent"
        purpose = "P"
        command = "true"
        """,
    )
    assert [stage.name for stage in recipe.stages] == [
        "build-1",
        "dpo-1-0",
        "dpo-1-1",
        "build-2",
        "dpo-2-0",
        "sft-2-0",
        "dpo-2-1",
        "sft-2-1",
    ]
    assert recipe.stages[-1].command == "train runs/2 --loss sft"
    assert [stage.purpose for stage in recipe.stages[-2:]] == ["A small one.", "A big one."]


def test_a_complete_placeholder_keeps_the_type_and_doubled_braces_are_text(tmp_path: Path) -> None:
    recipe = one_recipe(
        tmp_path,
        """
        values = { n = 3 }
        [[stage]]
        name = "a"
        purpose = "P"
        command = "ask '{{question}}' {n}"
        gpus = "{n}"
        """,
    )
    [stage] = recipe.stages
    assert stage.command == "ask '{question}' 3"
    assert stage.gpus == 3


TWO_RECIPES = """
name = "{size}"
for.size = ["small", "big"]
[[stage]]
name = "a"
purpose = "P"
command = "echo {size}"
samples = "3 of {size}"
measures = { backbone = "B-{size}", method = "dpo" }
"""


def test_a_file_with_a_grid_has_several_recipes(tmp_path: Path) -> None:
    file = write_recipe(tmp_path, TWO_RECIPES)
    assert [recipe.name for recipe in read_recipes(file)] == ["small", "big"]
    assert [recipe.name for recipe in load_recipes(str(file))] == ["small", "big"]
    [big] = load_recipes(str(file), ["big"])
    assert big.stages[0].command == "echo big"
    assert big.stages[0].samples == "3 of big"
    assert big.stages[0].measures == MeasuredRow("B-big", "dpo")
    result = CliRunner().invoke(bench_app, ["recipe", str(file), "--row", "small", "--dry-run"])
    assert result.exit_code == 0 and "echo small" in result.output
    assert "echo big" not in result.output
    output = CliRunner().invoke(bench_app, ["recipe", str(file), "--dry-run"]).output
    assert "echo small" in output and "echo big" in output and "3 of big" in output
    with pytest.raises(InputError, match="row = 'huge': expected one of big, small"):
        load_recipes(str(file), ["huge"])
    with pytest.raises(InputError, match="there is no recipe"):
        load_recipes(f"{tmp_path}/absent.toml")


def test_rows_that_fit_a_value_are_chosen_after_it_was_set(tmp_path: Path) -> None:
    """A row of a grid may derive values from a number that the user sets."""
    text = """
[values]
gpus = 8
[smoke]
program = "echo tiny"
[[for.machine]]
when.gpus = [8]
accum = 4
[[for.machine]]
when.gpus = [4]
accum = 8
program = "train"
[[stage]]
name = "train"
purpose = "P"
command = "{program} --grad-accum {accum}"
samples = "64"
measures = { backbone = "Qwen2-7B-SFT", method = "sft" }
gpus = "{gpus}"
"""
    file = write_recipe(tmp_path, text)
    [recipe] = load_recipes(str(file), settings=["gpus=4"])
    assert recipe.stages[0].command == "train --grad-accum 8"
    assert recipe.stages[0].gpus == 4
    [recipe] = load_recipes(str(file), settings=["gpus=4"], smoke=True)
    assert recipe.stages[0].command == "echo tiny --grad-accum 8"
    assert recipe.stages[0].samples == "" and recipe.stages[0].measures is None
    [recipe] = load_recipes(str(file), settings=["gpus=4", "program=mine"], smoke=True)
    assert recipe.stages[0].command == "mine --grad-accum 8"
    with pytest.raises(InputError, match="no row of `for` fits the values gpus=3"):
        load_recipes(str(file), settings=["gpus=3"])
    with pytest.raises(InputError, match="expected a number for gpus"):
        load_recipes(str(file), settings=["gpus=many"])
    plain = write_recipe(tmp_path, PLAIN)
    with pytest.raises(InputError, match="has no table `smoke`"):
        load_recipes(str(plain), smoke=True)


STAGE = '[[stage]]\npurpose = "P"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[values]\nfolder = "x"\n' + STAGE + 'name = "a"\ncommand = "ls {foldr}"',
            r"mine.toml: stage 'a': the placeholder {foldr} has no value. Nearest: folder.",
        ),
        (
            '[values]\na = "{b}"\nb = "{a}"\n' + STAGE + 'name = "s"\ncommand = "{a}"',
            r"stage 's': the placeholder {a} has no value",
        ),
        (
            "values.n = [1]\n" + STAGE + 'name = "a"\ncommand = "ls {n}"',
            r"stage 'a': the placeholder {n} is in a text, but its value is \[1\]",
        ),
        (
            STAGE + 'for.n = 3\nname = "a{n}"\ncommand = "ls"',
            r"stage 'a{n}': `for.n` is 3: expected a list of rows",
        ),
        (
            STAGE + 'when.size = ["big"]\nname = "a"\ncommand = "ls"',
            r"stage 'a': the placeholder {size} has no value",
        ),
        (
            STAGE + 'for.n = [1, 2]\nname = "a"\ncommand = "ls {n}"',
            "two stages have the name 'a'",
        ),
        (
            "for.n = [1, 2]\n" + STAGE + 'name = "a"\ncommand = "ls {n}"',
            "two recipes have the name 'mine'",
        ),
        (STAGE + 'name = "a"\ncommand = "ls"\ncolour = 1', "is not a recipe: .*colour"),
    ],
)
def test_unusable_templates_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = write_recipe(tmp_path, text)
    with pytest.raises(InputError, match=message):
        load_recipes(str(file))


def test_the_examples_of_the_page_are_recipes(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/recipes.md").read_text(encoding="utf-8")
    plain, grid = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    [plain_recipe] = read_recipes(write_recipe(tmp_path, plain, head=""))
    assert [stage.name for stage in plain_recipe.stages] == ["samples", "prm"]
    [grid_recipe] = read_recipes(write_recipe(tmp_path, grid, head=""))
    names = [stage.name for stage in grid_recipe.stages]
    assert names == ["samples-4", "prm-4-low", "samples-8", "prm-8-low", "prm-8-high"]
    assert ", ".join(f"`{name}`" for name in names[:-1]) in page.replace("\n", " ")


def test_a_name_whose_value_is_a_number_is_refused(tmp_path: Path) -> None:
    head = HEAD + 'name = "{size}"\n[values]\nsize = 1.5\n'
    file = write_recipe(tmp_path, PLAIN, head=head)
    with pytest.raises(InputError, match="is not a recipe: name and title: expected texts"):
        load_recipes(str(file))


def test_settings_replace_values_of_one_recipe_everywhere(tmp_path: Path) -> None:
    file = write_recipe(
        tmp_path,
        """
        name = "{size}"
        [values]
        seed = 0
        folder = "runs/{size}"
        [[for.size]]
        size = "small"
        policy = "{folder}/policy"
        [[stage]]
        name = "train"
        purpose = "P"
        command = "train --seed {seed} --out {policy}"
        done_file = "{policy}/README.md"
        """,
    )
    command = load_recipes(str(file))[0].stages[0].command
    assert command == "train --seed 0 --out runs/small/policy"
    changed = load_recipes(str(file), settings=["seed=3", "folder=runs/a=b"])[0].stages[0]
    assert changed.command == "train --seed 3 --out runs/a=b/policy"
    assert changed.done_file == "runs/a=b/policy/README.md"
    with pytest.raises(InputError, match=r"set = 'sede': expected one of .* seed"):
        load_recipes(str(file), settings=["sede=3"])
    with pytest.raises(InputError, match="expected NAME=VALUE"):
        load_recipes(str(file), settings=["seed"])
    assert "--seed 2" in load_recipes("demo", settings=["seed=2"])[0].stages[0].command
    assert "--seed 0" in load_recipes("demo")[0].stages[0].command
