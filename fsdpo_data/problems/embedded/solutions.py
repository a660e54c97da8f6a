"""Solutions of the embedded world: written right or wrong, and judged step by step."""

import random
import re
from collections.abc import Mapping, Sequence

from fsdpo_data.core.entities import Problem
from fsdpo_data.problems.embedded.story import Node, apply, value_of, words

#: At most this many digits are read; longer numbers cannot be right and cost time to convert.
_NUMBER = r"(-?\d{1,6})"
_STEP = re.compile(r"Step (\d{1,3}):(.*)", re.DOTALL | re.ASCII)
_EQUATION = re.compile(rf"(?<![\w.]){_NUMBER} ([-+*/]) {_NUMBER} = {_NUMBER}(?!\w)", re.ASCII)
#: What may not stand beside the equation: more numbers, longer sums.
_MORE_MATHS = re.compile(r"[\d=+*/]")
_ANSWER = re.compile(rf"The answer is: {_NUMBER}\s*\Z", re.ASCII)

#: What a wrong step does instead, by how often: takes the wrong operation or the distractor's
#: number. Where neither gives another value in range, it slips by one.
_SLIPS = {"operation": 4.0, "distractor": 1.0}
_WRONG_OPERATION = {"+": "-", "-": "+", "*": "+", "/": "-"}

Equation = tuple[int, str, int, int]  #: (left, operation, right, result) as written.


def write_solution(
    problem: Problem,
    rng: random.Random,
    error_rate: float = 0.0,
    relation_error_rates: Mapping[str, float] | None = None,
) -> list[str]:
    """Write a solution in which each step goes wrong with probability ``error_rate``.

    Later steps carry on consistently from a wrong value, so the final answer is usually wrong.
    ``mistaken`` are the relations whose steps go wrong with probabilities of their own.

    Returns:
        The steps; joined they are the text.
    """
    nodes: list[Node] = problem.metadata["nodes"]
    steps: list[str] = []
    values: list[int] = []
    for i, node in enumerate(nodes):
        equation = _right(node, values)
        if rng.random() < (relation_error_rates or {}).get(str(node[0]), error_rate):
            equation = _wrong_equation(problem, node, equation, rng)
        values.append(equation[3])
        answer = f" The answer is: {values[-1]}" if i == len(nodes) - 1 else "\n"
        left, op, right, result = equation
        said = rng.choice(words()["say"][str(node[0])]).format(
            who=node[4], thing=problem.metadata["thing"], eq=f"{left} {op} {right} = {result}"
        )
        steps.append(f"Step {i + 1}: {said}{answer}")
    return steps


def first_wrong_step(problem: Problem, steps: Sequence[str]) -> int | None:
    """Return the 0-based index of the first wrong step, None if every step is right.

    Any text has a verdict. A step is right if it is numbered in order, works out exactly one
    step of the problem from values already at hand (in any order that allows it, operands of
    a sum or product either way round), gets the result right, and either states no answer or
    states the right one once everything is worked out. Only the equation is judged, not the
    words around it. Nothing may follow the answer.
    """
    nodes: list[Node] = problem.metadata["nodes"]
    done: dict[int, int] = {}
    answered = False
    for i, step in enumerate(steps):
        equation = None if answered else _read(step, number=i + 1)
        node = None if equation is None else _matching(nodes, done, equation)
        if equation is None or node is None:
            return i
        done[node] = equation[3]
        stated = _ANSWER.search(step)
        answered = stated is not None
        if stated and (len(nodes) - 1 not in done or stated[1] != problem.answer):
            return i
    return None


def final_answer(text: str) -> str | None:
    """Return the number a solution ends with, None if it states none."""
    found = _ANSWER.search(text)
    return found[1] if found else None


def _read(step: str, number: int) -> Equation | None:
    """Read the one equation of a step in the format; None for anything else."""
    head = _STEP.fullmatch(step.strip())
    if head is None or int(head[1]) != number:
        return None
    body = _ANSWER.sub("", head[2])
    found = _EQUATION.search(body)
    if found is None or _MORE_MATHS.search(body[: found.start()] + body[found.end() :]):
        return None
    left, op, right, result = found.groups()
    return int(left), op, int(right), int(result)


def _matching(nodes: Sequence[Node], done: dict[int, int], written: Equation) -> int | None:
    """Return the node that ``written`` works out, preferring one not yet done."""
    left, op, second, result = written
    spellings = (written, (second, op, left, result)) if op in "+*" else (written,)
    fits = [
        i
        for i, node in enumerate(nodes)
        if all(int(x[1:]) in done for x in node[2:4] if isinstance(x, str))  # worked out already
        and _right(node, done) in spellings
    ]
    return min(fits, key=lambda i: (i in done, i), default=None)


def _right(node: Node, values: Sequence[int] | dict[int, int]) -> Equation:
    """Return the node's equation over ``values``."""
    _, op, a, b, _ = node
    left, right = value_of(a, values), value_of(b, values)
    return left, str(op), right, apply(str(op), left, right)


def _wrong_equation(problem: Problem, node: Node, right: Equation, rng: random.Random) -> Equation:
    """Return a wrong equation in place of ``right``."""
    left, op, second, result = right
    slip = rng.choices(list(_SLIPS), weights=list(_SLIPS.values()))[0]
    wrong_op = _WRONG_OPERATION[op]
    distractor = problem.metadata["distractor"]
    if slip == "distractor" and distractor is not None and op != "/":
        wrong = (left, op, distractor, apply(op, left, distractor))
    else:
        wrong = (left, wrong_op, second, apply(wrong_op, left, second))
    if wrong[3] == result or not 0 <= wrong[3] < 200:
        wrong = (left, op, second, result + rng.choice((-1, 1)))
    return wrong
