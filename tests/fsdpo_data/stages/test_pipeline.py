"""Runs from problems to sealed pairs: equality with single stages, and resumption."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import BatchScorer, TableScorer, TextSampler
from helpers import (
    RIGHT,
    TEXTS,
    WRONG,
    build_job,
    fixed_sampler,
    pair_statistics_of,
    problem_set,
    reward_model,
    small_build,
    stage_options,
)

from fsdpo_data.core.errors import RunMismatchError, UnavailableError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.sample import build
from fsdpo_data.stages.score import ScoreStage

TABLE = TableScorer({RIGHT: [0.75, 0.875], WRONG: [0.5, 0.125], TEXTS[2]: [0.25], "": []})


def stages(scorer: Any = TABLE, top: int = 4) -> list[Any]:
    return [ScoreStage(reward_model(TABLE.model, lambda: scorer)), PairStage(PairSpec(top=top))]


def run(out: Path, run_stages: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    source = problem_set()
    make = options.pop("make_sampler", lambda: fixed_sampler(source))
    job = build_job(source, make)
    return build(job, out, run_stages or stages(), progress=LineProgress(), **options).to_dict()


class InterruptedScorer:
    """Scores one solution after the other, and is interrupted after the second one."""

    model = TABLE.model

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        for index, item in enumerate(items):
            if index == 2:
                raise KeyboardInterrupt
            yield index, TABLE.compute_rewards([item])[0]


def test_scoring_reports_each_solution_and_what_an_interrupt_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fsdpo_data.core.progress.LOG_INTERVAL_SECONDS", 0.0)
    small_build(tmp_path / "a")
    progress = LineProgress()
    with pytest.raises(KeyboardInterrupt):
        derive_dataset(
            tmp_path / "a", tmp_path / "b", stages(InterruptedScorer())[:1], progress=progress
        )
    assert "score: 1/12" in capsys.readouterr().err
    assert progress.summary() == (
        "score: 0 of 12 are done; 2 more of an unfinished batch are not saved"
    )


def test_one_run_equals_its_stages_run_one_by_one(tmp_path: Path) -> None:
    manifest = run(tmp_path / "all")
    assert validate(tmp_path / "all").to_dict() == manifest
    small_build(tmp_path / "a")
    derive_dataset(tmp_path / "a", tmp_path / "b", stages()[:1], progress=LineProgress())
    separate_manifest = derive_dataset(
        tmp_path / "b", tmp_path / "c", stages()[1:], progress=LineProgress()
    ).to_dict()
    assert manifest["digest"] == separate_manifest["digest"]
    assert pair_statistics_of(tmp_path / "all") == pair_statistics_of(tmp_path / "c")
    assert validate(tmp_path / "all").rows == (3, 12, 6)
    built = validate(tmp_path / "all/build").to_dict()
    assert manifest["parent"] == built["digest"]
    assert (tmp_path / "all/build/completions.jsonl").exists()


def test_a_run_stopped_during_sampling_or_scoring_resumes(tmp_path: Path) -> None:
    expected_manifest = run(tmp_path / "whole")

    class FailingEngine(TextSampler, BatchScorer):
        model = TABLE.model

        def complete_texts(self, *_: Any) -> Any:
            raise UnavailableError("died")

        def compute_rewards(self, *_: Any) -> Any:
            raise UnavailableError("died")

    with pytest.raises(UnavailableError):
        run(tmp_path / "part", make_sampler=FailingEngine)
    assert not (tmp_path / "part").exists()  # nothing was sampled
    with pytest.raises(UnavailableError):
        run(tmp_path / "part", stages(FailingEngine()))
    with pytest.raises(RunMismatchError, match="`resume=True`"):
        run(tmp_path / "part")
    assert not (tmp_path / "part/manifest.json").exists()
    never = {"make_sampler": lambda: pytest.fail("sampled again")}
    assert run(tmp_path / "part", resume=True, **never) == expected_manifest
    assert (
        run(tmp_path / "part", stages(FailingEngine()), resume=True, **never) == expected_manifest
    )


def test_other_options_are_refused_before_sampling(tmp_path: Path) -> None:
    run(tmp_path / "out")
    with pytest.raises(RunMismatchError, match=r"stages\.pair\.top: 4 in the run, 2 now"):
        run(tmp_path / "out", stages(top=2), resume=True, make_sampler=lambda: pytest.fail("asked"))
    small_build(tmp_path / "plain")
    with pytest.raises(RunMismatchError, match=r"stages\.pair: None in the run"):
        run(tmp_path / "plain", resume=True, make_sampler=lambda: pytest.fail("asked"))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    from command_line import run as command
    from random_model import save_random_model, save_random_prm

    prm = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    source = problem_set()
    small_build(tmp_path / "a", source)
    rows = [{"question": p.question, "answer": p.answer} for p in source.problems]
    problems = tmp_path / "problems.jsonl"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["build", "--problems", problems, "--samples", 4, "--engine", "replay"]
    arguments += ["--replay", tmp_path / "a/completions.jsonl", "--prm", prm, "--top", 1]
    arguments += ["--device", "cpu", "--out", tmp_path / "out"]
    code, out, err = command(capsys, *map(str, arguments))
    assert code == 0, err
    output = " ".join(out.split())
    assert "step rewards" in output and "of 3 problems (0 too easy, 0 too hard)" in output
    assert stage_options(validate(tmp_path / "out").to_dict(), "score")["prm"]["name"] == "prm"
    code, _, err = command(capsys, "build", "--prm", str(tmp_path / "policy"))
    assert code == 1 and "is a language model (Qwen2ForCausalLM), not a reward model" in err
    code, _, err = command(capsys, "build", "--top", "2", "--out", str(tmp_path / "unpaired"))
    assert code == 1 and "--top 2: only --prm reads this option. Give --prm, or" in err
    assert not (tmp_path / "unpaired").exists()
