"""Selections: filters, duplicates, samples and splits of a sealed dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from command_line import run
from fakes import FixedSampler
from hashes import hashes
from helpers import RIGHT, WRONG, read_sample_settings, sample_settings, small_build, stage_names
from paired_data import paired_dataset

import fsdpo_data as fd
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import FailurePolicy
from fsdpo_data.core.identity import SourceRef
from fsdpo_data.core.parquet_files import count_bytes
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.import_options import ImportOutputsOptions
from fsdpo_data.exchange.importing import run_import
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.selection import row_index, write_rows
from fsdpo_data.selection.funnel import Funnel
from fsdpo_data.stages.select import SelectRecord

RIGHT_COUNTS = [0, 1, 2, 3, 4, 4]  #: Right solutions among the four of each problem.


def build(
    out: Path,
    rights: Sequence[int] = RIGHT_COUNTS,
    samples: int = 4,
    wrong: Sequence[str] = ("43",) * 60,
    unsolved: Sequence[Problem] = (),
) -> fd.Dataset:
    """Build a dataset whose problem ``i`` has ``rights[i]`` right solutions.

    The other solutions of problem ``i`` answer ``wrong[i]``. The sampler refuses ``unsolved``.
    """
    problems = [
        Problem(
            f"What is 20 + 22, asked for the {index}th time?",
            "42",
            f"source-{index % 2}",
            "train",
            {"level": index, "subject": "Algebra" if index % 2 else "Geometry", "row": -index},
        )
        for index in range(len(rights))
    ]
    template = get_template("problem")
    texts = {
        template.render(problem.question): tuple(
            f"Step 0: Try {sample}.\n{RIGHT if sample < right else WRONG.replace('43', other)}"
            for sample in range(samples)
        )
        for problem, right, other in zip(problems, rights, wrong, strict=False)
    }
    source = ProblemSet([*unsolved, *problems], [SourceRef("test", "1", "train")])
    small_build(
        out,
        source,
        sampling=sample_settings(n=samples),
        make_sampler=lambda: FixedSampler(texts),
        failure_policy=FailurePolicy(max_failed="90%"),
    )
    return fd.open_dataset(out)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> fd.Dataset:
    return build(tmp_path_factory.mktemp("select") / "built")


def rights(dataset: fd.Dataset) -> list[int]:
    """Return the number of right solutions of each problem."""
    dataset.validate()
    solutions = dataset.solutions().collect()
    counts = solutions.group_by("problem_id", maintain_order=True).agg(
        (pl.col("outcome") == "correct").sum()
    )
    return counts["outcome"].to_list()


def test_everything_selected_has_the_same_files_and_statistics(
    dataset: fd.Dataset, tmp_path: Path
) -> None:
    selected = dataset.select(out=tmp_path / "all").validate()
    assert selected.manifest.digest == dataset.manifest.digest
    assert selected.statistics().solutions == dataset.statistics().solutions
    differing = {"stages", "parent", "manifest_digest"}
    expected = dataset.manifest.to_dict()
    values = selected.manifest.to_dict()
    assert {key for key in values if values[key] != expected.get(key)} == differing
    assert [entry for entry in values["stages"] if entry["name"] != "select"] == expected["stages"]
    assert selected.manifest.parent == dataset.manifest.digest


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pass_rate": "0.25..0.75"}, [1, 2, 3]),
        ({"pass_rate": "..0.5"}, [0, 1, 2]),
        ({"mixed": True}, [1, 2, 3]),
        ({"problem_filter": "source = 'source-1'"}, [1, 3, 4]),
        ({"problem_filter": "level IN (2, 5)"}, [2, 4]),
        ({"problem_filter": "level < 2 OR subject = 'Geometry' AND correct = 4"}, [0, 1, 4]),
        ({"problem_filter": "question LIKE '%2th%'"}, [2]),
        ({"problem_filter": "row < -3"}, [4, 4]),  # a field of the metadata, not of the index
        ({"problem_filter": "1 = 1"}, [0, 1, 2, 3, 4, 4]),
        ({"filter": "outcome = 'correct'"}, [1, 2, 3, 4, 4]),
        ({"filter": "sample_index = 0"}, [0, 1, 1, 1, 1, 1]),
        ({"filter": "array_length(completions) = 3 AND outcome = 'incorrect'"}, [0, 0, 0, 0]),
        ({"filter": "array_length(completions) <= 2"}, None),
        ({"per_problem": 2}, [0, 1, 1, 1, 2, 2]),
        ({"sample": 1}, 1),
        ({"sample": 0.5}, 3),
    ],
)
def test_filters(
    dataset: fd.Dataset, tmp_path: Path, options: dict[str, Any], expected: Any
) -> None:
    if expected is None:
        with pytest.raises(
            InputError, match=r"no solution is left(.|\n)*filter dropped 6 problems"
        ):
            dataset.select(out=tmp_path / "new", **options)
        assert not (tmp_path / "new").exists()
        return
    selected = dataset.select(out=tmp_path / "new", **options)
    if isinstance(expected, int):
        assert len(rights(selected)) == expected
    else:
        assert rights(selected) == expected


def test_a_selection_of_a_selection_states_both(dataset: fd.Dataset, tmp_path: Path) -> None:
    mixed = dataset.select(out=tmp_path / "mixed", mixed=True, split=["test=0.4"], seed=1)
    unique = mixed.select(out=tmp_path / "unique", unique=True)
    small = unique.select(out=tmp_path / "small", sample=1, seed=2)
    record = small.manifest.get("select", SelectRecord)
    assert record.options == {
        "options": {"sample": 1.0, "seed": 2},
        "earlier": [
            {"options": {"mixed": True, "split": ["test=0.4"], "seed": 1}, "part": "train"},
            {"options": {"unique": True, "seed": 0}},
        ],
    }
    assert (
        '\n| selection | mixed `true`, seed `1`, split `["test=0.4"]`; split `train`; '
        "then seed `0`, unique `true`; then sample `1.0`, seed `2` |\n"
    ) in (small.path / "README.md").read_text()


def test_a_field_of_the_metadata_has_one_type_in_all_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One source has the levels 1 to 5, and another one texts such as "Level 1"."""
    levels = [1, "Level 1", "Level 2", "Level 3", 1, 2]
    problems = [
        Problem(f"{index} + 1?", f"{index + 1}", "source", "train", {"level": level})
        for index, level in enumerate(levels)
    ]
    source = ProblemSet(problems, [SourceRef("test", "1", "train")])
    render = get_template("problem").render
    texts = {render(problem.question): ["The answer is: 1"] for problem in problems}
    small_build(
        tmp_path / "run",
        source,
        sampling=sample_settings(n=1),
        make_sampler=lambda: FixedSampler(texts),
    )
    monkeypatch.setattr(row_index, "read_batches", partial(row_index.read_batches, batch_rows=2))
    selected = fd.open_dataset(tmp_path / "run").select(
        problem_filter="level = '1'", out=tmp_path / "one"
    )
    assert selected.manifest.rows.problems == 2


