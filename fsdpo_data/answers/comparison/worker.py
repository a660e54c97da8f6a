"""Sympy process: reads pairs of encoded expressions and prints whether they are equal.

``symbolic`` starts it with ``python -m``. It is the only module that imports sympy. It builds
expressions from nested lists with the names below: it parses no text and refuses unknown names.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
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


def build_expression(node: list[Any]) -> Any:
    """Return the sympy expression of an encoded expression; KeyError for an unknown name."""
    name, *parts = node
    if name == "Num":
        numerator, denominator = parts
        return sympy.Rational(numerator, denominator)
    if name == "Sym":
        # "#1" and so on name the variables of sums and integrals. Positive symbols let sympy
        # simplify roots and logarithms.
        is_integer = parts[0] in ("n", "m", "k") or parts[0].startswith("#")
        return sympy.Symbol(parts[0], positive=True, integer=is_integer or None)
    if name == "Const":
        return _CONSTANTS[parts[0]]
    if name in _OPERATORS:
        return _build_operator(name, parts)
    return _BUILDERS[name](*map(build_expression, parts))


def _build_operator(name: str, parts: list[Any]) -> Any:
    """Return a sum, product, integral or limit over its bound variable."""
    *bounds, body = map(build_expression, parts[1:])
    is_discrete = name in ("sum", "prod")
    variable = sympy.Dummy(integer=True) if is_discrete else sympy.Dummy(real=True)
    body = body.xreplace({build_expression(parts[0]): variable})
    if name == "lim":
        return sympy.Limit(body, variable, bounds[0])
    return _OPERATORS[name](body, (variable, *bounds))


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
