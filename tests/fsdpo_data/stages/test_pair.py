"""Preference pairs of solutions: the choice, the statistics, and the checks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from fakes import FixedSampler
from helpers import (
    fixed_sampler,
    pair_statistics_of,
    problem_set,
    sample_settings,
    small_build,
    stage_options,
    statistics_of,
)
from pair_files import Rewards, rewrite

from fsdpo_data.core.errors import InputError, RunMismatchError, SchemaError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.dataset.validate import validate
from fsdpo_data.pairs.best_worst import PairSpec, choose_pairs
from fsdpo_data.pairs.statistics import join_solutions
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.steps.rewards import AGGREGATES, aggregate, aggregate_expr


def right(i: int, steps: int = 2) -> str:
    return (
        "\n".join(f"Step {k}: way {i}." for k in range(1, steps))
        + f"\nStep {steps}: The answer is: 42"
    )


def wrong(i: int) -> str:
    return f"Step 1: way {i}.\nStep 2: The answer is: 43"


MakeDataset = Callable[..., Path]


@pytest.fixture
def make_scored_dataset(tmp_path: Path) -> MakeDataset:
    """Return a function that builds a dataset whose solutions have the given rewards."""

    def make(rewards: dict[str, Sequence[float] | None], problems: int = 2) -> Path:
        source = problem_set(problems)
        texts = tuple(rewards)
        spec = sample_settings(n=len(texts))
        small_build(
            tmp_path / "built",
            source,
            sampling=spec,
            make_sampler=lambda: fixed_sampler(source, texts),
        )
        progress = LineProgress()
        derive_dataset(
            tmp_path / "built", tmp_path / "scored", [Rewards(rewards)], progress=progress
        )
        return tmp_path / "scored"

    return make


def make_pairs(source: Path, out: str = "pairs", **spec: Any) -> tuple[dict[str, Any], list[Any]]:
    """Pair a dataset; return its manifest and (chosen, rejected) of the first problem."""
    target = source.parent / out
    manifest = derive_dataset(
        source, target, [PairStage(PairSpec(**spec))], progress=LineProgress()
    )
    assert validate(target) == manifest
    rows = pl.read_parquet(target / "pairs/*.parquet")
    rows = rows.filter(pl.col("problem_id") == rows["problem_id"][0])
    return manifest.to_dict(), list(zip(rows["chosen"], rows["rejected"], strict=True))


REWARDS: dict[str, Sequence[float] | None] = {
    right(0): [0.2, 0.2],
    right(1): [0.875, 0.625],
    right(2): [0.75, 0.75],  # as good as way 1 on average, and later
    wrong(0): [0.1, 0.1],
    wrong(1): [0.6, 0.2],
    wrong(2): [0.3, 0.1],
    "": [],
}


def test_the_best_correct_solutions_are_paired_with_the_worst_incorrect_ones(
    make_scored_dataset: MakeDataset,
) -> None:
    source = make_scored_dataset(REWARDS)
    _, pairs = make_pairs(source, top=2)
    assert pairs == list(product([right(1), right(2)], [wrong(0), wrong(2)]))
    statistics = pair_statistics_of(source.parent / "pairs")
    assert statistics.pairs == 8
    assert statistics.problems == {
        "used": 2,
        "problems": 2,
        "too_easy": 0,
        "too_hard": 0,
    }


def test_fewer_solutions_than_top_give_fewer_pairs(make_scored_dataset: MakeDataset) -> None:
    _, pairs = make_pairs(make_scored_dataset(REWARDS), top=4)
    assert len(pairs) == 3 * 3


@pytest.mark.parametrize(
    ("aggregation", "first"),
    [("mean", right(1)), ("min", right(2)), ("prod", right(2)), ("last", right(2))],
)
def test_the_aggregate_decides_the_best_solution(
    make_scored_dataset: MakeDataset, aggregation: str, first: str
) -> None:
    _, pairs = make_pairs(make_scored_dataset(REWARDS), top=1, aggregate=aggregation)
    assert pairs == [(first, wrong(0))]


def test_repeated_texts_count_once(make_scored_dataset: MakeDataset, tmp_path: Path) -> None:
    source = problem_set(1)
    texts = (right(0), right(0), right(0), wrong(0), wrong(0))
    sampler = lambda: fixed_sampler(source, texts)  # noqa: E731
    small_build(tmp_path / "b", source, sampling=sample_settings(n=5), make_sampler=sampler)
    table = Rewards({right(0): [0.9, 0.9], wrong(0): [0.1, 0.1]})
    derive_dataset(tmp_path / "b", tmp_path / "s", [table], progress=LineProgress())
    _, pairs = make_pairs(tmp_path / "s")
    assert pairs == [(right(0), wrong(0))]
    first = pl.read_parquet(tmp_path / "b/solutions/*.parquet")["solution_id"][0]
    assert pl.read_parquet(tmp_path / "pairs/pairs/*.parquet")["chosen_id"][0] == first


def test_without_outcomes_no_solution_is_on_both_sides(make_scored_dataset: MakeDataset) -> None:
    _, pairs = make_pairs(make_scored_dataset(REWARDS), top=4, require_outcome=False)
    chosen, rejected = ({pair[side] for pair in pairs} for side in (0, 1))
    assert chosen == {right(1), right(2), wrong(1)} and rejected == {wrong(0), wrong(2), right(0)}


def test_without_outcomes_equal_rewards_make_no_pair(make_scored_dataset: MakeDataset) -> None:
    rewards: dict[str, Sequence[float] | None] = {right(0): [0.5, 0.5], wrong(0): [0.5, 0.5]}
    source = make_scored_dataset({**rewards, right(1): [0.9, 0.9]})
    _, pairs = make_pairs(source, top=4, require_outcome=False)
    assert pairs == [(right(1), wrong(0))]


def test_the_widest_margins_are_kept_and_narrow_ones_dropped(
    make_scored_dataset: MakeDataset,
) -> None:
    source = make_scored_dataset(REWARDS)
    _, pairs = make_pairs(source, "capped", max_pairs=2)
    assert pairs == [(right(1), wrong(0)), (right(2), wrong(0))]
    _, pairs = make_pairs(source, "wide", min_margin=0.5)
    assert {pair[1] for pair in pairs} == {wrong(0), wrong(2)}
    margin = pair_statistics_of(source.parent / "wide").margin
    assert margin is not None and margin["min"] is not None and margin["min"] >= 0.5


def test_a_margin_that_equals_the_bound_but_for_rounding_is_kept(
    make_scored_dataset: MakeDataset,
) -> None:
    """In 32 bits, 0.7 - 0.6 is 0.099999964, and the mean of 0.6 and 0.8 is not that of 0.7."""
    rewards: dict[str, Sequence[float] | None] = {right(0): [0.7, 0.7], wrong(0): [0.6, 0.6]}
    _, pairs = make_pairs(make_scored_dataset(rewards), min_margin=0.1)
    assert pairs == [(right(0), wrong(0))]


def test_rewards_that_are_equal_but_for_rounding_make_no_pair(
    make_scored_dataset: MakeDataset,
) -> None:
    rewards: dict[str, Sequence[float] | None] = {right(0): [0.6, 0.8], wrong(0): [0.7, 0.7]}
    with pytest.raises(InputError, match="gives a pair"):
        make_pairs(make_scored_dataset(rewards), require_outcome=False)


def test_a_solution_without_rewards_is_left_out(make_scored_dataset: MakeDataset) -> None:
    _, pairs = make_pairs(make_scored_dataset({**REWARDS, right(1): None}), top=1)
    assert pairs == [(right(2), wrong(0))]


def test_statistics_show_lengths_and_margins(make_scored_dataset: MakeDataset) -> None:
    rewards: dict[str, Sequence[float] | None] = {right(0, steps=5): [0.1] * 5}
    source = make_scored_dataset({**rewards, wrong(0): [0.3, 0.5]})
    make_pairs(source)
    statistics = pair_statistics_of(source.parent / "pairs")
    assert statistics.margin == {
        "mean": -0.3, "min": -0.3, "median": -0.3, "max": -0.3, "negative": 2
    }  # fmt: skip
    length = statistics.length
    assert (length["chosen_steps"], length["rejected_steps"]) == (5, 2)
    assert (length["chosen_longer"], length["chosen_shorter"]) == (2, 0)


def test_truncated_solutions_are_not_paired(tmp_path: Path) -> None:
    """A trainer would teach the model to stop at the truncation."""
    source = problem_set(1)
    responses = [(right(0), "stop"), (right(1), "length"), (wrong(0), "stop"), (wrong(1), "length")]
    table = {text: [0.5, 0.5] for text, _ in responses}

    class Cuts(FixedSampler):
        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            return [[Completion(text, reason, 9) for text, reason in responses] for _ in prompts]

    small_build(
        tmp_path / "b", source, sampling=sample_settings(n=4), make_sampler=lambda: Cuts({})
    )
    derive_dataset(tmp_path / "b", tmp_path / "s", [Rewards(table)], progress=LineProgress())
    _, pairs = make_pairs(tmp_path / "s")
    assert pairs == [(right(0), wrong(0))]
    assert pair_statistics_of(tmp_path / "pairs").solutions == {
        "chosen": 1,
        "rejected": 1,
        "truncated": 2,
    }
    solutions = pl.read_parquet(tmp_path / "s/solutions/*.parquet")
    cut = solutions.filter(pl.col("finish_reason") == "length").row(0, named=True)
    rewrite(
        tmp_path / "pairs",
        chosen_id=cut["solution_id"],
        chosen_steps=cut["completions"],
        chosen="".join(cut["completions"]),
    )
    with pytest.raises(SchemaError, match="1 pairs contain a truncated solution"):
        validate(tmp_path / "pairs")


def test_pairs_equal_those_of_a_plain_loop(tmp_path: Path) -> None:
    """The random rewards have many ties, and the texts repeat."""
    rng = random.Random(0)
    rows = [
        {
            "problem_id": f"p{i // 12}",
            "completions": [f"{rng.randrange(9)}", "x"],
            "outcome": rng.choice(["correct", "incorrect", "no_answer", "timed_out"]),
            "step_rewards": [rng.randrange(4) / 4, rng.randrange(4) / 4],
            "finish_reason": "stop",
            "thinking_closed": None,
        }
        for i in range(1200)
    ]
    for row in rows:  # one text, one outcome and one reward
        first = next(r for r in rows if (r["problem_id"], r["completions"]) == (
            row["problem_id"], row["completions"]))  # fmt: skip
        row.update(outcome=first["outcome"], step_rewards=first["step_rewards"])
    expected = []
    for problem in dict.fromkeys(row["problem_id"] for row in rows):
        seen, unique = set(), []
        for number, row in enumerate(rows):
            if row["problem_id"] == problem and row["completions"][0] not in seen:
                seen.add(row["completions"][0])
                unique.append((sum(row["step_rewards"]) / 2, number, row["outcome"]))
        good = sorted((u for u in unique if u[2] == "correct"), key=lambda u: (-u[0], u[1]))
        bad = sorted(u for u in unique if u[2] in ("incorrect", "no_answer"))
        expected += [(g[1], b[1]) for g in good[:2] for b in bad[:2]]
    chosen = choose_pairs(pl.LazyFrame(rows), PairSpec(top=2)).collect()
    assert chosen.rows() == expected and len(expected) > 100


def test_aggregates_agree_in_python_and_polars() -> None:
    rewards = [[0.5], [0.25, 0.75, 0.125], [0.0, 1.0], [0.1, 0.2, 0.3, 0.4]]
    frame = pl.DataFrame({"rewards": rewards})
    for aggregation in AGGREGATES:
        column = frame.select(aggregate_expr("rewards", aggregation)).to_series().to_list()
        assert column == pytest.approx([aggregate(rewards, aggregation) for rewards in rewards])
    assert aggregate([0.5, 0.25], "mean") == 0.375 and aggregate([0.5, 0.25], "prod") == 0.125


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top = 0: expected at least 1"),
        ({"aggregate": "max"}, "aggregate = 'max': expected one of mean, min, prod, last"),
        ({"max_pairs": 0}, "max_pairs = 0: expected at least 1"),
        ({"min_margin": float("nan")}, "min_margin = nan: expected a finite number"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PairSpec(**options)


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({right(0): None, wrong(0): None}, "has no step rewards. Score it first"),
        ({right(0): [0.5, 0.5]}, "2 have no incorrect solution, 0 have no correct one"),
        ({wrong(0): [0.5, 0.5]}, "0 have no incorrect solution, 2 have no correct one"),
        ({right(0): [0.5, 0.5], wrong(0): [0.5, 0.5]}, r"lower `min_margin=0\.3`"),
    ],
)
def test_a_dataset_without_pairs_is_refused_and_nothing_is_written(
    make_scored_dataset: MakeDataset, rewards: Any, message: str
) -> None:
    source = make_scored_dataset(rewards)
    with pytest.raises(InputError, match=message):
        make_pairs(source, min_margin=0.3)
    assert not (source.parent / "pairs").exists()


def test_the_parent_is_recorded_and_unchanged(make_scored_dataset: MakeDataset) -> None:
    source = make_scored_dataset(REWARDS)
    old_bytes = {path: path.read_bytes() for path in source.rglob("*.parquet")}
    manifest, _ = make_pairs(source)
    assert manifest["parent"] == json.loads((source / "manifest.json").read_text())["digest"]
    assert (
        stage_options(manifest, "pair")["top"] == 4
        and stage_options(manifest, "score")["prm"]["name"] == "table"
    )
    assert {path: path.read_bytes() for path in source.rglob("*.parquet")} == old_bytes
    assert (source.parent / "pairs/solutions").exists() and (source.parent / "pairs/README.md")
    with pytest.raises(InputError, match="datasets are never changed"):
        derive_dataset(source, source, [PairStage(PairSpec())], progress=LineProgress())


def test_another_spec_in_the_same_directory_is_refused(make_scored_dataset: MakeDataset) -> None:
    source = make_scored_dataset(REWARDS)
    first, _ = make_pairs(source)
    out = source.parent / "pairs"
    with pytest.raises(RunMismatchError, match=r"stages\.pair\.top: 4 in the run, 2 now"):
        derive_dataset(
            source, out, [PairStage(PairSpec(top=2))], resume=True, progress=LineProgress()
        )
    again = derive_dataset(
        source, out, [PairStage(PairSpec())], resume=True, progress=LineProgress()
    )
    assert again.to_dict() == first


def test_a_run_stopped_before_sealing_resumes_to_the_same_manifest(
    make_scored_dataset: MakeDataset,
) -> None:
    source = make_scored_dataset(REWARDS)
    first, _ = make_pairs(source)
    out = source.parent / "pairs"
    (out / "manifest.json").unlink()
    (out / "problems/train-00000-of-00001.parquet").unlink()
    again = derive_dataset(
        source, out, [PairStage(PairSpec())], resume=True, progress=LineProgress()
    )
    assert again == validate(out) and again.to_dict() == first


def test_a_changed_parent_is_refused(make_scored_dataset: MakeDataset) -> None:
    source = make_scored_dataset(REWARDS)
    file = next((source / "problems").iterdir())
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        make_pairs(source)


def test_broken_pairs_are_found(make_scored_dataset: MakeDataset) -> None:
    source = make_scored_dataset(REWARDS)
    make_pairs(source, top=2)
    root = source.parent / "pairs"
    rows = pq.read_table(root / "pairs/train-00000-of-00001.parquet").to_pylist()
    pair, other_pair = rows[0], rows[-1]
    breaks: list[tuple[dict[str, Any], str]] = [
        ({"rejected_id": pair["chosen_id"]}, "pair a solution with itself"),
        ({"rejected_id": rows[1]["rejected_id"]}, "occur more than once"),
        ({"chosen_id": "0" * 20}, "have a chosen solution that is missing"),
        ({"rejected_id": other_pair["rejected_id"]}, "have a rejected solution of another problem"),
        ({"chosen": "other"}, "have a chosen text that differs from its steps"),
        ({"prompt": "other"}, "have another prompt than the chosen solution"),
        ({"prompt": "other"}, "have another prompt than the rejected solution"),
        ({"rejected_steps": ["other"]}, "rejected steps that differ from the solution"),
        ({"chosen_rewards": [0.0, 0.0]}, "chosen rewards that differ from the solution"),
        ({"chosen_rewards": None}, "chosen rewards that differ from the solution"),
        ({"chosen_id": pair["rejected_id"]}, "have a chosen solution that is not correct"),
    ]
    for fields, message in breaks:
        rewrite(root, **{**pair, **fields})
        with pytest.raises(SchemaError, match=message):
            validate(root)
    rewrite(root, **pair)
    validate(root)


def test_other_readers_see_the_pairs(make_scored_dataset: MakeDataset, tmp_path: Path) -> None:
    import datasets

    make_pairs(make_scored_dataset(REWARDS))
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(str(tmp_path / "pairs"), "pairs", split="train", cache_dir=cache)
    assert loaded.column_names == arrow_schema("pairs").names
    assert loaded[0]["chosen"] == right(1)
    assert loaded[0]["chosen_rewards"] == [0.875, 0.625]


def test_the_command_shows_the_lengths_of_both_sides(
    make_scored_dataset: MakeDataset,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsdpo_data.cli.app import main

    source = make_scored_dataset(REWARDS)
    out = source.parent / "pairs"
    arguments = ["pair", str(source), "--out", str(out), "--top", "2", "--max-pairs", "3"]
    monkeypatch.setattr("sys.argv", ["fsdpo-data", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    output = " ".join(capsys.readouterr().out.split())
    assert not caught.value.code
    assert "6 of 2 problems (0 too easy, 0 too hard)" in output
    assert "tokens in 2.0 steps (chosen) against" in output and "chosen longer" in output
    assert stage_options(validate(out).to_dict(), "pair")["max_pairs"] == 3


def test_pairs_and_solutions_may_be_in_any_files(
    make_scored_dataset: MakeDataset, tmp_path: Path
) -> None:
    make_pairs(make_scored_dataset(REWARDS))
    pairs = [tmp_path / "pairs/pairs/train-00000-of-00001.parquet"]
    solutions = pl.read_parquet(tmp_path / "pairs/solutions/*.parquet")
    expected = list(join_solutions(pairs, [write(solutions, tmp_path / "whole")], ["outcome"]))
    parts = [write(solutions.tail(5), tmp_path / "b"), write(solutions.head(-5), tmp_path / "a")]
    many = [pl.read_parquet(pairs[0]).head(1), pl.read_parquet(pairs[0]).tail(-1)]
    split = [write(part, tmp_path / f"pairs-{i}") for i, part in enumerate(many)]
    assert pl.concat(join_solutions(pairs, parts, ["outcome"])).equals(expected[0])
    assert pl.concat(join_solutions(split, parts, ["outcome"])).equals(expected[0])
    incomplete = pl.concat(join_solutions(pairs, parts[:1], ["outcome"]))
    assert (
        incomplete["chosen_outcome"].null_count() > 0 == expected[0]["chosen_outcome"].null_count()
    )


def write(rows: pl.DataFrame, file: Path) -> Path:
    rows.write_parquet(file)
    return file


def test_solutions_that_stop_inside_their_thinking_form_no_pairs(
    make_scored_dataset: MakeDataset, tmp_path: Path
) -> None:
    unclosed = "<think>\nStep 1: I wonder.\nStep 2: It may be 43."
    path = make_scored_dataset(
        {right(1): [0.9, 0.9], unclosed: [0.1], wrong(1): [0.5, 0.5]}, problems=2
    )
    validate(path)
    scored = statistics_of(path)
    assert scored.solutions.truncated == 0 and scored.solutions.stopped_thoughts == 2
    assert (
        "2  (33.3 %), of which 2 stopped inside their thinking"
        in dict(summary_rows(scored))["truncated"]
    )
    progress = LineProgress()
    derive_dataset(path, tmp_path / "pairs", [PairStage(PairSpec())], progress=progress)
    validate(tmp_path / "pairs")
    counts = pair_statistics_of(tmp_path / "pairs")
    assert counts.pairs == 2 and counts.solutions["unclosed"] == 2
    rejected = pl.read_parquet(tmp_path / "pairs/pairs")["rejected"].to_list()
    assert rejected == [wrong(1)] * 2
    stage = PairStage(PairSpec(allow_unclosed=True))
    derive_dataset(path, tmp_path / "all", [stage], progress=progress)
    validate(tmp_path / "all")
    counts = pair_statistics_of(tmp_path / "all")
    assert counts.pairs == 4 and "unclosed" not in counts.solutions


@pytest.mark.parametrize(
    ("rejected_rewards", "gamma", "rejected_weights"),
    [
        ([0.2, 0.9], 8.0, [0.007369, 1.992631]),  # the last weight of a wrong solution is small
        ([0.9, 0.2], 0.5, [1.173235, 0.826765]),
        ([0.5, 0.5], 8.0, [1.0, 1.0]),
    ],
)
def test_a_last_step_with_another_weight_on_each_side_is_a_warning(
    make_scored_dataset: MakeDataset,
    rejected_rewards: list[float],
    gamma: float,
    rejected_weights: list[float],
) -> None:
    source = make_scored_dataset({right(1): [0.5, 0.5], wrong(1): rejected_rewards}, problems=2)
    out = source.parent / "pairs"
    derive_dataset(source, out, [PairStage(PairSpec())], progress=LineProgress())
    statistics = DatasetStatistics(out, validate(out), gamma=gamma)
    assert statistics.pairs is not None
    weights = statistics.pairs.step_weights
    assert weights
    assert weights.chosen.weight == [1.0, 1.0]
    assert weights.rejected.weight == pytest.approx(rejected_weights, abs=1e-4)
    assert weights.rejected.reward == pytest.approx(rejected_rewards[::-1], abs=1e-4)
    warnings = [text for text in dataset_warnings(statistics) if "K·α of the last step" in text]
    assert len(warnings) == (abs(rejected_weights[0] - 1) > 0.1)
    assert "step weights" in dict(summary_rows(statistics))
