"""A story in progress: its sentences, and the program that computes its answer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from fsdpo_data.core.toml_tables import read_module_table

#: The version changes if the same seed gives other questions, gold answers or step labels.
EMBEDDED_VERSION = "embedded@1"

#: Largest number in a story. A model with a million weights learns sums of two-digit numbers.
MAX_NUMBER = 99
Operand = int | str  #: A number of the question, or ``"#i"`` for the value of node i.

#: One step of the program: relation, operation, two operands, and the person. The type is a list,
#: because nodes are stored as JSON.
Node = list[int | str]


@cache
def words() -> dict[str, Any]:
    """Return the words and sentences of ``words.toml``, which documents its entries."""
    table = read_module_table(Path(__file__).with_name("words"))
    for name in ("parts", "times"):
        table[name] = {int(number): word for number, word in table[name].items()}
    return table


class RejectedStoryError(Exception):
    """The numbers of a story do not allow the next event, so the generator starts another story."""


def apply(op: str, a: int, b: int) -> int:
    """Compute one step.

    The divisions of a story are exact. Only a wrong solution has a remainder or a zero divisor.
    """
    if op == "/":
        return a // b if b else 0
    return {"+": a + b, "-": a - b, "*": a * b}[op]


def value_of(operand: Operand, values: Sequence[int] | Mapping[int, int]) -> int:
    """Return the value of an operand: the number, or the value of its node."""
    return values[int(operand[1:])] if isinstance(operand, str) else operand


@dataclass
class Story:
    """A story in progress."""

    rng: random.Random  #: Random generator of all choices.
    wording: str = ""  #: Table in ``words.toml`` with additional sentences; empty for none.
    who: str = ""  #: The person with the current amount.
    friend: str = ""  #: The person who gives and receives things.
    stranger: str = ""  #: The person in distractor sentences.
    #: People who are not in the story yet; the first one is compared with ``who`` next.
    other_people: list[str] = field(default_factory=list)
    thing: str = ""  #: The things that the story counts, in the plural.
    sentences: list[str] = field(default_factory=list)  #: The sentences of the question.
    nodes: list[Node] = field(default_factory=list)  #: The nodes of the program.
    amount_operand: Operand = 0  #: The current amount, as an operand.
    values: list[int] = field(default_factory=list)  #: The value of each node.

    @classmethod
    def begin(cls, rng: random.Random, wording: str) -> Self:
        """Start a story with random people and things."""
        who, friend, stranger, *other_people = rng.sample(words()["names"], 9)
        return cls(
            rng=rng,
            wording=wording,
            who=who,
            friend=friend,
            stranger=stranger,
            other_people=other_people,
            thing=rng.choice(words()["things"]),
        )

    @property
    def amount(self) -> int:
        """The current amount."""
        return value_of(self.amount_operand, self.values)

    def add_sentence(self, relation: str, **slots: object) -> None:
        """Add the sentence of ``relation`` to the question."""
        table = words()
        extra_sentences = table[self.wording].get(relation, []) if self.wording else []
        template = self.rng.choice(table["tell"][relation] + extra_sentences)
        self.sentences.append(template.format(**self.slot_values(), **slots))

    def slot_values(self) -> dict[str, str]:
        """Return the values of the slots that every sentence may use."""
        return {
            "who": self.who,
            "friend": self.friend,
            "other": self.other_people[0],
            "stranger": self.stranger,
            "thing": self.thing,
            "one": self.thing.removesuffix("s"),
        }

    def add_node(self, relation: str, op: str, a: Operand, b: Operand) -> None:
        """Add a step to the program; its value becomes the current amount.

        Raises:
            RejectedStoryError: if the value is below 2 or above ``MAX_NUMBER``.
        """
        value = apply(op, value_of(a, self.values), value_of(b, self.values))
        if not 2 <= value <= MAX_NUMBER:
            raise RejectedStoryError
        self.nodes.append([relation, op, a, b, self.who])
        self.values.append(value)
        self.amount_operand = f"#{len(self.values) - 1}"

    def draw_number(self, low: int, high: int) -> int:
        """Draw a number from ``low`` to ``high``, both included."""
        if low > high:
            raise RejectedStoryError
        return self.rng.randint(low, high)

    def draw_divisor(self, dividend: int, choices: Sequence[int]) -> int:
        """Draw a divisor of ``dividend`` from ``choices`` with a quotient of at least two."""
        divisors = [k for k in choices if dividend % k == 0 and dividend // k >= 2]
        if not divisors:
            raise RejectedStoryError
        return self.rng.choice(divisors)
