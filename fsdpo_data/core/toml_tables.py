"""Tables that are data: TOML files beside the modules that give their rows a meaning."""

import re
import tomllib
from collections import UserDict
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

Row = TypeVar("Row")


def read_toml(module: str | Path) -> dict[str, Any]:
    """Return what the TOML file beside a module says, or one of another name beside it."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))


def compile_patterns(told: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Compile the patterns of a table; the lines of one are joined without the spaces around."""
    joined = {name: "".join(map(str.strip, said.splitlines())) for name, said in told.items()}
    return {name: re.compile(pattern) for name, pattern in joined.items()}


def fill_placeholders(told: Any, values: Mapping[str, Any]) -> Any:
    """Return what a table says, with the values of ``{name}`` in place of such texts."""
    if isinstance(told, str):
        return values[told.strip("{}")] if told.startswith("{") else told
    if isinstance(told, list):
        return [fill_placeholders(each, values) for each in told]
    if isinstance(told, dict):
        return {name: fill_placeholders(each, values) for name, each in told.items()}
    return told


class TomlTable(UserDict[str, Row]):
    """Rows by name, in the order of their file, which is read when the first is asked for.

    ``row`` makes a row of its name and its fields.
    """

    def __init__(self, module: str, row: Callable[..., Row]) -> None:
        self._module, self._row = module, row

    @cached_property
    def data(self) -> dict[str, Row]:  # type: ignore[override]
        """The rows; every method of a dictionary works on them."""
        return {name: self._row(name, **told) for name, told in read_toml(self._module).items()}