def test_the_manifest_has_the_filters_in_order_and_the_statistics(
    dataset: fd.Dataset, tmp_path: Path
) -> None:
    selected = dataset.select(
        out=tmp_path / "new",
        pass_rate="0.25..",
        filter="outcome = 'correct'",
        per_problem=2,
        seed=3,
    )
    record = selected.manifest.get("select", SelectRecord)
    selection = record.counts
    counts = [(name, size.problems, size.solutions) for name, size in selection.filters.items()]
    assert counts == [("pass_rate", 1, 4), ("filter", 0, 6), ("per_problem", 0, 5)]
    assert (selection.available.problems, selection.available.solutions) == (6, 24)
    assert (selection.selected.problems, selection.selected.solutions) == (5, 9)
    assert selection.available.outcomes["correct"] == 14 and selection.selected.accuracy.n == 9
    assert record.options == {
        "options": {
            "pass_rate": "0.25..",
            "filter": "outcome = 'correct'",
            "per_problem": 2,
            "stratify": "outcome",
            "seed": 3,
        },
    }
    assert selected.statistics().solutions.max_samples == 2
    assert read_sample_settings(selected.manifest).sampling.n == 4  # the samples of the build
    card = (selected.path / "README.md").read_text()
    assert "| selection | " in card and "pass rate `0.25..`" in card


def test_undecided_answers_give_no_pass_rate(tmp_path: Path) -> None:
    dataset = build(tmp_path / "built", [0, 1, 0], wrong=["43", "43", r"\unknownmacro{42}"])
    outcomes = dataset.statistics().solutions.outcomes
    assert outcomes == {"correct": 1, "incorrect": 7, "undecided": 4}
    selected = dataset.select(out=tmp_path / "new", pass_rate="0..")
    assert rights(selected) == [0, 1]
    assert selected.manifest.get("select", SelectRecord).counts.without_pass_rate == 1


