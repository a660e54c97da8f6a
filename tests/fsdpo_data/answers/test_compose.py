"""Answers composed from parts of a response: trees are joined, and no text is parsed again."""

from __future__ import annotations

import pytest

from fsdpo_data.answers.parsing import compose
from fsdpo_data.answers.parsing.read import read, read_answer


@pytest.mark.parametrize("unit", ["cm", "square feet", "m^2", "km per hour"])
def test_a_number_takes_the_unit_after_it(unit: str) -> None:
    quantity = compose.add_unit(read_answer("7.5"), unit)
    assert quantity.value == read(f"\\text{{7.5 {unit}}}")
    assert quantity.text == f"7.5 {unit}"


def test_words_that_are_no_unit_change_nothing() -> None:
    number = read_answer("5")
    assert compose.add_unit(number, "cm + 2") is number
    assert compose.add_unit(read_answer("(1, 2)"), "cm").text == "(1, 2)"


def test_a_name_makes_an_equation() -> None:
    assert compose.add_name(read_answer("2"), "y_1").value == read("y_1 = 2")


def test_the_text_of_a_composed_answer_is_not_parsed() -> None:
    answer = compose.compose_answer("70,110", read("5"))
    assert answer.alternatives == (read("5"),)
    assert answer.with_letter_units == answer.value == read("5")
