"""Published reward models end to end: ProcessBench, best-of-N and beam search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from fsdpo_bench.cli.app import app
from fsdpo_bench.prm.processbench import (
    measure_first_errors,
    read_first_error_rows,
    score_examples,
)
from fsdpo_bench.run_folder import read_run_record
from made_runs import solutions
from published import save_published
from random_model import save_random_model
from typer.testing import CliRunner

from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.stages.score import ScoreRecord


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


FAMILY = "math-shepherd"


def test_a_published_prm_is_measured_and_used_for_decoding(shared: Path, tmp_path: Path) -> None:
    prm = save_published(tmp_path / "prm", FAMILY, shared)
    prm_options = ("--prm", prm, "--prm-format", FAMILY)
    rows = json.loads((shared / "data/stepwise/processbench/gsm8k.json").read_text())
    file = tmp_path / "gsm8k.json"
    file.write_text(json.dumps(rows[:6] + rows[-6:]))
    # The name of the folder gives the format.
    named_prm = prm.rename(tmp_path / "math-shepherd-mistral-7b-prm")
    line = ["prm", "--processbench", file, "--tune-fraction", "0.4", "--json", "--prm", named_prm]
    done = invoke(*line)
    prm = named_prm.rename(prm)
    assert done.exit_code == 0, done.exception
    examples = read_first_error_rows(file)
    scorer = load_scorer(str(prm), ScorerOptions(device="cpu", prm_format=FAMILY))
    expected = measure_first_errors(examples, score_examples(examples, scorer, None), 0.4)
    report = json.loads(done.stdout)["processbench"]["gsm8k.json"]
    assert report["with_error"] + report["without_error"] == 7 and report["unscored"] == 0
    assert report["threshold"] == pytest.approx(expected.threshold, rel=1e-3)
    policy = save_random_model(tmp_path / "policy")
    out = tmp_path / "run"
    line = ["run", "--task", "embedded", "--limit", 2, "--model", policy, "--template", "problem"]
    line += [
        "--engine",
        "transformers",
        "--k",
        2,
        "--max-tokens",
        16,
        *prm_options,
    ]
    done = invoke(*line, "--out", out, "--decoder", "bon,sbs", "--max-steps", 2)
    assert done.exit_code == 0, done.exception
    for part in read_run_record(out).parts:
        manifest = validate(out / part)
        score = manifest.get("score", ScoreRecord)
        assert score.options.prm_format is not None
        assert score.options.prm_format.name == FAMILY
        assert score.counts.format_evidence == "option prm_format"
        for rows in solutions(out, part).values():
            assert all(len(row["step_rewards"] or []) == len(row["completions"]) for row in rows)


def test_rewards_that_are_no_probabilities_weigh_no_votes(shared: Path, tmp_path: Path) -> None:
    prm = save_published(tmp_path / "prm", "pqm", shared)
    line = ["run", "--task", "embedded", "--limit", 1, "--model", "tiny", "--prm", prm]
    line += ["--prm-format", "pqm", "--engine", "transformers", "--k", 2, "--decoder", "weighted"]
    done = invoke(*line, "--out", tmp_path / "no")
    assert "votes are weighed by probabilities" in str(done.exception)


def test_the_prm_format_names_the_default_aggregate(shared: Path, tmp_path: Path) -> None:
    """The option replaces it, and the stored command line names the aggregate of the run."""
    prm = save_published(tmp_path / "prm", FAMILY, shared)
    prm_format = tmp_path / "own.toml"
    prm_format.write_text('based_on = "math-shepherd"\naggregate = "last"\n')
    policy = save_random_model(tmp_path / "policy")
    line = ["run", "--task", "embedded", "--limit", 1, "--model", policy, "--template", "problem"]
    line += ["--engine", "transformers", "--k", 2, "--max-tokens", 8, "--decoder", "bon"]
    line += ["--prm", prm, "--prm-format", prm_format]
    for options, aggregate in (([], "last"), (["--aggregate", "prod"], "prod")):
        out = tmp_path / aggregate
        done = invoke(*line, *options, "--out", out)
        assert done.exit_code == 0, done.exception
        assert read_run_record(out).decoders == [f"bon@2:{aggregate}"]
