"""Tables of rows in TOML files, each stored next to the Python module that uses it."""

import re
from collections import UserDict
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.input_files import read_toml_file

Row = TypeVar("Row")


def read_toml(module: str | Path) -> dict[str, Any]:
    """Read the TOML file with the path of a module and the suffix ``.toml``."""
    return read_toml_file(Path(module).with_suffix(".toml"))


def compile_patterns(patterns: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Compile regular expressions by name; the lines of a pattern are stripped and joined."""
    patterns_by_name = {}
    for name, text in patterns.items():
        pattern = "".join(line.strip() for line in text.splitlines())
        patterns_by_name[name] = re.compile(pattern)
    return patterns_by_name


def fill_placeholders(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace every string ``{name}`` in nested lists and dicts by the value of ``name``.

    A placeholder is a complete string, so its value may have any type.
    """
    if isinstance(template, str):
        return values[template.strip("{}")] if template.startswith("{") else template
    if isinstance(template, list):
        return [fill_placeholders(item, values) for item in template]
    if isinstance(template, dict):
        return {name: fill_placeholders(item, values) for name, item in template.items()}
    return template


class TomlTable(UserDict[str, Row]):
    """Rows by name, in the order of their TOML file; the first access reads the file."""

    def __init__(self, module: str, make_row: Callable[..., Row]) -> None:
        """Set up the table without reading its file.

        Args:
            module: Path of the module next to the TOML file, usually ``__file__``.
            make_row: Makes a row from its name (positional) and its fields (keywords).
        """
        self._module = module
        self._make_row = make_row

    @cached_property
    def data(self) -> dict[str, Row]:  # type: ignore[override]
        """The rows; all dictionary methods use them."""
        return {
            name: self._make_row(name, **fields) for name, fields in read_toml(self._module).items()
        }
