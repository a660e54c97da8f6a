"""Templates of recipes: named values, conditions and grids in the tables of a recipe file.

``docs/howto/recipes.md`` describes the format.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fsdpo_data.core.errors import suggest_names

Table = Mapping[str, Any]
MAX_COMBINATIONS = 10_000  #: Maximum number of combinations of a grid.

#: A placeholder ``{name}``, or ``{{name}}`` for the text ``{name}``.
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")


class TemplateError(ValueError):
    """A recipe file has a placeholder or a grid that cannot be expanded."""


def expand_stages(stages: list[dict[str, Any]], values: Table) -> Iterator[dict[str, Any]]:
    """Yield the tables of the stages, without grids, conditions, groups and placeholders.

    Raises:
        TemplateError: if a placeholder or a condition has no value.
    """
    for stage in stages:
        owner = f"stage {stage['name']!r}" if "name" in stage else "a group of stages"
        fields = {key: stage[key] for key in stage if key not in ("for", "when")}
        for stage_values in expand_grid(stage, values, owner):
            if "stage" in stage:
                yield from expand_stages(stage["stage"], stage_values)
            else:
                yield fill(fields, stage_values, owner)


def expand_grid(table: Table, values: Table, owner: str) -> Iterator[Table]:
    """Yield the values for each combination of rows in ``for`` that satisfies all ``when``.

    Args:
        table: A stage, a group of stages or a recipe file.
        values: Values around the table, which rows override.
        owner: Name of the table for errors.

    Raises:
        TemplateError: if a condition has no value.
    """
    combinations = [values]
    for axis, rows in table.get("for", {}).items():
        if not isinstance(rows, list):
            raise TemplateError(f"{owner}: `for.{axis}` is {rows!r}: expected a list of rows.")
        combinations = [
            extended_values
            for combination in combinations
            for row in rows
            for extended_values in _add_row(axis, row, combination, owner)
        ]
        if len(combinations) > MAX_COMBINATIONS:
            raise TemplateError(
                f"{owner}: `for` has more than {MAX_COMBINATIONS:,} combinations. Split the recipe."
            )
    for combination in combinations:
        if _is_selected(table, combination, owner):
            yield combination


def _add_row(axis: str, row: Any, values: Table, owner: str) -> list[Table]:
    """Return the values, with the values of a row; an empty list if a condition does not hold."""
    if not isinstance(row, dict):
        return [{**values, axis: row}]
    extended_values = {**values, **row}
    return [extended_values] if _is_selected(row, extended_values, owner) else []


def _is_selected(table: Table, values: Table, owner: str) -> bool:
    """Tell whether the values satisfy the conditions in ``when``."""
    conditions = table.get("when", {})
    return all(_value(name, values, owner) in conditions[name] for name in conditions)


def fill(template: Any, values: Table, owner: str) -> Any:
    """Replace the placeholders in nested tables, lists and strings.

    A placeholder that is a complete string takes the value of any type.

    Args:
        template: A table, a list or a string; other values have no placeholders.
        values: Values by name, which may have placeholders too.
        owner: Name of the surrounding table for errors.

    Raises:
        TemplateError: if a placeholder has no value, or its value does not fit into a text.
    """
    if isinstance(template, dict):
        return {key: fill(item, values, owner) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, values, owner) for item in template]
    if not isinstance(template, str):
        return template
    complete_match = _PLACEHOLDER.fullmatch(template)
    if complete_match and complete_match["name"]:
        return _value(complete_match["name"], values, owner)
    return _PLACEHOLDER.sub(lambda match: _replacement(match, values, owner), template)


def _replacement(match: re.Match[str], values: Table, owner: str) -> str:
    if match["literal"]:
        return f"{{{match['literal']}}}"
    value = _value(match["name"], values, owner)
    if isinstance(value, bool | list | dict):
        raise TemplateError(
            f"{owner}: the placeholder {match[0]} is in a text, but its value is {value!r}. "
            "Expected a text or a number."
        )
    return str(value)


def _value(name: str, values: Table, owner: str) -> Any:
    """Return the value of a placeholder, with its own placeholders replaced."""
    # A value cannot refer to itself, so its own name is unknown within it.
    other_values = {key: value for key, value in values.items() if key != name}
    if name not in values:
        raise TemplateError(
            f"{owner}: the placeholder {{{name}}} has no value.{suggest_names(name, values)} "
            f"Define `{name}` in `values` or `for`, or write {{{{{name}}}}} for the text."
        )
    return fill(values[name], other_values, owner)
