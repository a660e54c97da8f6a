"""MkDocs hooks that generate the command reference, the API reference and the figures."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from mkdocs.structure.files import File

import fsdpo_data
import fsdpo_train
from fsdpo_data.core.options import is_options_class
from fsdpo_data.dataset.schema import CONFIGS, config_columns, describe_columns
from fsdpo_data.models.prompts import TEMPLATES

ROOT = Path(__file__).parents[1]
PROGRAMS = ("fsdpo_data", "fsdpo_train", "fsdpo_bench")
#: The title of a docstring section.
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Examples?):$", re.M)
#: A link to a figure of the study.
_FIGURE = re.compile(r"\((?:\.\./)+benchmarks/study/(?:[\w-]+/)?([\w-]+\.svg)\)")
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
        "<!-- templates -->": _template_reference,
    }
    for comment, generate in generators.items():
        if comment in markdown:
            markdown = markdown.replace(comment, "\n".join(generate()))
    return markdown


def _command_reference() -> Iterator[str]:
    """Yield Markdown for every visible command of every program: text, examples, options."""
    for program in PROGRAMS:
        yield f"## {program.replace('_', '-')}\n"
        group: Any = typer.main.get_command(import_module(f"{program}.cli.app").app)
        for name, command in group.commands.items():
            if not command.hidden:
                yield f"### {group.name} {name}\n\n{_plain(command.help or '')}\n"
                if command.epilog:
                    yield f"{_fence_examples(command.epilog)}\n"
                yield from _options_table(command)
                yield ""


def _fence_examples(epilog: str) -> str:
    """Return the examples of a command, with fences around the indented commands."""
    return re.sub(
        r"(?:^    .*\n?)+",
        lambda match: f"```bash\n{textwrap.dedent(match[0])}```\n",
        f"{epilog.rstrip()}\n",
        flags=re.M,
    )


def _options_table(command: Any) -> Iterator[str]:
    """Yield a Markdown table of the options and arguments of a command.

    Required ones come first, then the options in the order of ``--help``.
    """
    yield "| option | description | default |\n|---|---|---|"
    for parameter in sorted(command.params, key=lambda parameter: not parameter.required):
        usage = parameter.metavar
        if parameter.param_type_name == "option":
            usage = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
            if parameter.metavar:
                usage += f" {parameter.metavar}"
        default = parameter.show_default if isinstance(parameter.show_default, str) else ""
        yield _row(f"`{usage}`", parameter.help, "required" if parameter.required else default)


def _row(*cells: str | None) -> str:
    """Return a row of a Markdown table, in which no cell breaks the row."""
    texts = (" ".join((cell or "").split()) for cell in cells)
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"


def _api_reference() -> Iterator[str]:
    """Yield Markdown for the public names of the Python packages, functions first."""
    for package in (fsdpo_data, fsdpo_train):
        yield f"## {package.__name__}\n"
        names = [name for name in dir(package) if not name.startswith("_")]
        for name in sorted(names, key=lambda name: inspect.isclass(getattr(package, name))):
            yield from _describe(f"{package.__name__}.{name}", getattr(package, name), "###")


def _template_reference() -> Iterator[str]:
    """Yield a Markdown table of the prompt templates."""
    yield "| template | text |\n|---|---|"
    for name, template in TEMPLATES.items():
        text = template.text.replace("\n", "\\n")
        note = " (within the chat format of the model)" if template.needs_chat else ""
        yield _row(f"`{name}`", f"`{text}`{note}")


def _column_reference() -> Iterator[str]:
    """Yield Markdown tables of the columns of each config."""
    for config in CONFIGS:
        yield f"### {config}\n\n| column | description |\n|---|---|"
        descriptions = describe_columns(config)
        for column in config_columns(config):
            yield f"| `{column.name}` | {descriptions[column.name]} |"
        yield ""


def _describe(name: str, value: Any, heading: str) -> Iterator[str]:
    """Yield Markdown for a function, or for a class and its public methods.

    The text comes first, then the example, then a table of the parameters or fields.
    """
    sections = _sections(inspect.getdoc(value) or "")
    yield f"{heading} {name.rpartition('.')[2]}\n\n{sections.pop('')}\n"
    for title, language in (("Example", "python"), ("Examples", "bash")):
        if title in sections:
            yield f"```{language}\n{sections.pop(title)}\n```\n"
    parameters = _entries(sections.pop("Args", "") or sections.pop("Attributes", ""))
    if parameters:
        yield from _parameters_table(value, parameters)
    for title, body in sections.items():
        entries = _entries(body)
        lines = [f"- `{entry}`: {text}" for entry, text in entries.items()] or [body]
        yield f"\n**{title}**\n\n" + "\n".join(lines)
    yield ""
    members = vars(value).items() if inspect.isclass(value) else ()
    for member_name, member in members:
        if inspect.isfunction(member) and not member_name.startswith(("_", "model_")):
            yield from _describe(f"{name}.{member_name}", member, "####")


def _parameters_table(value: Any, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a Markdown table of parameters: name, type, default and description."""
    try:
        signature = dict(inspect.signature(value).parameters)
        function = value.__init__ if inspect.isclass(value) else value
        hints = {} if is_options_class(value) else get_type_hints(function)
    except (ValueError, TypeError, NameError):
        signature, hints = {}, {}
    yield "| parameter | type | default | description |\n|---|---|---|---|"
    for name, text in texts.items():
        parameter = signature.get(name)
        hint = hints.get(name, parameter.annotation if parameter else "")
        type_name = _type_text(hint)
        yield _row(f"`{name}`", type_name, _default_text(parameter, type_name), text)


