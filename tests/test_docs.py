"""The site shows commands, messages and tests as they are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pages import Block, blocks, run_blocks

from fsdpo_data.cli.commands.exchange import FIELDS, OUTPUTS
from fsdpo_data.engines.registry import SCORERS
from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.exchange.step_label_readers import STEP_LABEL_READERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def list_pages(nav: list[Any]) -> Iterator[Path]:
    """Yield the pages of the site in their order."""
    for entry in nav:
        for path in entry.values():
            yield from list_pages(path) if isinstance(path, list) else [DOCS / path]


CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = list(list_pages(CONFIG["nav"]))
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def name(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


def test_the_site_follows_the_colours_of_the_system() -> None:
    """Without this entry, the site keeps the scheme of a reader's first visit."""
    palette = CONFIG["theme"]["palette"]
    assert palette[0]["media"] == "(prefers-color-scheme)"
    assert all("toggle" in entry for entry in palette)


def test_every_page_is_on_the_site() -> None:
    assert sorted(PAGES) == sorted(DOCS.rglob("*.md"))


def test_every_link_leads_somewhere() -> None:
    """In the repository, where pages are read as they are; ``make docs`` checks the site."""
    seen = 0
    for page in (*ROOT.glob("*.md"), *PAGES):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page}: {link}"
            seen += 1
    assert seen > 40


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_parses(page: Path) -> None:
    """Names, flags, what each of them takes, and formats; also of commands that are not run."""
    for block in blocks(TEXTS[page]):
        for line in block.body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if line.startswith("fsdpo-") else []
            if words and words[0] in ("fsdpo-data", "fsdpo-train", "fsdpo-bench"):
                app = import_module(f"{words[0].replace('-', '_')}.cli.app").app
                group: Any = typer.main.get_command(app)
                parameters = group.commands[words[1]].make_context(words[1], words[2:]).params
                if words[1] == "import":
                    assert parameters["source"] in (FIELDS, OUTPUTS, *STEP_LABEL_READERS), line
                if words[0] == "fsdpo-data":
                    assert parameters.get("to") in (None, *FORMATS), line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_stands_where_it_is_run(page: Path) -> None:
    """In a block of a language, which is run as printed unless a comment says why not."""
    other_text = re.sub(r"```(bash|python)\n.*?```", "", TEXTS[page], flags=re.S)
    assert not re.search(r"^(\$ )?(fsdpo-|python |pip |make )", other_text, flags=re.M)


def test_the_engine_of_a_published_reward_model_is_the_one_of_the_table() -> None:
    """`auto` takes the first engine that can run, but some only if the user names them."""
    assert "| a published reward model | transformers | transformers |" in TEXTS[DOCS / "choose.md"]
    automatic = {name for name, entry in SCORERS.items() if entry.is_automatic_for_published}
    assert "transformers" in automatic and "vllm" not in automatic


def test_every_message_of_troubleshooting_exists() -> None:
    folders = ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    source_text = re.sub(r'"\s*\n\s*f?"', "", source)  # literals over several lines
    messages = re.findall(r"^### (.*)$", TEXTS[DOCS / "troubleshooting.md"], flags=re.M)
    assert len(messages) > 10 and not [
        message for message in messages if message not in source_text
    ]


def test_every_test_that_a_page_names_is_there() -> None:
    """A cell of a table of what works is worth as much as its test."""
    existing_tests = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    for file in (ROOT / "tests").rglob("test_*.py"):
        existing_tests |= set(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
    named_tests = {word for text in TEXTS.values() for word in re.findall(r"`(test_[\w.]+)`", text)}
    assert len(named_tests) > 20 and not named_tests - existing_tests


def test_the_evidence_of_the_method_exists() -> None:
    tests = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")}
    table = (
        TEXTS[DOCS / "contributing/tests.md"].partition("## The method")[2].partition("\n## ")[0]
    )
    method = TEXTS[DOCS / "explanation/method.md"]
    rows = re.findall(r"^\|.*\|$", table, flags=re.M)[2:]
    assert len(rows) > 20
    for row in rows:
        assert f"| {row.split('|')[1].strip()} |" in method
        for word in re.findall(r"`([^`]+)`", row.split("|")[-2]):
            exists = (ROOT / "tests" / word).is_file()
            assert exists or any(f"def {word}(" in text for text in tests.values()), word


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_says_where_its_datasets_come_from(page: Path) -> None:
    """A page links to the page that builds a dataset or a model, unless it builds it itself."""
    linked_pages = {
        (page.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)", TEXTS[page])
    }
    available = {name for page in linked_pages & {*PAGES} for name in outputs_of(page)}
    for block in run_blocks_of(page):
        available |= outputs_of_block(block)
        used = set(re.findall(r"(?<!--out )\b(runs/[\w-]+)", block.body))
        assert not (used & ALL_OUTPUTS) - available, page


def run_blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that a test runs, as printed or in small."""
    return [block for block in blocks(TEXTS[page]) if block.mode != "Not tested here"]


def outputs_of_block(block: Block) -> set[str]:
    return set(re.findall(r"--out (runs/[\w-]+)", block.body))


def outputs_of(page: Path) -> set[str]:
    """Return the directories that the blocks of a page write."""
    return {name for block in run_blocks_of(page) for name in outputs_of_block(block)}


ALL_OUTPUTS = {name for page in PAGES for name in outputs_of(page)}


@pytest.mark.proof
def test_the_summary_on_the_build_page_is_the_printed_one(tmp_path: Path) -> None:
    page = TEXTS[DOCS / "howto/build.md"]
    command = blocks(page)[0].body
    summary = page.partition("```text\n")[2].partition("```")[0]
    line = [sys.executable, "-m", "fsdpo_data", *shlex.split(command)[1:]]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = {text.rstrip() for text in f"{done.stdout}{done.stderr}".splitlines()}
    assert not {*summary.splitlines()} - printed


@pytest.mark.proof
def test_every_block_runs_in_order(tmp_path: Path, shared: Path) -> None:
    """One page after the other in one directory: each goes on where the quick start ended."""
    page_blocks: list[Block] = [block for page in PAGES for block in blocks(TEXTS[page])]
    assert run_blocks(page_blocks, tmp_path, shared / "data") > 15
