"""The rubrics of verifiers before 0.4, in an environment whose model is a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES, response_to
from openai_server import Script, serving

from fsdpo_data import rewards

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]


def test_an_environment_scores_with_the_rubric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    import verifiers as vf
    from datasets import Dataset
    from openai import AsyncOpenAI

    rows = Dataset.from_list([{"question": case.question, "answer": case.gold} for case in CASES])
    environment = vf.SingleTurnEnv(
        eval_dataset=rows, rubric=vf.Rubric(funcs=[rewards.verifiers_reward(rewards.outcome())])
    )

    async def evaluate(url: str) -> Any:
        async with AsyncOpenAI(base_url=url, api_key="none") as client:
            return await environment.evaluate(client, "tiny", sampling_args={"n": 1})

    with serving(Script(reply=lambda body, _: response_to(body["messages"][-1]["content"]))) as url:
        outputs = asyncio.run(evaluate(url))["outputs"]
    scores = {output["prompt"][-1]["content"]: output for output in outputs}
    for case in CASES:
        assert scores[case.question]["reward"] == case.score
        assert scores[case.question]["outcome_reward"] == case.score
