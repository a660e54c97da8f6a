"""Conversion of formulas in model outputs to safe MathML."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from fsdpo_cards.formulas import FORMULA_PATTERN, formula_trees

LARGE_BUDGET = 10**7


def tree(formula: str) -> Any:
    return formula_trees([formula], [formula], LARGE_BUDGET).get(formula)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("$x^2$", ["math", {"display": "inline"}, ["msup", ["mi", "x"], ["mn", "2"]]]),
        (r"\[\frac12\]", ["math", {"display": "block"}, ["mfrac", ["mn", "1"], ["mn", "2"]]]),
        (r"\(\pi\)", ["math", {"display": "inline"}, ["mi", "π"]]),
        (r"\frac{1}{2}", ["math", {"display": "inline"}, ["mfrac", ["mn", "1"], ["mn", "2"]]]),
        (r"$\text{<b>}$", ["math", {"display": "inline"}, ["mtext", "<b>"]]),
    ],
)
def test_a_formula_is_a_tree_of_elements_and_texts(formula: str, expected: Any) -> None:
    assert tree(formula) == expected


def test_formulas_are_matched_but_prices_are_not() -> None:
    text = r"It costs $5 and $6, so $x$ is \(y\) or $$z$$. From $10-$20; \[w\]"
    assert re.findall(FORMULA_PATTERN, text) == ["$x$", r"\(y\)", "$$z$$", r"\[w\]"]


@pytest.mark.parametrize(
    "formula",
    [
        r"$\href{javascript:alert(1)}{x}$",
        r"$\def\a{\a\a}\a$",
        r"$\newcommand{\a}{\a\a}\a$",
        r"$\style{position:fixed}{x}$",
        "$" + "{x+" * 200 + "1" + "}" * 200 + "$",
        "$" + "x" * 1001 + "$",
        "$" + "_" * 900 + "$",
        "$a_$",
    ],
)
def test_unsafe_or_too_long_formulas_stay_text(formula: str) -> None:
    assert tree(formula) is None


def test_no_attribute_contains_links_or_large_sizes() -> None:
    hostile = [
        r"$\rule{99999em}{99999em}$",
        r"$\hspace{99999em}x$",
        r"$\color{red}x$",
        r"$\text{&lt;script&gt;}\unicode{x3c}$",
    ]
    for formula_tree in formula_trees(hostile, [], LARGE_BUDGET).values():
        tree_json = json.dumps(formula_tree)
        assert not re.search(r"99999|href|url|on\w+=|color|&", tree_json), tree_json


def test_a_hostile_run_is_bounded_in_time_and_size() -> None:
    """Convert distinct formulas of maximal length and of the slowest kinds."""
    kinds = ("$" + "x" * 990 + "{}$", "$" + "'" * 990 + "{}$", "$" + "^" * 990 + "{}$")
    texts = [kind.replace("{}", f"{n:05}") for n in range(3000) for kind in kinds]
    started = time.process_time()  # CPU time, because other processes may share the cores
    formula_trees_by_text = formula_trees([*texts, r"\[" * 3000, "$x " * 2000], [], 200_000)
    assert len(json.dumps(formula_trees_by_text)) < 220_000
    assert time.process_time() - started < 10
