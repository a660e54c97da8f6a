"""Recipe files with values, grids, groups and conditions, and their errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.recipes.load import load_recipe, read_recipes
from fsdpo_bench.recipes.recipe import Recipe, RecipeStage
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

ROOT = Path(__file__).parents[2]
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
    recipe = load_recipe(str(file))
    stage = RecipeStage(
        name="first",
        purpose="Say hello.",
        command="""echo '{"a": {"b": 1}}'""",
        done_file="first.txt",
        gpus=2,
    )
    assert recipe == Recipe("mine", "T", "A", "", "", (stage,), file)


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
row = { backbone = "B-{size}", method = "dpo" }
[[stage]]
name = "a"
purpose = "P"
command = "echo {size}"
"""


def test_a_file_with_a_grid_has_several_recipes(tmp_path: Path) -> None:
    file = write_recipe(tmp_path, TWO_RECIPES)
    assert [recipe.name for recipe in read_recipes(file)] == ["small", "big"]
    assert load_recipe(f"{file}:big").stages[0].command == "echo big"
    assert load_recipe(f"{file}:big").backbone == "B-big"
    result = CliRunner().invoke(bench_app, ["recipe", f"{file}:small", "--dry-run"])
    assert result.exit_code == 0 and "echo small" in result.output
    with pytest.raises(InputError, match="has the recipes small, big"):
        load_recipe(str(file))
    with pytest.raises(InputError, match="has the recipes small, big"):
        load_recipe(f"{file}:huge")
    with pytest.raises(InputError, match="there is no recipe"):
        load_recipe(f"{tmp_path}/absent.toml:big")


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
        load_recipe(str(file))


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
    with pytest.raises(InputError, match="is not a recipe: name, title and row: expected texts"):
        load_recipe(str(file))


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
    command = load_recipe(str(file)).stages[0].command
    assert command == "train --seed 0 --out runs/small/policy"
    changed = load_recipe(f"{file}:small", ["seed=3", "folder=runs/a=b"]).stages[0]
    assert changed.command == "train --seed 3 --out runs/a=b/policy"
    assert changed.done_file == "runs/a=b/policy/README.md"
    with pytest.raises(InputError, match=r"set = 'sede': expected one of .* seed"):
        load_recipe(str(file), ["sede=3"])
    with pytest.raises(InputError, match="expected NAME=VALUE"):
        load_recipe(str(file), ["seed"])
    assert "--seed 2" in load_recipe("demo", ["seed=2"]).stages[0].command
    assert "--seed 0" in load_recipe("demo").stages[0].command
