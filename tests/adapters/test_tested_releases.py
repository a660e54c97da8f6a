"""The table of tested releases on the page about other harnesses."""

from __future__ import annotations

import re
from pathlib import Path

from page_files import HOWTO

ROOT = Path(__file__).parents[2]


def test_the_page_names_the_releases_that_are_installed() -> None:
    pins = (ROOT / "constraints-adapters.txt").read_text(encoding="utf-8")
    installed = set(re.findall(r"^([\w-]+)==([\d.]+)$", pins.replace("_", "-"), flags=re.M))
    table = re.findall(
        r"^\|.*\|$", (HOWTO / "other-harnesses.md").read_text(encoding="utf-8"), flags=re.M
    )
    releases = set(re.findall(r"\b([a-z][\w-]+) (\d+\.[\d.]*\d)", "\n".join(table)))
    named_packages = {name for name, _ in releases}
    assert named_packages == {"lm-eval", "inspect-ai", "verl"}
    assert releases <= installed
