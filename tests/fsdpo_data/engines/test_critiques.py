"""Judges: prompts of the published scripts, strict reading of votes, and use as scorers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import TextSampler, score_all

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.samplers import close_engine
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    CritiqueScorer,
    count_approvals,
    critique_prompt,
    majority_vote,
    read_votes,
)
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS, PublishedPrm
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template
from fsdpo_data.stages.score import ScoreRecord

PROCESSBENCH, THINKPRM = PRM_FORMATS["processbench"], PRM_FORMATS["thinkprm"]

#: The template code/templates/critique_template.txt of QwenLM/ProcessBench.
VENDOR = """The following is a math problem and a solution (split into paragraphs, enclosed with \
tags and indexed from 0):

[Math Problem]

{problem}

[Solution]

{tagged_response}

Your task is to review and critique the solution paragraph by paragraph. Once you identify an \
error in a paragraph, return the index of the paragraph where the earliest error occurs. \
Otherwise, return the index of -1 (which typically denotes "not found").

Please put your final answer (i.e., the index) in \\boxed{{}}."""


def test_the_processbench_prompt_equals_the_published_one(shared: Path) -> None:
    for row in json.loads((shared / "data/stepwise/processbench/math.json").read_text())[:200]:
        tagged = ""
        for k, step in enumerate(row["steps"]):
            tagged += f"<paragraph_{k}>\n{step}\n</paragraph_{k}>\n\n"
        expected = VENDOR.format(problem=row["problem"], tagged_response=tagged.strip())
        steps = [f"{step}\n\n" for step in row["steps"]]
        # Our steps include their line ends; the benchmark's rows do not, except for the last step.
        prompt = critique_prompt(
            PROCESSBENCH, RECORDED_TEMPLATE, ScorerInput("", steps, row["problem"])
        )
        assert prompt.split() == expected.split()
        if not any(step != step.strip("\r\n") for step in row["steps"]):
            assert prompt == expected


def test_template_fields_in_questions_and_steps_are_not_filled_in() -> None:
    prompt = critique_prompt(
        PROCESSBENCH, RECORDED_TEMPLATE, ScorerInput("", ["{question}", "{step}"], "{steps} {i}")
    )
    assert "\n\n{steps} {i}\n\n" in prompt
    assert "<paragraph_0>\n{question}\n</paragraph_0>\n\n<paragraph_1>\n{step}\n" in prompt


def test_the_thinkprm_prompt_equals_the_published_one() -> None:
    chat = Template("chat", "<user>{question}<assistant>")
    prompt = critique_prompt(
        THINKPRM, chat, ScorerInput("", ["Step 1: It is 2.\n", "So 2."], "1 + 1?")
    )
    assert prompt == (
        "<user>You are given a math problem and a proposed step-by-step solution:\n\n"
        "[Math Problem]\n\n1 + 1?\n\n[Solution]\n\nStep 1: It is 2.\nStep 2: So 2.\n\n"
        "Review and critique each step in the proposed solution to determine whether each step is "
        "correct. If the solution is incomplete, only verify the provided steps.<assistant>"
        "\nLet's verify step by step:"
    )


RIGHT, WRONG = "The step is \\boxed{correct}. ", "No: \\boxed{incorrect}. "


@pytest.mark.parametrize(
    ("critique", "n_steps", "vote"),
    [
        (RIGHT * 3, 3, -1),
        (RIGHT + WRONG, 3, 1),
        (RIGHT + WRONG + RIGHT, 3, 1),
        (RIGHT * 2, 3, None),  # a step has no verdict
        (RIGHT * 4, 3, None),  # a step has two verdicts
        (WRONG + RIGHT * 3, 3, None),
        ("It is \\boxed{4}. " + RIGHT, 1, -1),
        ("\\boxed{\\text{Correct}}", 1, -1),
        ("", 1, None),
        ("", 0, None),
    ],
)
def test_thinkprm_critiques_need_one_verdict_per_step_up_to_the_first_error(
    critique: str, n_steps: int, vote: int | None
) -> None:
    votes = read_votes(THINKPRM, "", [Completion(critique, "stop")], n_steps)
    assert votes == ([] if vote is None else [vote])


@pytest.mark.parametrize(
    ("critique", "vote"),
    [
        ("\\boxed{2}", 2),
        ("first \\boxed{0}, no, \\boxed{-1}", -1),
        ("<think>\\boxed{0}</think> \\boxed{1}", 1),
        ("\\boxed{ 0 }", 0),
        ("\\boxed{3}", None),
        ("\\boxed{-2}", None),
        ("\\boxed{0} or \\boxed{paragraph 1}", None),
        ("0", None),
    ],
)
def test_processbench_votes_are_read_from_the_last_box(critique: str, vote: int | None) -> None:
    votes = read_votes(PROCESSBENCH, "", [Completion(critique, "stop")], 3)
    assert votes == ([] if vote is None else [vote])


@pytest.mark.parametrize(
    ("critique", "vote"), [("Is it \\boxed{0}", None), ("Is it \\boxed{0}</think> \\boxed{1}", 1)]
)
def test_no_vote_is_read_from_thinking_that_the_prompt_opens(
    critique: str, vote: int | None
) -> None:
    votes = read_votes(PROCESSBENCH, "Judge.\n<think>\n", [Completion(critique, "stop")], 3)
    assert votes == ([] if vote is None else [vote])


def test_majorities_and_ties_follow_the_published_script() -> None:
    assert majority_vote([2, -1, -1, 2, 0]) == 2 and majority_vote([-1, 2, 2, -1]) == -1
    assert count_approvals([1, -1, 3], 4) == [3, 2, 2, 1] and count_approvals([], 2) == [0, 0]


class FixedCritiqueSampler(TextSampler):
    """A sampler that returns fixed texts for every prompt."""

    model = ModelRef("says", "0")

    def __init__(self, *texts: str) -> None:
        self.texts, self.spec = texts, SamplingSpec()

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        self.spec = spec
        return [[Completion(text, "stop") for text in self.texts] for _ in prompts]


@pytest.fixture
def chat_model(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    from random_model import save_random_model

    model = save_random_model(tmp_path / "judge", context=1024)
    (model / "chat_template.jinja").write_text("{{ messages[-1].content }}|")
    return Path(model)


def test_rewards_are_fractions_of_approving_critiques(chat_model: Path, tmp_path: Path) -> None:
    (tmp_path / "three.toml").write_text('based_on = "thinkprm"\nvotes = 3\n')
    options = ScorerOptions(prm_format=str(tmp_path / "three.toml"))
    weights = resolve_prm(str(chat_model), options)
    assert isinstance(weights, PublishedPrm) and weights.prm_format.is_probability
    sampler = FixedCritiqueSampler(RIGHT * 2, RIGHT + WRONG, "I cannot tell")
    scorer, item = CritiqueScorer(weights, sampler), ScorerInput("p", ["a\n", "b"], "What?")
    assert score_all(scorer, [item, item]) == [[1.0, 0.5]] * 2
    assert sampler.spec.n == 3 and sampler.spec.temperature == 0.7
    assert "</think>" in sampler.spec.stop
    assert score_all(CritiqueScorer(weights, FixedCritiqueSampler("nothing")), [item]) == [None]
    with pytest.raises(InputError, match="needs the question"):
        score_all(scorer, [ScorerInput("p", ["a"])])


def test_a_critique_that_ends_in_its_thinking_gives_no_rewards(chat_model: Path) -> None:
    (chat_model / "chat_template.jinja").write_text("{{ messages[-1].content }}<think>\n")
    weights = resolve_prm(str(chat_model), ScorerOptions(prm_format="processbench"))
    assert isinstance(weights, PublishedPrm)
    item = ScorerInput("p", ["a\n", "b"], "What?")
    for critique, rewards in (("\\boxed{1}", None), ("</think>\\boxed{1}", [1.0, 0.0])):
        scorer = CritiqueScorer(weights, FixedCritiqueSampler(critique))
        assert score_all(scorer, [item]) == [rewards]


def test_a_scorer_of_critiques_closes_its_judge(chat_model: Path) -> None:
    weights = resolve_prm(str(chat_model), ScorerOptions(prm_format="processbench"))
    assert isinstance(weights, PublishedPrm)
    closed = []
    sampler = FixedCritiqueSampler()
    sampler.close = lambda: closed.append(sampler)  # type: ignore[attr-defined]
    close_engine(CritiqueScorer(weights, sampler))
    assert closed == [sampler]


def test_a_judge_scores_a_dataset_like_a_reward_model(
    chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random model writes no readable critique, so no solution gets a reward."""
    from command_line import run
    from helpers import problem_set, reward_statistics_of, small_build

    from fsdpo_data.dataset.validate import validate

    small_build(tmp_path / "run", problem_set(1))
    form = tmp_path / "short.toml"
    form.write_text('based_on = "processbench"\nmax_tokens = 4\n')
    line = ["score", str(tmp_path / "run"), "--prm", str(chat_model), "--prm-format", str(form)]
    line += ["--device", "cpu", "--engine", "transformers", "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *line)
    assert code == 0, err
    manifest = validate(tmp_path / "out")
    assert reward_statistics_of(tmp_path / "out").scored == 0
    score_spec: Any = manifest.get("score", ScoreRecord).options
    assert (score_spec.prm_format.name, score_spec.prm_format.meaning) == (
        "short.toml",
        "probability",
    )


@pytest.mark.parametrize("folder", ["GenPRM-7B", "other"])
def test_judges_that_run_model_written_code_are_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "config.json").write_text('{"model_type": "qwen2"}')
    options = ScorerOptions(prm_format="genprm" if folder == "other" else None)
    with pytest.raises(InputError, match="never runs code from a model"):
        load_scorer(str(tmp_path / folder), options)
