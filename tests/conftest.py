"""Fixtures that more than one test file needs."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from fsdpo_data.core import plugins

# Every change is judged by the same examples, and not by how long a busy machine takes for one.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.load_profile("same")

# Before torch is imported, and for child processes too: the workers of a parallel run share the
# cores, and torch would start a thread for each core in every one of them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# No test fetches a benchmark from outside this machine.
os.environ["FSDPO_GITHUB"] = "http://127.0.0.1:9"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests of whole pages and packages: the longest ones must not start last."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of public data next to the checkout; skip the test if it is missing."""
    path = Path(__file__).parents[2] / "shared"
    if not path.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    return path


@pytest.fixture(scope="module", autouse=True)
def frozen_libraries() -> None:
    """Exempt the objects of the imported libraries from garbage collection.

    Each training collects garbage at its start, which takes a third of a CPU second with the
    millions of objects of torch and transformers, more than the training itself.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Leave out fsync in this process: no test cuts the power, and a kill loses no written byte.

    Child processes, those of the kill tests among them, still wait.
    """
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def empty_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all plug-ins before and after a test: later datasets would record them."""
    # Unlike delenv, setenv also undoes what a test adds to an absent variable.
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "")
    monkeypatch.setattr(plugins, "_loaded_plugins", {})
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(autouse=True)
def loggers_outlive_a_captured_stderr() -> Iterator[None]:
    """Give transformers' logger a stderr that is open: it keeps the one that it met first.

    That is the captured one of the test that loads the library, and closes with it.
    """
    yield
    for handler in logging.getLogger("transformers").handlers:
        # A handler that has not written yet may have no stream.
        stream = getattr(handler, "stream", None)
        if stream is not None and stream.closed:
            handler.stream = sys.__stderr__
            handler.flush = sys.__stderr__.flush
