"""Sympy as an oracle: it rewrites random expressions, and the grader must find them equal."""

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


def random_expression(rng: random.Random, depth: int, functions: tuple[Any, ...]) -> Any:
    """Return a random expression in x and y."""
    if depth == 0:
        return rng.choice(_LEAVES)
    left, right = (random_expression(rng, depth - 1, functions) for _ in range(2))
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


def is_usable(candidate: Any) -> bool:
    """Return whether an expression has values and is as short as typical answers."""
    if candidate.has(sympy.zoo, sympy.nan, sympy.oo) or len(sympy.latex(candidate)) > 200:
        return False
    return bool(candidate.free_symbols)


def random_expressions(count: int, functions: tuple[Any, ...], seed: int) -> list[Any]:
    """Return different random expressions."""
    rng = random.Random(seed)
    expressions: dict[str, Any] = {}
    while len(expressions) < count:
        candidate = random_expression(rng, rng.choice((2, 3)), functions)
        if is_usable(candidate):
            expressions[sympy.latex(candidate)] = candidate
    return list(expressions.values())


RATIONAL = random_expressions(150, (), 0)
ELEMENTARY = random_expressions(60, _FUNCTIONS, 1)


@pytest.mark.parametrize("rewrite", [sympy.expand, sympy.factor, sympy.together, sympy.cancel])
def test_rewritten_rational_functions_are_equal(rewrite: Callable[[Any], Any]) -> None:
    pairs = [(sympy.latex(function), sympy.latex(rewrite(function))) for function in RATIONAL]
    different = sum(gold != answer for gold, answer in pairs)
    wrong = [pair for pair in pairs if compare_answers(*pair).status != "correct"]
    assert wrong == [] and different > 30


@pytest.mark.parametrize("rewrite", [sympy.expand, sympy.factor, sympy.powsimp])
def test_rewritten_functions_are_equal(rewrite: Callable[[Any], Any]) -> None:
    pairs = [(sympy.latex(function), sympy.latex(rewrite(function))) for function in ELEMENTARY]
    assert [pair for pair in pairs if compare_answers(*pair).status != "correct"] == []


def test_different_rational_functions_are_different() -> None:
    wrong = []
    for left, right in itertools.pairwise(RATIONAL):
        equal = sympy.cancel(left - right) == 0
        verdict = compare_answers(sympy.latex(left), sympy.latex(right))
        if (verdict.status == "correct") != equal:
            wrong.append((left, right, verdict.status))
    assert wrong == []


def test_a_changed_number_makes_an_expression_different() -> None:
    wrong = []
    for function in RATIONAL + ELEMENTARY:
        numbers = sorted(function.atoms(sympy.Integer) - {sympy.Integer(-1)}, key=str)
        if not numbers:
            continue
        changed = function.xreplace({numbers[0]: numbers[0] + 5})
        if (
            not is_usable(changed)
            or abs((changed - function).evalf(subs={X: 0.37, Y: 1.21})) < 1e-9
        ):
            continue
        if compare_answers(sympy.latex(function), sympy.latex(changed)).status != "incorrect":
            wrong.append((sympy.latex(function), sympy.latex(changed)))
    assert wrong == []


def test_plain_text_is_read_like_latex() -> None:
    pairs = [(sympy.latex(function), str(function)) for function in RATIONAL]
    assert [pair for pair in pairs if compare_answers(*pair).status != "correct"] == []


def test_matrices_and_solution_sets() -> None:
    rng = random.Random(2)
    for _ in range(30):
        matrix = sympy.Matrix(2, 3, lambda i, j: sympy.Rational(rng.randint(-9, 9), 4))
        assert compare_answers(sympy.latex(matrix), sympy.latex(4 * matrix / 4)).status == "correct"
        assert compare_answers(sympy.latex(matrix), sympy.latex(matrix.T)).status == "incorrect"
        roots = [rng.randint(-6, 6) for _ in range(3)]
        solution_set = sympy.solveset(sympy.prod(X - root for root in roots), X)
        root_list = ", ".join(str(root) for root in roots)
        assert compare_answers(sympy.latex(solution_set), root_list).status == "correct", (
            solution_set,
            root_list,
        )
        low, high = sorted((roots[0], roots[0] + rng.randint(1, 9)))
        interval = sympy.Interval(low, high, rng.random() < 0.5, rng.random() < 0.5)
        relation = sympy.latex(interval.as_relational(X))
        assert compare_answers(sympy.latex(interval), relation).status == "correct", relation
