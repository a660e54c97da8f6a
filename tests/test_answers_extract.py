"""Extraction: which part of a response is its answer, and by which rule."""

import time

import pytest

from fsdpo_data.answers.extract import extract, last_boxed

BOXES = [
    (r"so \boxed{5}", "5"),
    (r"\boxed{1} and later \boxed{2}", "2"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\fbox{958} values", "958"),
    (r"\boxed 2", "2"),
    (r"$\boxed 2$ is it", "2"),
    (r"\boxed\frac12$", r"\frac12"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
    (r"\boxed{}", ""),
    (r"first \boxed{4}, then \boxed{5", "4"),
    (r"only \boxed{5", None),
    ("no box", None),
]


@pytest.mark.parametrize(("text", "expected"), BOXES)
def test_last_boxed_takes_the_last_well_formed_box(text, expected):
    assert last_boxed(text) == expected


RESPONSES = [
    ("The answer is: 5", "5", "answer-is"),
    ("The final answer is $\\frac12$. I hope it is correct.", "$\\frac12$", "final-answer"),
    ("#### 1,000", "1,000", "hash"),
    ("A: 18", "18", "label"),
    ("**Answer:** 5 apples because x", "5 apples", "label"),
    ("the answer is\n\\[ x+1 \\]\nas shown", "x+1", "answer-is"),
    ("\\boxed{3} and $\\boxed{4}$", "3 , 4", "boxed-list"),
    ("\\boxed{3}. Wait, no: it is \\boxed{4}", "4", "boxed"),
    ("The answer is 5.\n\nQuestion: and then?\nThe answer is 9.", "5", "answer-is"),
    ("3/5", "3/5", "whole"),
    ("Work.\nSo the probability is $\\frac{3}{4}$.", "\\frac{3}{4}", "last-maths"),
    ("", None, "none"),
    (" \n ", None, "none"),
]


@pytest.mark.parametrize(("text", "answer", "rule"), RESPONSES)
def test_each_rule_takes_the_answer_it_is_for(text, answer, rule):
    found = extract(text)
    assert (found.answer, found.rule) == (answer, rule)


def test_strict_keeps_only_what_the_response_marks_as_its_answer():
    assert extract("The answer is 5").strict == "5"
    assert extract("She has 5").strict is None


@pytest.mark.parametrize(
    "unit",
    ["{", "\\boxed{", "\\boxed ", "a", "\n", " ", "$", "1,", "-", "* ", "answer is ", "\nQ: "],
)
def test_a_megabyte_of_anything_costs_a_page(unit):
    text = unit * (1_000_000 // len(unit))
    extract(text)
    started = time.perf_counter()
    extract(text)
    assert time.perf_counter() - started < 0.05
