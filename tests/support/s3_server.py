"""An S3 server in this process, which can hold a write until its client is dead."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
BUCKET = "data"


class S3Server:
    """A running server.

    Attributes:
        url: Address of the server.
        reached: Set when a client has started the write that the server holds.
    """

    def __init__(self) -> None:
        self.url = ""
        self.reached = threading.Event()
        self._application: Any = DomainDispatcherApplication(create_backend_app)
        self._released = threading.Event()
        self._held_key = ""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request; never answer the write of the held key."""
        path = environ["PATH_INFO"]
        if self._held_key and environ["REQUEST_METHOD"] == "PUT" and self._held_key in path:
            self.reached.set()
            self._released.wait(60)
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self._application(environ, start_response)

    @contextlib.contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Do not answer the writes whose path contains ``key``."""
        self.reached.clear()
        self._released.clear()
        self._held_key = key
        yield
        self._held_key = ""
        self._released.set()

    @property
    def env(self) -> dict[str, str]:
        """Environment of clients, with the address and the credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server with one bucket."""
    server = S3Server()
    http_server = make_server("127.0.0.1", 0, server, threaded=True)
    server.url = f"http://127.0.0.1:{http_server.port}"
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http_server.shutdown()
        thread.join()
