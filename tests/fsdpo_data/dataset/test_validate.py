"""Tests of validation: each invariant has a dataset that violates it, and an error message."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import seal_json, small_build, stage_options, statistics_of
from paired_data import paired_dataset

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.api import open_dataset
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.progress import NO_PROGRESS, LineProgress
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.dataset import diff, schema
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.diff import diff_datasets
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import SCHEMA_VERSION, arrow_schema
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.export import export
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.pair import PairStage

Rows = list[dict[str, Any]]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    small_build(tmp_path / "run")
    return tmp_path / "run"


def rewrite(root: Path, change: Callable[[Rows], object], config: str = "solutions") -> None:
    """Change rows of a file and update its digest in the manifest."""
    file = root / config / "train-00000-of-00001.parquet"
    rows = pq.read_table(file).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(config)), file)
    reseal(root, file, rows=len(rows))


def reseal(root: Path, file: Path, **fields: Any) -> None:
    """Update the digest and other fields of a file in the manifest."""
    manifest = json.loads((root / "manifest.json").read_text())
    for entry in manifest["files"]:
        if root / entry["path"] == file:
            entry.update(sha256=file_sha256(file), **fields)
    (root / "manifest.json").write_text(seal_json(manifest))


def test_a_built_dataset_is_valid(dataset: Path) -> None:
    validate(dataset)
    rewrite(dataset, lambda rows: None)
    validate(dataset)


def setter(**fields: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[0].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setter(completions=["another text"]), "do not join to the sampled texts"),
        (lambda rows: rows[0]["completions"].insert(0, " "), "do not join to the sampled texts"),
        (setter(labels=[True]), "a different number of labels than of steps"),
        (setter(labels=[False, False]), "contradict the outcome"),
        (setter(labels=[True, False]), "contradict the outcome"),
        (setter(labels=None), "have labels without a graded outcome"),
        (setter(outcome="timed_out"), "have labels without a graded outcome"),
        (setter(outcome="perfect"), "outcome that is not one of correct"),
        (setter(step_rewards=[0.5]), "a different number of rewards than of steps"),
        (setter(step_rewards=[0.5, 1.5]), "reward that is not a number in [0, 1]"),
        (setter(step_rewards=[0.5, float("nan")]), "reward that is not a number in [0, 1]"),
        (setter(step_rewards=[0.5, None]), "reward that is not a number in [0, 1]"),
        (setter(rollouts=[{"n": 2, "n_correct": 1}]), "a different number of rollout counts"),
        (setter(rollouts=[{"n": 2, "n_correct": 3}] * 2), "more correct rollouts than rollouts"),
        (setter(rollouts=[{"n": 0, "n_correct": 0}] * 2), "rollout counts without rollouts"),
        (setter(finish_reason="abort"), "finish_reason that is not stop or length"),
        (setter(problem_id="0" * 20), "belong to no problem"),
        (lambda rows: rows[1].update(solution_id=rows[0]["solution_id"]), "occur more than once"),
        (lambda rows: rows.pop(), "do not join to the sampled texts"),
    ],
)
def test_broken_rows(dataset: Path, change: Callable[[Rows], object], message: str) -> None:
    rewrite(dataset, change)
    with pytest.raises(SchemaError) as caught:
        validate(dataset)
    assert message in str(caught.value)


def test_row_groups_have_a_limit_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows of 100 bytes and a row of 10,000 bytes: the long row is alone in its group."""
    monkeypatch.setattr(schema, "MAX_ROW_GROUP_BYTES", 1000)
    texts = ["x" * 100] * 4 + ["y" * 10_000]
    table = pa.table({"text": texts})
    schema.write_parquet(table, tmp_path / "rows.parquet")
    file = pq.ParquetFile(tmp_path / "rows.parquet")
    groups = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    assert sum(groups) == 5 and groups[-1] == 1
    assert file.read()["text"].to_pylist() == texts
    monkeypatch.undo()
    schema.write_parquet(table, tmp_path / "rows.parquet")
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 1


