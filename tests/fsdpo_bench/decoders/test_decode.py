"""Compare the decoders with simple reference implementations on hundreds of random cases."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from fsdpo_bench.decoders.answer_classes import answer_classes, voting_answers
from fsdpo_bench.decoders.estimators import (
    best_of_n,
    distribute_vote,
    random_orders,
    subsets_of_size,
    vote,
    weighted_vote,
)

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.grader import GRADER_NAME, MathGrader
from fsdpo_data.steps.rewards import aggregate

CASES = 500


def random_answers(draw: random.Random, count: int) -> list[str | None]:
    pool = ["1/2", "0.5", r"\frac{1}{2}", "2", "2.0", "x+1", "1+x", "7", None, ""]
    return [draw.choice(pool) for _ in range(count)]


KIND = {"1/2": 0, "0.5": 0, r"\frac{1}{2}": 0, "2": 1, "2.0": 1, "x+1": 2, "1+x": 2, "7": 3}


def test_votes_go_to_classes_of_equivalent_answers() -> None:
    """Compare with counting by given classes, for every K."""
    for case in range(CASES):
        draw = random.Random(case)
        answers = random_answers(draw, draw.randint(1, 12))
        classes = answer_classes(answers)
        for k in range(1, len(answers) + 1):
            kinds = [KIND[a] for a in answers[:k] if a]
            votes = Counter(kinds)
            expected = None
            if votes:
                max_votes = max(votes.values())
                tied = [kind for kind, count in votes.items() if count == max_votes]
                firsts = [
                    next(i for i, a in enumerate(answers) if a and KIND[a] == t) for t in tied
                ]
                expected = min(firsts)
            assert vote(classes.select(range(k))) == expected


def verdicts_by(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the values of the column ``verdict_by`` for verdicts of the grader."""
    return [f"{GRADER_NAME}/{verdict.rule}" for verdict in verdicts]


def test_sentences_without_an_answer_do_not_vote() -> None:
    """The last sentence of a response is no vote, however many responses end with it."""
    responses = ["I am not sure.", "I am not sure.", r"So it is \boxed{7}."]
    verdicts = MathGrader().grade([GradingRequest("7", response) for response in responses])
    answers = [verdict.answer for verdict in verdicts]
    assert answers == ["I am not sure.", "I am not sure.", "7"]
    votes = voting_answers(answers, verdicts_by(verdicts))
    assert votes == [None, None, "7"]
    assert vote(answer_classes(votes)) == 2
    assert weighted_vote(answer_classes(votes), [1.0, 1.0, 0.1]) == 2


def test_a_judge_changes_no_votes() -> None:
    """A judge decides sentences, too; the name of its model may contain the name of a rule."""
    sentence = "so it is the plane spanned by both vectors"
    rules = ["last-sentence", "boxed"]
    for judge in ("judge/m@0d2f", "judge/org/last-sentence@sha256:5e"):
        verdicts = [f"{judge}/{rule}" for rule in rules]
        assert voting_answers([sentence] * 2, verdicts) == [None, sentence]


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("7", "There are 7."),
        ("Tom", r"The winner is \boxed{Tom}."),
        ("Tom is faster", "The answer is: Tom is faster"),
        ("Tom", "It was **Tom**."),
        ("Tom", "Tom"),
        ("does not exist", "So the limit does not exist."),
        ("Yes, it is.", "We check all cases.\nYes, it is."),
        ("B", "The correct option is B."),
        ("x+1", "So we get $x+1$"),
    ],
)
def test_values_and_marked_words_vote(answer: str, response: str) -> None:
    verdicts = MathGrader().grade([GradingRequest(answer, response)])
    assert [verdict.answer for verdict in verdicts] == [answer]
    assert voting_answers([answer], verdicts_by(verdicts)) == [answer]


#: Answers of which one agrees with answers that do not agree with each other, and how many samples
#: agree with each: 1/3 agrees with 0.3333 and 0.33333, and 5 without a unit with 5 m and 5 cm.
OVERLAPPING = [
    (["1/3", "1/3", "0.3333", "0.33333", "2", "2", "2"], "1/3"),
    (["5", "5 m", "5 cm"], "5"),
    (["5 m", "5", "5 cm", "5 m", "7", "7", "7"], "5"),
]


