"""Scoring with a real vLLM: the rewards equal those of the transformers engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import score_all
from helpers import build_job, reward_model, reward_statistics_of, sample_settings
from random_model import save_random_model, save_random_prm

from fsdpo_data.problems.load import load_problems
from fsdpo_data.stages.label_records import LabelRecord

# vLLM's own imports warn.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.mark.short_proof
def test_vllm_gives_the_rewards_of_transformers(tmp_path: Path) -> None:
    from scored import REF, solutions, worst

    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput
    from fsdpo_data.engines.scorers.prm import PrmScorer
    from fsdpo_data.engines.scorers.vllm import VllmPrmScorer
    from fsdpo_data.models.resolve import ResolvedWeights

    model = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    odd = [ScorerInput("p", []), ScorerInput("p", ["x" * 300])]
    items = [*solutions(), *odd]
    weights = ResolvedWeights(REF, str(model))
    ours = score_all(PrmScorer(weights, ScorerOptions(device="cpu")), items)
    theirs = score_all(VllmPrmScorer(weights, ScorerOptions()), items)
    assert theirs[-2:] == ours[-2:] == [[], None]
    assert worst(theirs[:-2], [rewards or [] for rewards in ours[:-2]]) < 1e-5


def test_the_engine_that_sampled_is_gone_when_the_scorer_starts(tmp_path: Path) -> None:
    """Each engine takes nearly all GPU memory, so the first must end before the second starts."""
    from fsdpo_data.core.progress import LineProgress
    from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
    from fsdpo_data.engines.samplers import Sampler
    from fsdpo_data.engines.samplers.vllm import VllmSampler
    from fsdpo_data.engines.scorers import Scorer
    from fsdpo_data.engines.scorers.vllm import VllmPrmScorer
    from fsdpo_data.engines.weights import resolve_prm
    from fsdpo_data.models.resolve import resolve_weights
    from fsdpo_data.stages.sample import build
    from fsdpo_data.stages.score import ScoreStage

    old_engines = engines()
    alive: list[int] = []
    tiny = resolve_weights("tiny")
    prm = resolve_prm(str(save_random_prm(tmp_path / "prm", Path(tiny.path))))

    def sampler() -> Sampler:
        vllm_sampler = VllmSampler(tiny, SamplerOptions())
        alive.append(len(engines() - old_engines))
        return vllm_sampler

    def scorer() -> Scorer:
        alive.append(len(engines() - old_engines))
        return VllmPrmScorer(prm, ScorerOptions())

    source = load_problems(["embedded"], limit=8)
    stage = ScoreStage(reward_model(prm.ref, scorer, "vllm"))
    job = build_job(source, sampler, sample_settings(max_tokens=128))
    build(job, tmp_path / "run", [stage], progress=LineProgress())
    assert alive[0] > 0 and alive[1:] == [0]
    assert not engines() - old_engines, "the stage has closed the scorer"
    assert reward_statistics_of(tmp_path / "run").scored == 32


def test_a_judge_runs_on_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The embedded model writes no readable critique, so there are no labels and no rewards."""
    from command_line import run
    from helpers import problem_set, small_build

    from fsdpo_data.dataset.validate import validate

    small_build(tmp_path / "run", problem_set(1))
    form, run_on = tmp_path / "mine.toml", ["--engine", "vllm", "--out"]
    form.write_text('based_on = "processbench"\ntemplate = "problem"\nmax_tokens = 8\n')
    line = ["label", str(tmp_path / "run"), "--judge", "tiny", "--judge-format", str(form)]
    code, _, err = run(capsys, *line, *run_on, str(tmp_path / "judged"))
    assert code == 0, err
    statistics = validate(tmp_path / "judged").get("label", LabelRecord).counts
    assert statistics.without_vote == statistics.solutions == 3
    line = ["score", str(tmp_path / "run"), "--prm", "tiny", "--prm-format", str(form)]
    code, _, err = run(capsys, *line, *run_on, str(tmp_path / "scored"))
    assert code == 0, err
    validate(tmp_path / "scored")
    assert reward_statistics_of(tmp_path / "scored").scored == 0


def engines() -> set[int]:
    import psutil

    children = psutil.Process().children(recursive=True)
    running = [process for process in children if process.status() != psutil.STATUS_ZOMBIE]
    return {process.pid for process in running if process.name().startswith("VLLM")}
