"""README: the sentence that names the project, its row, commands, tables and numbers."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from fsdpo_bench.tasks.table import builtin_tasks
from pages import blocks, run_blocks
from typer.testing import CliRunner

import fsdpo_data as fd
from fsdpo_data.cli.console import DESCRIPTION

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured"
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_WORDS = 1000


def read_table(header: str) -> list[list[str]]:
    """Return the cells of the table of README whose first line starts with a text."""
    table = README.partition(f"\n{header}")[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_readme_is_short() -> None:
    """Marks of tables do not count."""
    assert sum(bool(re.search(r"\w", word)) for word in README.split()) <= MAX_WORDS


def test_package_site_pages_and_help_say_the_same_sentence() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    overview = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert package["project"]["description"] == site["site_description"] == DESCRIPTION
    for page in (README, overview):
        assert one_line(page).startswith(f"# fsdpo {DESCRIPTION}")
    for program in ("fsdpo_data", "fsdpo_train", "fsdpo_bench"):
        app = import_module(f"{program}.cli.app").app
        assert DESCRIPTION in one_line(CliRunner().invoke(app, ["--help"]).output)


def test_the_row_of_the_readme_is_in_the_example_dataset() -> None:
    """Values are those of the row that the block above prints; an ellipsis leaves text out."""
    (index,) = re.findall(r"print\(solutions\[(\d+)\]\)", README)
    printed = README.partition("```text\n")[2].partition("```")[0]
    row = (
        fd.open_dataset(ROOT / "examples/gsm8k-qwen-0.5b")
        .solutions()
        .collect()
        .row(int(index), named=True)
    )
    cells = {
        name: ast.literal_eval(value) for name, value in re.findall(r"^(\w+) +(.+)$", printed, re.M)
    }
    assert cells.keys() == {
        "prompt",
        "completions",
        "answer",
        "outcome",
        "labels",
        "step_rewards",
    }
    for name in ("answer", "outcome", "labels"):
        assert cells[name] == row[name]
    assert cells["step_rewards"] == [round(reward, 2) for reward in row["step_rewards"]]
    texts = zip(cells["completions"], row["completions"], strict=True)
    for excerpt, text in [(cells["prompt"], row["prompt"]), *texts]:
        assert all(part.strip() in text for part in excerpt.split("…"))


@pytest.mark.proof
@pytest.mark.short_proof
def test_every_block_of_the_readme_runs(tmp_path: Path, shared: Path) -> None:
    """As printed, in a fresh directory, without the Hub; then in small, with a Hub of its own.

    The commands of the Hub come first on the page, and need the reward model of the others.
    """
    small = [block for block in blocks(README) if block.mode]
    local = [block for block in blocks(README) if not block.mode]
    assert run_blocks([*local, *small], tmp_path, shared / "data") == 3


def test_the_suites_of_the_readme_have_their_members() -> None:
    """Sizes are compared where README states them."""
    section = README.partition("\n## Benchmarks\n")[2].partition("\n## ")[0]
    suites = re.findall(r"^- `([\w-]+)`: (.+(?:\n  .+)*)", section, flags=re.M)
    assert len(suites) == 4
    for suite, text in suites:
        tasks = [task for task in builtin_tasks().values() if suite in task.suites]
        members = one_line(text)
        counts = re.findall(r"([\w-]+) \(([\d,]+)\)", members)
        if counts:
            assert counts == [(task.title, f"{task.count:,}") for task in tasks]
        else:
            names = {task.name for task in tasks}
            stems = {member.lower().replace("-", "_") for member in members.strip(".").split(", ")}
            assert all(any(stem in name for stem in stems) for name in names)
            assert all(any(stem in name for name in names) for stem in stems)


def test_the_example_of_the_grader_is_what_it_prints() -> None:
    command, gold, answer, printed = re.findall(
        r"\$ (fsdpo-data grade --explain) '(.+?)' '(.+?)'\n((?:.+\n)+?)```", README
    )[0]
    app = import_module("fsdpo_data.cli.app").app
    output = CliRunner().invoke(app, [*command.split()[1:], gold, answer]).output
    assert printed and all(line in output.splitlines() for line in printed.splitlines())


def test_the_graders_of_the_readme_have_the_recorded_verdicts() -> None:
    """The other graders' are in the results; ours is from before any correction from the rows."""
    results = (MEASURED / "harnesses.txt").read_text(encoding="utf-8")
    page = (ROOT / "docs/harnesses.md").read_text(encoding="utf-8")
    for grader, *counts in read_table("| grader |"):
        if grader.startswith("fsdpo"):
            row = re.search(
                r"^\| \**fsdpo[^|]*before.* 457 \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|",
                page,
                flags=re.M,
            )
        else:
            row = re.search(
                rf"^{re.escape(grader)} .* 457 +(\d+) +(\d+) +(\d+) +(\d+)$", results, flags=re.M
            )
        assert row and [*row.groups()] == counts, grader


def test_the_cost_of_a_reward_model_on_the_first_page_is_the_measured_one() -> None:
    page = one_line((ROOT / "docs/index.md").read_text(encoding="utf-8"))
    stages = (MEASURED / "real/cpu/stages.csv").read_text(encoding="utf-8")
    match = re.search(r"^prm-outcome,done,([\d.]+),\d*,(\d+),", stages, flags=re.M)
    assert match
    seconds, megabytes = map(float, match.groups())
    assert (
        f"1,199 solutions: {seconds / 60:.0f} minutes on two CPU cores with "
        f"{megabytes / 1000:.1f} GB"
    ) in page
