"""``fsdpo-data serve``: the rewards of the scorer over HTTP, whatever other clients do."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from helpers import problem_set, small_build
from prm_server import PrmServer, serving_prm
from random_model import save_random_model, save_random_prm
from scored import solutions, worst

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ConnectionOptions, ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput

TOKEN = "sesame"
BODY = {"prompt": "What is 1 + 1?\n", "steps": ["1 + 1 = 2\n", "The answer is 2."]}


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prm")
    return save_random_prm(folder / "prm", save_random_model(folder / "policy"))


@pytest.fixture(scope="module")
def server(prm: Path) -> Iterator[PrmServer]:
    flags = ["--device", "cpu", "--max-body-bytes", "20000"]
    with serving_prm(prm, *flags, FSDPO_SERVE_TOKEN=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def expected_rewards(prm: Path) -> list[list[float] | None]:
    return load_scorer(str(prm), ScorerOptions(device="cpu")).score(solutions())


def post(server: PrmServer, path: str, body: Any) -> Any:
    return server.send(path, body, Authorization=f"Bearer {TOKEN}")


def client(server: PrmServer, **changes: Any) -> ScorerOptions:
    connection = ConnectionOptions(base_url=f"{server.url}/v1", **{"idle_timeout": 20.0, **changes})
    return ScorerOptions(engine="openai", server=connection)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)


@pytest.mark.usefixtures("key")
def test_rewards_equal_those_in_process(
    server: PrmServer, prm: Path, expected_rewards: list[list[float]]
) -> None:
    items = solutions()
    rewards = load_scorer(prm.name, client(server)).score([*items, ScorerInput("p", [])])
    assert rewards[-1] == [] and worst(rewards[:-1], expected_rewards) < 1e-5


@pytest.mark.usefixtures("key")
def test_eight_clients_share_the_model(
    server: PrmServer, prm: Path, expected_rewards: list[list[float]]
) -> None:
    items = solutions()
    scorer = load_scorer(prm.name, client(server, concurrency=8))

    def score_part(part: int) -> list[list[float] | None]:
        return scorer.score(items[part::8])

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(score_part, range(8)))
    for part, rewards in enumerate(parts):
        assert worst(rewards, expected_rewards[part::8]) < 1e-5


def raw_request(body: bytes, length: int | None = None) -> bytes:
    return (
        f"POST /step_rewards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body


def test_faulty_clients_change_nothing_for_the_others(
    server: PrmServer,
    prm: Path,
    expected_rewards: list[list[float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    body = json.dumps(BODY).encode()
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
    for index, connection in enumerate(connections):
        if index % 3 == 0:  # killed while the server scores
            connection.sendall(raw_request(body))
            connection.close()
        elif index % 3 == 1:  # killed or asleep in the middle of a body
            connection.sendall(raw_request(body[:20], len(body)))
        else:  # reads no answer
            connection.sendall(raw_request(body) * 50)
    malformed = [b"{", b"[1]", b'{"steps": 1}', b"[" * 5000, b'{"steps": ["\\ud800"]}', b"\xff"]
    assert {post(server, "/step_rewards", wrong).status for wrong in malformed} == {400}
    large = post(server, "/step_rewards", {"prompt": "x" * 30_000, "steps": ["y"]})
    assert large.status == 413 and "20,000 bytes" in large.body["error"]["message"]
    rewards = load_scorer(prm.name, client(server)).score(solutions())
    assert worst(rewards, expected_rewards) < 1e-5
    for connection in connections:
        connection.close()


def test_the_token_is_checked(
    server: PrmServer, prm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.send("/health").status == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer sesamé"}):
        assert server.send("/step_rewards", BODY, **headers).status == 401
        assert server.send("/v1/models", **headers).status == 401
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with pytest.raises(UnavailableError, match="401: OPENAI_API_KEY is refused"):
        load_scorer(prm.name, client(server))


@pytest.mark.usefixtures("key")
def test_the_client_names_the_model_and_no_options_of_the_server(
    server: PrmServer, prm: Path
) -> None:
    with pytest.raises(InputError, match=r"the server has prm@"):
        load_scorer("other", client(server))
    with pytest.raises(InputError, match="has its own"):
        load_scorer(prm.name, replace(client(server), prm_format="qwen"))
    with pytest.raises(InputError, match="need each other"):
        ScorerOptions(engine="openai")


def test_fields_and_missing_prompts_are_named(server: PrmServer) -> None:
    wrong = post(server, "/step_rewards", {**BODY, "answer": "2"})
    assert wrong.status == 400 and "unknown field 'answer'" in wrong.body["error"]["message"]
    missing = post(server, "/step_rewards", {"question": "1 + 1?", "steps": ["2"]})
    assert missing.status == 400 and "Send `prompt`" in missing.body["error"]["message"]


def test_pooling_has_the_form_of_vllm(server: PrmServer, prm: Path) -> None:
    from transformers import AutoTokenizer

    item = ScorerInput(BODY["prompt"], BODY["steps"])
    (rewards,) = load_scorer(str(prm), ScorerOptions(device="cpu")).score([item])
    text = item.prompt + "".join(item.steps)
    input_ids = AutoTokenizer.from_pretrained(prm)(text)["input_ids"]
    request = {"model": "prm", "input": [text, input_ids], "task": "token_classify"}
    answer = post(server, "/pooling", request)
    assert answer.status == 200, answer
    of_text, of_ids = (entry["data"] for entry in answer.body["data"])
    assert of_text == of_ids and len(of_text) == len(input_ids)
    assert answer.body["usage"]["prompt_tokens"] == 2 * len(input_ids)
    assert rewards is not None and abs(of_text[-1][0] - rewards[-1]) < 1e-5
    unknown_id = post(server, "/pooling", {"input": [10**6]})
    assert unknown_id.status == 400 and "token ids are 0 to" in unknown_id.body["error"]["message"]
    assert post(server, "/pooling", {"input": "a" * 3000}).status == 400
    assert post(server, "/pooling", {"input": "a", "task": "embed"}).status == 400


def test_score_with_a_server(
    server: PrmServer, prm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    small_build(tmp_path / "run", problem_set(2))
    line = ["score", str(tmp_path / "run"), "--prm", prm.name]
    line += ["--engine", "openai", "--base-url", server.url, "--out", str(tmp_path / "scored")]
    code, _, err = run(capsys, *line)
    assert code == 0, err
    manifest = validate(tmp_path / "scored")
    assert manifest.rewards is not None and manifest.rewards.scored > 0


def test_a_stop_answers_the_requests_in_flight(prm: Path) -> None:
    with serving_prm(prm, "--device", "cpu") as server:
        body = json.dumps(BODY).encode()
        connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
        for connection in connections:  # the body is not complete when the signal comes
            connection.sendall(raw_request(body[:-1], len(body)))
        time.sleep(0.5)
        os.kill(server.process.pid, signal.SIGTERM)
        time.sleep(0.5)
        for connection in connections:
            connection.sendall(body[-1:])
        answers = [connection.makefile("rb").readline() for connection in connections]
        assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}
        for connection in connections:
            connection.close()
        assert server.process.wait(60) == 0


def test_too_many_requests_are_sent_away_and_come_back(
    prm: Path, expected_rewards: list[list[float]]
) -> None:
    with serving_prm(prm, "--device", "cpu", "--max-requests", "2") as server:
        rewards = load_scorer(prm.name, client(server)).score(solutions()[:8])
        assert worst(rewards, expected_rewards[:8]) < 1e-5
