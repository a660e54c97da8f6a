"""The README shows the tree and the commands as they are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_file_in_the_tree_exists() -> None:
    tree = README.split("```")[3]
    folder, seen = "", 0
    for line in filter(None, tree.splitlines()):
        if not line.startswith(" "):
            folder = line.split()[0]
            names = [folder]
        else:
            column = re.split(r"\s{2,}", line.strip())[0]
            names = [folder + name for name in column.split()]
        for name in names:
            assert (ROOT / name).exists(), f"README's tree shows {name}"
            seen += 1
    assert seen > 20


def test_every_module_of_the_ground_floor_is_in_the_tree() -> None:
    for path in sorted((ROOT / "fsdpo_data").glob("*.py")):
        assert path.name in README or path.stem.startswith("__"), f"{path.name}: not in the README"


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.M))
    assert {"demo", "test"} <= named <= targets
