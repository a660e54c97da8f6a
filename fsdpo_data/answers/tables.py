"""The tables of the grader: TOML files, each stored next to the Python module that uses it."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_module_table(module: str | Path) -> dict[str, Any]:
    """Read the TOML file with the path of a module and the suffix ``.toml``."""
    with Path(module).with_suffix(".toml").open("rb") as file:
        return tomllib.load(file)


def compile_patterns(patterns: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Compile regular expressions by name; the lines of a pattern are stripped and joined."""
    patterns_by_name = {}
    for name, text in patterns.items():
        pattern = "".join(line.strip() for line in text.splitlines())
        patterns_by_name[name] = re.compile(pattern)
    return patterns_by_name
