"""The limit of the thinking holds for every caller of a sampler that was loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import ANSWER, THOUGHT, Judge, ThinkingSampler
from fsdpo_bench.decode.beam import BeamSpec, beam_search
from fsdpo_bench.decode.solution import sample_solutions

from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import CritiqueScorer, get_judge_format
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.models.prompts import RECORDED_TEMPLATE
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.stages.sample import sample_missing

PROMPT = "2+2?<think>\n"
LONG = THOUGHT * 9
#: The completion of sample 0 with 20 thinking tokens.
LIMITED = f"{LONG[:20]}\n</think>\n\n0: {ANSWER}"
SPEC = SamplingSpec(n=2, max_tokens=100, max_think_tokens=20)


def test_builds_continuations_and_judges_of_labels(tmp_path: Path) -> None:
    """All three sample the missing records of a run."""
    with RunDir.open(tmp_path / "run", {"sampling": {"n": 2}}, resume=False) as run:
        sample_missing(
            run,
            ["a"],
            iter([("a", PROMPT)]),
            sampling=SPEC,
            make_sampler=lambda: LoadedSampler(ThinkingSampler(LONG)),
            batch_size=4,
            phase="sample",
            progress=NO_PROGRESS,
            failures=FailureLog(tmp_path, STOP_AT_FIRST, "prompts"),
        )
        [record] = run.read_records(["a"])
    assert record["completions"][0]["text"] == LIMITED


def test_decoders_that_sample_complete_solutions() -> None:
    sampler = LoadedSampler(ThinkingSampler(LONG))
    [[solution, _]] = sample_solutions([PROMPT], sampler, SPEC, "auto@1")
    assert solution.text == LIMITED


def test_judges_that_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fsdpo_data.engines.scorers.critiques.get_template",
        lambda *_, **__: RECORDED_TEMPLATE,
    )
    critique_format = replace(get_judge_format("processbench"), prompt="2+2?<think>\n{steps}")
    weights = PublishedPrm(ModelRef("judge", "0"), "", None, prm_format=critique_format)
    model = ThinkingSampler(LONG)
    scorer = CritiqueScorer(weights, LoadedSampler(model))
    scorer._sampling = SPEC
    scorer.score([ScorerInput("p", [LONG[:9]], "2+2?")])
    contexts = [context for prompts, _ in model.requests for context in prompts]
    assert contexts[-1].endswith("\n</think>\n\n")


@pytest.mark.parametrize("segmenter", ["auto@1", "newline@1", "both@1"])
@pytest.mark.parametrize("step_tokens", [7, 20, 64])
def test_beam_search_limits_the_thinking_over_all_steps(segmenter: str, step_tokens: int) -> None:
    sampler = LoadedSampler(ThinkingSampler(LONG))
    spec = BeamSpec(b1=2, b2=1, max_steps=90, step_tokens=step_tokens)
    sampling = SamplingSpec(n=1, max_tokens=400, max_think_tokens=20)
    [(solution, _)] = beam_search([PROMPT], sampler, Judge(0), sampling, segmenter, spec)
    thinking = find_thinking(PROMPT, solution.text)
    assert thinking.closed and solution.finish_reason == "stop"
    assert solution.text[: thinking.end].removesuffix("\n</think>\n\n") == LONG[:20]
    assert solution.text.endswith(ANSWER)