def test_another_file_is_named(dataset: Path) -> None:
    """Tools that read the folder would read its rows, too."""
    file = dataset / "solutions/train-00000-of-00001.parquet"
    shutil.copy(file, file.with_name("extra.parquet"))
    with pytest.raises(SchemaError, match=r"solutions/extra\.parquet is not in the manifest"):
        validate(dataset)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"prompt": "Q", "finish_reason": "length", "thinking_closed": True}, "rewritten"),
        ({"completions": ["another ", "text"]}, "rewritten"),
        ({"outcome": "undecided", "answer": "7"}, "regraded"),
        ({"verdict_by": "judge/j@1/boxed", "exactly_correct": False}, "regraded"),
        ({"labels": [False], "rollouts": [{"n": 2, "n_correct": 1}]}, "relabelled"),
        ({"imported_labels": [0.25], "imported_ratings": [1]}, "relabelled"),
        ({"step_rewards": [0.5]}, "rescored"),
        ({"n_tokens": 77, "imported_correct": True}, "described otherwise"),
        ({"search_cost": {"discarded_tokens": 3, "prm_calls": 1}}, "described otherwise"),
    ],
)
def test_datasets_differ_if_a_column_differs(
    dataset: Path, tmp_path: Path, changes: dict[str, Any], kind: str
) -> None:
    for name, value in changes.items():
        other = tmp_path / name
        shutil.copytree(dataset, other)
        rewrite(other, setter(**{name: value}))
        difference = diff_datasets(dataset, other)["solutions"]
        assert {key: count for key, count in difference.changed.items() if count} == {kind: 1}


def test_diff_compares_every_column_that_the_id_does_not_determine() -> None:
    """A new column is compared without an entry in ``diff.toml``."""
    for config, columns_by_part in read_module_table(diff.__file__).items():
        determined = set(columns_by_part["determined"])
        compared = set().union(*diff.parts_of_rows(config).values())
        assert not compared & determined
        assert compared | determined == set(arrow_schema(config).names)


def test_blank_steps_are_found_even_where_the_text_still_joins(dataset: Path) -> None:
    rewrite(dataset, lambda rows: rows[0]["completions"].append(""))
    with pytest.raises(SchemaError, match="hold a blank step"):
        validate(dataset)


def test_rewards_in_range_are_fine(dataset: Path) -> None:
    rewrite(dataset, setter(step_rewards=[0.0, 1.0], rollouts=[{"n": 4, "n_correct": 3}] * 2))
    validate(dataset)


def test_a_repeated_problem(dataset: Path) -> None:
    rewrite(dataset, lambda rows: rows.append(rows[0]), "problems")
    with pytest.raises(SchemaError, match="1 problem_ids occur more than once"):
        validate(dataset)


def test_other_columns(dataset: Path) -> None:
    file = dataset / "solutions" / "train-00000-of-00001.parquet"
    table = pq.read_table(file)
    index = table.schema.get_field_index("n_tokens")
    pq.write_table(table.set_column(index, "n_tokens", table["n_tokens"].cast("int64")), file)
    reseal(dataset, file)
    with pytest.raises(SchemaError, match="n_tokens is int64, expected int32"):
        validate(dataset)


def test_a_file_of_another_version(dataset: Path) -> None:
    file = dataset / "solutions" / "train-00000-of-00001.parquet"
    table = pq.read_table(file).replace_schema_metadata({"fsdpo_schema_version": "1"})
    pq.write_table(table, file)
    reseal(dataset, file)
    with pytest.raises(SchemaError, match=f"is of schema version 1, not {SCHEMA_VERSION}"):
        validate(dataset)


@pytest.mark.parametrize(("config", "n_rows"), [("problems", 3), ("solutions", 12), ("pairs", 12)])
def test_counts_that_are_not_those_of_the_rows(tmp_path: Path, config: str, n_rows: int) -> None:
    dataset = paired_dataset(tmp_path)
    manifest = json.loads((dataset / "manifest.json").read_text())
    [entry] = [entry for entry in manifest["files"] if entry["path"].startswith(config)]
    entry["rows"] += 1
    (dataset / "manifest.json").write_text(seal_json(manifest))
    message = rf"{config}/.* has {n_rows} rows, the manifest says {n_rows + 1}"
    with pytest.raises(SchemaError, match=message):
        validate(dataset)


