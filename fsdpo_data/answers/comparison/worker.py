"""The sympy process: reads questions as nested lists, says whether their two sides are equal.

Started by ``symbolic`` as ``python -m``; the only file that imports sympy. Lists are built into
expressions name by name, from the names below: nothing is parsed, and an unknown name is refused.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

import sympy

#: Bytes of memory it may have, and processor seconds for each question: not seconds by the clock,
#: so that a busy machine changes no verdict.
MEMORY, SECONDS = 1 << 30, 2.0

_CIRCULAR = ("sin", "cos", "tan", "cot", "sec", "csc")


_TRIG = tuple(a + name + h for a in ("", "a") for name in _CIRCULAR for h in ("", "h"))
#: What each function of ours makes.
_MAKERS: dict[str, Any] = {name: getattr(sympy, name) for name in _TRIG} | {
    "Add": sympy.Add, "Mul": sympy.Mul, "Div": lambda a, b: a / b, "Pow": sympy.Pow,
    "root": lambda a, b: a ** (1 / b), "abs": sympy.Abs, "ln": sympy.log,
    "log": lambda a, base=10: sympy.log(a, base), "lg": lambda a: sympy.log(a, 10),
    "factorial": sympy.factorial, "binom": sympy.binomial, "factorial2": sympy.factorial2,
    "deg": lambda a: a * sympy.pi / 180, "floor": sympy.floor, "ceil": sympy.ceiling,
    "sgn": sympy.sign, "max": sympy.Max, "min": sympy.Min,
}  # fmt: skip
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_OPERATORS = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral, "lim": sympy.Limit}


def equal(left: list[Any], right: list[Any]) -> bool:
    """Whether two encoded expressions are equal, by everything that sympy knows."""
    difference = (built(left) - built(right)).doit()
    # An endless sum comes as its value where it converges, and as itself elsewhere.
    difference = difference.replace(
        lambda part: isinstance(part, sympy.Piecewise) and part.args[-1][0].has(sympy.Sum),
        lambda part: part.args[0][0],
    )
    if difference.has(*_OPERATORS.values()):
        difference = sympy.simplify(difference)
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def built(node: list[Any]) -> Any:
    """Build the sympy expression of an encoded one."""
    name, *parts = node
    if name == "Num":
        return sympy.Rational(*parts)
    if name == "Sym":
        whole = parts[0] in ("n", "m", "k") or parts[0].startswith("#")
        return sympy.Symbol(parts[0], positive=True, integer=whole or None)
    if name == "Const":
        return _CONSTANTS[parts[0]]
    if name in _OPERATORS:
        return _operator(name, parts)
    return _MAKERS[name](*map(built, parts))


def _operator(name: str, parts: list[Any]) -> Any:
    """Build a sum, product, integral or limit over its bound variable."""
    *ends, body = map(built, parts[1:])
    listed = name in ("sum", "prod")
    variable = sympy.Dummy(integer=True) if listed else sympy.Dummy(real=True)
    body = body.xreplace({built(parts[0]): variable})
    if name == "lim":
        return sympy.Limit(body, variable, ends[0])
    return _OPERATORS[name](body, (variable, *ends))


def main() -> None:
    """Answer questions, one a line, until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(end="0", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # ends the process
        try:
            answer = equal(*json.loads(line))
        except Exception:  # whatever sympy trips over is not shown to be equal
            answer = False
        print(end=str(int(answer)), flush=True)


if __name__ == "__main__":
    main()
