"""Formulas for pages: MathML that does nothing but stand there, from whatever a model wrote."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from fsdpo_cards.pages.formulas import FORMULA_PATTERN, formula_trees

LOTS = 10**7


def tree(written: str) -> Any:
    return formula_trees([written], [written], LOTS).get(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("$x^2$", ["math", {"display": "inline"}, ["msup", ["mi", "x"], ["mn", "2"]]]),
        (r"\[\frac12\]", ["math", {"display": "block"}, ["mfrac", ["mn", "1"], ["mn", "2"]]]),
        (r"\(\pi\)", ["math", {"display": "inline"}, ["mi", "π"]]),
        (r"\frac{1}{2}", ["math", {"display": "inline"}, ["mfrac", ["mn", "1"], ["mn", "2"]]]),
        (r"$\text{<b>}$", ["math", {"display": "inline"}, ["mtext", "<b>"]]),
    ],
)
def test_a_formula_is_a_tree_of_elements_and_texts(written: str, expected: Any) -> None:
    assert tree(written) == expected


def test_formulas_are_found_and_money_is_not() -> None:
    text = r"It costs $5 and $6, so $x$ is \(y\) or $$z$$. From $10-$20; \[w\]"
    assert re.findall(FORMULA_PATTERN, text) == ["$x$", r"\(y\)", "$$z$$", r"\[w\]"]


@pytest.mark.parametrize(
    "written",
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
def test_what_may_do_something_or_has_no_end_stays_text(written: str) -> None:
    assert tree(written) is None


def test_no_attribute_leads_anywhere_or_leaves_the_page() -> None:
    hostile = [
        r"$\rule{99999em}{99999em}$",
        r"$\hspace{99999em}x$",
        r"$\color{red}x$",
        r"$\text{&lt;script&gt;}\unicode{x3c}$",
    ]
    for found in formula_trees(hostile, [], LOTS).values():
        said = json.dumps(found)
        assert not re.search(r"99999|href|url|on\w+=|color|&", said), said


def test_a_hostile_run_is_bounded_in_time_and_size() -> None:
    """Distinct formulas as long as may be, of the kinds that take the converter longest."""
    kinds = ("$" + "x" * 990 + "{}$", "$" + "'" * 990 + "{}$", "$" + "^" * 990 + "{}$")
    texts = [kind.replace("{}", f"{n:05}") for n in range(3000) for kind in kinds]
    started = time.process_time()  # of this process: others may share the cores
    found = formula_trees([*texts, r"\[" * 3000, "$x " * 2000], [], 200_000)
    assert len(json.dumps(found)) < 220_000
    assert time.process_time() - started < 10
