"""A template and data to one page."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fsdpo_cards.render import amount, render_file

_HERE = Path(__file__).parent


def render_page(
    template: Path,
    data: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **fields: Any,
) -> str:
    """Fill in a template that extends ``layout.html``.

    ``data`` is what the page's script works on, :attr:`~.browse.Browsable.data` for a list of
    problems; ``filters`` are the template's own.

    Raises:
        jinja2.UndefinedError: if the template shows a field that is not there.
    """
    style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Inside a ``<script>`` no ``<`` may end it.
    inert = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "style": Markup(style),
        "script": Markup(script),
        "script_hash": f"sha256-{hashed}",  # of the only script that the page's policy lets run
        "data": Markup(inert),
    }
    own = {"amount": amount, **(filters or {})}
    return render_file(template, own, fields | parts, _HERE, autoescape=True)
