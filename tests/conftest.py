"""Fixtures that more than one test file needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported, and for child processes too: the workers of a parallel run share the
# cores, and torch would start a thread for each core in every one of them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of public data beside the checkout; tests that need it skip without it."""
    path = Path(__file__).parents[2] / "shared"
    if not path.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    return path
