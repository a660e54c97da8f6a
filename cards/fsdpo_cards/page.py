"""Render a page from a template and data."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fsdpo_cards.render import format_amount, render_file

_PAGES_FOLDER = Path(__file__).parent


def render_page(
    template: Path,
    data: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **fields: Any,
) -> str:
    """Render a template that extends ``layout.html``.

    Args:
        template: Path of the template.
        data: JSON data for the script of the page, such as
            :attr:`~fsdpo_cards.problem_list.ProblemList.page_data`.
        filters: Additional filters for this template.
        fields: The fields of the template.

    Raises:
        jinja2.UndefinedError: if the template uses an undefined field.
    """
    style = (_PAGES_FOLDER / "page.css").read_text(encoding="utf-8")
    script = (_PAGES_FOLDER / "page.js").read_text(encoding="utf-8")
    script_digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # A `<` in the data could close the script element.
    escaped_data = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    layout_fields = {
        "style": Markup(style),
        "script": Markup(script),
        # The content security policy of the page allows only this script.
        "script_hash": f"sha256-{script_digest}",
        "data": Markup(escaped_data),
    }
    all_filters = {"amount": format_amount, **(filters or {})}
    return render_file(
        template, all_filters, fields | layout_fields, _PAGES_FOLDER, autoescape=True
    )
