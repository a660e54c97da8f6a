"""Windows of numbers: functions with steps, kinks or cases that differ only at some numbers."""

from __future__ import annotations

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers


def cases(condition: str) -> str:
    return rf"\begin{{cases}} 1 & {condition} \\ 0 & \text{{otherwise}} \end{{cases}}"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sum_{k=1}^{n} \lfloor k/300 \rfloor", r"\sum_{k=1}^{n} \lfloor k/200 \rfloor"),
        (r"\sum_{k=1}^{n} |k-300|", r"\sum_{k=1}^{n} (300-k)"),
        (cases("2x<100"), cases("3x<100")),
        (cases("x+30<50"), cases("x+20<50")),
        (cases("x^2<30"), cases("x^2<40")),
        (cases(r"x\in\mathbb{N}"), cases(r"x\in\mathbb{Z}")),
        ("2|k|", "2k"),
        ("|m+1|", "m+1"),
        ("|(n-6)(m-5)|", "(n-6)(m-5)"),
        (r"3k, k\in\mathbb{Z}", r"3k, k\in\mathbb{R}"),
        (r"1 + 2 \bmod 3 + 4", r"1 \bmod 2 + 3 + 4"),
    ],
)
def test_functions_that_differ_at_some_number_are_not_correct(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status != "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (
            r"\begin{cases} 1 & n<2^{10} \\ 0 & n \ge 2^{10}\end{cases}",
            r"\begin{cases} 1 & n\le 1023 \\ 0 & n>1023\end{cases}",
        ),
        (
            r"\left\lfloor \frac{n^2}{4} \right\rfloor",
            r"\lfloor \frac n2 \rfloor \lceil \frac n2 \rceil",
        ),
    ],
)
def test_functions_of_integers_that_agree_are_correct(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(x,y)=(1+t, 2t)", "(x,y)=(3+t, 4+2t)"),
        (r"\frac{x-1}{2}=\frac{y-3}{4}=z", r"\frac{x-3}{2}=\frac{y-7}{4}=z-1"),
        ("(1+t,2t)", "(3+t,4+2t)"),
    ],
)
def test_lines_over_parameters_are_not_compared(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer).status == "undecided"
