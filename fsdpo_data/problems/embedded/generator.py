"""The generator: plans of events, told as questions, split by their numbers."""

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

Event = Callable[[Story], None]  #: Tells a part of a story, and works it out.

SPLITS = ("train", "validation", "test")

#: Largest number added or taken away at once: carries are what a small model learns last.
_SMALL = 20


@dataclass(frozen=True)
class ProblemKind:
    """Which stories are told; the embedded model learnt from those of the defaults."""

    #: Stories drawn of each number of steps; long ones run out of room more often.
    lengths: Mapping[int, int] = field(default_factory={2: 20, 3: 30, 4: 30, 5: 17, 6: 10}.copy)
    distractors: float = 0.5  #: Numbers that do not matter in a story; 0.5: one in every other.
    wording: str = ""  #: Table of words that questions are told with beside the usual ones.


def make_problems(
    split: str, count: int, seed: int = 0, kind: ProblemKind | None = None
) -> list[Problem]:
    """Make ``count`` different problems of ``split``.

    The same arguments give the same problems anywhere, and the first k do not depend on
    ``count``. No question of one split occurs in another, whatever the seeds: the split is a
    function of the question's numbers.

    Raises:
        InputError: for an unknown split or a negative count.
    """
    if split not in SPLITS:
        raise InputError(f"split {split!r}: the embedded world has {', '.join(SPLITS)}.")
    if count < 0:
        raise InputError(f"count {count}: expected 0 or more problems.")
    rng = random.Random(f"{EMBEDDED_VERSION}/{split}/{seed}")
    made: dict[str, Problem] = {}
    while len(made) < count:
        problem = _draw(rng, kind or ProblemKind())
        if problem is not None and problem.split == split:
            made.setdefault(problem.question, problem)
    return list(made.values())


def question_split(question: str) -> str:
    """Return the split a question belongs to: 5 % test, 5 % validation, the rest train.

    The numbers alone decide, so a test problem is not a train problem under other names either.
    """
    numbers = " ".join(re.findall(r"\d+", question))
    bucket = hashlib.sha256(numbers.encode()).digest()[0] % 20
    return {0: "test", 1: "validation"}.get(bucket, "train")


def _draw(rng: random.Random, kind: ProblemKind) -> Problem | None:
    """Tell one story, or None where its numbers did not work out."""
    plan = _plan(rng, kind.lengths)
    story = Story.begin(rng, kind.wording)
    try:
        for event in plan:
            event(story)
    except RejectedStoryError:
        return None
    distractor = _distract(story, kind.distractors)
    question = " ".join(story.sentences)
    told: dict[str, Any] = {"world": EMBEDDED_VERSION, "thing": story.thing, "nodes": story.nodes}
    told["distractor"] = distractor
    return Problem(question, str(story.amount), "embedded", question_split(question), told)


def _plan(rng: random.Random, lengths: Mapping[int, int]) -> list[Event]:
    """Draw a start, some middles and an end that need as many steps as the length drawn."""
    length = rng.choices(list(lengths), weights=list(lengths.values()))[0]
    while True:
        start, end = rng.choice(_STARTS), rng.choice(_ENDS)
        left = length - start[1] - end[1]
        middles = []
        while left > 0:
            event, steps = rng.choice(_MIDDLES)
            left -= steps
            middles.append(event)
        if left == 0 and (middles or end[1]):
            return [start[0], *middles, end[0]]


def _distract(story: Story, rate: float) -> int | None:
    """Slip in sentences with a number that does not matter; return the last one's."""
    n = None
    for _ in range(int(rate) + (story.rng.random() < rate % 1)):
        n = story.rng.randint(2, 30)
        sentence = story.rng.choice(words()["distractors"]).format(**story.words(), n=n)
        story.sentences.insert(story.rng.randint(1, len(story.sentences) - 1), sentence)
    return n


def _has(story: Story) -> None:
    story.current = n = story.number(5, 50)
    story.add_sentence("has", n=n)


