"""Generate word problems for the small model in this package: random plans become questions.

A plan is a list of events. Each event adds sentences to the question, and steps to its program.
"""

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.problems.embedded.story import (
    EMBEDDED_VERSION,
    MAX_NUMBER,
    RejectedStoryError,
    Story,
    words,
)

Event = Callable[[Story], None]  #: Adds sentences to a story, and nodes to its program.

SPLITS = ("train", "validation", "test")

#: Largest number that one event adds or subtracts, because small models learn carries last.
_MAX_CHANGE = 20


@dataclass(frozen=True)
class ProblemKind:
    """The distribution of stories; the model in this package was trained with the defaults."""

    #: Weight of each number of steps. Long stories are rejected more often.
    lengths: Mapping[int, int] = field(default_factory={2: 20, 3: 30, 4: 30, 5: 17, 6: 10}.copy)
    distractors: float = 0.5  #: Mean number of irrelevant sentences per story.
    wording: str = ""  #: Table in ``words.toml`` with additional sentences; empty for none.


def make_problems(
    split: str, count: int, seed: int = 0, kind: ProblemKind | None = None
) -> list[Problem]:
    """Generate ``count`` distinct problems of ``split``.

    The same arguments give the same problems on every machine, and the first k problems do not
    depend on ``count``. The numbers of a question determine its split, so no question is in two
    splits, with any seeds.

    Raises:
        InputError: for an unknown split or a negative count.
    """
    if split not in SPLITS:
        raise InputError(f"split {split!r}: the embedded problems have {', '.join(SPLITS)}.")
    if count < 0:
        raise InputError(f"count {count}: expected 0 or more problems.")
    rng = random.Random(f"{EMBEDDED_VERSION}/{split}/{seed}")
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        problem = _draw_problem(rng, kind or ProblemKind())
        if problem is not None and problem.split == split:
            problems.setdefault(problem.question, problem)
    return list(problems.values())


def question_split(question: str) -> str:
    """Return the split of a question: 5 % test, 5 % validation, 90 % train.

    Only the numbers decide, so a test problem with other names is not a train problem.
    """
    numbers = " ".join(re.findall(r"\d+", question))
    bucket = hashlib.sha256(numbers.encode()).digest()[0] % 20
    return {0: "test", 1: "validation"}.get(bucket, "train")


def _draw_problem(rng: random.Random, kind: ProblemKind) -> Problem | None:
    """Return the problem of one random story, or None if the story is rejected."""
    plan = _draw_plan(rng, kind.lengths)
    story = Story.begin(rng, kind.wording)
    try:
        for event in plan:
            event(story)
    except RejectedStoryError:
        return None
    distractor = _insert_distractors(story, kind.distractors)
    question = " ".join(story.sentences)
    metadata: dict[str, Any] = {
        "world": EMBEDDED_VERSION,
        "thing": story.thing,
        "nodes": story.nodes,
        "distractor": distractor,
    }
    return Problem(
        question=question,
        answer=str(story.amount),
        source="embedded",
        split=question_split(question),
        metadata=metadata,
    )


def _draw_plan(rng: random.Random, lengths: Mapping[int, int]) -> list[Event]:
    """Draw a start, middle events and an end that together need a random number of steps."""
    length = rng.choices(list(lengths), weights=list(lengths.values()))[0]
    while True:
        start, start_steps = rng.choice(_STARTS)
        end, end_steps = rng.choice(_ENDS)
        missing_steps = length - start_steps - end_steps
        middles = []
        while missing_steps > 0:
            event, event_steps = rng.choice(_MIDDLES)
            missing_steps -= event_steps
            middles.append(event)
        if missing_steps == 0 and (middles or end_steps):
            return [start, *middles, end]


def _insert_distractors(story: Story, rate: float) -> int | None:
    """Insert sentences with an irrelevant number; return the last number, or None."""
    n = None
    for _ in range(int(rate) + (story.rng.random() < rate % 1)):
        n = story.rng.randint(2, 30)
        template = story.rng.choice(words()["distractors"])
        sentence = template.format(**story.slot_values(), n=n)
        story.sentences.insert(story.rng.randint(1, len(story.sentences) - 1), sentence)
    return n


def _has(story: Story) -> None:
    story.amount_operand = n = story.draw_number(5, 50)
    story.add_sentence("has", n=n)


def _two_numbers(relation: str, op: str, max_numbers: tuple[int, int], story: Story) -> None:
    n = story.draw_number(5 if op == "+" else 2, max_numbers[0])
    m = story.draw_number(2, max_numbers[1])
    story.add_sentence(relation, n=n, m=m)
    story.add_node(relation, op, n, m)


