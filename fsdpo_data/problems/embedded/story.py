"""One story under way: sentences told so far, and the program that works out its answer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from fsdpo_data.core.toml_tables import read_toml

#: Raised when any question, gold or verdict changes for the same seed.
EMBEDDED_VERSION = "embedded@1"

MAX_NUMBER = (
    99  #: Largest number in a story. Two digits are what a model of a million weights masters.
)
Operand = int | str  #: A number told in the question, or ``"#i"``: the value of node i.

#: One step of the program: relation, operation, operands, and who it is about.
#: A list, because it lives in JSON.
Node = list[Operand]


@cache
def words() -> dict[str, Any]:
    """Return the table beside this module, read once; it says of each entry what it is."""
    told = read_toml(Path(__file__).with_name("words"))
    counts = {name: {int(k): word for k, word in told[name].items()} for name in ("parts", "times")}
    return told | counts


class RejectedStoryError(Exception):
    """The numbers of this story leave no room for the next event; draw another story."""


def apply(op: str, a: int, b: int) -> int:
    """Work out one step. Division rounds down: only a value already wrong leaves a remainder."""
    if op == "/":
        return a // b if b else 0
    return {"+": a + b, "-": a - b, "*": a * b}[op]


def value_of(operand: Operand, values: Sequence[int] | Mapping[int, int]) -> int:
    """Look an operand up: itself, or the value of the node it names."""
    return values[int(operand[1:])] if isinstance(operand, str) else operand


@dataclass
class Story:
    """A story being told."""

    rng: random.Random  #: Every choice comes from here.
    wording: str = ""  #: Table of words that it is told with, too.
    who: str = ""  #: The person the current amount belongs to.
    friend: str = ""  #: Gives and takes.
    stranger: str = ""  #: Appears in distractor sentences only.
    #: People not met yet; the first is the next to be compared with ``who``.
    others: list[str] = field(default_factory=list)
    thing: str = ""  #: What is counted.
    sentences: list[str] = field(default_factory=list)  #: The question so far.
    nodes: list[Node] = field(default_factory=list)  #: The program so far.
    current: Operand = 0  #: The current amount, as an operand.
    values: list[int] = field(default_factory=list)  #: What each node is worth.

    @classmethod
    def begin(cls, rng: random.Random, wording: str) -> Self:
        """Cast a new story."""
        who, friend, stranger, *others = rng.sample(words()["names"], 9)
        return cls(rng, wording, who, friend, stranger, others, rng.choice(words()["things"]))

    @property
    def amount(self) -> int:
        """The current amount."""
        return value_of(self.current, self.values)

    def add_sentence(self, relation: str, **slots: object) -> None:
        """Add the sentence of ``relation`` to the question."""
        told = words()
        others = told[self.wording].get(relation, []) if self.wording else []
        template = self.rng.choice(told["tell"][relation] + others)
        self.sentences.append(template.format(**self.words(), **slots))

    def words(self) -> dict[str, str]:
        """Return the slots every sentence may use."""
        return {
            "who": self.who,
            "friend": self.friend,
            "other": self.others[0],
            "stranger": self.stranger,
            "thing": self.thing,
            "one": self.thing.removesuffix("s"),
        }

    def add_node(self, relation: str, op: str, a: Operand, b: Operand) -> None:
        """Add a step to the program; its value becomes the current amount."""
        value = apply(op, value_of(a, self.values), value_of(b, self.values))
        if not 2 <= value <= MAX_NUMBER:
            raise RejectedStoryError
        self.nodes.append([relation, op, a, b, self.who])
        self.values.append(value)
        self.current = f"#{len(self.values) - 1}"

    def number(self, low: int, high: int) -> int:
        """Draw a number from ``low`` to ``high``, both included."""
        if low > high:
            raise RejectedStoryError
        return self.rng.randint(low, high)

    def divisor(self, of: int, choices: Sequence[int]) -> int:
        """Draw one of ``choices`` that divides ``of`` and leaves at least two."""
        fits = [k for k in choices if of % k == 0 and of // k >= 2]
        if not fits:
            raise RejectedStoryError
        return self.rng.choice(fits)
