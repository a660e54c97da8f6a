"""Pages and help: links, commands that parse, blocks that run, and measured numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fsdpo_bench.tasks.table import Task
from pages import blocks, run_blocks
from parsed_options import parse_options, values_on_line
from typer.testing import CliRunner

from fsdpo_data.exchange.formats import step_label_formats

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROGRAMS = ("fsdpo-data", "fsdpo-train", "fsdpo-bench")
PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench")


def list_pages(nav: list[Any]) -> Iterator[Path]:
    """Yield the pages of the site in their order."""
    for entry in nav:
        for path in entry.values():
            yield from list_pages(path) if isinstance(path, list) else [DOCS / path]


SITE_PAGES = [
    page
    for page in list_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    if page != DOCS / "schema.md"  # the hooks make it of SCHEMA.md
]
PAGES = {page: page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *SITE_PAGES)}
#: The examples of the reference have placeholders; the how-to pages run such commands.
EXAMPLE_PAGES = {DOCS / "reference" / name for name in ("cli.md", "api.md")}
SITE_BLOCKS = [
    block for page in SITE_PAGES if page not in EXAMPLE_PAGES for block in blocks(PAGES[page])
]


def program_commands(program: str) -> dict[str, Any]:
    """Return the commands of a program by name."""
    app = import_module(f"{program.replace('-', '_')}.cli.app").app
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


COMMANDS = {program: program_commands(program) for program in PROGRAMS}


def parse_command(words: list[str]) -> Any:
    """Parse a command line without running it, and return its options."""
    program, name, *arguments = words
    if name == "--plugin":  # its names are not known here
        _, name, *arguments = arguments
        return values_on_line(COMMANDS[program][name], arguments)
    return parse_options(COMMANDS[program][name], arguments)


# Links


def test_every_page_is_on_the_site() -> None:
    assert sorted(SITE_PAGES) == sorted(DOCS.rglob("*.md"))


def list_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, by the rules of GitHub."""
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", without_blocks, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, link: str, anchor: str) -> bool:
    """Return whether the file of a link exists, and has the heading of its anchor."""
    target = (page.parent / link).resolve() if link else page
    return target.exists() and (not anchor or anchor in list_anchors(PAGES[target]))


def test_every_link_leads_somewhere() -> None:
    """In the repository, where pages are read as they are; ``make docs`` checks the site."""
    links = [
        (page, link, anchor)
        for page, text in PAGES.items()
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text)
        if link or anchor
    ]
    assert len(links) > 40 and sum(bool(anchor) for _, _, anchor in links) > 40
    assert not [link for link in links if not leads_somewhere(*link)]