def _change(relation: str, op: str, max_number: Callable[[int], int], story: Story) -> None:
    """Change the amount by a number of at most ``max_number(amount)``."""
    n = story.draw_number(2, max_number(story.amount))
    story.add_sentence(relation, n=n)
    story.add_node(relation, op, story.amount_operand, n)


def _several(first_relation: str, second_relation: str, op: str, story: Story) -> None:
    """Add or subtract a product, such as the content of several bags."""
    old_operand = story.amount_operand
    n = story.draw_number(2, 5)
    m = story.draw_number(2, 5)
    story.add_sentence(first_relation, n=n, m=m)
    story.add_node(first_relation, "*", n, m)
    story.add_node(second_relation, op, old_operand, story.amount_operand)


def _divide(relation: str, choices: Sequence[int], story: Story) -> None:
    k = story.draw_divisor(story.amount, choices)
    story.add_sentence(relation, n=k)
    story.add_node(relation, "/", story.amount_operand, k)


def _fraction(story: Story) -> None:
    old_operand = story.amount_operand
    k = story.draw_divisor(story.amount, list(words()["parts"]))
    story.add_sentence("fraction", part=words()["parts"][k])
    story.add_node("fraction", "/", old_operand, k)
    story.add_node("lose", "-", old_operand, story.amount_operand)


def _grow(story: Story) -> None:
    k = story.rng.choice(list(words()["times"]))
    story.add_sentence("grow", times=words()["times"][k])
    story.add_node("grow", "*", story.amount_operand, k)


def _compare(story: Story) -> None:
    """Compare the amount with another person's amount; the story continues with that person."""
    relation = story.rng.choice(("more than", "fewer than", "times"))
    op = {"more than": "+", "fewer than": "-", "times": "*"}[relation]
    n = story.rng.choice(list(words()["times"])) if op == "*" else story.draw_number(2, _MAX_CHANGE)
    story.add_sentence(relation, n=n, times=words()["times"].get(n))
    story.who = story.other_people.pop(0)
    if not story.other_people:  # the next sentence may need another person
        raise RejectedStoryError
    story.add_node("compare", op, story.amount_operand, n)


def _sell_and_spend(story: Story) -> None:
    n = story.draw_number(2, min(9, MAX_NUMBER // story.amount))
    m = story.draw_number(2, min(_MAX_CHANGE, story.amount * n - 2))
    story.add_sentence("sell and spend", n=n, m=m)
    story.add_node("sell", "*", story.amount_operand, n)
    story.add_node("spend", "-", story.amount_operand, m)


def _goal(story: Story) -> None:
    n = story.amount + story.draw_number(2, min(_MAX_CHANGE, MAX_NUMBER - story.amount))
    story.add_sentence("goal", n=n)
    story.add_node("goal", "-", n, story.amount_operand)


def _together(story: Story) -> None:
    old_operand = story.amount_operand
    n = story.draw_number(2, 9)
    story.add_sentence("together", n=n)
    first = story.who
    story.who = story.other_people[0]
    story.add_node("compare", "+", old_operand, n)
    story.who = first
    story.add_node("together", "+", old_operand, story.amount_operand)


#: Each event with the number of steps that a solution needs for it.
_STARTS: list[tuple[Event, int]] = [
    (_has, 0),
    (_has, 0),
    (partial(_two_numbers, "two kinds", "+", (50, _MAX_CHANGE)), 1),
    (partial(_two_numbers, "days", "*", (12, 9)), 1),
    (partial(_two_numbers, "bags", "*", (12, 9)), 1),
]
_MIDDLES: list[tuple[Event, int]] = [
    (partial(_change, "gain", "+", lambda amount: min(_MAX_CHANGE, MAX_NUMBER - amount)), 1),
    (partial(_change, "lose", "-", lambda amount: min(_MAX_CHANGE, amount - 2)), 1),
    (partial(_divide, "half", [2]), 1),
    (_grow, 1),
    (_compare, 1),
    (partial(_several, "more bags", "gain", "+"), 2),
    (partial(_several, "use each", "lose", "-"), 2),
    (_fraction, 2),
]
_ENDS: list[tuple[Event, int]] = [
    (partial(Story.add_sentence, relation="ask"), 0),
    (partial(_divide, "share", range(2, 10)), 1),
    (partial(_divide, "pack", range(3, 10)), 1),
    (partial(_change, "sell", "*", lambda amount: min(9, MAX_NUMBER // amount)), 1),
    (_goal, 1),
    (_sell_and_spend, 2),
    (_together, 2),
]
