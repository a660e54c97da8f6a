"""Tests of the words for Python errors about rows: they speak of the file."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from fsdpo_data.core.row_errors import describe_row_error


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: {}["question"], "the field 'question' is missing"),
        (lambda: [][0], "a list has too few items"),
        (lambda: operator.getitem(1.5, 0), "expected a list or an object, found a number"),
        (lambda: operator.getitem(None, "a"), "expected a list or an object, found null"),
        (lambda: len(1.5), "expected a list or a text, found a number"),
        (lambda: list(None), "expected a list or an object, found null"),
        (lambda: (3).strip(), "expected a text, found a number"),
        (lambda: [].get("a"), "expected an object, found a list"),
        (lambda: operator.getitem([], "a"), "expected an object, found a list"),
        (lambda: operator.getitem("text", "a"), "expected an object, found a text"),
    ],
)
def test_the_reason_names_the_field_or_the_value(read: Callable[[], Any], reason: str) -> None:
    with pytest.raises(Exception) as raised:
        read()
    assert describe_row_error(raised.value) == reason
