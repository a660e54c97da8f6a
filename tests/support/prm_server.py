"""A process of ``fsdpo-data serve``, and requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]


class PrmServer:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def send(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a body, as JSON unless it is bytes; without a body, get the path."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.load(error))


@contextmanager
def serving_prm(prm: Path, *flags: str, **variables: str) -> Iterator[PrmServer]:
    """Run ``fsdpo-data serve`` on a free port, until the block ends."""
    line = [sys.executable, "-m", "fsdpo_data", "serve", "--prm", str(prm), "--port", "0", *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    output = []
    try:
        for text in process.stderr:
            output.append(text)
            if text.startswith("serving "):
                yield PrmServer(process, text.rpartition(" ")[2].strip())
                return
        raise AssertionError("".join(output))
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()
