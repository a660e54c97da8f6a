"""Remainders, derivatives and functions: evaluated, or undecided."""

from __future__ import annotations

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers

#: An operation, its value, and other values.
VALUES = {
    r"-1 \bmod 7": ("6", ["-1", "1"]),
    r"-1 \mod 7": ("6", ["-1"]),
    "-1 mod 7": ("6", ["-1"]),
    r"2^{10} \bmod 7": ("2", ["1024", "3"]),
    r"3^{-1} \bmod 7": ("5", ["1/3", "3"]),
    r"2\cdot 5 \bmod 7": ("3", ["10"]),
    r"(3+5) \bmod 7": ("1", ["8"]),
    r"\Gamma(5)": ("24", ["120"]),
    r"\Gamma(1/2)": (r"\sqrt{\pi}", ["1", r"\frac{\Gamma}{2}"]),
    r"\Gamma(\frac{1}{2})": (r"\sqrt{\pi}", ["1"]),
    r"\zeta(2)": (r"\frac{\pi^2}{6}", ["2", r"\frac{\pi^2}{7}"]),
    r"\zeta(-1)": (r"-\frac{1}{12}", [r"-\zeta"]),
}
#: An operation that is not evaluated, its value, and other values.
UNREAD = {
    r"3+5 \bmod 7": ("1", ["8"]),
    "3+5 mod 7": ("1", ["8"]),
    r"10 \bmod 3 + 1": ("2", ["1"]),
    r"1/3 \bmod 7": ("5", ["1/3"]),
    r"\frac{d}{dx}x^2": ("2x", ["x"]),
    r"\frac{d}{dx}(x^2)": ("2x", ["x"]),
    r"\frac{d(x^2)}{dx}": ("2x", ["x"]),
    r"\frac{d^2}{dx^2}x^3": ("6x", ["x"]),
    r"\frac{\partial}{\partial x}x^2": ("2x", ["x"]),
    "d/dx x^2": ("2x", ["x"]),
    "(x^2)'": ("2x", ["x^2"]),
    r"\varphi(12)": ("4", ["5"]),
    r"\varphi(2^3)": ("4", [r"8\varphi"]),
    r"\sigma(2\cdot 3)": ("12", [r"6\sigma"]),
    r"1+2+\dots+100": ("5050", ["5049", "103"]),
    "B(2,3)": ("1/12", ["6"]),
    "S(4,2)": ("7", ["8"]),
    r"\operatorname{Re}(3+2i)": ("3", ["2"]),
    r"\arg(i)": (r"\pi/2", ["1"]),
    r"\text{rank}(A)": ("3", ["2"]),
}


@pytest.mark.parametrize("operation", VALUES)
def test_an_operation_is_evaluated(operation: str) -> None:
    right, wrong = VALUES[operation]
    for pair in ((right, operation), (operation, right), (operation, operation)):
        assert compare_answers(*pair).status == "correct", pair
    for value in wrong:
        for pair in ((value, operation), (operation, value)):
            assert compare_answers(*pair).status != "correct", pair


@pytest.mark.parametrize("operation", UNREAD)
def test_an_operation_that_is_not_evaluated_decides_nothing(operation: str) -> None:
    right, wrong = UNREAD[operation]
    assert compare_answers(operation, operation).status == "correct"
    for pair in ((right, operation), (operation, right)):
        assert compare_answers(*pair).status == "undecided", pair
    for value in wrong:
        for pair in ((value, operation), (operation, value)):
            assert compare_answers(*pair).status != "correct", pair


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{dx}{dt}=-kx", "x'=-kx"),
        (r"\frac{d}{2}", "d/2"),
        (r"\frac{d(d+1)}{2}", "d(d+1)/2"),
        ("5 feet", "5'"),
        (r"x \equiv 2 \pmod 7", r"x \equiv 2 \bmod 7"),
        (r"\sigma(x+1)", r"\sigma x + \sigma"),
    ],
)
def test_other_letters_primes_and_congruences_stay(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer).status == "correct"
