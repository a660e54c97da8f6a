"""Tests of the registered stages: one entry gives the command, the method and the card's row."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import run
from helpers import small_build

import fsdpo_data as fd
from fsdpo_data.cli.app import app
from fsdpo_data.cli.commands.grade import GradeCommandOptions
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.options import split_docstring
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.manifest import Manifest, RawRecord, read_manifest
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.dataset.stage import DatasetDraft, StageOptions
from fsdpo_data.dataset.stage_registry import (
    STAGES,
    StageEntry,
    card_rows,
    command_names,
    known_stages,
    stage_entry,
    stage_rows,
)
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.stages.grade import GradeOptions


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    small_build(tmp_path / "run")
    return tmp_path / "run"


def add_stage(manifest: Manifest, name: str, **options: object) -> Manifest:
    """Add the entry of a stage to a manifest."""
    manifest.put(RawRecord(name=name, options=options, counts={}))
    return manifest


def test_every_stage_is_a_command_and_a_method(dataset: Path) -> None:
    opened = fd.open_dataset(dataset)
    group = typer.main.get_command(app)
    assert {"grade", "label", "pair", "score"} <= set(command_names())
    for name in command_names():
        entry = STAGES[name]
        assert name in group.commands  # type: ignore[attr-defined]
        assert callable(getattr(opened, name.replace("-", "_")))
        assert entry.options_class is not None
        assert stage_entry(entry.options_class.__new__(entry.options_class)) is entry
    assert all(STAGES[name].has_shards for name in ("label", "score"))
    assert not any(STAGES[name].has_shards for name in ("grade", "pair"))


def test_a_stage_without_options_is_neither_a_command_nor_a_method(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [stage.name for stage, _ in known_stages(read_manifest(dataset))]
    assert names == ["problems", "sample", "grade"]
    assert "sample" in STAGES and "sample" not in command_names()
    code, _, err = run(capsys, "sample", str(dataset), "--out", "new")
    assert code == 2 and "No such command 'sample'" in err
    opened = fd.open_dataset(dataset)
    assert "sample" not in dir(opened)
    with pytest.raises(AttributeError, match="no attribute or stage 'sample'"):
        _ = opened.sample  # type: ignore[attr-defined]


def test_a_command_needs_options_and_a_stage() -> None:
    with pytest.raises(TypeError, match="only one of options_class and make_stage"):
        StageEntry(name="polish", options_class=StageOptions)
    with pytest.raises(TypeError, match="'sample' has no command"):
        STAGES["sample"].stages(StageOptions(data="a", out="b"), NO_PROGRESS)


def test_the_method_of_a_plugin_stage_is_listed_and_documented(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES.data, "be-brief", replace(STAGES["score"], name="be-brief"))
    opened = fd.open_dataset(dataset)
    assert {"be_brief", "score", "solutions", "path"} <= set(dir(opened))
    method = opened.be_brief  # type: ignore[attr-defined]
    assert next(iter(inspect.signature(method).parameters)) == "out"
    assert method.__name__ == "be_brief" and "prm: Process reward model" in method.__doc__
    assert "new_dataset = dataset.be_brief(out=PATH)" in method.__doc__


def test_other_names_are_no_methods(dataset: Path) -> None:
    with pytest.raises(AttributeError, match="no attribute or stage 'grad'"):
        _ = fd.open_dataset(dataset).grad  # type: ignore[attr-defined]


def test_a_stage_replaces_the_results_of_stages_that_write_the_same(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    names = [record.name for record in manifest.stages]

    def add_result(name: str, *writes: str) -> list[str]:
        """Add the result of a stage; return the names of the stages that came after the build."""
        record = RawRecord(
            name=name,
            options={},
            writes=list(writes),
            counts={},
            cost=Cost(tokens=3, prm_calls=0, seconds=1.0),
        )
        manifest.add_result(record)
        return [record.name for record in manifest.stages if record.name not in names]

    tokens = manifest.cost.tokens
    assert tokens is not None
    assert add_result("brevity", "step_rewards") == ["brevity"]
    assert add_result("polish") == ["brevity", "polish"]
    # The stage that is replaced may be one of a plug-in that is not here.
    assert add_result("score", "step_rewards") == ["polish", "score"]
    assert add_result("polish") == ["polish", "score"]
    # Replaced results have cost something too.
    assert manifest.cost.tokens == tokens + 4 * 3


def test_a_stage_cannot_remove_solutions(dataset: Path, tmp_path: Path) -> None:
    draft = DatasetDraft(dataset, tmp_path / "new", read_manifest(dataset), NO_PROGRESS)
    message = r"shorten: expected \d+ rows of solutions, got 1\. A stage changes columns"
    with pytest.raises(ValueError, match=message):
        draft.rewrite_config("solutions", "shorten", lambda table: table.slice(0, 1))
    with pytest.raises(ValueError, match="solutions have no column 'words'"):
        draft.rewrite_config(
            "solutions",
            "count",
            lambda table: replace_column(table, "words", [0] * table.num_rows),
        )


def test_options_without_a_stage() -> None:
    with pytest.raises(TypeError, match="no stage is registered with these options"):
        stage_entry(StageOptions(data="a", out="b"))


def test_a_stage_that_describes_nothing_lists_its_options(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(dataset)
    assert card_rows(manifest) == []
    own_rows = stage_rows(DatasetStatistics(dataset, manifest))
    manifest = add_stage(manifest, "polish", words=2, max_share=0.5, style={"name": "plain"})
    row = '| polish | words `2`, max share `0.5`, style `{"name": "plain"}` |'
    summary_row = ("polish", 'words 2, max share 0.5, style {"name": "plain"}')
    # An absent plug-in, and one that is here.
    for _ in range(2):
        assert card_rows(manifest) == [row]
        assert stage_rows(DatasetStatistics(dataset, manifest)) == [*own_rows, summary_row]
        monkeypatch.setitem(STAGES.data, "polish", StageEntry(name="polish"))


def test_the_row_of_a_judge_names_votes(dataset: Path) -> None:
    continuations = {
        "sampling": {"n": 4, "temperature": 1.0},
        "model": {"name": "m", "revision": "r"},
    }
    options: dict[str, object] = {"continuations": continuations}
    manifest = add_stage(read_manifest(dataset), "label", **options)
    assert "Monte-Carlo: 4 continuations of each step by `m`" in card_rows(manifest)[0]
    manifest = add_stage(manifest, "label", **options, judge={"name": "j"})
    assert "judge: 4 votes on each solution by `m`" in card_rows(manifest)[0]


def test_a_stage_of_a_file(
    dataset: Path,
    tmp_path: Path,
    empty_plugins: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file with a stage gives the command and the method of a dataset."""
    monkeypatch.setattr(STAGES, "data", dict(STAGES.data))
    example = Path(__file__).parents[3] / "examples/plugin/fsdpo_example/stages.py"
    registration = f"\nfrom {StageEntry.__module__} import STAGES\nSTAGES.register(UNIFORM)\n"
    (tmp_path / "uniform_stage.py").write_text(example.read_text() + registration)
    plugin = ["--plugin", str(tmp_path / "uniform_stage.py")]
    assert "--reward" in run(capsys, *plugin, "uniform", "--help")[1]
    line = ["uniform", str(dataset), "--reward", "0.25", "--out", str(tmp_path / "new")]
    code, _, err = run(capsys, *plugin, *line)
    assert code == 0, err
    stage: Any = fd.open_dataset(dataset).uniform  # type: ignore[attr-defined]
    made_by_method = stage(reward=0.25, out=tmp_path / "same")
    assert made_by_method.manifest.digest == read_manifest(tmp_path / "new").digest
    assert run(capsys, "validate", str(tmp_path / "new"))[0] == 0


def test_a_broken_plugin_stops_only_its_own_command(
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_stage.py").write_text("import no_such_library\n")
    plugin = ["--plugin", str(tmp_path / "broken_stage.py")]
    code, _, err = run(capsys, *plugin, "polish", str(dataset))
    assert code == 1 and "the plug-in cannot be imported" in err
    assert run(capsys, "validate", str(dataset))[0] == 0


def test_examples_come_from_the_docstring() -> None:
    summary, _ = split_docstring(GradeOptions)
    _, examples = split_docstring(GradeCommandOptions)
    assert summary.startswith("Grade the solutions of a dataset again")
    assert examples.startswith("Use the default grader of this release:\n\n")
    assert split_docstring(StageOptions)[1] == ""


def test_a_registry_imports_the_modules_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bakery_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("CAKES = []\n")
    (folder / "cheese.py").write_text("from bakery_of_a_test import CAKES\nCAKES.append(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    cakes: Registry[object] = Registry("cake", object, package=folder.name)
    bakery = import_module(folder.name)
    assert not bakery.CAKES
    assert list(cakes) == [] and bakery.CAKES == [1]
