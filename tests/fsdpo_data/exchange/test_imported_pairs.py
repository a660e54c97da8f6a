"""Step-DPO's rows become a sealed dataset of preference pairs, which all commands read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from recorded_imports import import_labels
from step_dpo_rows import STEP_DPO_ROWS, step_dpo_row

from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.row_files import SourceRow, SourceRows
from fsdpo_data.dataset import derive
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import arrow_schema, write_parquet
from fsdpo_data.dataset.stage_records import PROBLEMS_STAGE, ProblemsRecord
from fsdpo_data.dataset.validate import check_invariants, validate
from fsdpo_data.exchange import row_import
from fsdpo_data.exchange.export import export
from fsdpo_data.publish.push import RemoteState, plan_push
from fsdpo_data.stages import sample

STEP_DPO = "step-dpo-10k"


def write_rows(file: Path, rows: list[Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def count_quarantined_rows(manifest: Manifest) -> dict[str, int]:
    return manifest.get(PROBLEMS_STAGE, ProblemsRecord).counts.quarantined


def import_pairs(
    folder: Path, rows: list[Any] = STEP_DPO_ROWS
) -> tuple[Manifest, list[dict[str, Any]]]:
    source = write_rows(folder / "step_dpo.jsonl", rows)
    manifest, _ = import_labels(source, STEP_DPO, folder / "out", template="alpaca-newline")
    return manifest, read_rows(folder / "out", "pairs")


def read_rows(root: Path, config: str) -> list[dict[str, Any]]:
    return pl.read_parquet(root / config / "*.parquet").to_dicts()


def test_each_row_is_a_pair_of_solutions_with_the_published_texts(tmp_path: Path) -> None:
    manifest, pairs = import_pairs(tmp_path)
    assert validate(tmp_path / "out") == manifest
    assert (manifest.rows.problems, manifest.rows.solutions, manifest.rows.pairs) == (3, 8, 4)
    solutions = {row["solution_id"]: row for row in read_rows(tmp_path / "out", "solutions")}
    for row, pair in zip(STEP_DPO_ROWS, pairs, strict=True):
        assert pair["prompt"].endswith(f"### Instruction:\n{row['prompt']}\n\n### Response:\n")
        *shared_steps, chosen_step = pair["chosen_steps"]
        *rejected_shared_steps, rejected_step = pair["rejected_steps"]
        assert shared_steps == rejected_shared_steps
        for side, step in (("chosen", chosen_step), ("rejected", rejected_step)):
            assert step.endswith(row[side])
            assert pair[side] == row["initial_reason_steps"] + row[side]
            solution = solutions[pair[f"{side}_id"]]
            assert solution["completions"] == pair[f"{side}_steps"]
            assert solution["imported_labels"] == [*(1.0 for _ in shared_steps), side == "chosen"]
            assert solution["problem_id"] == pair["problem_id"]
    assert [len(pair["chosen_steps"]) for pair in pairs] == [2, 1, 3, 1]


@pytest.mark.parametrize("name", ["trl-preference", "openrlhf", "llama-factory-alpaca"])
def test_trainers_of_complete_solutions_get_no_imported_pairs(tmp_path: Path, name: str) -> None:
    """Both sides end with a step, and these trainers put an end-of-sequence token after it."""
    import_pairs(tmp_path)
    assert {row["finish_reason"] for row in read_rows(tmp_path / "out", "solutions")} == {"length"}
    with pytest.raises(InputError, match="would teach the policy to stop there"):
        export(tmp_path / "out", name, tmp_path / "export")


def test_the_pairs_of_a_problem_may_be_apart(tmp_path: Path) -> None:
    first_row, second_row, *last_rows = STEP_DPO_ROWS
    _, pairs = import_pairs(tmp_path, [first_row, *last_rows, second_row])
    assert [pair["chosen"] for pair in pairs] == [
        row["initial_reason_steps"] + row["chosen"] for row in STEP_DPO_ROWS
    ]


def test_each_file_of_solutions_has_a_file_of_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "SHARD_SOLUTIONS", 2)
    manifest, pairs = import_pairs(tmp_path)
    assert [entry.rows for entry in manifest.config_files("solutions")] == [4, 2, 2]
    assert [entry.rows for entry in manifest.config_files("pairs")] == [2, 1, 1]
    assert [pair["rejected"] for pair in pairs] == [
        row["initial_reason_steps"] + row["rejected"] for row in STEP_DPO_ROWS
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rejected": None}, "the row does not have the format step-dpo-10k"),
        ({"chosen": " \n"}, "chosen is empty"),
        ({"rejected": ""}, "rejected is empty"),
        ({"rejected": f"{STEP_DPO_ROWS[0]['chosen']}\n"}, "chosen and rejected are the same step"),
        ({"initial_reason_steps": None}, "the row does not have the format step-dpo-10k"),
        ({"prompt": "\n"}, "the problem or a step is blank"),
    ],
)
def test_broken_rows_are_quarantined(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    changed_row = {**STEP_DPO_ROWS[0], **fields}
    broken_row = {name: value for name, value in changed_row.items() if value is not None}
    manifest, pairs = import_pairs(tmp_path, [broken_row, *STEP_DPO_ROWS])
    assert count_quarantined_rows(manifest) == {reason: 1} and len(pairs) == 4
    with pytest.raises(InputError, match=f"none of its 1 rows has the format .*{reason}"):
        import_pairs(tmp_path, [broken_row])


def test_the_ten_published_rows_are_pairs(shared: Path, tmp_path: Path) -> None:
    file = shared / "data/train/math_step_dpo_10k/sample_10_rows_3_fields.jsonl"
    texts = [json.loads(line) for line in file.read_text().splitlines()]
    start = "Let's think step by step. \nStep 1:"
    rows = [
        step_dpo_row(row["prompt"], start, row["chosen"], row["rejected"], "?") for row in texts
    ]
    manifest, pairs = import_pairs(tmp_path, rows)
    assert manifest.rows.pairs == 10 and not count_quarantined_rows(manifest)
    assert [(pair["chosen"], pair["rejected"]) for pair in pairs] == [
        (start + row["chosen"], start + row["rejected"]) for row in texts
    ]


def test_an_export_gives_the_rows_back(tmp_path: Path) -> None:
    import_pairs(tmp_path)
    file = export(tmp_path / "out", "step-dpo-10k", tmp_path / "export").file
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    for row, exported_row in zip(STEP_DPO_ROWS, exported, strict=True):
        for name in ("prompt", "answer"):
            assert exported_row[name] == row[name]
        for side in ("chosen", "rejected"):
            published = row["initial_reason_steps"] + row[side].rstrip()
            assert exported_row["initial_reason_steps"] + exported_row[side] == published


def test_commands_work_on_imported_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "step_dpo.jsonl", STEP_DPO_ROWS)
    out = str(tmp_path / "out")
    code, printed, _ = run(capsys, "import", str(source), "--from", "step-dpo-10k", "--out", out)
    assert code == 0 and f"next: fsdpo-train dpo {out} --loss step-dpo" in printed
    assert "4 of 3 problems" in printed and "step 1.75 on average" in printed
    rows = str(tmp_path / "rows.jsonl")
    printed = run(capsys, "import", str(source), "--from", "step-dpo-10k", "--out", rows)[1]
    assert f"next: fsdpo-train prm {rows}" in printed
    printed = run(capsys, "inspect", out)[1]
    assert "He earns 42 * 2 = 82 dollars." in printed and "rejected" in printed
    page = tmp_path / "page.html"
    assert run(capsys, "view", out, "--out", str(page))[0] == 0
    card = (tmp_path / "out/README.md").read_text()
    assert "the chosen and the rejected step of each imported row" in card
    assert "fsdpo-train dpo runs/data --loss step-dpo --model BASE_MODEL" in card
    plan = plan_push(Path(out), "org/name", branch="main", remote=RemoteState())
    assert "pairs" in {content.path.partition("/")[0] for content in plan.uploads}
    code, _, err = run(capsys, "pair", out, "--out", str(tmp_path / "paired"))
    assert code == 1 and "has no step rewards" in err


def test_an_interrupted_import_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_rows(tmp_path / "step_dpo.jsonl", STEP_DPO_ROWS)
    import_labels(source, STEP_DPO, tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(derive, "_seal_draft", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            import_labels(source, STEP_DPO, tmp_path / "part")
    for _ in range(2):  # a finished import is only read
        import_labels(source, STEP_DPO, tmp_path / "part", resume=True)
    complete_files, resumed_files = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.*")}
        for folder in (tmp_path / "whole", tmp_path / "part")
    )
    assert complete_files == resumed_files


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        ({"chosen_id": "0" * 20}, "have a chosen solution that is missing in the dataset"),
        ({"chosen": "other"}, "have a chosen text that differs from its steps"),
    ],
)
def test_damaged_pairs_are_found(tmp_path: Path, changes: dict[str, str], violation: str) -> None:
    manifest, pairs = import_pairs(tmp_path)
    write_pairs(manifest, tmp_path / "out", [{**pairs[0], **changes}, *pairs[1:]])
    with pytest.raises(SchemaError, match=violation):
        check_invariants(tmp_path / "out", manifest)


def test_sides_that_differ_before_the_last_step_are_found(tmp_path: Path) -> None:
    manifest, pairs = import_pairs(tmp_path)
    sides = {name: value for name, value in pairs[1].items() if name.startswith("rejected")}
    write_pairs(manifest, tmp_path / "out", [{**pairs[0], **sides}, *pairs[1:]])
    with pytest.raises(SchemaError, match="1 pairs do not differ in their last step alone"):
        check_invariants(tmp_path / "out", manifest)


def write_pairs(manifest: Manifest, root: Path, rows: list[dict[str, Any]]) -> None:
    [file] = manifest.config_paths(root, "pairs")
    table = pl.DataFrame(rows, schema=pl.read_parquet_schema(file)).to_arrow()
    write_parquet(table.cast(arrow_schema("pairs")), file)


def test_rows_may_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load_hub(source: Any, split: str) -> Any:
        loaded.append((source.repo.name, source.repo.revision, split))
        rows = [SourceRow(number, row) for number, row in enumerate(STEP_DPO_ROWS, start=1)]
        return "c" * 40, [SourceRows(source.repo.name, source.repo.name, rows)]

    monkeypatch.setattr(row_import, "load_hub", load_hub)
    manifest, _ = import_labels("xinlai/Math-Step-DPO-10K@main", STEP_DPO, tmp_path / "out")
    assert loaded == [("xinlai/Math-Step-DPO-10K", "main", "train")]
    [source] = manifest.get(PROBLEMS_STAGE, ProblemsRecord).options.sources
    assert (source.name, source.revision) == ("xinlai/Math-Step-DPO-10K", "c" * 40)
    assert manifest.rows.pairs == 4
    with pytest.raises(InputError, match=r"no such file or directory: .*missing\.jsonl"):
        import_labels(tmp_path / "missing.jsonl", STEP_DPO, tmp_path / "other")