def _two_numbers(relation: str, op: str, most: tuple[int, int], story: Story) -> None:
    least = 5 if op == "+" else 2
    n, m = story.number(least, most[0]), story.number(2, most[1])
    story.add_sentence(relation, n=n, m=m)
    story.add_node(relation, op, n, m)


def _change(relation: str, op: str, most: Callable[[int], int], story: Story) -> None:
    """What is there becomes more or less by a number, up to ``most`` of what is there."""
    n = story.number(2, most(story.amount))
    story.add_sentence(relation, n=n)
    story.add_node(relation, op, story.current, n)


def _several(relation: str, then: str, op: str, story: Story) -> None:
    """So many of so many each are gained or lost."""
    before, n, m = story.current, story.number(2, 5), story.number(2, 5)
    story.add_sentence(relation, n=n, m=m)
    story.add_node(relation, "*", n, m)
    story.add_node(then, op, before, story.current)


def _divide(relation: str, choices: Sequence[int], story: Story) -> None:
    k = story.divisor(story.amount, choices)
    story.add_sentence(relation, n=k)
    story.add_node(relation, "/", story.current, k)


def _fraction(story: Story) -> None:
    before, k = story.current, story.divisor(story.amount, list(words()["parts"]))
    story.add_sentence("fraction", part=words()["parts"][k])
    story.add_node("fraction", "/", before, k)
    story.add_node("lose", "-", before, story.current)


def _grow(story: Story) -> None:
    k = story.rng.choice(list(words()["times"]))
    story.add_sentence("grow", times=words()["times"][k])
    story.add_node("grow", "*", story.current, k)


def _compare(story: Story) -> None:
    """Someone else has more, fewer or several times as many; the story goes on with them."""
    relation = story.rng.choice(("more than", "fewer than", "times"))
    op = {"more than": "+", "fewer than": "-", "times": "*"}[relation]
    n = story.rng.choice(list(words()["times"])) if op == "*" else story.number(2, _SMALL)
    story.add_sentence(relation, n=n, times=words()["times"].get(n))
    story.who = story.others.pop(0)
    if not story.others:  # the next sentence may need one more
        raise RejectedStoryError
    story.add_node("compare", op, story.current, n)


def _sell_and_spend(story: Story) -> None:
    n = story.number(2, min(9, MAX_NUMBER // story.amount))
    m = story.number(2, min(_SMALL, story.amount * n - 2))
    story.add_sentence("sell and spend", n=n, m=m)
    story.add_node("sell", "*", story.current, n)
    story.add_node("spend", "-", story.current, m)


def _goal(story: Story) -> None:
    n = story.amount + story.number(2, min(_SMALL, MAX_NUMBER - story.amount))
    story.add_sentence("goal", n=n)
    story.add_node("goal", "-", n, story.current)


def _together(story: Story) -> None:
    before, n = story.current, story.number(2, 9)
    story.add_sentence("together", n=n)
    first = story.who
    story.who = story.others[0]
    story.add_node("compare", "+", before, n)
    story.who = first
    story.add_node("together", "+", before, story.current)


#: Each event with the number of steps it takes to work out.
_STARTS: list[tuple[Event, int]] = [
    (_has, 0),
    (_has, 0),
    (partial(_two_numbers, "two kinds", "+", (50, _SMALL)), 1),
    (partial(_two_numbers, "days", "*", (12, 9)), 1),
    (partial(_two_numbers, "bags", "*", (12, 9)), 1),
]
_MIDDLES: list[tuple[Event, int]] = [
    (partial(_change, "gain", "+", lambda there: min(_SMALL, MAX_NUMBER - there)), 1),
    (partial(_change, "lose", "-", lambda there: min(_SMALL, there - 2)), 1),
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
    (partial(_change, "sell", "*", lambda there: min(9, MAX_NUMBER // there)), 1),
    (_goal, 1),
    (_sell_and_spend, 2),
    (_together, 2),
]
