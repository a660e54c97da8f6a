"""Splits and samples depend on questions and the seed, and never on positions."""

from __future__ import annotations

import polars as pl

from fsdpo_data.problems.question_key import question_key
from fsdpo_data.selection.random_order import assign_splits, mix_keys
from fsdpo_data.selection.row_index import add_counts, question_keys

KEYS = question_keys(pl.Series([f"What is {number} + 1?" for number in range(20_000)]))


def test_fractions_seeds_and_orders() -> None:
    fractions = {"validation": 0.1, "test": 0.05}
    splits = assign_splits(KEYS, fractions, seed=0)
    counts = dict(splits.value_counts().iter_rows())
    assert abs(counts["validation"] - 2000) < 4 * 43  # four standard deviations
    assert abs(counts["test"] - 1000) < 4 * 31
    assert counts["train"] + counts["validation"] + counts["test"] == 20_000
    # Each question keeps its split among fewer questions, and in another order.
    assert assign_splits(KEYS.reverse(), fractions, 0).to_list() == splits.reverse().to_list()
    assert assign_splits(KEYS[:7], fractions, 0).to_list() == splits[:7].to_list()
    other = assign_splits(KEYS, fractions, seed=1)
    assert abs((other == splits).mean() - (0.85**2 + 0.1**2 + 0.05**2)) < 0.02


def test_a_split_of_a_split_is_independent() -> None:
    """With the order of the first split, no problem of the rest would be in the second one."""
    train = KEYS.filter(assign_splits(KEYS, {"test": 0.3}, seed=0) == "train")
    again = assign_splits(train, {"test": 0.3}, 0, n_earlier=1)
    assert abs((again == "test").mean() - 0.3) < 0.02
    assert (assign_splits(train, {"test": 0.3}, 0) == "train").all()


def test_purposes_are_independent_and_numbers_never_change() -> None:
    sample = mix_keys(KEYS, 0, "sample")
    split = mix_keys(KEYS, 0, "split")
    half = 1 << 63
    assert abs(((sample < half) == (split < half)).mean() - 0.5) < 0.02
    assert sample[:2].to_list() == SAMPLE_OF_RELEASE


#: Published selections depend on these numbers.
SAMPLE_OF_RELEASE = [8936860768766185355, 11073943950287670085]


def test_equal_questions_have_one_key() -> None:
    questions = ["What is ｘ２?", " what is\nX2 ?", "What is x3?"]
    keys = question_keys(pl.Series(questions))
    assert keys[0] == keys[1] != keys[2]
    assert [*map(question_key, questions)] == ["whatisx2?", "whatisx2?", "whatisx3?"]


def test_a_pass_rate_counts_graded_solutions_only() -> None:
    problems = pl.DataFrame({"problem": [0, 1, 2]})
    outcomes = {0: ["correct", "undecided", "incorrect", "timed_out"], 1: ["undecided"], 2: []}
    solutions = pl.DataFrame(
        [(problem, outcome) for problem, values in outcomes.items() for outcome in values],
        schema=["problem", "outcome"],
        orient="row",
    )
    rows = add_counts(problems, solutions).select("solutions", "graded", "incorrect", "pass_rate")
    assert rows.rows() == [(4, 2, 1, 0.5), (1, 0, 0, None), (0, 0, 0, None)]
