"""Rows with step labels are recognised by the formats that read them."""

from __future__ import annotations

from typing import Any

import pytest
from step_label_rows import MADE_UP

from fsdpo_data.exchange.formats import matching_formats, step_label_formats


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, row, _ in MADE_UP])
def test_a_row_is_recognised(name: str, row: dict[str, Any]) -> None:
    assert name in matching_formats(row, step_label_formats())


def test_other_rows_have_no_format() -> None:
    assert not list(matching_formats({"question": "2+2?", "answer": "4"}, step_label_formats()))
