"""The task of verifiers 0.4 on the page about RL."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES, AdapterCase
from page_files import page_block

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def task_class(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the class of tasks of the page."""
    path = tmp_path_factory.mktemp("task") / "problem_task.py"
    path.write_text(page_block("rl.md", "import verifiers.v1"), encoding="utf-8")
    return import_file(path).ProblemTask


def import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.question)
def test_the_task_scores_a_trace(task_class: Any, case: AdapterCase) -> None:
    import verifiers.v1 as vf

    task = task_class(task_class.data_type()(prompt=case.question, answer=case.gold))
    messages = [vf.UserMessage(content=case.question), vf.AssistantMessage(content=case.response)]
    trace: Any = vf.Trace(
        task=vf.TraceTask(type="ProblemTask", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[
            vf.MessageNode(message=messages[0]),
            vf.MessageNode(parent=0, message=messages[1], sampled=True),
        ],
    )
    asyncio.run(task.score(trace))
    assert trace.reward == case.score
    assert list(trace.rewards) == ["outcome_reward"]
