"""Tests of summaries and cards: the prompt of the model, and the warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import (
    SILENT,
    change_samples,
    fixed_sampler,
    problem_set,
    small_build,
    statistics_of,
)
from paired_data import paired_dataset

from fsdpo_data.cli.printing import print_summary
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.statistics import Interval, Mean
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.models.prompts import TEMPLATES, TemplateRef

CUT = "over a fifth of the solutions reached the token limit"
UNSOLVED = "no solution is correct: look at some, and at the prompt template"
UNMIXED = "no problem has correct and incorrect solutions to pair"
NEGATIVE = "under 5 % of the step labels are positive"
CHANCE = "rewards may rank correct over incorrect solutions no better than chance"
#: Statistics of 20 solutions with nothing to warn of, as far as warnings look at them.
QUIET = {
    "truncated": 0,
    "accuracy": Mean(value=0.5, n=20, ci95=None),
    "outcomes": {"correct": 10, "incorrect": 10},
    "mixed_problems": 1,
    "labels": {"steps": 40, "positive": 20, "negative": 20},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("described"))


def make_statistics(
    dataset: Path, changes: Mapping[str, Any], ranking: Mapping[str, Any]
) -> DatasetStatistics:
    """Return statistics of a dataset with other values.

    Args:
        dataset: Directory of the dataset.
        changes: Changes of :data:`QUIET`, which are statistics of 20 solutions.
        ranking: Other values of the ranking AUC.
    """
    statistics = statistics_of(dataset)
    [entry] = statistics.manifest.config_files("solutions")
    entry.rows = 20
    rewards, pairs = statistics.rewards, statistics.pairs
    assert rewards is not None and pairs is not None
    ranking_auc = {**rewards.ranking_auc, "mean": replace(rewards.ranking_auc["mean"], **ranking)}
    # The computed statistics are attributes, which are read before they are computed again.
    vars(statistics).update(
        solutions=replace(statistics.solutions, **(QUIET | dict(changes))),
        rewards=replace(rewards, ranking_auc=ranking_auc),
        pairs=replace(pairs, step_weights=None),
    )
    return statistics


@pytest.mark.parametrize(
    ("changes", "ranked", "expected_lines"),
    [
        ({}, [0.6, 0.8], []),
        ({"truncated": 4}, None, []),
        ({"truncated": 5}, None, [CUT]),
        ({"outcomes": {"correct": 1}}, None, []),
        ({"outcomes": {"incorrect": 20}}, None, [UNSOLVED]),
        # None is graded: that says nothing of the model.
        ({"outcomes": {}, "accuracy": Mean(value=None, n=0, ci95=None)}, None, []),
        ({"mixed_problems": 0}, None, [UNMIXED]),
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
    ranking = {"ci95": Interval(*ranked) if ranked else None}
    assert dataset_warnings(make_statistics(dataset, changes, ranking)) == expected_lines


def test_summary_and_card_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = problem_set()
    small_build(tmp_path, source, make_sampler=lambda: fixed_sampler(source, (SILENT,) * 4))
    print_summary(statistics_of(tmp_path), "sealed")
    out, card = capsys.readouterr().out, (tmp_path / "README.md").read_text()
    for sentence in (UNSOLVED, UNMIXED, NEGATIVE):
        assert f"warning: {sentence}\n" in out
        assert f"\n- {sentence}\n" in card


def test_a_card_without_warnings_has_no_block(dataset: Path) -> None:
    quiet = dataset.parent / "built"
    assert not dataset_warnings(statistics_of(quiet))
    assert "looks wrong" not in (quiet / "README.md").read_text()


def test_a_warning_is_no_markup_on_the_card(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fsdpo_data.dataset.card.dataset_warnings", lambda _: ["<b>*much*</b>\n# of it"]
    )
    card = dataset_card(dataset, statistics_of(dataset).manifest)
    assert "\n- &lt;b\\>\\*much\\*&lt;/b\\> \\# of it\n" in card


def test_an_area_without_an_interval_has_none(dataset: Path) -> None:
    statistics = make_statistics(dataset, {}, {"ci95": None, "value": 0.75})
    row = dict(summary_rows(statistics))["step rewards"]
    assert "correct over incorrect 0.750 (AUC" in row and "nan" not in row


def prompt_description(statistics: DatasetStatistics) -> str:
    return dict(summary_rows(statistics))["template"]


def test_summary_and_card_describe_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_build(tmp_path)
    print_summary(statistics_of(tmp_path), "sealed")
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
    statistics = statistics_of(dataset)
    template = TEMPLATES.get(name)
    # The digest of a chat template depends on a tokenizer that is not here.
    digest = template.digest if template and "chat" not in name else "0"
    change_samples(statistics.manifest, template=TemplateRef(name=name, digest=digest))
    if api:
        change_samples(statistics.manifest, engine=EngineRef(name="openai", dtype="auto", api=api))
    description = prompt_description(statistics)
    assert description.startswith(name) and description.endswith(ending)


def test_a_template_with_another_digest_has_no_text(dataset: Path) -> None:
    statistics = statistics_of(dataset)
    change_samples(statistics.manifest, template=TemplateRef(name="problem@1", digest="0"))
    assert prompt_description(statistics) == "problem@1"


def test_names_in_a_summary_give_a_terminal_no_orders(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statistics = statistics_of(dataset)
    change_samples(statistics.manifest, template=TemplateRef(name="[/]\x1b[2J[bold]", digest="0"))
    print_summary(statistics, "pulled")
    out = capsys.readouterr().out
    assert "\x1b" not in out and "[/]" in out and "[bold]" in out
