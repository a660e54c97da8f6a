"""Measured numbers on pages agree with the result files, which the pages' commands print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: A paragraph, list or table, and before it the result files it rests on, or why none is kept.
#: ``test_study.py`` compares blocks of the study with its own files.
BLOCK = re.compile(r"<!-- (measured|not kept|study): ([^>]+) -->\n(.+?)(?=\n\s*\n|\Z)", re.S)
NUMBER = re.compile(r"(?<![\w.,^-])\d[\d,]*(?:\.\d+)?(?![\w^])")
#: Text that only measurements contain: "2.1 ×", "0.86 [0.81, 0.90]".
LOOKS_MEASURED = re.compile(r"\d ×(?! \d)|\d \[-?\d[\d.]*, ")


def result(name: str) -> tuple[str, str]:
    """Return the command of a result file, and its output."""
    command, _, printed = (MEASURED / f"{name}.txt").read_text(encoding="utf-8").partition("\n")
    return command.removeprefix("$ "), printed


RESULTS = {file.stem: result(file.stem) for file in sorted(MEASURED.glob("*.txt"))}
BY_COMMAND = {command: name for name, (command, _) in RESULTS.items()}


def list_statements() -> Iterator[tuple[Path, str, list[str]]]:
    """Yield each page with a statement and the names of its result files."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for kind, names, block in BLOCK.findall(text):
            if kind == "measured":
                yield page, block, names.split(", ")
        for line in text.splitlines():
            cells = line.strip("| ").split(" | ")
            command = cells[-1].strip("`")
            if len(cells) == 3 and command in BY_COMMAND:
                yield page, f"{cells[0]} {cells[1]}", [BY_COMMAND[command]]


STATED = list(list_statements())


def numbers(text: str) -> list[str]:
    bare = re.sub(r"`[^`]*`|\]\([^)]*\)|(?<=\d)x\b", " ", text)  # 1.30x is a number too
    return [number.rstrip(",") for number in NUMBER.findall(bare)]


def is_of(number: str, values: set[float]) -> bool:
    """Return whether a value rounds to the number, also as a percentage, an inverse or in GB."""
    digits = len(number.partition(".")[2])
    value = float(number.replace(",", ""))
    tolerance = 0.5001 * 10.0**-digits
    forms = (form for v in values for form in (v, 100 * v, v / 1000, 1 / v if v else v))
    return any(abs(form - value) <= tolerance for form in forms)


@pytest.mark.parametrize(
    ("page", "block", "names"), STATED, ids=[f"{page.stem}-{names[0]}" for page, _, names in STATED]
)
def test_a_page_states_what_was_printed(page: Path, block: str, names: list[str]) -> None:
    text = "\n".join(RESULTS[name][1] for name in names)
    values = {float(number.replace(",", "")) for number in numbers(text)}
    for name in names:  # settings of the script, in addition to its output
        for script in re.findall(r"benchmarks/[\w/]+\.py", RESULTS[name][0]):
            source = (ROOT / script).read_text(encoding="utf-8")
            values |= {float(number.replace(",", "")) for number in numbers(source)}
    wrong = [number for number in numbers(block) if not is_of(number, values)]
    assert not wrong, f"{page.name}: {wrong} are not in {names}"


def test_every_result_is_on_a_page_with_its_command() -> None:
    used = {name for _, _, names in STATED for name in names}
    assert used == set(RESULTS)
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(command in text for command in BY_COMMAND)


def test_what_looks_measured_has_a_result_or_says_why_not() -> None:
    """The study's numbers have a stricter test of their own, ``test_study.py``."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name == "study.md":
            continue
        for line in BLOCK.sub("", text).splitlines():
            command = line.strip("| ").split(" | ")[-1].strip("`")
            if command not in BY_COMMAND:
                assert not LOOKS_MEASURED.search(line), f"{page.name}: {line[:90]}"


def test_a_number_that_was_not_printed_is_found() -> None:
    values = {0.9716, 1141.3, 63.2}
    assert all(is_of(number, values) for number in ("0.97", "97.2", "1.1", "63"))
    assert not any(is_of(number, values) for number in ("0.98", "62", "1,142"))


def test_the_evidence_of_the_readme_has_the_numbers_of_its_rows() -> None:
    """Each cell is in the row of its model and benchmark, and not only somewhere in the file."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w.-][^|,]*), (MATH-500|GSM8K) \|(.*)\|$", readme, flags=re.M)
    assert len(rows) > 2
    for model, benchmark, cells in rows:
        section = RESULTS["evidence"][1].partition(f"== {benchmark}:")[2].partition("\n== ")[0]
        average = re.search(r"an average sample: ([\d.]+)", section)
        vote = re.search(r"^vote .* ([\d.]+) \[[^]]*\]$", section, flags=re.M)
        choice = re.search(
            rf"^{re.escape(model)} +32 +([\d.]+) \[[^]]*\] +(\S+ \[[^]]*\])", section, flags=re.M
        )
        assert average and vote and choice
        values = [cell.strip() for cell in cells.split("|")]
        assert values == ["–", average[1], vote[1], "–", f"{choice[1]} ({choice[2]})"]


def test_the_readme_counts_the_formats_of_reward_models() -> None:
    n_formats = sum(not entry.unsupported_reason for entry in PRM_FORMATS.values())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{n_formats} formats](docs/prms.md)" in readme


def test_first_runs_of_the_grader_add_up() -> None:
    """The counts of outcomes of a set are all of its pairs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(
        r"first run on (\d+) pairs .*?(\d+) right, (\d+) wrongly accepted, (\d+) wrongly rejected, "
        r"(\d+) undecided\. Math-Verify: (\d+), (\d+), (\d+), (\d+)\.",
        re.sub(r"\s+", " ", readme),
    )
    assert match
    n_pairs, *counts = map(int, match.groups())
    assert sum(counts[:4]) == sum(counts[4:]) == n_pairs