@pytest.mark.parametrize("config", ["problems", "solutions", "pairs"])
def test_a_manifest_without_the_files_of_a_config(tmp_path: Path, config: str) -> None:
    dataset = paired_dataset(tmp_path)
    manifest = json.loads((dataset / "manifest.json").read_text())
    files = manifest["files"]
    manifest["files"] = [entry for entry in files if not entry["path"].startswith(f"{config}/")]
    (dataset / "manifest.json").write_text(seal_json(manifest))
    shutil.rmtree(dataset / config)
    with pytest.raises(SchemaError, match=f"the manifest lists no files of {config}"):
        validate(dataset)


@pytest.mark.parametrize("name", ["n", "max_tokens"])
def test_a_manifest_without_a_field_of_the_card_is_named(tmp_path: Path, name: str) -> None:
    dataset = paired_dataset(tmp_path)
    manifest = json.loads((dataset / "manifest.json").read_text())
    del stage_options(manifest, "sample")["sampling"][name]
    (dataset / "manifest.json").write_text(seal_json(manifest))
    with pytest.raises(SchemaError, match=rf"lacks a field of the card \(.*{name}"):
        dataset_card(dataset, read_manifest(dataset))


def test_the_summary_of_pairs_without_steps_has_dashes(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    columns = ("chosen_steps", "rejected_steps", "chosen_rewards", "rejected_rewards")
    rewrite(
        dataset, lambda rows: [row.update(dict.fromkeys(columns)) for row in rows], config="pairs"
    )
    rows = dict(summary_rows(statistics_of(dataset)))
    assert rows["margins"].startswith("mean –, median –, – to –")
    assert "in – steps (chosen)" in rows["chosen lengths"]


def test_the_solutions_of_a_problem_stand_one_after_another(dataset: Path) -> None:
    """A file with the right digest may have them in another order."""
    rewrite(dataset, lambda rows: rows.append(rows.pop(0)))
    texts = hashlib.sha256()
    for steps in pq.read_table(dataset / "solutions")["completions"].to_pylist():
        texts.update(schema.digest_bytes("".join(steps)))
    [file] = (dataset / "solutions").iterdir()
    reseal(dataset, file, text_sha256=texts.hexdigest())
    with pytest.raises(SchemaError, match="solutions of a problem are not one after another"):
        validate(dataset)


@pytest.mark.parametrize("name", ["outcome", "verdict_by"])
def test_an_outcome_has_somebody_who_decided(dataset: Path, name: str) -> None:
    """Only for ungraded solutions, neither a grader nor a judge decided."""
    values = {"outcome": {"outcome": "ungraded", "labels": None}, "verdict_by": {name: "none"}}
    rewrite(dataset, setter(**values[name]))
    with pytest.raises(SchemaError, match="1 solutions are ungraded, but have a verdict"):
        validate(dataset)


def test_a_manifest_of_another_version(dataset: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    (dataset / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 1}))
    with pytest.raises(SchemaError, match=r"schema version 1; fsdpo .* reads the versions 1\.x"):
        validate(dataset)
    (dataset / "manifest.json").write_text("[")
    with pytest.raises(SchemaError, match="is not a manifest"):
        validate(dataset)


def test_files_that_are_gone_or_changed(dataset: Path) -> None:
    file = dataset / "solutions" / "train-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        validate(dataset)
    reseal(dataset, file)
    with pytest.raises(SchemaError, match="parquet: not parquet, or damaged"):
        validate(dataset)
    file.unlink()
    with pytest.raises(SchemaError, match="is missing"):
        validate(dataset)


