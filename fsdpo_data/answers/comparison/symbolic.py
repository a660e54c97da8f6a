"""The last tier: limits, integrals and endless sums, which no evaluation at points can decide.

Asked only where the cheap tiers leave a pair open and rough values do not tell its sides apart.
Sympy works in a process of its own, on what ``encoded`` makes of our trees: it never sees a text.
The process may take so many bytes and processor seconds; beyond that it ends, and the pair is timed
out.
"""

import atexit
import json
import select
import subprocess
import sys
from threading import Lock
from typing import Any

from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.numeric import OPERATORS, Evaluator, is_unknown, symbols
from fsdpo_data.answers.tree import Call, Const, Node, Num, Pow, Sym, children, walk

#: Seconds by the clock that sympy may take to start, and for one question on a busy machine.
START, SECONDS = 30.0, 20.0
#: Largest expression, in nodes, and largest number in it, that is asked about.
MAX_NODES, MAX_NUMBER = 60, 10**4
_ROUGH = 0.1  #: Relative difference of rough values above which two sides differ.


def equal(left: Node, right: Node, budget: Budget) -> bool:
    """Whether sympy finds two sides equal; False without asking where it cannot help.

    Raises:
        BudgetExceededError: It takes too long.
    """
    if not (_has_operator(left) or _has_operator(right)) or symbols(left) != symbols(right):
        return False
    if max(_size(left), _size(right)) > MAX_NODES or _apart(left, right, budget):
        return False
    budget.decided_by = "symbolic"
    return _ask([encode_tree(left), encode_tree(right)])


def _has_operator(node: Node) -> bool:
    calls = (each for each in walk(node) if isinstance(each, Call))
    return any(call.name in OPERATORS and len(call.args) > 2 for call in calls)


def _size(node: Node) -> int:
    if isinstance(node, Num):
        return 1 if max(abs(node.value.numerator), node.value.denominator) <= MAX_NUMBER else 999
    if isinstance(node, Call) and is_unknown(node.name) and not _has_operator(node):
        return 999
    if isinstance(node, Pow) and isinstance(node.exponent, Num):
        base = abs(node.base.value) if isinstance(node.base, Num) else 3
        if abs(node.exponent.value) > 8 or base ** abs(node.exponent.value) > MAX_NUMBER:
            return 999
    return 1 + sum(map(_size, children(node)))


def _apart(left: Node, right: Node, budget: Budget) -> bool:
    """Whether rough values at one point already tell the sides apart."""
    try:
        values = [Evaluator(0, budget, rough=True).value(side) for side in (left, right)]
    except (UndefinedValueError, NumberTooLargeError):
        return False
    return bool(abs(values[0] - values[1]) > _ROUGH * max(map(abs, values)))


def encode_tree(node: Node) -> list[Any]:
    """Return a tree as nested lists of names and integers, for a process that trusts no text."""
    if isinstance(node, Num):
        return ["Num", node.value.numerator, node.value.denominator]
    if isinstance(node, Sym | Const):
        return [type(node).__name__, node.name]
    name = node.name if isinstance(node, Call) else type(node).__name__
    return [name, *map(encode_tree, children(node))]


class _Process:
    """One sympy process, started when the first question comes up and again after each kill."""

    def __init__(self) -> None:
        self.child: Any = None  # a Popen; its pipes are always there
        self.lock = Lock()

    def ask(self, question: list[Any]) -> bool:
        """Return the answer to one question.

        Raises:
            BudgetExceededError: There is none in time.
        """
        with self.lock:
            if self.child is None or self.child.poll() is not None:
                self.stop()
                self.child = subprocess.Popen(
                    [sys.executable, "-m", "fsdpo_data.answers.comparison.worker"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                self._read(START)
            self.child.stdin.write(json.dumps(question).encode() + b"\n")
            self.child.stdin.flush()
            return self._read(SECONDS) == b"1"

    def _read(self, seconds: float) -> bytes:
        pipe = self.child.stdout
        ready, _, _ = select.select([pipe], [], [], seconds)
        said = pipe.read(1) if ready else b""
        if not said:
            self.stop()
            raise BudgetExceededError("sympy takes too long")
        return said

    def stop(self) -> None:
        """End the process."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


_PROCESS = _Process()
_ask = _PROCESS.ask
atexit.register(_PROCESS.stop)
