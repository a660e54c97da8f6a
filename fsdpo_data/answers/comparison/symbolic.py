"""Comparison of limits, integrals and infinite sums by sympy, as the last resort.

Sympy runs only if the other comparisons leave a pair open. It can prove that two sides are equal;
otherwise the pair stays undecided.

Sympy has a process of its own, with limits on memory and CPU time. If it reaches a limit, the
process ends and the pair times out. The process receives trees from ``encode_tree``, never text.
"""

import atexit
import json
import select
import subprocess
import sys
from threading import Lock
from typing import Any

from fsdpo_data.answers.budget import BudgetExceededError
from fsdpo_data.answers.comparison.numeric import is_unknown_function
from fsdpo_data.answers.comparison.symbols import BINDING_OPERATORS, free_symbols, has_steps
from fsdpo_data.answers.tree import Call, Const, Node, Num, Pow, Sym, children, walk

#: Wall-clock limit for the start of sympy, in seconds.
START_TIMEOUT_SECONDS = 30.0
#: Wall-clock limit for one question, in seconds; generous, for busy machines.
QUESTION_TIMEOUT_SECONDS = 20.0
#: Size of the largest expression that sympy compares, in nodes.
MAX_NODES = 60
#: Largest number in an expression that sympy compares.
MAX_NUMBER = 10**4
MAX_EXPONENT = 8  #: Largest numeric exponent in an expression that sympy compares.
#: Size of a node that sympy must not compare: more than ``MAX_NODES``.
_TOO_LARGE = 999


EQUAL = b"1"  #: Reply of the sympy process for equal sides.


def are_proven_equal(left: Node, right: Node) -> bool:
    """Whether sympy proves two sides equal; False without a question if sympy cannot help.

    Raises:
        BudgetExceededError: Sympy takes too long.
    """
    if not (_has_operator(left) or _has_operator(right)):
        return False
    if free_symbols(left) != free_symbols(right):
        return False
    # Sympy takes symbols as positive, where |x| is x.
    if free_symbols(left) and has_steps(left, right):
        return False
    if max(_size(left), _size(right)) > MAX_NODES:
        return False
    return _ask([encode_tree(left), encode_tree(right)]) == EQUAL


def _has_operator(node: Node) -> bool:
    """Whether ``node`` contains a sum, product, integral or limit."""
    calls = (part for part in walk(node) if isinstance(part, Call))
    return any(call.name in BINDING_OPERATORS and len(call.args) > 2 for call in calls)


def _size(node: Node) -> int:
    """Return the number of nodes; more than ``MAX_NODES`` for anything too hard for sympy."""
    if isinstance(node, Num):
        largest = max(abs(node.value.numerator), node.value.denominator)
        return 1 if largest <= MAX_NUMBER else _TOO_LARGE
    if isinstance(node, Call) and is_unknown_function(node.name) and not _has_operator(node):
        return _TOO_LARGE
    if isinstance(node, Pow) and isinstance(node.exponent, Num):
        base = abs(node.base.value) if isinstance(node.base, Num) else 3
        exponent = abs(node.exponent.value)
        if exponent > MAX_EXPONENT or base**exponent > MAX_NUMBER:
            return _TOO_LARGE
    return 1 + sum(map(_size, children(node)))


def encode_tree(node: Node) -> list[Any]:
    """Return an expression as nested lists of names and integers, which need no parser."""
    if isinstance(node, Num):
        return ["Num", node.value.numerator, node.value.denominator]
    if isinstance(node, Sym | Const):
        return [type(node).__name__, node.name]
    name = node.name if isinstance(node, Call) else type(node).__name__
    return [name, *map(encode_tree, children(node))]


class _SympyProcess:
    """Sympy process that starts with the first question and again after each kill."""

    def __init__(self) -> None:
        self.child: Any = None  # a Popen or None; Any, because its pipes are never None here
        self.lock = Lock()

    def ask(self, question: list[Any]) -> bytes:
        """Return the reply on two encoded expressions.

        Raises:
            BudgetExceededError: The process does not answer in time.
        """
        with self.lock:
            if self.child is None or self.child.poll() is not None:
                self.stop()
                self.child = subprocess.Popen(
                    [sys.executable, "-m", "fsdpo_data.answers.comparison.worker"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                self._read_byte(START_TIMEOUT_SECONDS)
            self.child.stdin.write(json.dumps(question).encode() + b"\n")
            self.child.stdin.flush()
            return self._read_byte(QUESTION_TIMEOUT_SECONDS)

    def _read_byte(self, timeout_seconds: float) -> bytes:
        """Read one byte of output; stop the process if none comes in time."""
        pipe = self.child.stdout
        readable_pipes, _, _ = select.select([pipe], [], [], timeout_seconds)
        byte = pipe.read(1) if readable_pipes else b""
        if not byte:
            self.stop()
            raise BudgetExceededError("sympy takes too long")
        return byte

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


_PROCESS = _SympyProcess()
_ask = _PROCESS.ask
atexit.register(_PROCESS.stop)
