"""``fsdpo-bench rerank`` on recorded samples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fsdpo_bench.cli.app import app
from fsdpo_bench.rerank import measure
from fsdpo_bench.rerank.calibration import calibration
from fsdpo_bench.rerank.measure import measure_reranking
from fsdpo_bench.rerank.options import RerankOptions
from fsdpo_bench.rerank.pair_weights import pair_weights
from made_runs import written
from recorded_imports import import_file
from typer.main import get_command
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.statistics import holm
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.steps.rewards import AGGREGATES

NAN = math.nan


def write_samples(
    file: Path, scores: Mapping[str, Sequence[Sequence[float]]], answers: Sequence[int] = (5, 4, 4)
) -> Path:
    """Write the samples of some questions with step scores; each sample has two steps."""
    rows = [
        {
            "question": question,
            "answer": "4",
            "response": f"Add.\nThe answer is {answer}{chr(32) * index}.",
            "steps": ["Add.", f"The answer is {answer}"],
            "step_scores": step_scores,
        }
        for question, question_scores in scores.items()
        for index, (answer, step_scores) in enumerate(zip(answers, question_scores, strict=True))
    ]
    return written(file, rows)


@pytest.fixture
def pools(tmp_path: Path) -> list[Path]:
    """Two models: one prefers the correct samples, the other one prefers the incorrect ones."""
    good = {f"2+2, {k}?": [[0.2, 0.1], [0.7, 0.9], [0.9, 0.8]] for k in range(8)}
    bad = {f"2+2, {k}?": [[0.9, 1.0], [0.2, 0.1], [0.1, 0.2]] for k in range(8)}
    for name, scores in (("good", good), ("bad", bad)):
        file = write_samples(tmp_path / f"{name}.jsonl", scores)
        import_file(file, tmp_path / name, prm_name=name)
    return [tmp_path / "good", tmp_path / "bad"]


def rerank(*data: Path, **options: Any) -> dict[str, Any]:
    return measure_reranking(RerankOptions(data=data, **options), NO_PROGRESS)


def test_sentences_without_an_answer_do_not_vote(tmp_path: Path) -> None:
    """Two of three responses end with the same sentence, and one has a box."""
    rows = [
        {
            "question": f"3+4, {number}?",
            "answer": "7",
            "response": response,
            "step_scores": [[0.5], [0.9], [0.5]][index],
        }
        for number in range(2)
        for index, response in enumerate(["I am not sure.", "I am not sure.", r"\boxed{7}"])
    ]
    import_file(written(tmp_path / "rows.jsonl", rows), tmp_path / "data", prm_name="prm")
    result = rerank(tmp_path / "data")
    assert result["vote"]["3"]["value"] == 1
    assert result["models"]["prm"]["accuracy"]["weighted-vote"]["min"]["3"]["value"] == 1


def test_measurements_of_two_models(pools: list[Path]) -> None:
    result = rerank(*pools)
    assert (result["problems"], result["samples_per_problem"], result["n"]) == (8, 3, [1, 2, 3])
    assert result["sample"]["value"] == pytest.approx(2 / 3)
    assert result["vote"]["3"]["value"] == 1 and result["pass"]["2"]["value"] == 1
    good, bad = result["models"]["good"], result["models"]["bad"]
    for aggregate in ("min", "mean", "last", "prod"):
        assert good["accuracy"]["best-of-n"][aggregate]["3"]["value"] == 1
        assert bad["accuracy"]["best-of-n"][aggregate]["3"]["value"] == 0
        assert bad["ahead_of_vote"]["best-of-n"][aggregate]["3"]["value"] == -1
        assert good["ranking_auc"][aggregate]["value"] == 1
    assert bad["accuracy"]["weighted-vote"]["mean"]["3"]["value"] == 0
    assert list(good["ahead_of_min"]) == [name for name in AGGREGATES if name != "min"]
    assert good["ahead_of_min"]["last"]["3"]["value"] == 0
    # Of two samples with different answers, the vote takes the first, which is wrong.
    assert good["selected"]["2"]["ahead_of_vote"]["value"] == pytest.approx(2 / 3)
    cells = [model["selected"][size]["ahead_of_vote"] for model in (good, bad) for size in "23"]
    assert [cell["p_holm"] for cell in cells] == holm([cell["p"] for cell in cells])
    low, high = good["accuracy"]["best-of-n"]["min"]["3"]["ci95"]
    assert low == pytest.approx(0.676, abs=1e-3) and high == 1  # 8 of 8
    assert good["pairs"]["pairs"] == 16 and good["pairs"]["margin"]["negative"] == 0


def test_the_selection_never_sees_the_fold_that_it_is_measured_on() -> None:
    """Each strategy is perfect on one fold only, so the selection for the other fold is wrong."""
    folds = np.array([0, 0, 0, 1, 1, 1])
    accuracies = {
        "best-of-n": {
            "min": (folds == 0).astype(float)[:, None],
            "mean": (folds == 1).astype(float)[:, None],
        }
    }
    selected = measure._select_and_measure(accuracies, np.zeros((6, 1)), [2], folds)
    assert selected["2"]["strategies"] == ["best-of-n:mean", "best-of-n:min"]
    assert selected["2"]["accuracy"]["value"] == 0


def test_calibration() -> None:
    quality = calibration(
        np.array([[0.95, 0.95, 0.05, NAN]]), np.array([[True, False, False, True]])
    )
    assert quality["bins"] == [(0.05, 0.0, 1), (0.95, 0.5, 2)]
    assert quality["ece"] == pytest.approx((0.05 + 2 * 0.45) / 3)
    assert quality["brier"] == pytest.approx((0.05**2 + 0.95**2 + 0.05**2) / 3)
    assert quality["base_brier"] == pytest.approx(2 / 9)


def test_step_weights_of_pairs(pools: list[Path]) -> None:
    """Weights of two steps are sigmoids of γ times the difference of their rewards."""
    problem_ids = pl.read_parquet(pools[0] / "problems/*.parquet")["problem_id"].to_list()
    result = pair_weights(pools[0], problem_ids, PairSpec(top=1), [2, 1e-9])
    assert (result["pairs"], result["problems"]) == (8, 8)
    weight = 1 / (1 + math.exp(-2 * 0.1))
    rejected = result["weights"]["2"]["rejected"]
    assert rejected["from_uniform"] == pytest.approx(weight - 0.5, abs=1e-6)
    assert rejected["max_over_uniform"] == pytest.approx(2 * weight, abs=1e-6)
    assert rejected["several_steps"] == 1 and rejected["effective_steps"] < 1
    uniform = result["weights"]["1e-09"]["chosen"]
    assert uniform["from_uniform"] == pytest.approx(0, abs=1e-6)
    assert uniform["effective_steps"] == pytest.approx(1)


def test_options_limit_sizes_aggregates_and_problems(pools: list[Path], tmp_path: Path) -> None:
    problems = written(tmp_path / "few.jsonl", [{"question": "2+2, 1 ?", "answer": "4"}])
    result = rerank(pools[0], k=[2], aggregate=["min"], problems=problems, gamma=[3])
    [model] = result["models"].values()
    assert (result["problems"], result["n"]) == (1, [2])
    assert list(model["accuracy"]["best-of-n"]) == ["min"] and list(model["pairs"]["weights"]) == [
        "3"
    ]
    with pytest.raises(InputError, match="the problems have 3 samples each"):
        rerank(pools[0], k=[4])
    other = written(tmp_path / "other.jsonl", [{"question": "1+1?", "answer": "2"}])
    with pytest.raises(InputError, match="has no graded problem to measure"):
        rerank(pools[0], problems=other)
    with pytest.raises(InputError, match="nothing to measure"):
        rerank()


def test_datasets_need_the_same_samples_and_rewards(pools: list[Path], tmp_path: Path) -> None:
    file = write_samples(tmp_path / "c.jsonl", {"2+2, 0?": [[1, 1]] * 3}, answers=(4, 5, 5))
    import_file(file, tmp_path / "c")
    with pytest.raises(InputError, match="has other samples or verdicts than"):
        rerank(pools[0], tmp_path / "c")
    plain = written(tmp_path / "d.jsonl", [{"question": "1?", "answer": "1", "response": "1"}])
    import_file(plain, tmp_path / "d")
    with pytest.raises(InputError, match="has no step rewards"):
        rerank(tmp_path / "d")


def test_problems_with_fewer_samples_are_left_out(tmp_path: Path) -> None:
    file = write_samples(tmp_path / "a.jsonl", {"a?": [[1, 1]] * 3, "b?": [[1, 0]] * 3})
    rows = file.read_text().splitlines()
    extra = json.dumps(json.loads(rows[0]) | {"response": "Add. The answer is 9"})
    file.write_text("\n".join([*rows, extra, rows[0].replace("a?", "c?")]) + "\n")
    import_file(file, tmp_path / "out")
    result = rerank(tmp_path / "out")
    assert (result["problems"], result["samples_per_problem"]) == (2, 3)
    assert result["left_out"] == {"fewer samples": 1}


def test_the_command_prints_tables_and_json(pools: list[Path]) -> None:
    line = ["rerank", *map(str, pools), "--subsets", "6"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    for text in ("pass@N", "best-of-N, prod", "weighted vote, last", "p (Holm)", "at γ 8"):
        assert text in done.output
    done = CliRunner().invoke(app, [*line, "--json"])
    assert json.loads(done.stdout)["vote"]["3"]["value"] == 1


def test_one_flag_is_the_number_of_samples_of_a_choice() -> None:
    """The commands that choose among K samples call their number ``--k``."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    flags = {
        name: {flag for parameter in command.params for flag in parameter.opts}
        for name, command in commands.items()
    }
    assert {name for name in flags if "--k" in flags[name]} == {"run", "prm", "rerank"}
    assert not any({"--n", "--best-of"} & names for names in flags.values())
