"""Files that a page of the site shows: the block below the paragraph that names them."""

from __future__ import annotations

import re
from pathlib import Path

HOWTO = Path(__file__).parents[2] / "docs/howto"


def page_block(page: str, start: str) -> str:
    """Return the first block of a how-to page whose text starts with ``start``."""
    texts = re.findall(r"```\w+\n(.*?)```", (HOWTO / page).read_text(encoding="utf-8"), flags=re.S)
    return next(text for text in texts if text.startswith(start))


def copy_page_file(page: str, name: str, folder: Path) -> Path:
    """Write a file as the user of a how-to page copies it.

    The page names the file in backquotes in the paragraph before the block.
    """
    pattern = rf"`{re.escape(name)}`[^\n]*:\n\n(?:\*Not tested[^\n]*\*\n\n)?```\w+\n(.*?)```"
    (text,) = re.findall(pattern, (HOWTO / page).read_text(encoding="utf-8"), flags=re.S)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
