"""The resources server of NeMo-Gym on the page about RL."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES
from page_files import page_block

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]


def test_the_server_answers_verify_requests(tmp_path: Path) -> None:
    from nemo_gym import openai_utils
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf
    from starlette.testclient import TestClient

    path = tmp_path / "outcome_server.py"
    path.write_text(page_block("rl.md", "import asyncio\n\nfrom nemo_gym"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("outcome_server", path)
    assert spec and spec.loader
    page: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)

    address = {"host": "127.0.0.1", "port": 1}
    server = page.OutcomeResourcesServer(
        config=BaseResourcesServerConfig(
            **address, entrypoint="outcome_server.py", name="outcome", domain="math"
        ),
        server_client=ServerClient(
            head_server_config=BaseServerConfig(**address), global_config_dict=OmegaConf.create({})
        ),
    )

    def make_request(question: str, gold: str, response: str) -> Any:
        """Return a verify request whose reasoning has another answer than its message."""
        summary = openai_utils.NeMoGymSummary(text=r"\boxed{1}", type="summary_text")
        text = openai_utils.NeMoGymResponseOutputText(annotations=[], text=response)
        output = [
            openai_utils.NeMoGymResponseReasoningItem(id="reasoning", summary=[summary]),
            openai_utils.NeMoGymResponseOutputMessage(id="message", content=[text]),
        ]
        return page.OutcomeVerifyRequest(
            responses_create_params=openai_utils.NeMoGymResponseCreateParamsNonStreaming(
                input=[{"role": "user", "content": question}]
            ),
            response=openai_utils.NeMoGymResponse(
                id="response", created_at=0, model="model", object="response", output=output,
                parallel_tool_calls=False, tool_choice="none", tools=[],
            ),
            expected_answer=gold,
        )  # fmt: skip

    with TestClient(server.setup_webserver()) as client:
        for case in CASES:
            request = make_request(case.question, case.gold, case.response)
            reply = client.post("/verify", json=request.model_dump(mode="json"))
            assert reply.status_code == 200, reply.text
            body = reply.json()
            assert body["reward"] == case.score
            assert body["undecided"] is (case.reward is None)
            assert body["expected_answer"] == case.gold
