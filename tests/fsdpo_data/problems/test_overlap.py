"""The candidates of the overlap search leave out no pair."""

from __future__ import annotations

import itertools
import random
from typing import Any

import polars as pl
import pytest

from fsdpo_data.problems import overlap
from fsdpo_data.problems.overlap import LocatedQuestion, find_overlapping_pairs

WORDS = [f"{first}{second}er" for first in "bcdfgklmnprst" for second in ("a", "e", "in", "ol")]


def random_questions(seed: int) -> tuple[list[LocatedQuestion], list[LocatedQuestion]]:
    """Return benchmark questions, and training questions with sentences added to them."""
    rng = random.Random(seed)
    sentences = [" ".join(rng.choices(WORDS, k=rng.randint(6, 14))) for _ in range(60)]
    benchmarks = [rng.sample(sentences, rng.randint(2, 4)) for _ in range(40)]
    training = []
    for question in benchmarks:
        sentences_left = [part for part in question if rng.random() < 0.9]
        added = rng.sample(sentences, rng.randint(0, 4))
        training.append([*added[:1], *sentences_left, *added[1:]])
    return tuple(
        [LocatedQuestion(name, row, ". ".join(parts), "") for row, parts in enumerate(questions, 1)]
        for name, questions in (("training", training), ("benchmark", benchmarks))
    )


def all_pairs(ngrams: pl.DataFrame, min_overlap: float) -> pl.DataFrame:
    """Return every pair that shares an n-gram, in place of the candidates."""
    joined = overlap._join_sides(ngrams, "ngram")
    return joined.select("id", "id_benchmark").unique()


@pytest.mark.parametrize("seed", range(4))
def test_every_pair_is_found_and_a_higher_threshold_finds_no_more(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    training, benchmarks = random_questions(seed)

    def find(threshold: float) -> set[Any]:
        pairs = find_overlapping_pairs(training, benchmarks, min_overlap=threshold)
        return set(pairs.select("training", "benchmark").iter_rows())

    thresholds = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    pairs_by_threshold = [find(threshold) for threshold in thresholds]
    assert all(lower >= higher for lower, higher in itertools.pairwise(pairs_by_threshold))
    monkeypatch.setattr(overlap, "_candidates", all_pairs)
    assert pairs_by_threshold == [find(threshold) for threshold in thresholds]
    assert len(pairs_by_threshold[3]) > 20
