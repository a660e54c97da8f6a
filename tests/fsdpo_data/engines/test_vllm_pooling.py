"""Scoring through ``/pooling`` of a real ``vllm serve``, and of servers that are too old."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from command_line import run
from fakes import score_all
from helpers import problem_set, reward_statistics_of, small_build
from openai_server import Script, Trick, says, serving
from published import save_published
from random_model import save_random_model, save_random_prm
from scored import solutions, worst

from fsdpo_data.core.errors import InputError, ItemError, UnavailableError
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ConnectionOptions, ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.untrusted import read_tokenizer

#: Seconds that the server may need to start on a busy machine.
START_TIMEOUT_SECONDS = 400
ITEMS = [
    ScorerInput("", ["3 * 4 is 12.\n", "12 + 5 is 18.\n", "So 18."], "What is 3 * 4 + 5?"),
    ScorerInput("", ["It is <extra_0> 2."], "What is 1 + 1? <extra_0>"),
]


def served_options(url: str) -> ScorerOptions:
    return ScorerOptions(engine="openai", server=ConnectionOptions(base_url=url))


@contextmanager
def serving_vllm(folder: Path, *flags: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = free_socket.getsockname()[1]
    line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)]
    line += ["--model", str(folder), "--dtype", "float32", "--enforce-eager", *flags]
    line += ["--max-model-len", "1024", "--no-enable-chunked-prefill"]
    log = folder.parent / "log"
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as file:
        server = subprocess.Popen(line, stdout=file, stderr=file, env=os.environ | settings)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    try:
        while True:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield url
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.vllm
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("pooling", ["STEP", "ALL"])
def test_vllm_serves_the_rewards_of_the_qwen_prm(
    pooling: str, shared: Path, tmp_path: Path
) -> None:
    prm = save_published(tmp_path / "Qwen2.5-Math-PRM-7B", "qwen", shared)
    expected = score_all(
        load_scorer(str(prm), ScorerOptions(engine="transformers", device="cpu")), ITEMS
    )
    # vLLM pools this architecture by steps, with the id of the step token in Qwen's tokenizer.
    from transformers import AutoTokenizer

    step_token_id = AutoTokenizer.from_pretrained(prm).convert_tokens_to_ids("<extra_0>")
    config = {"tok_pooling_type": pooling, "step_tag_id": step_token_id}
    if pooling == "ALL":
        config = {"tok_pooling_type": pooling}
    with serving_vllm(prm, "--pooler-config", json.dumps(config)) as url:
        rewards = score_all(load_scorer(str(prm), served_options(url)), ITEMS)
    assert worst(rewards, [solution or [] for solution in expected]) < 1e-5


class OldVllm(BaseHTTPRequestHandler):
    """A vLLM that does not know ``token_classify``: its answers are those of the subclass."""

    model = ""
    answer: dict[str, Any] | None = None  #: The data of a text; None rejects the request.

    def log_message(self, *_: Any) -> None:
        pass

    def send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        models = {"data": [{"id": self.model, "owned_by": "vllm", "max_model_len": 256}]}
        self.send(200, {"version": "0.10.1"} if self.path == "/version" else models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.answer is None:
            self.send(400, {"error": {"message": "unknown task"}})
            return
        rows = {"vector": [0.3, 0.7], "tokens": [[0.3, 0.7]] * len(body["input"])}
        self.send(200, {"data": [{"index": 0, "data": rows[self.answer["kind"]]}]})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "rejects the task token_classify"),
        ({"kind": "vector"}, "one vector for the complete text"),
        ({"kind": "tokens"}, "ignores `use_activation`"),
    ],
)
def test_an_older_vllm_is_refused_by_name(
    answer: dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    prm = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    handler = type("Bound", (OldVllm,), {"model": str(prm), "answer": answer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    try:
        with pytest.raises(InputError, match=rf"vLLM 0\.10\.1.*{reason}.*0\.11\.1 or newer"):
            load_scorer(str(prm), served_options(f"http://127.0.0.1:{server.server_address[1]}"))
    finally:
        server.shutdown()
        server.server_close()


def make_prm(folder: Path) -> Path:
    return save_random_prm(folder / "prm", save_random_model(folder / "policy"))


def classifier(prm: Path) -> Callable[[list[int]], list[list[float]]]:
    """Return a function that computes the logits of each token with a reward model."""
    from transformers import AutoModelForTokenClassification

    model = AutoModelForTokenClassification.from_pretrained(prm).eval().requires_grad_(False)
    return lambda ids: model(torch.tensor([ids])).logits[0].tolist()


def test_rewards_equal_those_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prm = make_prm(tmp_path)
    expected = score_all(load_scorer(str(prm), ScorerOptions(device="cpu")), solutions())
    script = Script(prm=str(prm), classify=classifier(prm))
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with serving(script) as url:
        items = [*solutions(), ScorerInput("p", [])]
        rewards = score_all(load_scorer(str(prm), served_options(url)), items)
    assert rewards[-1] == [] and worst(rewards[:-1], expected) < 1e-5
    assert set(script.keys) == {"Bearer sesame"}


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (says({"error": "too long"}, 400), "answered 400"),
        (says({"error": {"message": "KV cache"}}, 500), 'answered 500: {"error": {"message": "KV'),
        (says({"error": {"message": "KV cache"}}), "KeyError: 'data'"),
        (says({"data": []}), "IndexError"),
        (says({"data": None}), "TypeError"),
    ],
)
def test_an_item_that_alone_has_no_rewards_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trick: Trick, reason: str
) -> None:
    monkeypatch.setattr("fsdpo_data.core.http_client.MAX_DELAY_SECONDS", 0.01)
    prm = make_prm(tmp_path)
    items = [ScorerInput(prompt, ["It is 2."]) for prompt in ("1 + 1?", "1 + 2?", "1 + 3?")]
    tokenizer = read_tokenizer(str(prm))
    script = Script(prm=str(prm))
    script.faults[str(tokenizer(items[1].prompt + items[1].steps[0])["input_ids"])] = trick
    with serving(script) as url:
        scorer = load_scorer(str(prm), served_options(url))
        outcomes = dict(scorer.score(items))
    first, failed, last = (outcomes[index] for index in range(3))
    assert isinstance(failed, ItemError) and reason in str(failed)
    assert [len(first), len(last)] == [1, 1]


def test_a_build_is_scored_by_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prm = make_prm(tmp_path)
    small_build(tmp_path / "run", problem_set(2))
    with serving(Script(prm=str(prm))) as url:
        line = ["score", str(tmp_path / "run"), "--prm", str(prm), "--engine", "openai"]
        code, _, err = run(capsys, *line, "--base-url", url, "--out", str(tmp_path / "scored"))
    assert code == 0, err
    validate(tmp_path / "scored")
    assert reward_statistics_of(tmp_path / "scored").scored > 0


def test_a_wrong_key_and_another_model_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prm = make_prm(tmp_path)
    with pytest.raises(InputError, match="need each other"):
        ScorerOptions(engine="openai")
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    script = Script(prm="another-model")
    with serving(script) as url:
        with pytest.raises(InputError, match=r"the server has another-model"):
            load_scorer(str(prm), served_options(url))
        script.status = 401
        with pytest.raises(UnavailableError, match="401: OPENAI_API_KEY is refused"):
            load_scorer(str(prm), served_options(url))
