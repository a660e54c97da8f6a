"""Judges: asked as their authors ask them, read strictly, and scorers like any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.load import load_scorer, resolve_prm
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    CritiqueScorer,
    count_approvals,
    critique_prompt,
    majority_vote,
    read_votes,
)
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS, PublishedPrm
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template

PROCESSBENCH, THINKPRM = PRM_FORMATS["processbench"], PRM_FORMATS["thinkprm"]

#: code/templates/critique_template.txt of QwenLM/ProcessBench, as its script fills it in.
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


def test_the_critique_is_asked_for_as_processbench_does(shared: Path) -> None:
    for row in json.loads((shared / "data/stepwise/processbench/math.json").read_text())[:200]:
        tagged = ""
        for k, step in enumerate(row["steps"]):
            tagged += f"<paragraph_{k}>\n{step}\n</paragraph_{k}>\n\n"
        expected = VENDOR.format(problem=row["problem"], tagged_response=tagged.strip())
        steps = [f"{step}\n\n" for step in row["steps"]]
        # Our steps have their line ends: the benchmark's were split off, but for the last one's.
        asked = critique_prompt(
            PROCESSBENCH, RECORDED_TEMPLATE, ScorerInput("", steps, row["problem"])
        )
        assert asked.split() == expected.split()
        if not any(step != step.strip("\r\n") for step in row["steps"]):
            assert asked == expected


def test_fields_in_a_question_or_a_step_stay_as_they_are() -> None:
    asked = critique_prompt(
        PROCESSBENCH, RECORDED_TEMPLATE, ScorerInput("", ["{question}", "{step}"], "{steps} {i}")
    )
    assert "\n\n{steps} {i}\n\n" in asked
    assert "<paragraph_0>\n{question}\n</paragraph_0>\n\n<paragraph_1>\n{step}\n" in asked


def test_thinkprm_is_asked_as_its_script_does() -> None:
    chat = Template("chat", "<user>{question}<assistant>")
    asked = critique_prompt(
        THINKPRM, chat, ScorerInput("", ["Step 1: It is 2.\n", "So 2."], "1 + 1?")
    )
    assert asked == (
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
        (RIGHT * 4, 3, None),  # one has two
        (WRONG + RIGHT * 3, 3, None),
        ("It is \\boxed{4}. " + RIGHT, 1, -1),
        ("\\boxed{\\text{Correct}}", 1, -1),
        ("", 1, None),
        ("", 0, None),
    ],
)
def test_verdicts_are_one_for_each_step_up_to_the_first_wrong_one(
    critique: str, n_steps: int, vote: int | None
) -> None:
    assert read_votes(THINKPRM, [(critique, "stop")], n_steps) == ([] if vote is None else [vote])


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
def test_the_last_box_is_the_index_or_nothing(critique: str, vote: int | None) -> None:
    assert read_votes(PROCESSBENCH, [(critique, "stop")], 3) == ([] if vote is None else [vote])


def test_the_majority_and_its_ties_are_those_of_the_vendors_counter() -> None:
    assert majority_vote([2, -1, -1, 2, 0]) == 2 and majority_vote([-1, 2, 2, -1]) == -1
    assert count_approvals([1, -1, 3], 4) == [3, 2, 2, 1] and count_approvals([], 2) == [0, 0]


class Says:
    """Gives every prompt the same texts."""

    model = ModelRef("says", "0")

    def __init__(self, *texts: str) -> None:
        self.texts, self.spec = texts, SamplingSpec()

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        self.spec = spec
        return [[Completion(text, "stop") for text in self.texts] for _ in prompts]


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    from random_model import save_random_model

    model = save_random_model(tmp_path / "judge", context=1024)
    (model / "chat_template.jinja").write_text("{{ messages[-1].content }}|")
    return Path(model)


def test_a_reward_is_the_share_of_critiques_without_an_error(chatty: Path, tmp_path: Path) -> None:
    (tmp_path / "three.toml").write_text('based_on = "thinkprm"\nvotes = 3\n')
    options = ScorerOptions(prm_format=str(tmp_path / "three.toml"))
    weights = resolve_prm(str(chatty), options)
    assert isinstance(weights, PublishedPrm) and weights.prm_format.is_probability
    said = Says(RIGHT * 2, RIGHT + WRONG, "I cannot tell")
    scorer, item = CritiqueScorer(weights, said), ScorerInput("p", ["a\n", "b"], "What?")
    assert scorer.score([item, item]) == [[1.0, 0.5]] * 2
    assert said.spec.n == 3 and said.spec.temperature == 0.7
    assert "</think>" in said.spec.stop
    assert CritiqueScorer(weights, Says("nothing")).score([item]) == [None]
    with pytest.raises(InputError, match="needs the question"):
        scorer.score([ScorerInput("p", ["a"])])


def test_a_judge_scores_a_dataset_wherever_a_reward_model_does(
    chatty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random model says nothing that can be read, so nothing has a reward."""
    from command_line import run
    from helpers import problem_set, small_build

    from fsdpo_data.dataset.validate import validate

    small_build(tmp_path / "run", problem_set(1))
    form = tmp_path / "short.toml"
    form.write_text('based_on = "processbench"\nmax_tokens = 4\n')
    line = ["score", str(tmp_path / "run"), "--prm", str(chatty), "--prm-format", str(form)]
    line += ["--device", "cpu", "--engine", "transformers", "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *line)
    assert code == 0, err
    manifest = validate(tmp_path / "out")
    assert manifest.rewards is not None and manifest.rewards.scored == 0
    told: Any = manifest.spec.score
    assert (told.prm_format.name, told.prm_format.meaning) == ("short.toml", "probability")


@pytest.mark.parametrize("folder", ["GenPRM-7B", "other"])
def test_what_runs_the_code_of_a_model_is_refused_by_name(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "config.json").write_text('{"model_type": "qwen2"}')
    options = ScorerOptions(prm_format="genprm" if folder == "other" else None)
    with pytest.raises(InputError, match="never runs code from a model"):
        load_scorer(str(tmp_path / folder), options)
