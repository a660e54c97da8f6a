"""Rows with step labels are recognised by the formats that read them."""

from __future__ import annotations

from typing import Any

import pytest
from step_label_rows import MADE_UP

from fsdpo_data.exchange.recognition import matching_formats


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, row, _ in MADE_UP])
def test_a_row_is_recognised(name: str, row: dict[str, Any]) -> None:
    assert name in matching_formats(row)


def test_other_rows_have_no_format() -> None:
    assert matching_formats({"question": "2+2?", "answer": "4"}) == []
