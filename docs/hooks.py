"""What the site makes of the source: every command with its options, and the public Python API."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

import fsdpo_data
import fsdpo_train

ROOT = Path(__file__).parents[1]
PROGRAMS = ("fsdpo_data", "fsdpo_train", "fsdpo_bench")
#: ``Args:`` and its like, at the start of a line.
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$", re.M)
#: A link to a figure of the study, in the folder of its size.
_FIGURE = re.compile(r"\(\.\./benchmarks/study/(?:[\w-]+/)?([\w-]+\.svg)\)")
#: An entry of a section: ``name: what it is``, with more of it indented deeper.
_ENTRY = re.compile(r"^    (\w+): ", re.M)


def on_files(files: Any, config: Any) -> Any:
    """Take in the figures of the study from where the study writes them."""
    for figure in sorted(ROOT.glob("benchmarks/study/**/*.svg")):
        files.append(File.generated(config, f"study-{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the references in the places of their comments, and say where the site has figures."""
    markdown = _FIGURE.sub(r"(study-\1)", markdown)
    for mark, made in (("<!-- commands -->", _commands), ("<!-- api -->", _api)):
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(made()))
    return markdown


def _commands() -> Iterator[str]:
    for program in PROGRAMS:
        yield f"## {program.replace('_', '-')}\n"
        group: Any = typer.main.get_command(import_module(f"{program}.cli.app").app)
        for name, command in group.commands.items():
            if not command.hidden:
                yield f"### {group.name} {name}\n\n{_plain(command.help or '')}\n"
                yield from _options(command)
                yield f"\n{command.epilog or ''}\n"


def _options(command: Any) -> Iterator[str]:
    yield "| option | what it is | default |\n|---|---|---|"
    for each in command.params:
        flags = ", ".join(sorted((*each.opts, *each.secondary_opts), key=len))
        words = flags if each.param_type_name == "option" else each.metavar
        value = f" {each.metavar}" if words == flags and each.metavar else ""
        default = each.show_default if isinstance(each.show_default, str) else ""
        cells = (f"`{words}{value}`", each.help or "", "required" if each.required else default)
        yield f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"


def _api() -> Iterator[str]:
    for package in (fsdpo_data, fsdpo_train):
        yield f"## {package.__name__}\n"
        for name in dir(package):
            if not name.startswith("_"):
                yield from _describe(f"{package.__name__}.{name}", getattr(package, name), "###")


def _describe(name: str, told: Any, heading: str) -> Iterator[str]:
    yield f"{heading} {name}\n\n```python\n{name.rpartition('.')[2]}{_signature(told)}\n```\n"
    yield f"{_plain(inspect.getdoc(told) or '')}\n"
    for method, each in vars(told).items() if inspect.isclass(told) else ():
        if inspect.isfunction(each) and not method.startswith("_"):
            yield from _describe(f"{name}.{method}", each, "####")


def _signature(told: Any) -> str:
    try:
        signature = inspect.signature(told)
    except ValueError:
        return ""
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    shown = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return shown if len(shown) < 90 else shown.replace(", ", ",\n    ").replace("(", "(\n    ", 1)


def _plain(text: str) -> str:
    """Turn a docstring into Markdown: its sections into lists, its roles into code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    head, *sections = _SECTION.split(text)
    shown = head
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = _ENTRY.sub(r"\n- `\1`: ", re.sub(r"\n {8,}", " ", body))
        shown += f"\n**{title}**\n\n{inspect.cleandoc(entries)}\n"
    return shown
