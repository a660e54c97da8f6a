"""Fixtures of published tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import real_tokenizers


@pytest.fixture(scope="module", params=real_tokenizers.NAMES)
def tokenizer(request: pytest.FixtureRequest, shared: Path) -> Any:
    return real_tokenizers.load(shared / "tokenizers" / request.param)


@pytest.fixture(scope="module")
def qwen2(shared: Path) -> Any:
    return real_tokenizers.load(shared / "tokenizers" / "qwen2")