@pytest.mark.parametrize(("answers", "elected"), OVERLAPPING)
def test_a_vote_elects_the_answer_with_which_most_samples_agree(
    answers: list[str], elected: str
) -> None:
    for order in set(itertools.permutations(answers)):
        assert vote(answer_classes(order)) == order.index(elected)
        assert weighted_vote(answer_classes(order), [0.25] * len(order)) == order.index(elected)


def test_a_tie_of_overlapping_answers_goes_to_the_earliest() -> None:
    for order in itertools.permutations(["5 m", "5", "5 m", "7", "7", "7"]):
        # Three samples agree with 5, with 5 m and with 7.
        assert vote(answer_classes(order)) == 0


def test_weights_count_for_every_answer_that_agrees() -> None:
    weights = {"5": 0.1, "5 m": 0.5, "5 cm": 0.25, "7": 0.7}
    for order in itertools.permutations(weights):
        elected = weighted_vote(answer_classes(order), [weights[answer] for answer in order])
        assert order[elected or 0] == "5"  # 0.1 + 0.5 + 0.25


@pytest.mark.parametrize(("answers", "elected"), OVERLAPPING)
def test_a_vote_of_subsets_is_the_vote_of_their_answers(answers: list[str], elected: str) -> None:
    """A subset without 1/3 elects among 0.3333, 0.33333 and 2 by their own agreements."""
    weights = [random.Random(elected).random() for _ in answers]
    for size in range(1, len(answers) + 1):
        member_RM = subsets_of_size(size, random_orders(len(answers), 64, seed=0))
        distribution = distribute_vote([answer_classes(answers)], member_RM, np.array([weights]))
        expected = [0.0] * len(answers)
        for member_M in member_RM:
            subset = np.flatnonzero(member_M).tolist()
            position = weighted_vote(
                answer_classes([answers[index] for index in subset]),
                [weights[index] for index in subset],
            )
            expected[subset[position or 0]] += 1 / len(member_RM)
        assert distribution[0] == pytest.approx(expected)


def test_weighted_votes_sum_the_weights_of_a_class() -> None:
    for case in range(CASES):
        draw = random.Random(case)
        answers = random_answers(draw, draw.randint(1, 10))
        weights = [draw.choice([None, 0.0, 0.25, 0.5, 1.0]) for _ in answers]
        totals: dict[int, float] = {}
        for answer, weight in zip(answers, weights, strict=True):
            if answer:
                totals[KIND[answer]] = totals.get(KIND[answer], 0.0) + (weight or 0.0)
        chosen = weighted_vote(answer_classes(answers), weights)
        if not totals:
            assert chosen is None
            continue
        kinds = [KIND[a] if a else None for a in answers]
        tied = [kind for kind, total in totals.items() if total == max(totals.values())]
        assert chosen == min(kinds.index(kind) for kind in tied)


def test_equal_weights_are_a_plain_vote() -> None:
    for case in range(CASES):
        classes = answer_classes(random_answers(random.Random(case), 7))
        assert weighted_vote(classes, [0.5] * 7) == vote(classes)


PLAIN_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda rewards: sum(rewards) / len(rewards),
    "min": min,
    "prod": math.prod,
    "last": lambda rewards: rewards[-1],
}


@pytest.mark.parametrize("name", PLAIN_AGGREGATES)
def test_best_of_n_selects_the_first_solution_with_the_highest_reward(name: str) -> None:
    for case in range(CASES):
        draw = random.Random(case)
        rewards: list[Any] = [
            draw.choice(
                [None, [], [draw.choice([0.25, 0.5, 1.0]) for _ in range(draw.randint(1, 3))]]
            )
            for _ in range(draw.randint(1, 9))
        ]
        ranked = [
            PLAIN_AGGREGATES[name](step_rewards) if step_rewards else -1.0
            for step_rewards in rewards
        ]
        assert best_of_n(
            [aggregate(step_rewards, name) if step_rewards else None for step_rewards in rewards]
        ) == ranked.index(max(ranked))


def test_a_vote_counts_every_form_of_a_letter() -> None:
    responses = ["B", "A", "A", "**A**", "B"]
    verdicts = MathGrader().grade([GradingRequest("A", response) for response in responses])
    votes = voting_answers([verdict.answer for verdict in verdicts], verdicts_by(verdicts))
    assert vote(answer_classes(votes)) == 1
