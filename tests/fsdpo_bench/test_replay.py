"""Runs that replay completions by prompt, in place of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import score_all
from fsdpo_bench.cli.app import app
from fsdpo_bench.run_folder import read_run_record
from fsdpo_bench.run_options import RunOptions
from helpers import read_sample_settings
from made_runs import solutions, written
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import resolve

PROMPT = get_template("problem").render("2+2?")
COMPLETION = {"text": "The answer is 4.", "finish_reason": "stop"}
CUT_OFF = {"text": "First we add the 4 apples", "finish_reason": "length"}


@pytest.fixture
def replay(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that replays completions of one problem, and returns the run."""

    def run(completions: list[dict[str, Any]], *options: str) -> Path:
        rows = [{"prompt": PROMPT, "completions": completions}]
        recording = written(tmp_path / "completions.jsonl", rows)
        task = written(tmp_path / "task.jsonl", [{"question": "2+2?", "answer": "4"}])
        out = tmp_path / "run"
        line = ["run", "--engine", "replay", "--replay", str(recording), "--task", str(task)]
        line += ["--template", "problem", "--workers", "1", "--out", str(out)]
        done = CliRunner().invoke(app, [*line, *options])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return out

    return run


@pytest.mark.parametrize(
    ("count", "options", "names"),
    [
        (1, (), ["greedy"]),
        (1, ("--temperature", "0"), ["greedy"]),
        (1, ("--temperature", "0.7"), ["first"]),
        (3, (), ["first", "sc@3"]),
        (3, ("--temperature", "0"), ["greedy"]),
        (3, ("--decoder", "maj", "--k", "2"), ["sc@2"]),
    ],
)
def test_the_default_decoders_of_a_recording(
    replay: Callable[..., Path], count: int, options: tuple[str, ...], names: list[str]
) -> None:
    """Several completions are random samples, so none of them is called greedy."""
    assert read_run_record(replay([COMPLETION] * count, *options)).decoders == names


def test_a_recording_states_its_model_and_its_sampling(
    tmp_path: Path, replay: Callable[..., Path]
) -> None:
    out = replay([COMPLETION], "--model-name", "Another 7B", "--temperature", "0.6")
    manifest = read_manifest(out / "samples")
    sample = read_sample_settings(manifest)
    assert (sample.model.name, sample.model.revision) == ("Another 7B", "unknown")
    recording = file_sha256(tmp_path / "completions.jsonl")
    assert sample.engine.recording == f"sha256:{recording}"
    sampling = sample.sampling_values
    assert [sampling[name] for name in ("temperature", "top_p", "seed")] == [0.6, *["unknown"] * 2]
    assert manifest.cost.tokens is None


def test_a_replay_without_a_model_name_has_an_unknown_model(replay: Callable[..., Path]) -> None:
    manifest = read_manifest(replay([COMPLETION]) / "greedy")
    sample = read_sample_settings(manifest)
    assert sample.model.name == sample.sampling_values["temperature"] == "unknown"
    assert "tiny" not in manifest.to_json()


def test_a_replay_with_a_model_records_that_model(replay: Callable[..., Path]) -> None:
    manifest = read_manifest(replay([COMPLETION], "--model", "tiny") / "greedy")
    model = read_sample_settings(manifest).model
    assert (model.name, model.revision) == ("tiny", resolve("tiny").ref.revision)


def test_a_truncated_recorded_response_has_no_answer(replay: Callable[..., Path]) -> None:
    [[row]] = solutions(replay([CUT_OFF]), "greedy").values()
    assert (row["finish_reason"], row["outcome"], row["answer"]) == ("length", "no_answer", None)


def test_a_recording_with_too_few_completions_is_refused(replay: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"the file has 2 completions of the prompt .* 3 are need"):
        replay([COMPLETION] * 2, "--decoder", "sc", "--k", "3")


def test_a_reward_model_scores_recorded_samples(
    tmp_path: Path, replay: Callable[..., Path]
) -> None:
    pytest.importorskip("torch")
    from random_model import save_random_model, save_random_prm

    from fsdpo_data.engines.load import load_scorer
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput

    prm = str(save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy")))
    texts = [f"First, {n} + 1.\nThe answer is {n}." for n in (4, 5, 6, 7)]
    options = ("--decoder", "bon,sc", "--k", "4", "--prm", prm, "--device", "cpu")
    out = replay([COMPLETION | {"text": text} for text in texts], *options)
    [rows] = solutions(out, "samples").values()
    scorer = load_scorer(prm, ScorerOptions(device="cpu"))
    items = [ScorerInput(PROMPT, row["completions"], "2+2?") for row in rows]
    for row, expected in zip(rows, score_all(scorer, items), strict=True):
        assert row["step_rewards"] == pytest.approx(expected, abs=1e-4)


def test_model_name_is_refused_without_a_replay() -> None:
    with pytest.raises(InputError, match=r"has its own name.* Add `replay=FILE`"):
        RunOptions(model="tiny", model_name="me")
