"""Keys of questions: what makes two questions the same one."""

from __future__ import annotations

import pytest

from fsdpo_data.problems.question_key import question_key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("What is 5²?", "What is 52?"),
        ("What is 2¹⁰?", "What is 210?"),
        ("Find 5⁻¹.", "Find 5−1."),
        ("What is a₁₂?", "What is a12?"),
        ("What is a²?", "What is a₂?"),
        ("Add 1½ cups.", "Add 11/2 cups."),
        ("Add 1½ cups.", "Add 11⁄2 cups."),
        ("Add 2¾ and 5.", "Add 23⁄4 and 5."),
        ("Is ①3 odd?", "Is 13 odd?"),
        ("Is xⁿ odd?", "Is xn odd?"),
    ],
)
def test_superscripts_subscripts_and_fractions_count(left: str, right: str) -> None:
    assert question_key(left) != question_key(right)
    assert question_key(left) == question_key(left.upper().replace(" ", "\n"))


@pytest.mark.parametrize(
    ("left", "right"),
    [("What is ５？", "what is 5?"), ("ﬁnd\u00a0X", "find x"), ("𝑥 + 1", "x+1"), ("㎝", "cm")],
)
def test_other_compatibility_forms_do_not_count(left: str, right: str) -> None:
    assert question_key(left) == question_key(right)
