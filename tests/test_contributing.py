"""CONTRIBUTING.md: its places and commands exist, its examples run, and one place is enough."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import run
from helpers import stage_options
from paired_data import paired_dataset

from fsdpo_data.api import open_dataset
from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.steps.rewards import AGGREGATES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: The cells of the table: thing, registration, entry to copy, test.
ROWS = [
    line.strip("| ").split(" | ")
    for line in TEXT.partition("| to add |")[2].partition("\n\n")[0].splitlines()[2:]
]
PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench")


def read_sources(path: Path) -> str:
    """Return the text of a file, or the names and texts of the files of a folder."""
    if path.is_file():
        return path.read_text(encoding="utf-8")
    files = [file for suffix in ("py", "toml") for file in path.rglob(f"*.{suffix}")]
    return "\n".join(f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in files)


SOURCES = "\n".join(read_sources(ROOT / package) for package in PACKAGES)


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0])
def test_a_row_names_a_place_an_entry_to_copy_and_a_test(cells: list[str]) -> None:
    _, registration, entry, test = cells
    names = re.findall(r"`([^` ]+)`", " ".join((registration, entry, test)))
    paths = [ROOT / name for name in names if "/" in name or name.endswith(".yml")]
    assert not [path for path in paths if not path.exists()]
    assert "tests" in test
    registration_paths = [ROOT / name for name in re.findall(r"`([^` ]+/[^` ]*)`", registration)]
    assert registration_paths
    text = "\n".join(map(read_sources, [*registration_paths, ROOT / "examples/plugin"]))
    for name in re.findall(r"`([^`]+)`", entry):
        assert "/" in name or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), name
    for registry in re.findall(r"`([A-Z_]{4,})`", registration):
        assert re.search(rf"^{registry}\b.* = ", SOURCES, flags=re.M) or registry == "MADE_UP"


def test_the_page_takes_ten_minutes() -> None:
    assert len(ROWS) > 25 and len(TEXT.splitlines()) <= 250


def test_the_commands_of_the_checks_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.M))
    named_targets = {
        target
        for words in re.findall(r"(?:`|^)make ([a-z -]+)", TEXT, flags=re.M)
        for target in words.split()
    }
    assert len(named_targets) > 5 and not named_targets - targets
    files = re.findall(r"`[^`]*?(\.ci/run|tests/[\w/]+(?:\.py)?)`", TEXT)
    assert len(files) > 20 and not [file for file in files if not (ROOT / file).exists()]


def example(first_line: str) -> str:
    """Return the block of the page that starts with a comment."""
    [block] = re.findall(rf"^```\w+\n# {re.escape(first_line)}\n(.*?)^```$", TEXT, re.S | re.M)
    return str(block)


@pytest.fixture(scope="module")
def paired_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with rewards and pairs."""
    return paired_dataset(tmp_path_factory.mktemp("paired"))


