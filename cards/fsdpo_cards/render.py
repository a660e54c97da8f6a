"""Templates to text, and the YAML block that the Hub reads."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TABLES = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
_LICENCES: Mapping[str, str] = TABLES["licences"]


def render(
    template: str | Path, /, filters: Mapping[str, Callable[..., str]] | None = None, **fields: Any
) -> str:
    """Fill in a template.

    ``template`` is the name of one in this folder, or a file; ``filters`` are its own.

    Raises:
        jinja2.UndefinedError: if the template shows a field that is not there.
    """
    own: dict[str, Any] = {
        "count": "{:,}".format,
        "text": text,
        "code": code,
        "fenced": escape_fences,
    }
    own |= {"licence": _licence_of, "percent": percent, "amount": amount, **(filters or {})}
    return render_file(Path(__file__).parent / template, own, fields).rstrip() + "\n"


def render_file(
    file: Path,
    filters: Mapping[str, Callable[..., Any]],
    fields: Mapping[str, Any],
    *folders: Path,
    autoescape: bool = False,
) -> str:
    """Fill in a template; those that it names are beside it or in ``folders``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([file.parent, *folders]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=autoescape,
    )
    environment.filters |= filters
    return environment.get_template(file.name).render(**fields)


def front_matter(fields: Mapping[str, Any]) -> str:
    """Return fields as the YAML block at the beginning of a card."""
    import yaml

    return f"---\n{yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True)}---\n"


def hub_metadata(**fields: Any) -> dict[str, Any]:
    """Return what the Hub reads of the card of a model, ``EvalResult`` objects included."""
    from huggingface_hub import ModelCardData

    card: Any = ModelCardData(**fields)
    found: dict[str, Any] = card.to_dict()
    found.pop("model_name", None)  # the Hub knows it only within results
    return found


def licence(sources: Sequence[Mapping[str, Any]]) -> str | list[str]:
    """Return what to state for problems of all ``sources`` together."""
    found = sorted({_licence_of(source["name"]) for source in sources})
    return found[0] if len(found) == 1 else found


def _licence_of(source: str) -> str:
    """Return the licence of a source, with or without the config behind its name."""
    return _LICENCES.get(source, _LICENCES.get(source.partition(":")[0], "unknown"))


def text(name: str) -> str:
    """Return a name as Markdown that shows it: nothing in it is markup or HTML."""
    return re.sub(r"([\\`*_\[\]>|~#])", r"\\\1", _one_line(name)).replace("<", "&lt;")


def code(name: str) -> str:
    """Return a name as a code span, within a table too."""
    return "`" + _one_line(name).replace("`", "'").replace("|", "\\|") + "`"


def escape_fences(lines: str) -> str:
    """Return lines that stay inside their fence."""
    return lines.replace("```", "``")


def _one_line(name: str) -> str:
    return "".join(each if each.isprintable() else " " for each in name)


def amount(counted: float | str) -> str:
    """Format a whole number for a person; a word where it is not known."""
    return counted if isinstance(counted, str) else f"{counted:,.0f}"


def tokens(count: int | None) -> str:
    """Say how many tokens a solution has."""
    return "tokens unknown" if count is None else f"{count} tokens"


def percent(share: float | None, interval: list[float] | None = None) -> str:
    """Format a share and its 95 % interval for a person."""
    if share is None:
        return "–"
    text = f"{100 * share:.1f} %"
    if interval:
        text += f"  [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return text
