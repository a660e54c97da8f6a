"""The task of lm-evaluation-harness on the page about other harnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES, response_to, write_problems
from page_files import copy_page_file

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]
PAGE = "other-harnesses.md"


def test_the_task_grades_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class ScriptedModel(LM):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [response_to(request.args[0]) for request in requests]

        def loglikelihood(self, requests: Any) -> Any:
            raise NotImplementedError

        def loglikelihood_rolling(self, requests: Any) -> Any:
            raise NotImplementedError

    for name in ("graded_metrics.py", "graded_problems.yaml"):
        copy_page_file(PAGE, name, tmp_path)
    write_problems(tmp_path / "problems.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    results = simple_evaluate(
        model=ScriptedModel(),
        tasks=["graded_problems"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
    )
    assert results is not None
    metrics = results["results"]["graded_problems"]
    assert metrics["correct,none"] == pytest.approx(2 / 5)
    assert metrics["undecided,none"] == pytest.approx(1 / 5)
    assert metrics["correct_stderr,none"] > 0
    samples = results["samples"]["graded_problems"]
    by_question = {sample["doc"]["question"]: sample for sample in samples}
    for case in CASES:
        sample = by_question[case.question]
        assert sample["correct"] == case.score
        assert sample["undecided"] == (case.reward is None)