def test_the_example_of_an_entry(
    paired_data: Path,
    tmp_path: Path,
    empty_plugins: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(AGGREGATES, "data", dict(AGGREGATES.data))
    (tmp_path / "my_aggregates.py").write_text(example("my_aggregates.py"))
    plugin = ("--plugin", str(tmp_path / "my_aggregates.py"))
    out = tmp_path / "new"
    code, _, err = run(
        capsys, *plugin, "pair", str(paired_data), "--aggregate", "median", "--out", str(out)
    )
    assert code == 0, err
    manifest = json.loads((out / "manifest.json").read_text())
    assert stage_options(manifest, "pair")["aggregate"] == "median"
    assert "my_aggregates" in [plugin["module"] for plugin in manifest["plugins"]]


def test_the_example_of_a_row(
    paired_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(name, parts)] = tomllib.loads(example("fsdpo_data/exchange/formats.toml")).items()
    monkeypatch.setitem(FORMATS, name, FORMATS._make_row(name, **parts))
    folder = tmp_path / "plain"
    open_dataset(paired_data).export(name, folder)
    rows = [json.loads(line) for line in (folder / "plain.jsonl").read_text().splitlines()]
    assert len(rows) == 12 and {*rows[0]} == {"question", "good", "bad"}
    assert "20 + 22 = 42" in rows[0]["good"] and "is: 43" in rows[0]["bad"] + rows[1]["bad"]


def test_the_key_of_the_questions_to_the_tree_names_files() -> None:
    text = (ROOT / "tests/data/tree_questions.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/]+\.(?:py|toml))`", text.partition("## Key")[2])
    assert len(names) > 15 and not [name for name in names if not (ROOT / name).exists()]


# Additions to a copy of the source, in one process that imports the copy


def copy_with_additions(copy: Path) -> None:
    """Copy the package, and apply the blocks of ``tests/data/additions.md``."""
    for folder in ("fsdpo_data", "cards/fsdpo_cards"):
        shutil.copytree(ROOT / folder, copy / folder)  # bytecode too, which is slow to make
    (copy / "tests/data").mkdir(parents=True)
    shutil.copy(ROOT / "tests/data/grader_cases.jsonl", copy / "tests/data")
    text = (ROOT / "tests/data/additions.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n# ([^\n]+)\n(.*?)^```$", text, flags=re.S | re.M)
    assert len(blocks) >= 20
    for registration, content in blocks:
        name, separator, line = re.split(
            "(, at its end|, after |, instead of |$)", registration, maxsplit=1
        )
        file = copy / name.removeprefix("new file: ")
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        if line:
            line = line.strip("`") + "\n"
            assert old.count(f"\n{line}") == 1, f"{name} has the line {line} once"
            kept_line = line if separator == ", after " else ""
            file.write_text(old.replace(f"\n{line}", f"\n{kept_line}{content}"))
        else:
            assert bool(old) == bool(separator)
            file.write_text(f"{old}\n{content}", encoding="utf-8")


#: Uses all additions.
USES = """
import json
import sys
from pathlib import Path

import fsdpo_data
from fsdpo_data.answers.grader import grade_response
from fsdpo_data.answers.parsing.read import read_answer
from fsdpo_data.cli.app import main
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.engines.answer_judge_formats import ANSWER_JUDGE_FORMATS, JudgeQuestion
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.exchange.formats import FORMATS, find_response_format, get_step_label_format
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import MODELS
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.problems.hub_datasets import DATASETS
from helpers import small_build, stage_options

assert Path(fsdpo_data.__file__).is_relative_to(Path.cwd()), "the copy is imported"
assert get_template("plain-question").render("2+2?") == "Q: 2+2?\\nA:"
assert find_thinking("", "<ponder>a</ponder>b").end == len("<ponder>a</ponder>")
assert MODELS["my-model"].template == "plain-question@1"
assert PRM_FORMATS["my-prm"].step_token == " §" and PRM_FORMATS["my-prm"].head == "vocabulary"
assert DATASETS["my-problems"].repo == "my-org/my-problems"

lines = Path("tests/data/grader_cases.jsonl").read_text().splitlines()[-3:]
cases = [json.loads(line) for line in lines if line]
assert [case["gold"] for case in cases] == ["5:30", "square"]
for case in cases:
    gold = read_answer(case["gold"])
    # A time and a word are kinds that cannot be compared.
    other_status = "incorrect" if case["gold"] == "5:30" else "undecided"
    for answer, status in ((case["answer"], "correct"), ("half past 6", other_status)):
        assert grade_response(gold, f"The answer is {answer}.").status == status, answer
for gold, response in (("7", "Jibu ni 7."), ("yes", "Jibu: ndiyo")):
    assert grade_response(read_answer(gold), response).status == "correct", response

question = JudgeQuestion(question="2 + 2?", gold="4", answer="four", response="It is four.")
judge_format = ANSWER_JUDGE_FORMATS["one-word"]
assert "Answer: four" in judge_format.render(question)
assert judge_format.read_reply("", "Yes.", "stop") == "correct"

row = {"task": "2+2?", "lines": ["a", "b"], "marks": [1, 0]}
[solution] = get_step_label_format("my-labels").read_responses(SourceRow(1, row))
assert solution.completion.imported_labels == (1, 0), solution
assert find_response_format({"task_text": "2+2?", "tries": ["4"], "key": "4"}) is FORMATS["my-tool"]

Path("rows.jsonl").write_text(json.dumps(row) + "\\n")
small_build(Path("built"))
for line in (
    "import rows.jsonl --from my-labels --out labels.jsonl",
    "steps built --digits 2",
    "steps --help",
    "build --help",
    "validate built",
    "inspect built --columns",
    "inspect built",
    "view built --out page.html",
    "grade built --out graded",
):
    sys.argv = ["fsdpo-data", *line.split()]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, line
for path in ("built", "graded"):
    solutions = fsdpo_data.open_dataset(path).solutions().collect()
    texts = ["".join(steps) for steps in solutions["completions"]]
    assert solutions["n_characters"].to_list() == [len(text) for text in texts]
"""


def test_an_addition_needs_no_line_elsewhere(tmp_path: Path) -> None:
    """Commands, defaults, columns and the rows of all tables, in one process."""
    copy_with_additions(tmp_path)
    paths = (tmp_path, tmp_path / "cards", ROOT / "tests/support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "COLUMNS": "200"}
    ran = subprocess.run(
        [sys.executable, "-c", USES], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout
    imported = json.loads((tmp_path / "labels.jsonl").read_text().splitlines()[0])
    assert imported["completions"] == ["a\n", "b"] and imported["labels"] == [1, 0]
    assert re.search(r"^incorrect: \d\.\d\d$", printed, flags=re.M)
    assert "fsdpo-data steps runs/demo --digits 2" in printed
    assert re.findall(r"--samples N .*?default: (\d+)\]", printed, flags=re.S)[0] == "24"
    assert re.search(r"n_characters +int32 +0 +Characters of", printed)
    assert re.search(r"n_characters \d+", printed)
    assert '"n_characters":"' in (tmp_path / "page.html").read_text()
