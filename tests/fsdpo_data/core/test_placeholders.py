"""Names in braces are replaced once, and other braces stay."""

from __future__ import annotations

from fsdpo_data.core.placeholders import fill_text, names_in_braces

VALUES = {"question": "{gold} {{x}}", "gold": "4"}


def test_a_text_is_scanned_once_and_unknown_names_stay() -> None:
    text = r"{question} = {gold}, \frac{1}{2} {other} {{gold}}"
    assert fill_text(text, VALUES) == r"{gold} {{x}} = 4, \frac{1}{2} {other} {4}"
    assert names_in_braces(text) == {"question", "gold", "1", "2", "other"}


def test_doubled_braces_mean_braces_on_request() -> None:
    text = r"\boxed{{{gold}}} {question} {{gold}}"
    assert fill_text(text, VALUES, has_doubled_braces=True) == r"\boxed{4} {gold} {{x}} {gold}"
    assert names_in_braces(text, has_doubled_braces=True) == {"gold", "question"}
