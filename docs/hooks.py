"""MkDocs hooks that generate the command reference, the API reference and the figures."""

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
from fsdpo_data.dataset.schema import CONFIGS, config_columns, describe_columns

ROOT = Path(__file__).parents[1]
PROGRAMS = ("fsdpo_data", "fsdpo_train", "fsdpo_bench")
#: The title of a docstring section.
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$", re.M)
#: A link to a figure of the study.
_FIGURE = re.compile(r"\(\.\./benchmarks/study/(?:[\w-]+/)?([\w-]+\.svg)\)")
#: An entry of a section, ``name: description``; further lines have a deeper indentation.
_ENTRY = re.compile(r"^    (\w+): ", re.M)


def on_files(files: Any, config: Any) -> Any:
    """Add the figures from the folders of the study to the site."""
    for figure in sorted(ROOT.glob("benchmarks/study/**/*.svg")):
        files.append(File.generated(config, f"study-{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the comments for the references, and rewrite links to figures."""
    markdown = _FIGURE.sub(r"(study-\1)", markdown)
    generators = {
        "<!-- commands -->": _command_reference,
        "<!-- api -->": _api_reference,
        "<!-- columns -->": _column_reference,
    }
    for comment, generate in generators.items():
        if comment in markdown:
            markdown = markdown.replace(comment, "\n".join(generate()))
    return markdown


def _command_reference() -> Iterator[str]:
    """Yield Markdown for every visible command of every program."""
    for program in PROGRAMS:
        yield f"## {program.replace('_', '-')}\n"
        group: Any = typer.main.get_command(import_module(f"{program}.cli.app").app)
        for name, command in group.commands.items():
            if not command.hidden:
                yield f"### {group.name} {name}\n\n{_plain(command.help or '')}\n"
                yield from _options_table(command)
                yield f"\n{command.epilog or ''}\n"


def _options_table(command: Any) -> Iterator[str]:
    """Yield a Markdown table of the options and arguments of a command."""
    yield "| option | description | default |\n|---|---|---|"
    for parameter in command.params:
        usage = parameter.metavar
        if parameter.param_type_name == "option":
            usage = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
            if parameter.metavar:
                usage += f" {parameter.metavar}"
        default = parameter.show_default if isinstance(parameter.show_default, str) else ""
        if parameter.required:
            default = "required"
        cells = (f"`{usage}`", parameter.help or "", default)
        yield f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"


def _api_reference() -> Iterator[str]:
    """Yield Markdown for the public names of the Python packages."""
    for package in (fsdpo_data, fsdpo_train):
        yield f"## {package.__name__}\n"
        for name in dir(package):
            if not name.startswith("_"):
                yield from _describe(f"{package.__name__}.{name}", getattr(package, name), "###")


def _column_reference() -> Iterator[str]:
    """Yield Markdown tables of the columns of each config."""
    for config in CONFIGS:
        yield f"### {config}\n\n| column | since | description |\n|---|---|---|"
        descriptions = describe_columns(config)
        for column in config_columns(config):
            yield f"| `{column.name}` | {column.since} | {descriptions[column.name]} |"
        yield ""


def _describe(name: str, value: Any, heading: str) -> Iterator[str]:
    """Yield Markdown for a function, or for a class and its public methods."""
    yield f"{heading} {name}\n\n```python\n{name.rpartition('.')[2]}{_signature(value)}\n```\n"
    yield f"{_plain(inspect.getdoc(value) or '')}\n"
    members = vars(value).items() if inspect.isclass(value) else ()
    for member_name, member in members:
        if inspect.isfunction(member) and not member_name.startswith("_"):
            yield from _describe(f"{name}.{member_name}", member, "####")


def _signature(value: Any) -> str:
    """Return the signature without annotations, on several lines if it is long."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    parameters = [
        parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()
    ]
    bare_signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
    text = str(bare_signature)
    if len(text) < 90:
        return text
    return text.replace(", ", ",\n    ").replace("(", "(\n    ", 1)


def _plain(text: str) -> str:
    """Convert a docstring to Markdown: sections become lists, and roles become code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    head, *sections = _SECTION.split(text)
    markdown = head
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = _ENTRY.sub(r"\n- `\1`: ", re.sub(r"\n {8,}", " ", body))
        markdown += f"\n**{title}**\n\n{inspect.cleandoc(entries)}\n"
    return markdown
