"""Finite sums and products with many terms: exact values, closed forms, or no verdict."""

import pytest

from fsdpo_data.answers.comparison import symbolic
from fsdpo_data.answers.comparison.equivalence import compare_answers

EQUAL = [
    ("500500", r"\sum_{k=1}^{1000} k"),
    ("500500 x", r"\sum_{k=1}^{1000} k x"),
    ("y = 500500 x", r"y = \sum_{k=1}^{1000} k x"),
    ("301", r"\prod_{k=1}^{300} (1+\frac{1}{k})"),
    (r"\frac{1}{1000}", r"\prod_{k=2}^{1000} (1-\frac{1}{k})"),
    (r"\frac{500}{501}", r"\sum_{k=1}^{500} \frac{1}{k(k+1)}"),
    (r"2^{501}-2", r"\sum_{k=1}^{500} 2^k"),
    ("300!", r"\prod_{k=1}^{300} k"),
    (r"\sum_{k=1}^{1000} k", r"\sum_{j=0}^{999} (j+1)"),
    ("0", r"\sum_{k=1}^{500} \cos(\pi k)"),
    ("7.48547", r"\sum_{k=1}^{1000} \frac{1}{k}"),
]
#: Sums with too many terms to evaluate them, but with a closed form.
EQUAL_BY_CLOSED_FORM = [
    ("5000050000", r"\sum_{k=1}^{100000} k"),
    (r"\frac{99999}{100000}", r"\sum_{k=1}^{99999} \frac{1}{k(k+1)}"),
]
DIFFERENT = [
    ("500501", r"\sum_{k=1}^{1000} k"),
    ("500499", r"\sum_{k=1}^{1000} k"),
    ("500501 x", r"\sum_{k=1}^{1000} k x"),
    ("300", r"\prod_{k=1}^{300} (1+\frac{1}{k})"),
    ("302", r"\prod_{k=1}^{300} (1+\frac{1}{k})"),
    (r"\frac{499}{500}", r"\sum_{k=1}^{500} \frac{1}{k(k+1)}"),
    (r"2^{501}-1", r"\sum_{k=1}^{500} 2^k"),
    ("301!", r"\prod_{k=1}^{300} k"),
    ("1", r"\sum_{k=1}^{500} \cos(\pi k)"),
    ("7.48548", r"\sum_{k=1}^{1000} \frac{1}{k}"),
    ("5000050001", r"\sum_{k=1}^{100000} k"),
    (r"\frac{99998}{99999}", r"\sum_{k=1}^{99999} \frac{1}{k(k+1)}"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_the_terms_of_a_finite_sum_are_evaluated_without_sympy(
    gold: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbolic, "_ask", lambda question: pytest.fail(f"asked {question}"))
    assert compare_answers(gold, answer).status == "correct"
    assert compare_answers(answer, gold).status == "correct"


@pytest.mark.parametrize(("gold", "answer"), EQUAL_BY_CLOSED_FORM)
def test_a_sum_with_too_many_terms_needs_a_closed_form(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        verdict = compare_answers(*pair)
        assert verdict.status == "correct"
        assert verdict.rule.endswith("+symbolic")


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_a_value_near_a_finite_sum_is_incorrect(gold: str, answer: str) -> None:
    assert compare_answers(gold, answer).status == "incorrect"
    assert compare_answers(answer, gold).status == "incorrect"


def test_a_sum_without_a_closed_form_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum with too many terms is neither correct nor incorrect if sympy cannot evaluate it."""
    monkeypatch.setattr(symbolic, "_ask", lambda question: symbolic.UNDECIDED)
    assert compare_answers("5", r"\sum_{k=1}^{100000} \sin(k^2)").status == "timed_out"
    # Sympy is not asked about a sum with even more terms.
    monkeypatch.setattr(symbolic, "_ask", lambda question: pytest.fail(f"asked {question}"))
    assert compare_answers("5", r"\prod_{k=1}^{10^9} k").status == "timed_out"
    # A decimal is compared at its digits, which need the value of the sum.
    assert compare_answers("12.09015", r"\sum_{k=1}^{100000} \frac{1}{k}").status == "timed_out"
