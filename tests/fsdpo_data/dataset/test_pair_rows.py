"""Imported pairs stay in datasets whose rewards, grades or rows change."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from command_line import run
from paired_data import MadeUpRewards, paired_dataset
from prm_data import write_rows
from recorded_imports import import_labels
from step_dpo_rows import STEP_DPO_ROWS

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage_records import PAIR_STAGE, PairRecord
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.imported_pairs import ImportedPairStage
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages import sample
from fsdpo_data.stages.pair import PairStage

REWARDS = ["chosen_rewards", "rejected_rewards"]


@pytest.fixture
def imported_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a dataset of four imported pairs, in three files."""
    monkeypatch.setattr(sample, "SHARD_SOLUTIONS", 2)
    source = write_rows(tmp_path / "rows.jsonl", STEP_DPO_ROWS)
    import_labels(source, "step-dpo-10k", tmp_path / "imported")
    return tmp_path / "imported"


def read_config(root: Path, config: str) -> pl.DataFrame:
    files = sorted((root / config).glob("*.parquet"))
    return scan_rows(config, files).collect()


def score(source: Path, out: Path, rewards: MadeUpRewards) -> None:
    derive_dataset(source, out, [rewards], progress=NO_PROGRESS)
    validate(out)


class FirstUnscored(MadeUpRewards):
    """A reward model for which the first solution of each file is too long."""

    def _add_rewards(self, table: pa.Table) -> pa.Table:
        rows = super()._add_rewards(table).to_pylist()
        rows[0]["step_rewards"] = None
        return pa.Table.from_pylist(rows, schema=table.schema)


def test_scored_imported_pairs_have_the_rewards_of_their_solutions(
    imported_dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = read_config(imported_dataset, "pairs")
    assert pairs.height == 4 and pairs["chosen_rewards"].null_count() == 4
    score(imported_dataset, tmp_path / "scored", MadeUpRewards())
    scored = read_config(tmp_path / "scored", "pairs")
    assert scored.drop(REWARDS).equals(pairs.drop(REWARDS))
    solutions = read_config(tmp_path / "scored", "solutions")
    rewards = dict(solutions.select("solution_id", "step_rewards").iter_rows())
    assert None not in rewards.values()
    for side in ("chosen", "rejected"):
        expected = [rewards[solution_id] for solution_id in scored[f"{side}_id"]]
        assert scored[f"{side}_rewards"].to_list() == expected
    assert not caplog.records
    # Another reward model replaces the rewards.
    score(tmp_path / "scored", tmp_path / "again", MadeUpRewards(salt="other"))
    again = read_config(tmp_path / "again", "pairs")
    assert again.drop(REWARDS).equals(pairs.drop(REWARDS))
    assert again["chosen_rewards"].to_list() != scored["chosen_rewards"].to_list()


def test_pairs_of_unscored_solutions_have_no_rewards(
    imported_dataset: Path, tmp_path: Path
) -> None:
    score(imported_dataset, tmp_path / "scored", FirstUnscored())
    scored = read_config(tmp_path / "scored", "pairs")
    assert 0 < scored["chosen_rewards"].null_count() < scored.height
    assert scored["rejected_rewards"].null_count() == 0


def test_a_selection_keeps_the_pairs_of_its_solutions(
    imported_dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = read_config(imported_dataset, "pairs")
    data = fd.open_dataset(imported_dataset)
    questions = data.select(
        out=tmp_path / "questions", problem_filter="question LIKE 'Tom%'"
    ).validate()
    chosen = read_config(questions.path, "pairs")
    assert chosen.equals(pairs[:2])
    statistics = questions.statistics().pairs
    assert statistics is not None
    assert (statistics.pairs, statistics.problems) == (2, {"used": 1})
    assert questions.manifest.rows.pairs == 2
    names = [record.name for record in questions.manifest.stages]
    assert names.index("pair") < names.index("select")
    # The pair of single steps loses both of its sides.
    long = data.select(out=tmp_path / "long", filter="ARRAY_LENGTH(completions) >= 2").validate()
    assert read_config(long.path, "pairs").equals(pairs[[0, 2]])
    assert not caplog.records


def test_a_selection_without_any_complete_pair(
    imported_dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = fd.open_dataset(imported_dataset)
    right = data.select(out=tmp_path / "right", per_problem=1, stratify="none").validate()
    assert right.manifest.rows.pairs == 0
    assert right.manifest.find(PAIR_STAGE, PairRecord) is None
    assert not (right.path / "pairs").exists()
    assert "4 of 4 imported pairs are left out, and 3 of them lost only one" in caplog.text
    for command in (
        ["inspect", str(right.path)],
        ["view", str(right.path), "--out", str(tmp_path / "page.html")],
    ):
        code, _, err = run(capsys, *command)
        assert code == 0, err


def test_a_selection_warns_of_pairs_that_lose_one_solution(
    imported_dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [first, *_] = read_config(imported_dataset, "pairs")["rejected_id"]
    selected = fd.open_dataset(imported_dataset).select(
        out=tmp_path / "selected", filter=f"solution_id <> '{first}'"
    )
    assert selected.validate().manifest.rows.pairs == 3
    assert "1 of 4 imported pairs are left out, and 1 of them lost only one" in caplog.text


def test_new_pairs_replace_imported_pairs_with_a_warning(
    imported_dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same stage stands for a plug-in, which may pair solutions that end early."""
    with caplog.at_level(logging.WARNING):
        derive_dataset(
            imported_dataset, tmp_path / "new", [ImportedPairStage()], progress=NO_PROGRESS
        )
    assert "the new pairs replace the imported pairs" in caplog.text
    assert validate(tmp_path / "new").rows.pairs == 4


def test_solutions_that_end_early_are_in_no_new_pair(
    imported_dataset: Path, tmp_path: Path
) -> None:
    score(imported_dataset, tmp_path / "scored", MadeUpRewards())
    stage = PairStage(PairSpec(top=1, require_outcome=False))
    with pytest.raises(InputError, match="8 of 8 solutions are truncated, or end early"):
        derive_dataset(tmp_path / "scored", tmp_path / "new", [stage], progress=NO_PROGRESS)


def test_pairs_that_old_rewards_chose_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paired = paired_dataset(tmp_path)
    assert fd.open_dataset(paired).manifest.rows.pairs
    score(paired, tmp_path / "scored", MadeUpRewards(salt="other"))
    scored = fd.open_dataset(tmp_path / "scored")
    assert scored.manifest.rows.pairs == 0
    assert scored.manifest.find(PAIR_STAGE, PairRecord) is None
    assert not caplog.records
