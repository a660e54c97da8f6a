"""Tests of summaries and cards: the prompt of the model, and the warnings."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from helpers import SILENT, change_samples, fixed_sampler, problem_set, small_build
from paired_data import paired_dataset

from fsdpo_data.cli.printing import print_summary
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.statistics import Interval, Mean
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.stage_records import PairRecord
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.models.prompts import TEMPLATES, TemplateRef
from fsdpo_data.stages.score import ScoreRecord

CUT = "over a fifth of the solutions reached the token limit"
UNSOLVED = "no solution is correct: look at some, and at the prompt template"
UNMIXED = "no problem has correct and incorrect solutions to pair"
NEGATIVE = "under 5 % of the step labels are positive"
CHANCE = "rewards may rank correct over incorrect solutions no better than chance"
#: A dataset with nothing to warn of, by the paths of what warnings look at.
QUIET = {
    "rows.solutions": 20,
    "statistics.truncated": 0,
    "statistics.accuracy": Mean(value=0.5, n=20, ci95=None),
    "outcomes": {"correct": 10, "incorrect": 10},
    "statistics.mixed_problems": 1,
    "labels": {"steps": 40, "positive": 20, "negative": 20},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("described"))


def change_ranking(manifest: Manifest, **fields: Any) -> None:
    """Change the ranking AUC of a manifest."""
    scored = manifest.get("score", ScoreRecord)
    ranking_auc = scored.counts.ranking_auc
    ranking_auc["mean"] = replace(ranking_auc["mean"], **fields)
    manifest.put(scored)


def make_manifest(dataset: Path, changes: dict[str, Any], ranked: list[float] | None) -> Manifest:
    manifest = read_manifest(dataset)
    paired = manifest.get("pair", PairRecord)
    paired.counts.step_weights = None
    manifest.put(paired)
    change_ranking(manifest, ci95=Interval(*ranked) if ranked else None)
    for path, value in (QUIET | changes).items():
        part, _, field = path.rpartition(".")
        setattr(attrgetter(part)(manifest) if part else manifest, field, value)
    return manifest


@pytest.mark.parametrize(
    ("changes", "ranked", "expected_lines"),
    [
        ({}, [0.6, 0.8], []),
        ({"statistics.truncated": 4}, None, []),
        ({"statistics.truncated": 5}, None, [CUT]),
        ({"outcomes": {"correct": 1}}, None, []),
        ({"outcomes": {"incorrect": 20}}, None, [UNSOLVED]),
        # None is graded: that says nothing of the model.
        ({"outcomes": {}, "statistics.accuracy": Mean(value=None, n=0, ci95=None)}, None, []),
        ({"statistics.mixed_problems": 0}, None, [UNMIXED]),
        ({"labels": {"steps": 20, "positive": 1, "negative": 19}}, None, []),
        ({"labels": {"steps": 21, "positive": 1, "negative": 20}}, None, [NEGATIVE]),
        ({"labels": {"steps": 20, "negative": 20}}, None, [NEGATIVE]),
        ({"labels": {"steps": 20, "unlabelled": 20}}, None, []),
        ({}, [0.501, 0.8], []),
        ({}, [0.5, 0.8], [CHANCE]),
    ],
)
def test_each_warning_on_both_sides_of_its_limit(
    dataset: Path, changes: dict[str, Any], ranked: list[float] | None, expected_lines: list[str]
) -> None:
    assert dataset_warnings(make_manifest(dataset, changes, ranked)) == expected_lines


def test_summary_and_card_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = problem_set()
    small_build(tmp_path, source, make_sampler=lambda: fixed_sampler(source, (SILENT,) * 4))
    print_summary(read_manifest(tmp_path), "sealed")
    out, card = capsys.readouterr().out, (tmp_path / "README.md").read_text()
    for sentence in (UNSOLVED, UNMIXED, NEGATIVE):
        assert f"warning: {sentence}\n" in out
        assert f"\n- {sentence}\n" in card


def test_a_card_without_warnings_has_no_block(dataset: Path) -> None:
    assert "looks wrong" not in dataset_card(dataset, make_manifest(dataset, {}, None))


def test_a_warning_is_no_markup_on_the_card(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fsdpo_data.dataset.card.dataset_warnings", lambda _: ["<b>*much*</b>\n# of it"]
    )
    card = dataset_card(dataset, read_manifest(dataset))
    assert "\n- &lt;b\\>\\*much\\*&lt;/b\\> \\# of it\n" in card


def test_an_area_without_an_interval_has_none(dataset: Path) -> None:
    manifest = make_manifest(dataset, {}, None)
    change_ranking(manifest, value=0.75)
    row = dict(summary_rows(manifest))["step rewards"]
    assert "correct over incorrect 0.750 (AUC" in row and "nan" not in row


def prompt_description(manifest: Manifest) -> str:
    return dict(summary_rows(manifest))["template"]


def test_summary_and_card_describe_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_build(tmp_path)
    print_summary(read_manifest(tmp_path), "sealed")
    expected = r"problem@1  (Problem: {question}\nSolution:\n)"
    assert expected in capsys.readouterr().out
    assert f"| template | {expected} |\n" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "api", "ending"),
    [
        ("alpaca@1", None, r"{question}\n\n### Response:)"),
        ("metamath@1", None, r"{first_line}\n\n### Response:)"),
        ("alpaca@1", "chat", r"### Response:), within the model's own chat format"),
        ("chat@1", None, "chat@1  ({question}), within the model's own chat format"),
        ("alpaca@9", None, "alpaca@9"),
    ],
)
def test_the_prompt_description(dataset: Path, name: str, api: str | None, ending: str) -> None:
    manifest = read_manifest(dataset)
    template = TEMPLATES.get(name)
    # The digest of a chat template depends on a tokenizer that is not here.
    digest = template.digest if template and "chat" not in name else "0"
    change_samples(manifest, template=TemplateRef(name=name, digest=digest))
    if api:
        change_samples(manifest, engine=EngineRef(name="openai", dtype="auto", api=api))
    assert prompt_description(manifest).startswith(name) and prompt_description(manifest).endswith(
        ending
    )


def test_a_template_with_another_digest_has_no_text(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    change_samples(manifest, template=TemplateRef(name="problem@1", digest="0"))
    assert prompt_description(manifest) == "problem@1"


def test_names_in_a_summary_give_a_terminal_no_orders(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(dataset)
    change_samples(manifest, template=TemplateRef(name="[/]\x1b[2J[bold]", digest="0"))
    print_summary(manifest, "pulled")
    out = capsys.readouterr().out
    assert "\x1b" not in out and "[/]" in out and "[bold]" in out
