"""Sympy as a second opinion: expressions of the grader as sympy expressions."""

from __future__ import annotations

from typing import Any

import sympy

from fsdpo_data.answers.tree import Call, Const, Node, Num, Sym, children

_CIRCULAR_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc")
_TRIGONOMETRIC = [name + ending for name in _CIRCULAR_FUNCTIONS for ending in ("", "h")]
#: Builders of sympy expressions, by the name of the function or node type.
_BUILDERS: dict[str, Any] = {
    name: getattr(sympy, name)
    for name in (*_TRIGONOMETRIC, *(f"a{name}" for name in _TRIGONOMETRIC))
} | {
    "Add": sympy.Add, "Mul": sympy.Mul, "Div": lambda a, b: a / b, "Pow": sympy.Pow,
    "root": lambda a, b: a ** (1 / b), "abs": sympy.Abs, "ln": sympy.log,
    "log": lambda a, base=10: sympy.log(a, base), "lg": lambda a: sympy.log(a, 10),
    "factorial": sympy.factorial, "binom": sympy.binomial, "factorial2": sympy.factorial2,
    "deg": lambda a: a * sympy.pi / 180, "floor": sympy.floor, "ceil": sympy.ceiling,
    "sgn": sympy.sign, "max": sympy.Max, "min": sympy.Min,
}  # fmt: skip
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}


def sympy_expression(node: Node) -> Any:
    """Return an expression of sympy; KeyError for an operator or an unknown name."""
    if isinstance(node, Num):
        return sympy.Rational(node.value.numerator, node.value.denominator)
    if isinstance(node, Sym):
        # Positive symbols let sympy simplify roots and logarithms.
        is_integer = node.name in ("n", "m", "k")
        return sympy.Symbol(node.name, positive=True, integer=is_integer or None)
    if isinstance(node, Const):
        return _CONSTANTS[node.name]
    name = node.name if isinstance(node, Call) else type(node).__name__
    return _BUILDERS[name](*map(sympy_expression, children(node)))
