"""Tests of the HTML page of a dataset, and of printed pairs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paired_data import paired_dataset
from typer.testing import CliRunner

import fsdpo_data as fd
from fsdpo_data.cli.app import app
from fsdpo_data.dataset.html_page import dataset_page, pair_step_weights
from fsdpo_data.steps.rewards import joined_step_weights, step_weights
from fsdpo_train.losses.preference_losses import step_weights as of_the_loss

REWARDS = [0.9, 0.1, 0.5, 0.5]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("paired"))


def data_of(page: str) -> dict[str, Any]:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return dict(json.loads(data))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1000.0])
def test_step_weights_are_those_of_the_loss(gamma: float, sign: int) -> None:
    rewards = torch.tensor([REWARDS], dtype=torch.float64)
    expected = of_the_loss(rewards, torch.ones_like(rewards, dtype=torch.bool), gamma, sign)
    assert step_weights(REWARDS, gamma, sign) == pytest.approx(expected[0].tolist())


def test_step_weights_of_several_solutions_are_those_of_each() -> None:
    solutions = [REWARDS, [0.5], REWARDS[:2]]
    n_steps = np.array([len(rewards) for rewards in solutions])
    weights = joined_step_weights(np.concatenate(solutions), n_steps, 0.5, -1)
    assert weights.tolist() == [
        weight for rewards in solutions for weight in step_weights(rewards, 0.5, -1)
    ]


def test_a_page_of_the_folder_one_is_in(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pairs)
    assert CliRunner().invoke(app, ["view", "."]).exit_code == 0
    page = pairs / f"{pairs.name}.html"
    assert page.is_file()
    page.unlink()


def test_the_command_writes_a_page_of_everything(pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["view", str(pairs), "--out", str(out)])
    assert result.exit_code == 0 and str(out) in result.output.replace("\n", "")
    page = out.read_text(encoding="utf-8")
    assert "Steps by label" in page and "Step rewards in correct solutions" in page
    assert "Left out because of the size limit" not in page
    problems = data_of(page)["problems"]
    assert len(problems) == 3
    for problem in problems:
        assert problem["verdict"] == "some correct" and len(problem["pairs"]) == 4
        for pair in problem["pairs"]:
            chosen, rejected = (problem["solutions"][index] for index in pair["taken"])
            assert (chosen["status"], rejected["status"]) == ("correct", "incorrect")
            for side, sign, weights in zip(
                (chosen, rejected), (1, -1), pair["weights"], strict=True
            ):
                assert weights == pytest.approx(step_weights(side["rewards"], 0.5, sign), abs=1e-3)


def test_a_small_page_says_what_it_leaves_out(pairs: Path) -> None:
    data = fd.open_dataset(pairs)
    rows = data.examples(2, problem=None, outcome=None, seed=0)
    page = dataset_page(pairs, data.manifest, rows, gamma=0.5, budget_bytes=3000)
    assert "Left out because of the size limit: 1 of 3 problems" in page


def test_a_side_that_is_no_solution_of_the_dataset_is_a_continuation(pairs: Path) -> None:
    data = fd.open_dataset(pairs)
    [row] = data.examples(1, problem=None, outcome=None, seed=0)
    pair = {**row["pairs"][0], "chosen_id": "elsewhere", "chosen_rewards": None}
    assert pair_step_weights(pair, 0.5)[0] is None
    page = dataset_page(pairs, data.manifest, [{**row, "pairs": [pair]}], gamma=0.5)
    [problem] = data_of(page)["problems"]
    chosen, rejected = problem["pairs"][0]["taken"]
    assert problem["solutions"][chosen]["name"] == "continuation"
    assert problem["solutions"][chosen]["steps"] == pair["chosen_steps"]
    assert problem["solutions"][rejected]["name"] == "sample 3"
    assert problem["pairs"][0]["weights"][0] is None


def test_hostile_rows_stay_data(pairs: Path) -> None:
    hostile = "</script><script>alert(1)</script><!-- $\\text{</script>}$ \ud800 \u202e"
    data = fd.open_dataset(pairs)
    [row] = data.examples(1, problem=None, outcome=None, seed=0)
    for solution in row["solutions"]:
        solution |= {"completions": [hostile], "answer": hostile, "prompt": hostile}
        solution |= {"step_rewards": [0.5], "labels": [True]}
    odd = {**row, "question": hostile, "answer": hostile, "source": hostile, "pairs": []}
    page = dataset_page(pairs, data.manifest, [odd], gamma=0.5)
    assert page.count("<script") == page.count("</script") == 2
    assert data_of(page)["problems"][0]["question"] == hostile


def test_a_terminal_shows_pairs_side_by_side_with_their_weights(pairs: Path) -> None:
    line = ["inspect", str(pairs), "--count", "1", "--samples", "1", "--gamma", "0"]
    output = CliRunner().invoke(app, line, env={"COLUMNS": "160"}).output
    assert "pair, α at γ = 0" in output
    assert re.search(r"chosen \w+ +rejected \w+", output)
    assert re.search(
        r"0\.\d\d α 0\.50  Step 1: Way [01].* 0\.\d\d α 0\.50  Step 1: Way [23]", output
    )


def test_a_terminal_shows_the_weights_that_a_solution_would_have(pairs: Path) -> None:
    """Correct solutions get the step weights of chosen ones, others those of rejected ones."""
    line = ["inspect", str(pairs), "--count", "1", "--samples", "4", "--gamma", "2"]
    output = CliRunner().invoke(app, line, env={"COLUMNS": "160"}).output
    [row] = fd.open_dataset(pairs).examples(1, problem=None, outcome=None, seed=0)
    assert {solution["outcome"] for solution in row["solutions"]} == {"correct", "incorrect"}
    for solution in row["solutions"]:
        sign = 1 if solution["outcome"] == "correct" else -1
        weights = step_weights(solution["step_rewards"], 2, sign)
        for reward, weight, step in zip(
            solution["step_rewards"], weights, solution["completions"], strict=True
        ):
            assert f" {reward:.2f} α {weight:.2f}  {step.rstrip()}" in output


def test_the_title_names_the_content_and_not_the_folder(pairs: Path) -> None:
    dataset = fd.open_dataset(pairs)
    page = dataset.page()
    [title] = re.findall("<title>(.*?)</title>", page)
    [heading] = re.findall("<h1>(.*?)</h1>", page)
    rows = dataset.manifest.rows
    assert title == heading == f"fixed on test · {rows.solutions} solutions"
