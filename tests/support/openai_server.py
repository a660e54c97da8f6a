"""A server of OpenAI's protocol, and of vLLM's `/pooling`, that does as it is told."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Answers one request by itself; returns whether it did.
Trick = Callable[["Handler"], bool]


@dataclass
class Script:
    """The behaviour of the server, and the requests that it received.

    Attributes:
        tricks: Faults, one for each of the first requests.
        requests: The bodies received.
        keys: The Authorization headers received.
        reply: Text of sample i of a request.
        reasoning: Thinking text of chat completions.
        max_choices: Maximal number of samples per request.
        refuses: Texts of prompts and solutions that the server refuses, with status 400.
        faults: The answer to each request with a text, every time.
        prm: Directory of a reward model, which the server has in place of the model; "" for none.
            Its classes follow from the token ids alone, unless ``classify`` computes them.
        classify: Returns the logits of each token, [T, C], for token ids.
        max_body_bytes: Maximum size of a body; the server answers 413 to a larger one.
        status: Status of the list of models.
        lock: Protects the other fields.
    """

    tricks: list[Trick] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    reply: Callable[[dict[str, Any], int], str] = lambda body, i: (
        f"{body.get('seed', 0) + i} it is."
    )
    reasoning: str = ""
    max_choices: int = 100
    refuses: set[str] = field(default_factory=set)
    faults: dict[str, Trick] = field(default_factory=dict)
    prm: str = ""
    classify: Callable[[list[int]], list[list[float]]] = lambda ids: [[id % 7 - 3.0] for id in ids]
    max_body_bytes: int = 2**62
    status: int = 200
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.script.keys.append(self.headers["Authorization"])
        entry: dict[str, Any] = {"id": "tiny", "owned_by": "somebody"}
        if self.script.prm:
            entry = {"id": self.script.prm, "owned_by": "vllm", "max_model_len": 2**20}
        self.send(self.script.status, json.dumps({"data": [entry]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.script.lock:
            self.script.requests.append(body)
            trick = self.script.tricks.pop(0) if self.script.tricks else None
        if any(part in json.dumps(body) for part in self.script.refuses):
            trick = says({"error": "the prompt is too long"}, 400)
        if int(self.headers["Content-Length"]) > self.script.max_body_bytes:
            trick = says({"error": "the body is too large"}, 413)
        for part, fault in self.script.faults.items():
            trick = fault if part in json.dumps(body) else trick
        if trick is None or not trick(self):
            self.send(200, json.dumps(self.answer(body)).encode())

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "input" in body:
            return {"data": [{"index": 0, "data": self.classify(body)}]}
        choices: list[dict[str, Any]] = []
        for i in range(min(body["n"], self.script.max_choices)):
            text = self.script.reply(body, i)
            choice: dict[str, Any] = {"index": i, "finish_reason": "stop"}
            if "messages" in body:
                message = {"content": text, "reasoning_content": self.script.reasoning}
                choices.append({**choice, "message": message})
            else:
                choices.append({**choice, "text": text})
        return {"choices": choices[::-1], "usage": {"completion_tokens": 3 * len(choices) + 1}}

    def classify(self, body: dict[str, Any]) -> list[list[float]]:
        """Return the classes of each token, as vLLM's task `token_classify` does."""
        assert (body["task"], body["encoding_format"]) == ("token_classify", "float")
        logits = self.script.classify(body["input"])
        if not body["use_activation"]:
            return logits
        return [[1 / (1 + math.exp(-logit)) for logit in row] for row in logits]

    def send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)


def busy(handler: Handler) -> bool:
    handler.send(429, b'{"error": "slow down"}', Retry_After="0")
    return True


def broken(handler: Handler) -> bool:
    handler.send(500, b"<html><h1>Internal Server Error</h1></html>")
    return True


def html(handler: Handler) -> bool:
    handler.send(200, b"<html>Please log in.</html>", Content_Type="text/html")
    return True


def cut(handler: Handler) -> bool:
    handler.send(200, b'{"choices": [', Content_Length="1000")
    handler.close_connection = True
    return True


def hang_up(handler: Handler) -> bool:
    handler.close_connection = True
    handler.connection.close()
    return True


def slow(handler: Handler) -> bool:
    """Say nothing until the client has given up."""
    handler.rfile.read(1)
    handler.close_connection = True
    return True


def drips(handler: Handler) -> bool:
    """Send a byte every 50 ms, without end."""
    _send_without_end(handler, b" ", pause=0.05)
    return True


def floods(handler: Handler) -> bool:
    """Send data without end."""
    _send_without_end(handler, b" " * 2**20, pause=0)
    return True


def _send_without_end(handler: Handler, block: bytes, pause: float) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(2**60))
    handler.end_headers()
    handler.close_connection = True
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(block)
            handler.wfile.flush()
            time.sleep(pause)


def sends(body: bytes, status: int = 200, **headers: str) -> Trick:
    def trick(handler: Handler) -> bool:
        handler.send(status, body, **headers)
        return True

    return trick


def says(value: Any, status: int = 200) -> Trick:
    def trick(handler: Handler) -> bool:
        handler.send(status, json.dumps(value).encode())
        return True

    return trick


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Run the server; give its base URL."""
    handler = type("Bound", (Handler,), {"script": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
