"""The scorer of inspect_ai on the page about other harnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES, response_to, write_problems
from page_files import copy_page_file

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]


def test_the_scorer_grades_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def respond(messages: Any, *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", response_to(messages[-1].text))
        output.usage = ModelUsage()  # without it, the model downloads a tokenizer
        return output

    copy_page_file("other-harnesses.md", "graded_problems.py", tmp_path)
    write_problems(tmp_path / "problems.jsonl")
    monkeypatch.chdir(tmp_path)
    (log,) = evaluate(
        "graded_problems.py",
        model=get_model("mockllm/model", custom_outputs=respond),
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "success", log.error
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means == {"correct": pytest.approx(2 / 5), "undecided": pytest.approx(1 / 5)}
    by_question = {sample.input: sample.scores["grade_answer"] for sample in log.samples}
    for case in CASES:
        score = by_question[case.question]
        assert score.value == {"correct": case.reward == 1.0, "undecided": case.reward is None}
    assert by_question["What is 1 + 1?"].answer == "3"  # not the answer of the thinking
    assert by_question["What is 1 + 1?"].explanation == "incorrect (boxed/number)"