@pytest.mark.parametrize(
    ("options", "n_problems"),
    [({}, 3), ({"sample": 2}, 2), ({"sample": 1 / 3}, 1), ({"split": ["test=0.3"]}, None)],
)
def test_problems_without_solutions_are_dropped(
    tmp_path: Path, options: dict[str, Any], n_problems: int | None
) -> None:
    unsolved = [Problem(f"Unsolved, number {index}?", "1", "s", "train") for index in range(3)]
    dataset = build(tmp_path / "built", [1, 2, 3], unsolved=unsolved)
    assert dataset.manifest.failed == {"sample": 3}
    selected = dataset.select(out=tmp_path / "all", **options)
    for part in [tmp_path / "all", *tmp_path.glob("all-*")]:
        manifest = fd.open_dataset(part).validate().manifest
        with_solutions = fd.open_dataset(part).solutions().collect()["problem_id"].n_unique()
        assert manifest.rows.problems == with_solutions
        assert n_problems in (None, with_solutions)
        assert manifest.failed == {"sample": 3}  # what the engine refused stays
    counts = selected.manifest.get("select", SelectRecord).counts
    assert (counts.available.problems, counts.filters["unsolved"].problems) == (6, 3)


def test_an_unsolved_problem_does_not_replace_one_with_the_same_question() -> None:
    problems = pl.DataFrame({"problem": [0, 1], "question_key": [7, 7]})
    funnel = Funnel(problems, pl.DataFrame({"problem": [1, 1]}))
    funnel.drop_unsolved_problems()
    funnel.keep_problems("unique_questions", pl.col("question_key").is_first_distinct())
    assert funnel.problems["problem"].to_list() == [1]


def test_unknown_token_counts_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"question": "2+2?", "answer": "4", "responses": ["4", "5"]}) + "\n"
    )
    options = ImportOutputsOptions(file=tmp_path / "rows.jsonl", out=tmp_path / "imported")
    run_import(options, NO_PROGRESS)
    dataset = fd.open_dataset(tmp_path / "imported")
    with pytest.raises(InputError, match="filter dropped 1 problems and 2 solutions"):
        dataset.select(out=tmp_path / "new", filter="n_tokens < 800")
    short = dataset.select(
        out=tmp_path / "short", filter="length(array_to_string(completions, '')) < 800"
    )
    assert short.manifest.rows.solutions == 2


def test_a_split_has_no_problem_on_both_sides(tmp_path: Path) -> None:
    dataset = build(tmp_path / "built", [1] * 60, samples=2)
    new = dataset.select(out=tmp_path / "new", split=["validation=0.2", "test=0.1"])
    parts = [new, *(fd.open_dataset(tmp_path / f"new-{name}") for name in ("validation", "test"))]
    ids = [set(part.validate().problems().collect()["problem_id"]) for part in parts]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 60
    assert all(ids) and len(ids[0]) > 30
    for part, problem_ids in zip(parts, ids, strict=True):
        assert set(part.solutions().collect()["problem_id"]) == problem_ids
        sizes = part.manifest.get("select", SelectRecord).counts.splits
        assert sizes is not None
        assert {name: size.problems for name, size in sizes.items()} == {
            "train": len(ids[0]),
            "validation": len(ids[1]),
            "test": len(ids[2]),
        }
    # A split of a split has its own order.
    again = new.select(out=tmp_path / "again", split=["validation=0.2"])
    assert 0 < fd.open_dataset(tmp_path / "again-validation").manifest.rows.problems < len(ids[0])
    assert again.manifest.rows.problems > len(ids[0]) / 2
    # Another selection leaves each problem on its side.
    dataset.select(out=tmp_path / "other", split=["validation=0.2", "test=0.1"], sample=0.6)
    other = set(fd.open_dataset(tmp_path / "other-validation").problems().collect()["problem_id"])
    assert other and other < ids[1]


def test_a_choice_per_problem_is_balanced_and_seeded(tmp_path: Path) -> None:
    dataset = build(tmp_path / "built", [7, 1, 4], samples=8)
    balanced = dataset.select(out=tmp_path / "balanced", per_problem=4)
    assert rights(balanced) == [3, 1, 2]
    again = dataset.select(out=tmp_path / "again", per_problem=4)
    assert again.manifest.digest == balanced.manifest.digest
    other = dataset.select(out=tmp_path / "other", per_problem=4, seed=1)
    assert other.manifest.digest != balanced.manifest.digest
    by_answer = dataset.select(out=tmp_path / "by-answer", per_problem=2, stratify="answer")
    assert rights(by_answer) == [1, 1, 1]


