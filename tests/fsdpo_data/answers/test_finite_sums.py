"""Sums and products: finite ones are evaluated; limits, integrals and infinite sums are not."""

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers

EQUAL = [
    ("500500", r"\sum_{k=1}^{1000} k"),
    ("301", r"\prod_{k=1}^{300} (1+\frac{1}{k})"),
    (r"\frac{500}{501}", r"\sum_{k=1}^{500} \frac{1}{k(k+1)}"),
    ("300!", r"\prod_{k=1}^{300} k"),
    (r"\sum_{k=1}^{1000} k", r"\sum_{j=0}^{999} (j+1)"),
    ("0", r"\sum_{k=1}^{500} \cos(\pi k)"),
    ("7.48547", r"\sum_{k=1}^{1000} \frac{1}{k}"),
    (r"\sum_{k=1}^n k", r"\frac{n(n+1)}{2}"),
    # The index may start anywhere.
    (r"\sum_{n=0}^{\infty} \frac{x^{n+1}}{n+1}", r"\sum_{n=1}^{\infty} \frac{x^n}{n}"),
    (r"\int_0^1 x^2 dx", r"\int_0^1 t^2 dt"),
]
DIFFERENT = [
    ("500501", r"\sum_{k=1}^{1000} k"),
    ("300", r"\prod_{k=1}^{300} (1+\frac{1}{k})"),
    (r"\frac{499}{500}", r"\sum_{k=1}^{500} \frac{1}{k(k+1)}"),
    ("301!", r"\prod_{k=1}^{300} k"),
    ("1", r"\sum_{k=1}^{500} \cos(\pi k)"),
    ("7.48548", r"\sum_{k=1}^{1000} \frac{1}{k}"),
    (r"\sum_{k=1}^n k", r"\frac{n(n+2)}{2}"),
]
UNDECIDED = [
    (r"\sum_{n=0}^{\infty} x^n", r"\frac{1}{1+x}"),
    (r"\sum_{n=0}^{\infty} x^n", r"\sum_{n=1}^{\infty} x^n"),
    ("0.3333", r"\int_0^1 x^2 \, dx"),
    (r"y = \int_0^x e^{t^2} dt", r"y = \int_0^x e^{t} dt"),
    (r"\sum_{k=1}^{n/2} k", "n"),
    (r"2^{501}-2", r"\sum_{k=1}^{500} 2^k"),
    (r"2^{501}-1", r"\sum_{k=1}^{500} 2^k"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_the_terms_of_a_finite_sum_are_evaluated(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "correct"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_a_value_near_a_finite_sum_is_incorrect(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "incorrect"


@pytest.mark.parametrize(("gold", "answer"), UNDECIDED)
def test_other_operators_decide_nothing(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "undecided"


@pytest.mark.parametrize("bound", ["100000", "10^9"])
def test_a_sum_with_too_many_terms_has_no_verdict(bound: str) -> None:
    for gold in ("5", "12.09015"):
        verdict = compare_answers(gold, rf"\sum_{{k=1}}^{{{bound}}} \frac{{1}}{{k}}")
        assert verdict.status == "timed_out"