def _default_text(parameter: inspect.Parameter | None, type_name: str) -> str:
    """Return the default of a parameter; for an object, the call of its class without fields."""
    if parameter is None:
        return ""
    if parameter.default is inspect.Parameter.empty:
        return "required"
    default = parameter.default
    is_simple = default is None or isinstance(default, str | int | float | tuple)
    return f"`{default!r}`" if is_simple else f"`{type_name}()`"


def _type_text(hint: Any) -> str:
    """Return a type as short words: ``str or Path``, ``list of str``, ``"mean" or "min"``."""
    if isinstance(hint, str) or hint in (Any, inspect.Parameter.empty):
        return re.sub(r"(?:\w+\.)+", "", hint) if isinstance(hint, str) else ""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{argument!r}`" for argument in arguments)
    if origin in (Union, UnionType):
        return " or ".join(
            "None" if argument is NoneType else _type_text(argument) for argument in arguments
        )
    if origin is not None:
        if hasattr(hint, "__metadata__"):  # Annotated
            return _type_text(arguments[0])
        names = [_type_text(argument) for argument in arguments if argument is not Ellipsis]
        kind = {"Sequence": "list", "Mapping": "dict"}.get(origin.__name__, origin.__name__)
        return f"{kind} of {' to '.join(name for name in names if name)}"
    return str(getattr(hint, "__name__", hint))


def _sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring as Markdown, the text before them with an empty title."""
    text = _with_code(text)
    head, *titles_and_bodies = _SECTION.split(text)
    bodies = (inspect.cleandoc(f"\n{body}") for body in titles_and_bodies[1::2])
    return {"": head.strip(), **dict(zip(titles_and_bodies[::2], bodies, strict=True))}


def _entries(body: str) -> dict[str, str]:
    """Return the entries of a section, ``name: text``, as a dictionary."""
    parts = re.split(r"^(\w+): ", re.sub(r"\n {4,}", " ", body), flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _with_code(text: str) -> str:
    """Convert roles, double backquotes and doctests of a docstring to code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"^>>> .*\n(?:.+\n?)*", r"```pycon\n\g<0>```\n", text, flags=re.M)


def _plain(text: str) -> str:
    """Convert a docstring to Markdown: sections become lists, and roles become code."""
    head, *sections = _SECTION.split(_with_code(text))
    markdown = head
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = _ENTRY.sub(r"\n- `\1`: ", re.sub(r"\n {8,}", " ", body))
        markdown += f"\n**{title}**\n\n{inspect.cleandoc(entries)}\n"
    return markdown
