"""The generated parts of the reference in the repository are those of the present code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from reference_pages import GENERATORS, render_page


@pytest.mark.parametrize("page", GENERATORS, ids=[page.name for page in GENERATORS])
def test_the_reference_in_the_repository_is_of_this_code(page: Path) -> None:
    is_new = page.read_text(encoding="utf-8") == render_page(page)
    assert is_new, f"{page.name} is older than the code; `make reference` writes it again"