@pytest.mark.parametrize(
    "path",
    [
        "problems/../../evil/train.parquet",
        "../train.parquet",
        "/etc/train.parquet",
        "problems/deeper/train.parquet",
        "pictures/train.parquet",
        "problems/train.txt",
        "problems\\..\\train.parquet",
    ],
)
def test_a_manifest_names_files_of_its_dataset_only(dataset: Path, path: str) -> None:
    """Without this check, a stage could copy a file to any path that the manifest names."""
    source = dataset / "problems/train-00000-of-00001.parquet"
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["files"][0]["path"] = path
    (dataset / "manifest.json").write_text(seal_json(manifest))
    if ".." in path and "\\" not in path:
        (dataset / path).resolve().parent.mkdir(exist_ok=True)
        shutil.copyfile(source, dataset / path)
    out = dataset.parent / "work" / "out"
    for attempt in (
        lambda: validate(dataset),
        lambda: derive_dataset(dataset, out, [GradeStage(GRADER_NAME)], progress=LineProgress()),
    ):
        with pytest.raises(SchemaError, match=r"is not of the form config"):
            attempt()
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": None}, r"stages: Input should be a valid array"),
        ({"made_by": ...}, r"made_by: Field required"),
        ({"cost": {"tokens": 1, "seconds": 0.0}}, r"cost\.prm_calls: Field required"),
        ({"files": [{}]}, r"files\.0\.path: Field required; .* and 1 more"),
        ({"cost": {"tokens": 1, "prm_calls": 0, "seconds": math.inf}}, r"cost\.seconds"),
    ],
)
def test_an_incomplete_manifest_is_named_not_traced(
    dataset: Path, change: dict[str, Any], message: str
) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text()) | change
    fields = {name: value for name, value in manifest.items() if value is not ...}
    (dataset / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(SchemaError, match=f"is not a manifest: {message}"):
        read_manifest(dataset)


def test_unknown_fields_of_newer_releases_are_preserved(dataset: Path, tmp_path: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    stage_options(manifest, "sample")["sampling"]["min_p"] = 0
    text = seal_json(manifest | {"later": {"x": [1, 1.0, None]}})
    text = json.dumps(json.loads(text), indent=2) + "\n"
    (dataset / "manifest.json").write_text(text)
    assert read_manifest(dataset).to_json() == text


@pytest.mark.parametrize("name", ["x[1]", "a?b", "s*", "{a,b}"])
def test_no_path_is_a_pattern_and_no_stray_file_is_read(tmp_path: Path, name: str) -> None:
    """Only the files in the manifest are read, and the directory may have any name. Validation
    names the other files.
    """
    plain, odd = paired_dataset(tmp_path / "plain"), paired_dataset(tmp_path / name)
    paired_dataset(tmp_path / "x1", problems=4, salt="what a pattern would find")
    for config in ("problems", "solutions", "pairs"):
        stray = odd / config / "train-00009-of-00010.parquet"
        shutil.copyfile(odd / config / "train-00000-of-00001.parquet", stray)
    assert read_manifest(odd).digest == validate(plain).digest
    assert not any(diff_datasets(plain, odd).values())
    exported = [export(root, "trl-preference", root / "out").file for root in (plain, odd)]
    assert exported[0].read_bytes() == exported[1].read_bytes()
    again = derive_dataset(
        odd, tmp_path / f"{name}-", [PairStage(PairSpec(top=2))], progress=NO_PROGRESS
    )
    assert again.digest == validate(plain).digest
    assert len(open_dataset(odd).solutions().collect()) == again.rows.solutions


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("cost", "tokens", 1),
        ("sample", "seed", float("nan")),
        ("sample", "segmenter", "newline@1"),
        ("sample", "later", "word"),
    ],
)
def test_no_edit_of_a_manifest_goes_unnoticed(
    dataset: Path, part: str, field: str, value: object
) -> None:
    file = dataset / "manifest.json"
    manifest = json.loads(file.read_text())
    values = stage_options(manifest, part) if part == "sample" else manifest[part]
    values[field] = value
    file.write_text(json.dumps(manifest))
    for read in (read_manifest, validate):
        with pytest.raises(SchemaError, match="was changed since it was sealed"):
            read(dataset)


