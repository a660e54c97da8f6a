"""Reward models of others through the harness: ProcessBench, best-of-N and beams, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from fsdpo_bench.cli.app import app
from fsdpo_bench.prm.first_error import (
    measure_first_errors,
    read_first_error_rows,
    score_examples,
)
from fsdpo_bench.runs.records import read_config, read_records
from published import save_published
from random_model import save_random_model
from typer.testing import CliRunner

from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions


def ran(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.mark.parametrize("family", ["qwen", "math-shepherd", "pqm"])
def test_a_published_reward_model_is_measured_and_decodes(
    family: str, shared: Path, tmp_path: Path
) -> None:
    prm = save_published(tmp_path / "prm", family, shared)
    asked = ("--prm", prm, "--prm-format", family)
    rows = json.loads((shared / "data/stepwise/processbench/gsm8k.json").read_text())
    file = tmp_path / "gsm8k.json"
    file.write_text(json.dumps(rows[:6] + rows[-6:]))
    named = prm.rename(tmp_path / "Qwen2.5-Math-PRM-7B") if family == "qwen" else prm
    alone = ("--prm", named) if family == "qwen" else asked  # it is recognised
    done = ran("prm", "--processbench", file, "--tune-fraction", "0.4", "--json", *alone)
    prm = named.rename(prm)
    assert done.exit_code == 0, done.exception
    judged = read_first_error_rows(file)
    scorer = load_scorer(str(prm), ScorerOptions(device="cpu", prm_format=family))
    expected = measure_first_errors(judged, score_examples(judged, scorer, None), 0.4)
    found = json.loads(done.stdout)["processbench"]["gsm8k.json"]
    assert found["with_error"] + found["without_error"] == 7 and found["unscored"] == 0
    assert found["threshold"] == pytest.approx(expected.threshold, rel=1e-3)
    policy, out = save_random_model(tmp_path / "policy"), tmp_path / "run"
    line = ["run", "--task", "embedded", "--limit", 2, "--model", policy, "--template", "problem"]
    line += ["--engine", "transformers", "--k", 2, "--max-tokens", 16, "--max-steps", 2, *asked]
    done = ran(*line, "--out", out, "--decoder", "bon,sbs")
    assert done.exit_code == 0, done.exception
    assert read_config(out)["prm"]["prm_format"]["name"] == family
    for record in read_records(out):
        made = [*record["samples"], record["decoded"]["sbs@5,1"]["solution"]]
        assert all(len(each["rewards"] or []) == len(each["steps"]) for each in made)
    if family == "pqm":
        done = ran(*line, "--out", tmp_path / "no", "--decoder", "weighted")
        assert "votes are weighed by probabilities" in str(done.exception)
