"""Load recipes by name, or from TOML files of users."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, validate_call

from fsdpo_bench.recipes.recipe import MeasuredRow, Recipe, RecipeStage
from fsdpo_bench.recipes.templates import Table, TemplateError, expand_grid, expand_stages, fill
from fsdpo_bench.report.published import shipped_path
from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names, unknown_name_error
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.row_errors import describe_row_error


@cache
def shipped_recipes() -> dict[str, Recipe]:
    """Return the recipes of fsdpo by name, sorted."""
    files = shipped_path("recipes").glob("*.toml")
    recipes = [recipe for file in files for recipe in read_recipes(file)]
    return {recipe.name: recipe for recipe in sorted(recipes, key=lambda recipe: recipe.name)}


def load_recipes(
    name: str,
    rows: Sequence[str] = (),
    settings: Sequence[str] = (),
    *,
    smoke: bool = False,
) -> list[Recipe]:
    """Load a recipe by its name, or all recipes of a file.

    Args:
        name: A recipe, ``FILE.toml``, or the name of a file of fsdpo without its suffix.
        rows: Names of recipes in the file; empty for all of them.
        settings: Texts ``NAME=VALUE`` in place of values of the file.
        smoke: Whether the values in ``smoke`` of the file replace others.

    Raises:
        InputError: if the recipe, a row or a value does not exist, or the file is not a recipe.
    """
    file = _find_file(name)
    recipes = read_recipes(file, _parse_settings(settings), smoke=smoke)
    by_name = {recipe.name: recipe for recipe in recipes}
    if name in by_name and not rows:
        return [by_name[name]]
    for row in rows:
        if row not in by_name:
            raise unknown_name_error("row", row, sorted(by_name))
    return [by_name[row] for row in rows] or recipes


def _find_file(name: str) -> Path:
    """Return the file of a recipe, or the file with this name."""
    files = {file.stem: file for file in shipped_path("recipes").glob("*.toml")}
    recipes = shipped_recipes()
    if name.endswith(".toml") and Path(name).is_file():
        return Path(name)
    if name in recipes:
        return recipes[name].file
    if name in files:
        return files[name]
    suggestion = suggest_names(name, [*recipes, *files])
    raise InputError(
        f"there is no recipe {name!r}.{suggestion} `fsdpo-bench recipe` lists all recipes."
    )


def _parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of texts ``NAME=VALUE`` by name."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise InputError("expected NAME=VALUE, such as seed=1.", field="set", value=setting)
        values[name] = value
    return values


def read_recipes(
    file: Path, new_values: Mapping[str, str] | None = None, *, smoke: bool = False
) -> list[Recipe]:
    """Read the recipes in a TOML file.

    Args:
        file: The file.
        new_values: Values by name, in place of the values of the file.
        smoke: Whether the values in ``smoke`` of the file replace others.

    Raises:
        InputError: if the file is not a recipe, or has no such values.
    """
    try:
        table = read_toml_file(file)
        if smoke and "smoke" not in table:
            raise InputError(
                f"{file} has no table `smoke` with the values of a small run.", field="smoke"
            )
        smoke_values = table["smoke"] if smoke else {}
        recipes = list(_parse_recipes(table, file, {**smoke_values, **(new_values or {})}))
        return [recipe.without_counts() for recipe in recipes] if smoke else recipes
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


def _parse_recipes(table: Table, file: Path, new_values: Mapping[str, Any]) -> Iterator[Recipe]:
    names: set[str] = set()
    value_names: set[str] = set()
    # Conditions of rows read the new values, and the new values replace those of the rows.
    base_values = _replace_values(table.get("values", {}), new_values)
    for file_values in expand_grid(table, base_values, "the recipe"):
        value_names |= file_values.keys()
        recipe = _parse_recipe(table, file, _replace_values(file_values, new_values))
        if recipe.name in names:
            raise TemplateError(
                f"two recipes have the name {recipe.name!r}. Use the values of `for` in `name`."
            )
        names.add(recipe.name)
        yield recipe
    if not names:
        values = ", ".join(f"{name}={value}" for name, value in new_values.items())
        raise InputError(f"{file}: no row of `for` fits the values {values}.", field="set")
    for name in new_values:
        if name not in value_names:
            raise unknown_name_error("set", name, sorted(value_names))


def _replace_values(values: Table, new_values: Mapping[str, Any]) -> Table:
    """Return the values with new ones in place of those with the same names.

    A text in place of a number becomes a number, because conditions compare numbers.

    Raises:
        InputError: if the text is not a number.
    """
    replaced = dict(values)
    for name in new_values.keys() & values.keys():
        replaced[name] = _convert(name, new_values[name], values[name])
    return replaced


def _convert(name: str, new_value: Any, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(new_value, str):
        return new_value
    for number_type in (int, float):
        try:
            return number_type(new_value)
        except ValueError:
            continue
    raise InputError(f"expected a number for {name}.", field="set", value=f"{name}={new_value}")


def _parse_recipe(table: Table, file: Path, values: Table) -> Recipe:
    fields = {"name": table.get("name", file.stem), "title": table["title"]}
    if not all(isinstance(text, str) for text in (*fields.values(), table["about"])):
        raise ValueError("name, title and about: expected texts")
    settings = {key: table[key] for key in ("environment", "stages_file") if key in table}
    texts = fill(fields, values, "the recipe")
    # A text that is only a placeholder becomes the value, which may be a number.
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("name and title: expected texts as their values")
    return Recipe(
        **texts,
        about=_join_lines(fill(table["about"], values, "the recipe")),
        file=file,
        stages=_parse_stages(table["stage"], values),
        **_parse_run_settings(**fill(settings, values, "the recipe")),
    )


@validate_call(config=ConfigDict(strict=True))
def _parse_run_settings(
    *, environment: dict[str, str] | None = None, stages_file: str = ""
) -> dict[str, Any]:
    return {
        "environment": environment or {},
        "stages_file": Path(stages_file) if stages_file else None,
    }


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
    samples: str = "",
    pairs: str = "",
    measures: dict[Literal["backbone", "method", "prm"], str] | None = None,
    minutes: Annotated[float, Field(ge=0)] = 0,
    work: Annotated[float, Field(ge=0)] = 0,
) -> RecipeStage:
    return RecipeStage(
        name=name,
        purpose=_join_lines(purpose),
        command=_join_lines(command),
        done_file=done_file,
        gpus=gpus,
        samples=samples,
        pairs=pairs,
        measures=MeasuredRow(**measures) if measures else None,
        minutes=minutes,
        work=work,
    )


def _join_lines(text: str) -> str:
    return " ".join(text.split())
