"""Load recipes by name, or from TOML files of users."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, validate_call

from fsdpo_bench.recipes.recipe import Recipe, RecipeStage
from fsdpo_bench.recipes.templates import Table, TemplateError, expand_grid, expand_stages, fill
from fsdpo_bench.report.published import shipped_path
from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names, unknown_name_error
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.row_errors import describe_row_error

#: Suffix of a recipe file before the name of one of its recipes, as in ``mine.toml:small``.
_NAME_SEPARATOR = ".toml:"


@cache
def shipped_recipes() -> dict[str, Recipe]:
    """Return the recipes of fsdpo by name, sorted."""
    files = shipped_path("recipes").glob("*.toml")
    recipes = [recipe for file in files for recipe in read_recipes(file)]
    return {recipe.name: recipe for recipe in sorted(recipes, key=lambda recipe: recipe.name)}


def load_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """Load a recipe by its name, from ``FILE.toml``, or from ``FILE.toml:NAME``.

    Args:
        name: The recipe.
        settings: Texts ``NAME=VALUE`` in place of values of the recipe.

    Raises:
        InputError: if the recipe or a value does not exist, or the file is not a recipe.
    """
    new_values = _parse_settings(settings)
    if name.endswith(".toml"):
        return _choose_recipe(Path(name), "", new_values)
    if _NAME_SEPARATOR in name:
        stem, _, recipe_name = name.rpartition(_NAME_SEPARATOR)
        return _choose_recipe(Path(f"{stem}.toml"), recipe_name, new_values)
    if name not in shipped_recipes():
        raise _missing_recipe_error(name)
    if not new_values:
        return shipped_recipes()[name]
    return _choose_recipe(shipped_recipes()[name].file, name, new_values)


def _parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of texts ``NAME=VALUE`` by name."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise InputError("expected NAME=VALUE, such as seed=1.", field="set", value=setting)
        values[name] = value
    return values


def _choose_recipe(file: Path, name: str, new_values: Mapping[str, str]) -> Recipe:
    """Return the recipe with a name from a file; without a name, its only recipe."""
    if not file.is_file():
        raise _missing_recipe_error(str(file))
    recipes = {recipe.name: recipe for recipe in read_recipes(file, new_values)}
    if name in recipes:
        return recipes[name]
    if name or len(recipes) != 1:
        raise InputError(
            f"{file} has the recipes {', '.join(recipes)}. Choose one of them: {file}:NAME."
        )
    return next(iter(recipes.values()))


def _missing_recipe_error(name: str) -> InputError:
    suggestion = suggest_names(name, shipped_recipes())
    return InputError(
        f"there is no recipe {name!r}.{suggestion} `fsdpo-bench recipe` lists all recipes."
    )


def read_recipes(file: Path, new_values: Mapping[str, str] | None = None) -> list[Recipe]:
    """Read the recipes in a TOML file.

    Args:
        file: The file.
        new_values: Values by name, in place of the values of the file.

    Raises:
        InputError: if the file is not a recipe, or has no such values.
    """
    try:
        table = read_toml_file(file)
        return list(_parse_recipes(table, file, new_values or {}))
    except TemplateError as error:
        raise InputError(f"{file}: {error}") from None
    except FsdpoError:
        raise
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        key = ".".join(map(str, first_error["loc"]))
        raise InputError(
            f"{file} is not a recipe: {key}: {first_error['msg']}. Compare it with the recipes of "
            "fsdpo."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file} is not a recipe: {describe_row_error(error)}. Compare it with the recipes "
            "of fsdpo."
        ) from None


def _parse_recipes(table: Table, file: Path, new_values: Mapping[str, str]) -> Iterator[Recipe]:
    names = set()
    for file_values in expand_grid(table, table.get("values", {}), "the recipe"):
        for name in new_values:
            if name not in file_values:
                raise unknown_name_error("set", name, sorted(file_values))
        values = {**file_values, **new_values}
        row = {"backbone": "", "method": "", **table.get("row", {})}
        fields = {"name": table.get("name", file.stem), "title": table["title"], **row}
        if not all(isinstance(text, str) for text in (*fields.values(), table["about"])):
            raise ValueError("name, title, about and row: expected texts")
        texts = fill(fields, values, "the recipe")
        # A text that is only a placeholder becomes the value, which may be a number.
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("name, title and row: expected texts as their values")
        recipe = Recipe(
            **texts,
            about=_join_lines(fill(table["about"], values, "the recipe")),
            file=file,
            stages=_parse_stages(table["stage"], values),
        )
        if recipe.name in names:
            raise TemplateError(
                f"two recipes have the name {recipe.name!r}. Use the values of `for` in `name`."
            )
        names.add(recipe.name)
        yield recipe


def _parse_stages(stages: list[dict[str, Any]], values: Table) -> tuple[RecipeStage, ...]:
    parsed_stages: dict[str, RecipeStage] = {}
    for fields in expand_stages(stages, values):
        stage = _parse_stage(**fields)
        if stage.name in parsed_stages:
            raise TemplateError(
                f"two stages have the name {stage.name!r}. Use the values of `for` in `name`."
            )
        parsed_stages[stage.name] = stage
    return tuple(parsed_stages.values())


@validate_call(config=ConfigDict(strict=True))
def _parse_stage(
    *,
    name: str,
    purpose: str,
    command: str,
    done_file: str = "",
    gpus: Annotated[int, Field(ge=0)] = 0,
) -> RecipeStage:
    return RecipeStage(
        name=name,
        purpose=_join_lines(purpose),
        command=_join_lines(command),
        done_file=done_file,
        gpus=gpus,
    )


def _join_lines(text: str) -> str:
    return " ".join(text.split())
