"""The README shows the tree and the commands as they are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


TREES = [
    block for block in README.split("```") if re.match(r"\n(fsdpo_data|benchmarks|cards)/", block)
]


def test_every_file_in_the_trees_exists() -> None:
    seen = 0
    for line in filter(None, "".join(TREES).splitlines()):
        if not line.startswith(" "):
            folder = line.split()[0]
            names = [folder]
        else:
            column = re.split(r"\s{2,}", line.strip())[0]
            names = [folder + name for name in column.split()]
        for name in names:
            assert (ROOT / name).exists(), f"README's tree shows {name}"
            seen += 1
    assert len(TREES) == 2 and seen > 60


def test_every_module_is_in_a_tree() -> None:
    for folder in ("fsdpo_data", "fsdpo_train"):
        for path in sorted((ROOT / folder).glob("*.py")):
            if not path.stem.startswith("__"):
                assert path.name in TREES[1], f"{path}: name it in README, Where things are"


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.M))
    assert {"demo", "test"} <= named <= targets
