"""The measured demo: the order of its rows with each seed, and the tables of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_CELL = r"(\d\S+ \[[^]]+\])"
ROW = re.compile(rf"^(\w+\S*) .*?  {_CELL} +{_CELL} +([+-]\S+ \[[^]]+\])$", re.M)
COMMANDS = ("fsdpo-data demo", "fsdpo-data demo --seed 1", "fsdpo-data demo --seed 2")
#: The rows of the page, in its order.
NAMES = ("greedy", "avg@8", "sc@8", "likely@8", "bon@8:min", "weighted@8:min", "pass@8")


def read_tables() -> dict[str, dict[str, tuple[str, str, str]]]:
    """Return the cells (before, after, difference) by command and name of the choice."""
    text = (ROOT / "benchmarks/measured/demo.txt").read_text(encoding="utf-8")
    tables = {}
    for block in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = block.partition("\n")
        tables[command] = {name: (a, b, change) for name, a, b, change in ROW.findall(output)}
    return tables


TABLES = read_tables()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_stage_has_a_visible_effect(command: str) -> None:
    table = TABLES[command]
    for run in (0, 1):
        average, vote, best, weighted = (
            float(table[name][run].split()[0])
            for name in ("avg@8", "sc@8", "bon@8:min", "weighted@8:min")
        )
        assert average < vote < best < weighted
    for name in ("greedy", "avg@8"):
        low = float(re.findall(r"\[([+-][\d.]+)", table[name][2])[0])
        assert low > 0


def interval(cell: str) -> tuple[float, float, float]:
    """Return the accuracy of a cell, and the bounds of its interval."""
    accuracy, low, high = (float(number) for number in re.findall(r"[\d.]+", cell))
    return accuracy, low, high


def test_the_page_names_the_seeds_whose_best_of_8_is_above_the_interval_of_the_vote() -> None:
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    for seed, command in enumerate(COMMANDS):
        vote, low, high = interval(TABLES[command]["sc@8"][1])
        best, best_low, best_high = interval(TABLES[command]["bon@8:min"][1])
        assert (low <= best <= high and best_low <= vote <= best_high) == (seed in (0, 1))
    assert "After training with seeds 0 and 1, the vote and the best of 8 are within" in page


#: The rows of README: the name of a choice without its aggregate, and the measured name.
README_NAMES = {
    "greedy": "greedy",
    "avg@8": "avg@8",
    "sc@8": "sc@8",
    "likely@8": "likely@8",
    "bon@8": "bon@8:min",
    "weighted@8": "weighted@8:min",
}


def test_the_table_of_the_readme_is_the_measured_one() -> None:
    """Cells before and after training with seed 0, and the difference if there is a column.

    The table follows the mark of this measurement. Each row names its choice in backquotes, with or
    without the aggregate.
    """
    seed_0 = TABLES[COMMANDS[0]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("<!-- measured: demo -->\n|")[2].partition("\n\n")[0]
    names = []
    for line in table.splitlines()[2:]:
        choice, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        (name,) = re.findall(r"`([^`:]+)(?::min)?`", choice)
        names.append(name)
        assert len(cells) >= 2 and cells == [*seed_0[README_NAMES[name]]][: len(cells)], name
    assert sorted(names) == sorted(README_NAMES)


def test_the_tables_of_the_page_are_the_measured_ones() -> None:
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    seed_0, seed_1, seed_2 = (TABLES[command] for command in COMMANDS)
    page_rows = re.findall(r"^\|.*\(`(.+?)`\) \| (.+) \|$", page, flags=re.M)
    assert page_rows == [(name, " | ".join(seed_0[name])) for name in NAMES]
    for seed, table in enumerate((seed_1, seed_2), 1):
        cells = (" → ".join(cell.split()[0] for cell in table[name][:2]) for name in NAMES)
        assert f"| seed {seed} | {' | '.join(cells)} |" in page
