"""Render templates, and the YAML block that the Hub reads."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

TABLES = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
_LICENCES: Mapping[str, str] = TABLES["licences"]


def render(
    template: str | Path, /, filters: Mapping[str, Callable[..., Any]] | None = None, **fields: Any
) -> str:
    """Render a template as text.

    Args:
        template: Name of a template in this folder, or the path of another template.
        filters: Additional filters for this template.
        fields: The fields of the template.

    Raises:
        jinja2.UndefinedError: if the template uses an undefined field.
    """
    all_filters = {**_card_filters(), **(filters or {})}
    return render_file(Path(__file__).parent / template, all_filters, fields).rstrip() + "\n"


def render_text(text: str, fields: Mapping[str, Any]) -> str:
    """Render a template that is given as text, with the filters of cards.

    Raises:
        jinja2.UndefinedError: if the template uses an undefined field.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined)
    environment.filters |= _card_filters()
    return environment.from_string(text).render(**fields)


def format_model(ref: Mapping[str, Any]) -> str:
    """Return the name of a model with its revision, which may be unknown."""
    name = code_span(ref["name"])
    if ref["revision"] == "unknown":
        return f"{name}, of an unknown revision"
    return f"{name} at {code_span(ref['revision'])}"


def _card_filters() -> dict[str, Callable[..., str]]:
    """Return the filters of cards by name."""
    return {
        "count": "{:,}".format,
        "text": escape_markdown,
        "code": code_span,
        "model": format_model,
        "options": describe_options,
        "fenced": escape_fences,
        "licence": _source_licence,
        "percent": format_percent,
        "amount": format_amount,
    }


def render_file(
    file: Path,
    filters: Mapping[str, Callable[..., Any]],
    fields: Mapping[str, Any],
    *folders: Path,
    autoescape: bool = False,
) -> str:
    """Render a template file.

    The templates that it includes or extends are in the same folder or in ``folders``.
    """
    environment = _environment((file.parent, *folders), frozenset(filters.items()), autoescape)
    text: str = environment.get_template(file.name).render(**fields)
    return text


@cache
def _environment(
    folders: tuple[Path, ...],
    filters: frozenset[tuple[str, Callable[..., Any]]],
    autoescape: bool,
) -> Any:
    """Return the ``jinja2.Environment`` with these filters, which keeps its compiled templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=autoescape,
    )
    environment.filters |= dict(filters)
    return environment


def front_matter(fields: Mapping[str, Any]) -> str:
    """Return the YAML block at the beginning of a card."""
    import yaml

    return f"---\n{yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True)}---\n"


def hub_metadata(**fields: Any) -> dict[str, Any]:
    """Return the metadata of a model card for the Hub, with the fields of ``ModelCardData``."""
    from huggingface_hub import ModelCardData

    card_data: Any = ModelCardData(**fields)
    metadata: dict[str, Any] = card_data.to_dict()
    # The Hub accepts the name of the model only inside `model-index`.
    metadata.pop("model_name", None)
    return metadata


def combined_licence(sources: Sequence[Mapping[str, Any]]) -> str | list[str]:
    """Return the licence of the problems of all ``sources``, as a list if there are several."""
    licences = sorted({_source_licence(source["name"]) for source in sources})
    return licences[0] if len(licences) == 1 else licences


def _source_licence(source: str) -> str:
    """Return the licence of a source; its name may end with a config."""
    return _LICENCES.get(source, _LICENCES.get(source.partition(":")[0], "unknown"))


def escape_markdown(name: str) -> str:
    """Escape a name for Markdown, so that it contains neither markup nor HTML."""
    return re.sub(r"([\\`*_\[\]>|~#])", r"\\\1", _one_line(name)).replace("<", "&lt;")


def code_span(name: str) -> str:
    """Return a name as a Markdown code span that is also safe in a table."""
    return "`" + _one_line(name).replace("`", "'").replace("|", "\\|") + "`"


def describe_options(options: Mapping[str, Any], code: Callable[[str], str] = code_span) -> str:
    """Return the options of a stage as text, each with its value.

    Args:
        options: The values by name; a value may be a table of further options.
        code: Function that marks a value as code.
    """
    texts = []
    for name, value in options.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        texts.append(f"{name.replace('_', ' ')} {code(text)}")
    return ", ".join(texts)


def escape_fences(lines: str) -> str:
    """Return lines that cannot close the code block around them."""
    return lines.replace("```", "``")


def _one_line(name: str) -> str:
    return "".join(character if character.isprintable() else " " for character in name)


def format_amount(value: float | str | None) -> str:
    """Format a number without decimals; None is ``unknown``, and words stay unchanged."""
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:,.0f}"


def format_token_count(count: int | None) -> str:
    """Format the number of tokens of a solution."""
    return "tokens unknown" if count is None else f"{count} tokens"


def format_percent(fraction: float | None, interval: Sequence[float] | None = None) -> str:
    """Format a fraction and its 95 % interval in percent."""
    if fraction is None:
        return "–"
    text = f"{100 * fraction:z.1f} %"
    if interval:
        text += f"  [{100 * interval[0]:z.1f}, {100 * interval[1]:z.1f}]"
    return text
