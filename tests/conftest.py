"""Fixtures that more than one test file needs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of public data beside the checkout; tests that need it skip without it."""
    path = Path(__file__).parents[2] / "shared"
    if not path.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    return path