@pytest.mark.parametrize("digest", ["", None, 7])
def test_a_manifest_without_its_digest_is_refused(dataset: Path, digest: object) -> None:
    file = dataset / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["manifest_digest"] = digest
    file.write_text(json.dumps(manifest))
    for read in (read_manifest, validate):
        with pytest.raises(SchemaError, match=r"its digest is different|manifest_digest"):
            read(dataset)


def damage_pages(file: Path) -> None:
    """Overwrite the data pages of a parquet file, whose footer stays readable."""
    data = bytearray(file.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4 : len(data) - footer] = random.Random(0).randbytes(len(data) - footer - 4)
    file.write_bytes(data)


@pytest.mark.parametrize("config", ["problems", "solutions"])
def test_a_sealed_file_that_is_damaged_inside_is_named(
    dataset: Path, tmp_path: Path, config: str
) -> None:
    file = dataset / config / "train-00000-of-00001.parquet"
    damage_pages(file)
    reseal(dataset, file)
    with pytest.raises(SchemaError, match=rf"{config}/train.*\.parquet: not parquet, or damaged"):
        validate(dataset)
    grade = GradeStage(GRADER_NAME)
    for read in (
        open_dataset(dataset).page,
        lambda: derive_dataset(dataset, tmp_path / "out", [grade], progress=LineProgress()),
        lambda: diff_datasets(dataset, dataset),
        lambda: export(dataset, "trl-stepwise", tmp_path / "exported"),
    ):
        with pytest.raises(SchemaError, match="not parquet, or damaged"):
            read()


@pytest.mark.parametrize("metadata", ["[" * 5_000, "[]", "{", '{"gold_tolerance": "1"}'])
def test_metadata_of_a_sealed_problem_must_be_a_json_object(dataset: Path, metadata: str) -> None:
    rewrite(dataset, setter(metadata=metadata), "problems")
    with pytest.raises(
        SchemaError, match=r"the metadata of problem \w+ is not a valid JSON object"
    ):
        open_dataset(dataset).page()
    with pytest.raises(
        SchemaError, match=r"the metadata of problem \w+ is not a valid JSON object"
    ):
        validate(dataset)


def test_a_manifest_that_is_nested_too_deep_is_refused(dataset: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    deep = "[" * 150 + "]" * 150
    text = json.dumps({**manifest, "extra": 0}).replace('"extra": 0', f'"extra": {deep}')
    (dataset / "manifest.json").write_text(text)
    with pytest.raises(SchemaError, match="is not a manifest: nested more than 100 levels deep"):
        validate(dataset)


@pytest.mark.parametrize(
    ("fields", "column"), [({"prompt": None}, "prompt"), ({"completions": [None]}, "completions")]
)
def test_nulls_are_named_also_by_commands_that_fail_on_them(
    dataset: Path, fields: dict[str, Any], column: str
) -> None:
    rewrite(dataset, lambda rows: [row.update(fields) for row in rows])
    for read in (lambda: validate(dataset), open_dataset(dataset).page):
        with pytest.raises(SchemaError, match=rf"solutions/.*\.parquet has nulls in {column}"):
            read()


def test_a_manifest_without_the_split_of_a_source_is_refused(dataset: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    del stage_options(manifest, "problems")["sources"][0]["split"]
    (dataset / "manifest.json").write_text(seal_json(manifest))
    with pytest.raises(SchemaError, match=r"stages\.problems\.options\.sources\.0\.split: Field"):
        validate(dataset)


def test_decontamination_names_nulls_in_sealed_answers(dataset: Path, tmp_path: Path) -> None:
    rewrite(dataset, lambda rows: [row.update(answer=None) for row in rows], "problems")
    bench = tmp_path / "bench.jsonl"
    question = "What is 20 + 22, asked for the 1th time?"
    bench.write_text(json.dumps({"question": question, "answer": "42"}) + "\n")
    options = DecontaminateOptions(
        problems=[str(dataset)], against=[str(bench)], out=tmp_path / "out"
    )
    with pytest.raises(SchemaError, match=r"problems/.*\.parquet has nulls in answer"):
        run_decontaminate(options, LineProgress())
