"""The generated parts of the reference in the repository are those of the present code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from reference_pages import GENERATORS, START, render_page


@pytest.mark.parametrize("page", GENERATORS, ids=[page.name for page in GENERATORS])
def test_the_reference_in_the_repository_is_of_this_code(page: Path) -> None:
    is_new = page.read_text(encoding="utf-8") == render_page(page)
    assert is_new, f"{page.name} is older than the code; `make reference` writes it again"


def test_the_most_used_options_exist() -> None:
    """Each is in the generated part of the page, as an option of some command."""
    page = next(page for page in GENERATORS if page.name == "cli.md")
    head, _, generated = page.read_text(encoding="utf-8").partition(START)
    table = head.partition("## Most used options")[2]
    options = set(re.findall(r"`(--[\w-]+)", table))
    assert len(options) > 10
    assert options <= set(re.findall(r"--[\w-]+", generated))
