"""Every package that the source imports is declared in ``pyproject.toml``."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"fsdpo_data", "fsdpo_train", "fsdpo_bench", "fsdpo_cards"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES: list[str] = PROJECT["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def plain(requirement: str) -> str:
    """Return the name of a distribution as registries compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def for_types_only(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported_packages(folder: Path) -> dict[str, str]:
    """Return the packages that files import, each with a file that does."""
    files_by_package = {}
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in filter(for_types_only, list(ast.walk(tree))):
            node.body = []
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            files_by_package |= {
                name.partition(".")[0]: str(file.relative_to(ROOT)) for name in names
            }
    return files_by_package


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("fsdpo_data", {"train", "vllm", "ray"}),
        ("fsdpo_train", {"train", "lora", "qlora", "deepspeed"}),
        ("benchmarks/fsdpo_bench", {"train"}),
        ("cards/fsdpo_cards", set()),
    ],
)
def test_what_is_imported_is_declared(folder: str, extras: set[str]) -> None:
    requirements = [
        *DEPENDENCIES,
        *(requirement for extra in extras for requirement in EXTRAS[extra]),
    ]
    declared, shipped_by = (
        {plain(requirement) for requirement in requirements},
        packages_distributions(),
    )
    for name, file in imported_packages(ROOT / folder).items():
        if name in OURS or name in sys.stdlib_module_names:
            continue
        distributions = {plain(requirement) for requirement in shipped_by.get(name, [name])}
        assert distributions & declared, (
            f"{file} imports {name}, of {' or '.join(sorted(distributions))}: not declared"
        )
