"""Sympy process: reads pairs of encoded expressions and prints whether they are equal.

``symbolic`` starts it with ``python -m``. It is the only module that imports sympy. It builds
expressions from nested lists with the names below: it parses no text and refuses unknown names.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sympy

MAX_MEMORY_BYTES = 1 << 30
#: CPU time per question, in seconds. Wall-clock time would change verdicts on a busy machine.
MAX_CPU_SECONDS = 2.0

_CIRCULAR_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc")


def _trigonometric_names() -> list[str]:
    """Return the circular and hyperbolic functions and their inverses."""
    names = [name + ending for name in _CIRCULAR_FUNCTIONS for ending in ("", "h")]
    return names + ["a" + name for name in names]


#: Builders of sympy expressions, by the name of the function or node type.
_BUILDERS: dict[str, Any] = {name: getattr(sympy, name) for name in _trigonometric_names()} | {
    "Add": sympy.Add, "Mul": sympy.Mul, "Div": lambda a, b: a / b, "Pow": sympy.Pow,
    "root": lambda a, b: a ** (1 / b), "abs": sympy.Abs, "ln": sympy.log,
    "log": lambda a, base=10: sympy.log(a, base), "lg": lambda a: sympy.log(a, 10),
    "factorial": sympy.factorial, "binom": sympy.binomial, "factorial2": sympy.factorial2,
    "deg": lambda a: a * sympy.pi / 180, "floor": sympy.floor, "ceil": sympy.ceiling,
    "sgn": sympy.sign, "max": sympy.Max, "min": sympy.Min,
}  # fmt: skip
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_OPERATORS = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral, "lim": sympy.Limit}


def are_equal(left: list[Any], right: list[Any]) -> bool:
    """Whether sympy proves two encoded expressions equal."""
    difference = (build_expression(left) - build_expression(right)).doit()
    # Sympy returns an infinite sum by cases: its value if it converges, else the sum itself.
    difference = difference.replace(
        lambda part: isinstance(part, sympy.Piecewise) and part.args[-1][0].has(sympy.Sum),
        lambda part: part.args[0][0],
    )
    if difference.has(*_OPERATORS.values()):
        difference = sympy.simplify(difference)
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def build_expression(node: list[Any], bound: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return the sympy expression of an encoded expression; KeyError for an unknown name.

    Args:
        node: The encoded expression.
        bound: The variables of the sums, integrals and limits around it, by name.
    """
    name, *parts = node
    if name == "Num":
        numerator, denominator = parts
        return sympy.Rational(numerator, denominator)
    if name == "Sym":
        # Positive symbols let sympy simplify roots and logarithms.
        is_integer = parts[0] in ("n", "m", "k")
        symbol = sympy.Symbol(parts[0], positive=True, integer=is_integer or None)
        return bound.get(parts[0], symbol)
    if name == "Const":
        return _CONSTANTS[parts[0]]
    if name in _OPERATORS:
        return _build_operator(name, parts, bound)
    return _BUILDERS[name](*(build_expression(part, bound) for part in parts))


def _build_operator(name: str, parts: list[Any], bound: Mapping[str, Any]) -> Any:
    """Return a sum, product, integral or limit over its bound variable."""
    [_, variable_name], *bound_nodes, body_node = parts
    limits = [build_expression(node, bound) for node in bound_nodes]
    is_discrete = name in ("sum", "prod")
    # Sympy simplifies the body while it is built, so its variable may not be positive.
    variable = sympy.Dummy(integer=True) if is_discrete else sympy.Dummy(real=True)
    body = build_expression(body_node, {**bound, variable_name: variable})
    if name == "lim":
        has_two_sides = limits[0].is_finite
        return sympy.Limit(body, variable, limits[0], "+-" if has_two_sides else "+")
    return _OPERATORS[name](body, (variable, *limits))


def main() -> None:
    """Answer one question per input line with one byte: ``1`` for equal, else ``0``.

    The first byte is a ``0`` without a question, as a sign that sympy has started. A question that
    exceeds the CPU limit ends the process without an answer.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    print(end="0", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)  # its signal ends the process
        try:
            left, right = json.loads(line)
            is_equal = are_equal(left, right)
        except Exception:  # an error in sympy leaves equality unproven
            is_equal = False
        print(end=str(int(is_equal)), flush=True)


if __name__ == "__main__":
    main()
