"""Statistics of rows: published numbers, other rows, and numbers of an independent computation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import (
    RIGHT,
    WRONG,
    fixed_sampler,
    label_with_rollouts,
    pair_statistics_of,
    problem_set,
    reward_statistics_of,
    sample_settings,
    small_build,
    statistics_of,
    verdict_counts,
)
from paired_data import paired_dataset

import fsdpo_data as fd
from fsdpo_data.core.statistics import Interval, Mean, mean_rate
from fsdpo_data.dataset.schema import SCHEMA_VERSION
from fsdpo_data.dataset.statistics import clustered_accuracy

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/gsm8k-qwen-0.5b"
FROZEN = ROOT / "tests/data/frozen" / SCHEMA_VERSION


def mean(value: float, n: int, low: float, high: float, clusters: int | None = None) -> Mean:
    return Mean(value=value, n=n, ci95=Interval(low, high), clusters=clusters)


#: The statistics that the manifests had when every stage counted its own rows. In the accuracy
#: and the ranking AUC, the three undecided solutions now count as wrong.
SOLUTIONS: dict[Path, dict[str, Any]] = {
    EXAMPLE: {
        "outcomes": {"correct": 240, "incorrect": 916, "no_answer": 41, "undecided": 3},
        "labels": {"steps": 6924, "negative": 5617, "positive": 1294, "unlabelled": 13},
        "max_samples": 8,
        "accuracy": mean(0.2, 1200, 0.159639, 0.247559, 150),
        "pass_at_k": mean(0.52, 150, 0.440552, 0.598449),
        "solved_problems": 78,
        "mixed_problems": 75,
        "truncated": 43,
        "stopped_thoughts": 0,
        "thinking": {},
    },
    FROZEN: {
        "outcomes": {"correct": 4, "incorrect": 4},
        "labels": {"steps": 16, "negative": 8, "positive": 8},
        "max_samples": 4,
        "accuracy": mean(0.5, 8, 0.059448, 0.940552, 2),
        "pass_at_k": mean(1.0, 2, 0.34238, 1.0),
        "solved_problems": 2,
        "mixed_problems": 2,
        "truncated": 0,
        "stopped_thoughts": 0,
        "thinking": {},
    },
}
DISTINCT_SOLUTIONS = {EXAMPLE: 1200, FROZEN: 8}
RULES = {
    EXAMPLE: {
        "boxed/names": 2,
        "boxed/number": 1155,
        "boxed/unread": 1,
        "cut-off": 41,
        "last-number/number": 1,
    },
    FROZEN: {"answer-is/number": 8},
}
REWARDS: dict[Path, dict[str, Any]] = {
    EXAMPLE: {
        "scored": 1200,
        "unscored": 0,
        "ranking_auc": {
            "mean": mean(0.5986, 75, 0.5342, 0.6598),
            "min": mean(0.5632, 75, 0.5059, 0.6189),
        },
    },
    FROZEN: {
        "scored": 8,
        "unscored": 0,
        "ranking_auc": {
            "mean": mean(0.75, 2, 0.0714, 0.9915),
            "min": mean(0.5, 2, 0.0594, 0.9406),
        },
    },
}
PAIRS: dict[Path, dict[str, Any]] = {
    EXAMPLE: {
        "pairs": 246,
        "problems": {"used": 75, "problems": 150, "too_easy": 3, "too_hard": 72},
        "solutions": {"chosen": 126, "rejected": 147, "truncated": 43},
        "margin": {
            "mean": 0.1359,
            "min": -0.1501,
            "median": 0.1094,
            "max": 0.4744,
            "negative": 26,
        },
        "first_error": None,
        "length": {
            "chosen_tokens": 263.5447,
            "rejected_tokens": 267.4797,
            "chosen_steps": 5.3049,
            "rejected_steps": 5.8415,
            "chosen_longer": 118,
            "chosen_shorter": 128,
        },
        "step_weights": {
            "gamma": 0.5,
            "chosen": {
                "n": [246, 246, 234, 192, 164],
                "reward": [0.2972, 0.3547, 0.3603, 0.3372, 0.227],
                "weight": [0.9903, 1.017, 1.0251, 1.0223, 0.9696],
            },
            "rejected": {
                "n": [242, 242, 229, 203, 175],
                "reward": [0.2279, 0.1826, 0.1486, 0.1567, 0.1866],
                "weight": [0.9806, 1.0007, 1.0155, 1.0119, 0.9963],
            },
        },
    },
    FROZEN: {
        "pairs": 8,
        "problems": {"used": 2, "problems": 2, "too_easy": 0, "too_hard": 0},
        "solutions": {"chosen": 4, "rejected": 4, "truncated": 0},
        "margin": {"mean": 0.0338, "min": -0.1531, "median": 0.0338, "max": 0.2206, "negative": 2},
        "first_error": None,
        "length": {
            "chosen_characters": 67.0,
            "rejected_characters": 67.0,
            "chosen_steps": 2.0,
            "rejected_steps": 2.0,
            "chosen_longer": 0,
            "chosen_shorter": 0,
        },
        "step_weights": {
            "gamma": 0.5,
            "chosen": {"n": [8, 8], "reward": [0.2742, 0.6463], "weight": [0.9074, 1.0926]},
            "rejected": {"n": [8, 8], "reward": [0.1872, 0.6658], "weight": [1.1175, 0.8825]},
        },
    },
}


@pytest.mark.parametrize("root", [EXAMPLE, FROZEN], ids=["example", "frozen"])
def test_the_numbers_of_sealed_datasets_are_those_of_their_first_manifests(root: Path) -> None:
    statistics = statistics_of(root)
    solutions = statistics.solutions
    assert {name: getattr(solutions, name) for name in SOLUTIONS[root]} == SOLUTIONS[root]
    assert statistics.distinct_solutions == DISTINCT_SOLUTIONS[root]
    rewards = reward_statistics_of(root)
    assert {name: getattr(rewards, name) for name in REWARDS[root]} == REWARDS[root]
    assert asdict(pair_statistics_of(root)) == PAIRS[root]
    assert verdict_counts(root) == {f"math@6/{rule}": n for rule, n in RULES[root].items()}
    # No judge decided.
    assert statistics.accuracy_without_judge == solutions.accuracy
    assert statistics.imported_steps == (0, 0) and statistics.step_labels.steps == 0


def test_accuracy_and_pass_at_1_of_the_same_solutions_have_one_interval() -> None:
    is_correct = [n < 7 for n in range(10)]
    accuracy = clustered_accuracy(is_correct, [1] * 10)
    pass_at_1 = mean_rate(is_correct).round(6)
    assert (accuracy.value, accuracy.ci95) == (pass_at_1.value, pass_at_1.ci95)


def expected_numbers(rows: pl.DataFrame) -> dict[str, Any]:
    """Compute statistics of solutions with one plain expression or loop for each number."""
    graded_outcomes = ["correct", "incorrect", "no_answer"]
    counted_rows = rows.filter(
        pl.col("outcome").is_in([*graded_outcomes, "undecided", "timed_out"])
    )
    by_problem = counted_rows.group_by("problem_id").agg(
        is_solved=(pl.col("outcome") == "correct").any(),
        is_mixed=pl.col("outcome").is_in(["incorrect", "no_answer"]).any()
        & (pl.col("outcome") == "correct").any(),
    )
    labels = [label for row in rows["labels"].to_list() for label in row or ()]
    n_steps = sum(map(len, rows["completions"].to_list()))
    texts = {
        (problem, "".join(steps))
        for problem, steps in rows.select("problem_id", "completions").iter_rows()
    }
    return {
        "outcomes": dict(rows["outcome"].value_counts().iter_rows()),
        "steps": n_steps,
        "positive": labels.count(True),
        "negative": labels.count(False),
        "max_samples": max(rows["problem_id"].value_counts()["count"]),
        "accuracy": round(counted_rows.select((pl.col("outcome") == "correct").mean()).item(), 6),
        "counted": counted_rows.height,
        "clusters": by_problem.height,
        "pass_at_k": round(by_problem["is_solved"].mean(), 6),  # type: ignore[arg-type]
        "mixed_problems": by_problem["is_mixed"].sum(),
        "truncated": rows.filter(pl.col("finish_reason") == "length").height,
        "distinct": len(texts),
        "scored": rows["step_rewards"].count(),
    }


def actual_numbers(root: Path) -> dict[str, Any]:
    statistics = statistics_of(root)
    solutions, rewards = statistics.solutions, reward_statistics_of(root)
    return {
        "outcomes": solutions.outcomes,
        "steps": solutions.labels["steps"],
        "positive": solutions.labels.get("positive", 0),
        "negative": solutions.labels.get("negative", 0),
        "max_samples": solutions.max_samples,
        "accuracy": solutions.accuracy.value,
        "counted": solutions.accuracy.n,
        "clusters": solutions.accuracy.clusters,
        "pass_at_k": solutions.pass_at_k.value,
        "mixed_problems": solutions.mixed_problems,
        "truncated": solutions.truncated,
        "distinct": statistics.distinct_solutions,
        "scored": rewards.scored,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"pass_rate": "0.1..0.9"},
        {"per_problem": 3, "seed": 2},
        {"sample": 40},
        {"filter": "n_tokens >= 200"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_numbers_of_a_selection_are_those_of_its_rows(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    example = fd.open_dataset(EXAMPLE)
    selected = example.select(out=tmp_path / "part", **options).validate()
    rows = selected.solutions().collect()
    assert 0 < rows.height < example.manifest.rows.solutions
    assert selected.manifest.rows.solutions == rows.height
    assert selected.manifest.rows.problems == rows["problem_id"].n_unique()
    assert actual_numbers(tmp_path / "part") == expected_numbers(rows)


def test_the_numbers_of_labels_after_a_selection_are_those_of_its_rows(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    label_with_rollouts(tmp_path / "run", tmp_path / "mc")
    everything = statistics_of(tmp_path / "mc").step_labels
    dataset = fd.open_dataset(tmp_path / "mc")
    dataset.select(out=tmp_path / "correct", filter="outcome = 'correct'").validate()
    labels = statistics_of(tmp_path / "correct").step_labels
    # The first step has 3 of 4 right continuations, and the last one is right.
    assert (labels.steps, labels.mean, labels.disagreements) == (6, 0.875, 0)
    assert everything.steps > labels.steps


def test_repeated_texts_count_once_per_problem(tmp_path: Path) -> None:
    source = problem_set(2)
    small_build(
        tmp_path / "run",
        source,
        sampling=sample_settings(n=4),
        make_sampler=lambda: fixed_sampler(source, (RIGHT, WRONG, RIGHT, RIGHT)),
    )
    statistics = statistics_of(tmp_path / "run")
    assert statistics.manifest.rows.solutions == 8
    assert statistics.distinct_solutions == 4


def test_a_dataset_without_rewards_and_pairs_has_no_statistics_of_them(tmp_path: Path) -> None:
    paired = paired_dataset(tmp_path)
    built = statistics_of(tmp_path / "built")
    assert built.rewards is None and built.pairs is None
    statistics = statistics_of(paired)
    assert statistics.rewards is not None and statistics.pairs is not None
    assert statistics.pairs.pairs == statistics.manifest.rows.pairs == 12
