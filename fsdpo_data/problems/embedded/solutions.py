"""Solutions of embedded problems: writing them with or without errors, and checking their steps."""

import random
import re
from collections.abc import Collection, Mapping, Sequence

from fsdpo_data.core.entities import Problem
from fsdpo_data.problems.embedded.story import Node, apply, value_of, words

#: Numbers have at most six digits; longer numbers are always wrong and slow to convert.
_NUMBER = r"(-?\d{1,6})"
_STEP = re.compile(r"Step (\d{1,3}):(.*)", re.DOTALL | re.ASCII)
_EQUATION = re.compile(rf"(?<![\w.]){_NUMBER} ([-+*/]) {_NUMBER} = {_NUMBER}(?!\w)", re.ASCII)
#: Characters that may not occur outside the equation: other numbers and longer sums.
_OTHER_MATHS = re.compile(r"[\d=+*/]")
_ANSWER = re.compile(rf"The answer is: {_NUMBER}\s*\Z", re.ASCII)

#: Weights of the errors in a wrong step: a wrong operation, or the number of the distractor. If
#: the error does not give another value in range, the result is off by one.
_SLIPS = {"operation": 4.0, "distractor": 1.0}
_WRONG_OPERATION = {"+": "-", "-": "+", "*": "+", "/": "-"}

Equation = tuple[int, str, int, int]  #: (left, operation, right, result) as written.


def write_solution(
    problem: Problem,
    rng: random.Random,
    error_rate: float = 0.0,
    relation_error_rates: Mapping[str, float] | None = None,
    wrong_steps: Collection[int] = (),
) -> list[str]:
    """Write a solution in which each step is wrong with probability ``error_rate``.

    Later steps use the wrong value consistently, so the final answer is usually wrong.

    Args:
        problem: The problem.
        rng: Random generator of the errors and the sentences.
        error_rate: Probability of an error in a step.
        relation_error_rates: Probability of an error by relation (``node[0]``, such as "half"), in
            place of ``error_rate``.
        wrong_steps: 0-based indices of steps that are wrong in any case.

    Returns:
        The steps; joined, they give the text.
    """
    # A node is [relation, operation, operand, operand, person]; see story.py.
    nodes: list[Node] = problem.metadata["nodes"]
    steps: list[str] = []
    values: list[int] = []
    for i, node in enumerate(nodes):
        equation = _right_equation(node, values)
        step_error_rate = (relation_error_rates or {}).get(str(node[0]), error_rate)
        if rng.random() < step_error_rate or i in wrong_steps:
            equation = _wrong_equation(problem, node, equation, rng)
        values.append(equation[3])
        answer = f" The answer is: {values[-1]}" if i == len(nodes) - 1 else "\n"
        left, op, right, result = equation
        sentence = rng.choice(words()["say"][str(node[0])]).format(
            who=node[4], thing=problem.metadata["thing"], eq=f"{left} {op} {right} = {result}"
        )
        steps.append(f"Step {i + 1}: {sentence}{answer}")
    return steps


def first_wrong_step(problem: Problem, steps: Sequence[str]) -> int | None:
    """Return the 0-based index of the first wrong step, None if every step is right.

    No text is undecided. A step is right under these conditions:

    - Its number continues the order.
    - It computes exactly one node of the problem from values that earlier steps computed. The order
      of the nodes is free, and so is the order of the operands in a sum or product.
    - The result is right.
    - It states no answer, or the right answer after all nodes are computed.

    Only the equation counts, not the words around it. No step may follow the answer.
    """
    nodes: list[Node] = problem.metadata["nodes"]
    done: dict[int, int] = {}
    answered = False
    for i, step in enumerate(steps):
        equation = None if answered else _read_equation(step, number=i + 1)
        node = None if equation is None else _find_node(nodes, done, equation)
        if equation is None or node is None:
            return i
        done[node] = equation[3]
        stated = _ANSWER.search(step)
        answered = stated is not None
        if stated and (len(nodes) - 1 not in done or stated[1] != problem.answer):
            return i
    return None


def final_answer(text: str) -> str | None:
    """Return the number at the end of a solution; None without a final answer."""
    match = _ANSWER.search(text)
    return match[1] if match else None


def _read_equation(step: str, number: int) -> Equation | None:
    """Return the only equation of a step; None if the step has another form."""
    head = _STEP.fullmatch(step.strip())
    if head is None or int(head[1]) != number:
        return None
    body = _ANSWER.sub("", head[2])
    match = _EQUATION.search(body)
    if match is None or _OTHER_MATHS.search(body[: match.start()] + body[match.end() :]):
        return None
    left, op, right, result = match.groups()
    return int(left), op, int(right), int(result)


def _find_node(nodes: Sequence[Node], done: dict[int, int], written: Equation) -> int | None:
    """Return the index of a node that ``written`` computes, if possible a new one."""
    left, op, second, result = written
    spellings = (written, (second, op, left, result)) if op in "+*" else (written,)
    fits = [
        i
        for i, node in enumerate(nodes)
        if all(int(x[1:]) in done for x in node[2:4] if isinstance(x, str))  # computed already
        and _right_equation(node, done) in spellings
    ]
    return min(fits, key=lambda i: (i in done, i), default=None)


def _right_equation(node: Node, values: Sequence[int] | dict[int, int]) -> Equation:
    """Return the equation of a node with the values of earlier nodes."""
    _, op, a, b, _ = node
    left = value_of(a, values)
    right = value_of(b, values)
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