def test_every_test_that_a_page_names_exists() -> None:
    """A cell of a table of what works is worth as much as its test."""
    files = [*(ROOT / "tests").rglob("*.py")]
    tests = {file.name for file in files}
    for file in files:
        tests |= set(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
    named_tests = {
        name for text in PAGES.values() for name in re.findall(r"`[\w/]*?\b(test_[\w.]+)`", text)
    }
    assert len(named_tests) > 20 and not named_tests - tests


def test_every_data_file_has_a_licence() -> None:
    """The page of licences names each file of data or weights, or a folder of it."""
    page = PAGES[DOCS / "reference/licences.md"]
    named_paths = re.findall(r"`([\w./-]+)`", page)
    folders = ("fsdpo_data", "fsdpo_train", "benchmarks", "cards", "examples", "tests")
    suffixes = (".csv", ".gz", ".jsonl", ".parquet", ".safetensors")
    files = [
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in suffixes
    ]
    assert len(files) > 20
    own_paths = [path for path in named_paths if path.startswith((*folders, "docs/", "licenses/"))]
    assert not [path for path in own_paths if not (ROOT / path).exists()]
    named_folders = tuple(path for path in own_paths if path.endswith("/"))
    assert not [
        file for file in files if file not in own_paths and not file.startswith(named_folders)
    ]


def test_the_tree_of_contributing_has_every_folder() -> None:
    tree = next(block for block in CONTRIBUTING.split("```") if block.startswith("\nfsdpo_data/"))
    folders = [folder for package in PACKAGES for folder in (ROOT / package).iterdir()]
    names = {folder.name for folder in folders if (folder / "__init__.py").exists()}
    named_folders = set(re.findall(r"^  ([a-z_]+)/ ", tree, flags=re.M))
    assert not {name for name in names if f"{name}/" not in tree}
    assert named_folders <= names | {folder.name for folder in (ROOT / "benchmarks").iterdir()}


def test_every_message_of_troubleshooting_exists() -> None:
    """Each message is code, and ``…`` stands for values; a value may start with a backquote."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    source_text = re.sub(r'"\s*\n\s*f?"', "", source)  # literals over several lines
    headings = re.findall(r"^### (.*)$", PAGES[DOCS / "troubleshooting.md"], flags=re.M)
    messages = re.findall(r"^### `(.*)`$", PAGES[DOCS / "troubleshooting.md"], flags=re.M)
    assert len(messages) == len(headings) > 20
    for message in messages:
        parts = [re.escape(part) for part in message.removeprefix("… ").split("…")]
        assert re.search(r"\{[^}]*\}".join(parts), source_text), message


def test_the_page_of_step_labels_has_every_format() -> None:
    rows = re.findall(r"^\| `([a-z]\S*)` \|", PAGES[DOCS / "howto/step-labels.md"], flags=re.M)
    assert sorted(rows) == sorted([*step_label_formats(), "fields"])


def test_the_page_of_own_benchmarks_has_every_key_of_a_task_file() -> None:
    text = PAGES[DOCS / "tutorials/own-benchmark.md"]
    tables = text.partition("| key | default | example |")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]*`) \|", tables, flags=re.M)
    keys = {key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)}
    set_by_code = {"row", "read", "make", "plain_rows", "notes"}
    assert keys == {field.name for field in fields(Task)} - set_by_code | {"note", "hook"}


# Commands and blocks


def test_every_command_on_a_page_parses() -> None:
    """Names, flags, their values and formats, also of commands that are not run."""
    n_lines = 0
    for page, text in PAGES.items():
        for block in blocks(text):
            for line in block.body.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True) if line.startswith(PROGRAMS) else []
                if ">" in words:
                    words = words[: words.index(">")]
                if not words or page.name in ("CONTRIBUTING.md", "CHANGELOG.md"):
                    continue
                parse_command(words)
                n_lines += 1
    assert n_lines > 50


def test_every_command_stands_in_a_block() -> None:
    """In a block of a language, which is run as printed unless a line says why not."""
    for page in SITE_PAGES:
        other_text = re.sub(r"```(bash|python)\n.*?```", "", PAGES[page], flags=re.S)
        assert not re.search(r"^(\$ )?(fsdpo-|python |pip |make )", other_text, flags=re.M), page


def test_readers_see_which_blocks_are_not_run() -> None:
    marks = r"<!--\s*(Not tested|Tested in)|^\*(Not tested here|Tested in small): [^\n]*\n(?!\n```)"
    assert not [page for page, text in PAGES.items() if re.search(marks, text, flags=re.M)]


@pytest.mark.proof
def test_every_block_runs_in_order(tmp_path: Path, shared: Path) -> None:
    """One page after the other in one directory: each goes on where the quick start ended."""
    assert run_blocks(SITE_BLOCKS, tmp_path, shared / "data") > 15


def example_lines(epilog: str) -> Iterator[list[str]]:
    """Yield the words of each command in the examples of a help."""
    code = "\n".join(re.findall(r"^    .*$", epilog, flags=re.M)).replace("\\\n", " ")
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] in PROGRAMS:
            yield words


@pytest.mark.parametrize(
    ("program", "name"),
    [(program, name) for program, commands in COMMANDS.items() for name in commands],
)
def test_help_shows_every_flag_and_an_example_that_parses(program: str, name: str) -> None:
    app = import_module(f"{program.replace('-', '_')}.cli.app").app
    help_text = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"}).output
    assert max(map(len, help_text.splitlines())) <= 80
    flags = set(re.findall(r"(?<![\w-])-{1,2}\w[\w-]*", help_text))
    command = COMMANDS[program][name]
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert {*parameter.opts, *parameter.secondary_opts} <= flags
    examples = command.epilog or ""
    assert command.hidden or f"{program} {name}" in examples
    for words in example_lines(examples):
        parse_command(words)


# Measured numbers

MEASURED = ROOT / "benchmarks" / "measured"
#: A paragraph, list or table, and before it the result files it rests on, or why none is kept.
#: ``test_study.py`` compares blocks of the study with its own files. ``test_real.py`` and
#: ``test_reasoneval.py`` compare tables of real models with theirs.
BLOCK = re.compile(r"<!-- (measured|not kept|study|real): ([^>]+) -->\n(.+?)(?=\n\s*\n|\Z)", re.S)
NUMBER = re.compile(r"(?<![\w.,^-])\d[\d,]*(?:\.\d+)?(?![\w^])")
#: Text that only measurements contain: "2.1 ×", "0.86 [0.81, 0.90]".
LOOKS_MEASURED = re.compile(r"\d ×(?! \d)|\d \[-?\d[\d.]*, ")
NUMBER_PAGES = [ROOT / "README.md", *SITE_PAGES]


def read_result(file: Path) -> tuple[str, str]:
    """Return the origin of a result file, and its output.

    The origin is the command that repeats the measurement, or the date of one that is finished.
    """
    first_line, _, printed = file.read_text(encoding="utf-8").partition("\n")
    if first_line.startswith("# "):
        return first_line.removeprefix("# ").partition(":")[0], f"{first_line}\n{printed}"
    return first_line.removeprefix("$ "), printed


RESULTS = {file.stem: read_result(file) for file in sorted(MEASURED.glob("*.txt"))}
BY_COMMAND = {command: name for name, (command, _) in RESULTS.items()}


def last_cell(line: str) -> str:
    return line.strip("| ").split(" | ")[-1].strip("`")


def list_statements() -> Iterator[tuple[Path, str, list[str]]]:
    """Yield each page with a statement and the names of its result files."""
    for page in NUMBER_PAGES:
        for kind, names, block in BLOCK.findall(PAGES[page]):
            if kind == "measured":
                yield page, block, names.split(", ")
        for line in PAGES[page].splitlines():
            cells = line.strip("| ").split(" | ")
            if len(cells) == 3 and last_cell(line) in BY_COMMAND:
                yield page, f"{cells[0]} {cells[1]}", [BY_COMMAND[last_cell(line)]]


STATEMENTS = list(list_statements())


def list_numbers(text: str) -> list[str]:
    bare_text = text.replace("```", " ")  # a block of output has numbers to check
    bare_text = re.sub(r"`[^`]*`|\]\([^)]*\)|(?<=\d)x\b", " ", bare_text)  # 1.30x is a number too
    return [number.rstrip(",") for number in NUMBER.findall(bare_text)]


def number_values(text: str) -> set[float]:
    return {float(number.replace(",", "")) for number in list_numbers(text)}


def is_rounded(number: str, values: set[float]) -> bool:
    """Return whether a value rounds to the number, also as a percentage, an inverse or in GB."""
    digits = len(number.partition(".")[2])
    value = float(number.replace(",", ""))
    tolerance = 0.5001 * 10.0**-digits
    forms = (form for v in values for form in (v, 100 * v, v / 1000, 1 / v if v else v))
    return any(abs(form - value) <= tolerance for form in forms)


@pytest.mark.parametrize(
    ("page", "block", "names"),
    STATEMENTS,
    ids=[f"{page.stem}-{names[0]}" for page, _, names in STATEMENTS],
)
def test_a_page_states_printed_numbers(page: Path, block: str, names: list[str]) -> None:
    values = number_values("\n".join(RESULTS[name][1] for name in names))
    for name in names:  # settings of the script, in addition to its output
        for script in re.findall(r"benchmarks/[\w/]+\.py", RESULTS[name][0]):
            values |= number_values((ROOT / script).read_text(encoding="utf-8"))
    wrong = [number for number in list_numbers(block) if not is_rounded(number, values)]
    assert not wrong, f"{page.name}: {wrong} are not in {names}"


def test_every_result_is_on_a_page_with_its_command_or_date() -> None:
    assert {name for _, _, names in STATEMENTS for name in names} == set(RESULTS)
    for name, (origin, _) in RESULTS.items():
        pages = {page for page, _, names in STATEMENTS if name in names}
        is_date = re.fullmatch(r"\d+ \w+ \d{4}", origin)
        text = "".join(PAGES[page] for page in (pages if is_date else NUMBER_PAGES))
        assert origin in text, name


def test_every_measured_number_has_a_result_or_a_reason() -> None:
    """The numbers of the study have a stricter test of their own, ``test_study.py``."""
    for page in NUMBER_PAGES:
        text = "" if page.name.startswith("study") else BLOCK.sub("", PAGES[page])
        for line in text.splitlines():
            if last_cell(line) not in BY_COMMAND:
                assert not LOOKS_MEASURED.search(line), f"{page.name}: {line[:90]}"
