"""Every help of the three command lines: whole flags at 80 columns, examples, and no waiting."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
PACKAGES = ("fsdpo_data", "fsdpo_train", "fsdpo_bench")


def app_of(package: str) -> typer.Typer:
    app: typer.Typer = import_module(f"{package}.cli.app").app
    return app


def commands() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        group = typer.main.get_command(app_of(package))
        yield from ((package, name) for name in group.commands)  # type: ignore[attr-defined]


def show_help(package: str, *line: str) -> str:
    result = CliRunner().invoke(app_of(package), [*line], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("package", "name"), list(commands()))
def test_no_flag_is_cut_at_80_columns(package: str, name: str) -> None:
    text = show_help(package, name, "-h")
    assert max(map(len, text.splitlines())) <= 80
    words = set(re.findall(r"(?<![\w-])-{1,2}\w[\w-]*", text))
    command = typer.main.get_command(app_of(package)).commands[name]  # type: ignore[attr-defined]
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert {*parameter.opts, *parameter.secondary_opts} <= words


@pytest.mark.parametrize(("package", "name"), list(commands()))
def test_every_command_has_an_example(package: str, name: str) -> None:
    command = typer.main.get_command(app_of(package)).commands[name]  # type: ignore[attr-defined]
    line = f"{package.replace('_', '-')} {name}"
    assert command.hidden or line in (command.epilog or ""), f"{line} shows no example"


@pytest.mark.parametrize(("package", "name"), list(commands()))
def test_help_names_flags_where_the_library_has_fields(package: str, name: str) -> None:
    command = typer.main.get_command(app_of(package)).commands[name]  # type: ignore[attr-defined]
    options = [option for option in command.params if option.param_type_name == "option"]
    names = {option.name for option in options}
    help_text = " ".join(option.help or "" for option in options)
    quoted = {word for word in re.findall(r"(?<!`)`(\w+)`(?!`)", help_text) if word in names}
    assert not quoted | {
        word for word in names if "_" in word and re.search(rf"\b{word}\b", help_text)
    }
    assert "<bool>" not in show_help(package, name, "-h")


def test_every_example_is_a_command_that_parses() -> None:
    seen = 0
    for package, name in commands():
        group: Any = typer.main.get_command(app_of(package))
        text = group.commands[name].epilog or ""
        assert not re.search(r"`\s+`--", text), f"{name}: a command is cut in two"
        spans = re.findall(r"`([^`]*\bfsdpo-\w+ [^`]*)`", text)  # of the trainer, blocks
        for line in [*spans, *re.findall(r"(?:^    .*\n)+", text, flags=re.M)]:
            words = re.sub(r".*?\bfsdpo[-_](data|train|bench)\b", "", line, count=1, flags=re.S)
            called, *arguments = shlex.split(words.replace("\\\n", " "), comments=True)
            if f"{package.replace('_', '-')} {name}" in line or package == "fsdpo_train":
                group.commands[called].make_context(called, arguments)
                seen += 1
    assert seen > 80


@pytest.mark.parametrize(("package", "name"), list(commands()))
def test_examples_can_be_pasted(package: str, name: str) -> None:
    """No padding follows a code line: a space after a backslash would break the command."""
    command = typer.main.get_command(app_of(package)).commands[name]  # type: ignore[attr-defined]
    printed = show_help(package, name, "-h")
    code_lines = re.findall(r"^    (.*)$", command.epilog or "", flags=re.M)
    lines = printed.splitlines()
    assert not [line for line in code_lines if f"  {line}" not in lines]
    assert not re.search(r"\\ +$", printed, flags=re.M)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_command_line_has_the_same_words(package: str) -> None:
    assert show_help(package, "--version").startswith("fsdpo ")
    text = show_help(package, "-h")
    assert "--install-completion" in text and "--version" in text
    assert "<bool>" not in text


@pytest.mark.parametrize(("package", "name"), list(commands()))
def test_everyday_options_come_first(package: str, name: str) -> None:
    """Few enough to read stand in the first panel."""
    text = show_help(package, name, "-h")
    first = text.partition("╭─ Options ─")[2].partition("╰")[0]
    assert len(re.findall(r"│ (?:-h, )?--", first)) <= 18


#: What names flags of other tools, which ours have nothing to do with.
_OTHERS = {
    "fsdpo_data/exchange/formats.py",
    "fsdpo_data/engines/ray.py",
    "fsdpo_data/core/command_line.py",  # writes command lines
}


def test_the_library_knows_no_flags() -> None:
    """Messages name fields; only docstrings of commands and the CLI may show ``--flags``."""
    for file in sorted((ROOT / "fsdpo_data").rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if name.startswith("fsdpo_data/cli/") or name in _OTHERS:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        }
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        literals = [word for word in words - docstrings if isinstance(word, str)]
        assert not [word for word in literals if re.search(r"(?<![\w-])--[a-z]", word)], name