@pytest.mark.parametrize("stratum", ["outcome", "answer", "none"])
def test_solutions_without_a_verdict_fill_the_last_places(stratum: str) -> None:
    outcomes = ["correct", "incorrect", "undecided", "no_answer"] * 3
    solutions = pl.DataFrame(
        {
            "problem": [0] * 12 + [1] * 4,
            "order": pl.Series(range(16), dtype=pl.UInt64),
            "outcome": [*outcomes, *["timed_out"] * 3, "incorrect"],
            "answer": ["42", "43", "44", None] * 4,
        }
    )
    for seed in range(5):
        funnel = Funnel(pl.DataFrame({"problem": [0, 1]}), solutions)
        funnel.keep_per_problem(6, stratum, seed)
        first, second = funnel.solutions.partition_by("problem", maintain_order=True)
        outcomes_left = first["outcome"].to_list()
        assert len(outcomes_left) == 6 and "undecided" not in outcomes_left
        assert stratum != "outcome" or outcomes_left.count("correct") == 3
        assert second.height == 4


@pytest.mark.parametrize(("reward", "n"), [("0.7..", 2), ("..0.2", 1), ("0.2..0.7", 2)])
def test_a_range_of_rewards_includes_its_bounds(tmp_path: Path, reward: str, n: int) -> None:
    """Rewards are stored in 32 bits: 0.7 as 0.699999988, and 0.2 as 0.200000003."""
    rows = [
        {"question": "1+1?", "answer": "2", "response": f"{level}: 2", "step_scores": [level]}
        for level in (0.2, 0.7, 0.8)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ImportOutputsOptions(
        file=tmp_path / "rows.jsonl", out=tmp_path / "all", scores_field="step_scores"
    )
    run_import(options, NO_PROGRESS)
    selected = fd.open_dataset(tmp_path / "all").select(out=tmp_path / "new", reward=reward)
    assert selected.manifest.rows.solutions == n


def test_a_range_includes_a_mean_that_equals_its_bound_but_for_rounding(tmp_path: Path) -> None:
    """The mean of 0.6 and 0.8 in 32 bits is 0.700000018."""
    row = {
        "question": "1+1?",
        "answer": "2",
        "response": "One.\nThe answer is 2",
        "steps": ["One.", "The answer is 2"],
        "step_scores": [0.6, 0.8],
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    run_import(
        ImportOutputsOptions(file=tmp_path / "rows.jsonl", out=tmp_path / "all"), NO_PROGRESS
    )
    for number, reward in enumerate(("..0.7", "0.7..")):
        out = tmp_path / str(number)
        selected = fd.open_dataset(tmp_path / "all").select(out=out, reward=reward)
        assert selected.manifest.rows.solutions == 1


def test_duplicates_and_rewards(tmp_path: Path) -> None:
    scored = fd.open_dataset(paired_dataset(tmp_path))
    low = float(scored.solutions().collect()["step_rewards"].list.min().median())  # type: ignore[arg-type]
    options: dict[str, Any] = {"reward": f"{low}..", "aggregate": "min"}
    rewarded = scored.select(out=tmp_path / "rewarded", **options).validate()
    rewards = rewarded.solutions().collect()["step_rewards"]
    assert rewards.list.min().min() >= low and len(rewards) < scored.manifest.rows.solutions
    statistics = rewarded.statistics().rewards
    assert statistics is not None and statistics.scored == len(rewards)
    assert rewarded.manifest.rows.pairs == 0
    assert "pair" not in stage_names(rewarded.manifest)
    unique = scored.select(out=tmp_path / "unique", unique=True).validate()
    assert unique.manifest.rows.solutions == scored.statistics().distinct_solutions
    # A later stage keeps the selection in the spec.
    paired = unique.pair(out=tmp_path / "paired", top=1, require_outcome=False)
    assert {"select", "pair"} <= stage_names(paired.manifest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pass_rate": "0.2"}, "expected a range LOW..HIGH"),
        ({"pass_rate": "0.8..0.2"}, "lower bound that is at most"),
        ({"reward": ".."}, "expected a range"),
        ({"filter": "nothing > 1"}, "there is no column 'nothing'"),
        ({"problem_filter": "lvl > 1"}, "no problem has it in its metadata"),
        ({"reward": "0.5.."}, "has no step rewards"),
        ({"aggregate": "min"}, "aggregate = .*only `reward` reads this option"),
        ({"stratify": "answer"}, "stratify = .*only `per_problem` reads this option"),
        ({"sample": 1.5}, "a whole number, or a fraction below 1"),
        ({"split": ["validation"]}, "expected NAME=FRACTION"),
        ({"split": ["train=0.1"]}, "the name of all other problems"),
        ({"split": ["a=0.5", "b=0.5"]}, "add up to less than 1"),
        ({"split": ["validation=0.00001"]}, "no problem is in the split 'validation'"),
    ],
)
def test_errors_name_the_option(
    dataset: fd.Dataset, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        dataset.select(out=tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_the_bytes_are_the_same_after_a_kill(
    dataset: fd.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "FILE_SOLUTIONS", 5)
    options: dict[str, Any] = {"per_problem": 3, "split": ["validation=0.4"], "seed": 2}
    dataset.select(out=tmp_path / "good", **options)
    written: list[Path] = []

    def write_and_stop(table: Any, target: Path) -> None:
        if len(written) == stop_after:
            raise KeyboardInterrupt
        written.append(target)
        original(table, target)

    original = write_rows.write_parquet
    n_files = 0
    for name in ("good", "good-validation"):
        n_files += len(list((tmp_path / name).rglob("*.parquet")))
    assert n_files > 4
    for stop_after in range(n_files):
        written.clear()
        out = tmp_path / f"stopped-{stop_after}"
        with monkeypatch.context() as patch:
            patch.setattr(write_rows, "write_parquet", write_and_stop)
            with pytest.raises(KeyboardInterrupt):
                dataset.select(out=out, **options)
        dataset.select(out=out, resume=True, **options)
        for suffix in ("", "-validation"):
            good = hashes(tmp_path / f"good{suffix}")
            assert hashes(Path(f"{out}{suffix}")) == good, (stop_after, suffix)
    validate(tmp_path / "good")


def test_long_solutions_are_in_more_files(
    dataset: fd.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file = dataset.select(out=tmp_path / "one_file")
    n_bytes = count_bytes(one_file.path / one_file.manifest.config_files("solutions")[0].path)
    monkeypatch.setattr(write_rows, "FILE_BYTES", n_bytes // 2)
    two_files = dataset.select(out=tmp_path / "two_files")
    assert len(two_files.manifest.config_files("solutions")) == 2
    assert two_files.solutions().collect().equals(one_file.solutions().collect())


def test_chosen_rows_of_more_than_two_gibibytes() -> None:
    """An array of texts cannot have as many, so the chunks of a column stay apart."""
    text = pa.array([["x" * 2**20] * 64], pa.list_(pa.string()))
    table = pa.table({"completions": pa.chunked_array([text] * 33)})
    rows = pl.Series([0, 32], dtype=pl.UInt32)
    assert write_rows._take_rows(table, rows).num_rows == 2


def test_a_problem_of_a_benchmark_is_dropped(dataset: fd.Dataset, tmp_path: Path) -> None:
    question = dataset.problems().collect()["question"][3]
    benchmark = tmp_path / "bench.jsonl"
    benchmark.write_text(json.dumps({"question": question, "answer": "42"}) + "\n")
    options: dict[str, Any] = {"against": [f"bench={benchmark}"]}
    # The questions differ in one number, so they all overlap with the benchmark.
    with pytest.raises(InputError, match=r"no solution is left(.|\n)*against dropped 6 problems"):
        dataset.select(out=tmp_path / "new", **options)
    benchmark.write_text(json.dumps({"question": "How far is the sea?", "answer": "42"}) + "\n")
    selected = dataset.select(out=tmp_path / "new", **options)
    assert selected.manifest.rows.problems == 6
    section = selected.manifest.get("select", SelectRecord).options["options"]["against"]
    assert section[0]["name"] == "bench" and section[0]["revision"].startswith("sha256:")


def test_the_command_plans_and_selects(
    dataset: fd.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("select", str(dataset.path), "--mixed", "--filter", "n_tokens < 800")
    code, plan, _ = run(capsys, *words, "--dry-run")
    assert code == 0
    assert "mixed: dropped 3 problems, 12 solutions" in plan
    assert [line.split() for line in plan.splitlines() if line.startswith("problems")] == [
        ["problems", "6", "3"]
    ]
    new = str(tmp_path / "new")
    code, result, _ = run(capsys, *words, "--split", "validation=0.4", "--seed", "1", "--out", new)
    assert code == 0
    assert "split validation: " in result and (tmp_path / "new-validation").is_dir()
    manifest = fd.open_dataset(tmp_path / "new-validation").manifest
    assert manifest.get("select", SelectRecord).options["part"] == "validation"
    code, _, message = run(capsys, *words)
    assert code and "expected the directory of the new dataset" in message


def test_a_dry_run_is_refused_in_python(dataset: fd.Dataset) -> None:
    with pytest.raises(InputError, match="a dry run gives no dataset"):
        dataset.select(dry_run=True)
