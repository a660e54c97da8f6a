"""Sympy as an oracle: it rewrites and prints expressions, the grader must see what stays equal."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy

from fsdpo_data.answers.comparison.equivalence import compare_answers

X, Y = sympy.symbols("x y")
_LEAVES = (X, Y, sympy.Integer(2), sympy.Integer(3), sympy.Rational(1, 2), sympy.Rational(5, 3))
_FUNCTIONS = (sympy.sin, sympy.cos, sympy.exp, sympy.log, sympy.sqrt)


def expression(rng: random.Random, depth: int, functions: tuple[Any, ...]) -> Any:
    """Return a random expression in x and y."""
    if depth == 0:
        return rng.choice(_LEAVES)
    left, right = (expression(rng, depth - 1, functions) for _ in range(2))
    kinds = ["+", "-", "*", "/", "^"] + ["f"] * bool(functions)
    match rng.choice(kinds):
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right != 0 else left
        case "^":
            return left ** rng.choice((2, 3, -1)) if left != 0 else right
        case _:
            return rng.choice(functions)(left)


def usable(found: Any) -> bool:
    """Whether the expression has values, and is no longer than what people write."""
    if found.has(sympy.zoo, sympy.nan, sympy.oo) or len(sympy.latex(found)) > 200:
        return False
    return bool(found.free_symbols)


def some(count: int, functions: tuple[Any, ...], seed: int) -> list[Any]:
    """Return different random expressions."""
    rng = random.Random(seed)
    found: dict[str, Any] = {}
    while len(found) < count:
        each = expression(rng, rng.choice((2, 3)), functions)
        if usable(each):
            found[sympy.latex(each)] = each
    return list(found.values())


RATIONAL = some(150, (), 0)
ELEMENTARY = some(60, _FUNCTIONS, 1)


@pytest.mark.parametrize("rewrite", [sympy.expand, sympy.factor, sympy.together, sympy.cancel])
def test_rewritten_rational_functions_are_equal(rewrite: Callable[[Any], Any]) -> None:
    pairs = [(sympy.latex(each), sympy.latex(rewrite(each))) for each in RATIONAL]
    different = sum(gold != answer for gold, answer in pairs)
    wrong = [pair for pair in pairs if compare_answers(*pair).status != "correct"]
    assert wrong == [] and different > 30


@pytest.mark.parametrize("rewrite", [sympy.expand, sympy.factor, sympy.powsimp])
def test_rewritten_functions_are_equal(rewrite: Callable[[Any], Any]) -> None:
    pairs = [(sympy.latex(each), sympy.latex(rewrite(each))) for each in ELEMENTARY]
    assert [pair for pair in pairs if compare_answers(*pair).status != "correct"] == []


def test_different_rational_functions_are_different() -> None:
    wrong = []
    for left, right in itertools.pairwise(RATIONAL):
        equal = sympy.cancel(left - right) == 0
        verdict = compare_answers(sympy.latex(left), sympy.latex(right))
        if (verdict.status == "correct") != equal:
            wrong.append((left, right, verdict.status))
    assert wrong == []


def test_a_changed_number_is_seen() -> None:
    wrong = []
    for each in RATIONAL + ELEMENTARY:
        numbers = sorted(each.atoms(sympy.Integer) - {sympy.Integer(-1)}, key=str)
        if not numbers:
            continue
        changed = each.xreplace({numbers[0]: numbers[0] + 5})
        if not usable(changed) or abs((changed - each).evalf(subs={X: 0.37, Y: 1.21})) < 1e-9:
            continue
        if compare_answers(sympy.latex(each), sympy.latex(changed)).status != "incorrect":
            wrong.append((sympy.latex(each), sympy.latex(changed)))
    assert wrong == []


def test_plain_text_is_read_like_latex() -> None:
    pairs = [(sympy.latex(each), str(each)) for each in RATIONAL]
    assert [pair for pair in pairs if compare_answers(*pair).status != "correct"] == []


def test_matrices_and_solution_sets() -> None:
    rng = random.Random(2)
    for _ in range(30):
        matrix = sympy.Matrix(2, 3, lambda i, j: sympy.Rational(rng.randint(-9, 9), 4))
        assert compare_answers(sympy.latex(matrix), sympy.latex(4 * matrix / 4)).status == "correct"
        assert compare_answers(sympy.latex(matrix), sympy.latex(matrix.T)).status == "incorrect"
        roots = [rng.randint(-6, 6) for _ in range(3)]
        solved = sympy.solveset(sympy.prod(X - root for root in roots), X)
        listed = ", ".join(str(root) for root in roots)
        assert compare_answers(sympy.latex(solved), listed).status == "correct", (solved, listed)
        low, high = sorted((roots[0], roots[0] + rng.randint(1, 9)))
        interval = sympy.Interval(low, high, rng.random() < 0.5, rng.random() < 0.5)
        relation = sympy.latex(interval.as_relational(X))
        assert compare_answers(sympy.latex(interval), relation).status == "correct", relation
