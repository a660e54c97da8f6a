"""Downloads are bounded in size and in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.http_client import download


class _Handler(BaseHTTPRequestHandler):
    """Sends 1,000 bytes at once, or one byte after the other."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if self.path == "/whole":
            self.wfile.write(b"x" * 1000)
            return
        try:
            for _ in range(100):
                self.wfile.write(b"x")
                time.sleep(0.05)
        except OSError:
            pass  # the client has left

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_download_has_a_maximum_size(address: str) -> None:
    assert download(f"{address}/whole", max_bytes=1000, timeout=10) == b"x" * 1000
    with pytest.raises(UnavailableError, match="/whole: the response exceeds 999 bytes"):
        download(f"{address}/whole", max_bytes=999, timeout=10)


def test_a_download_has_a_maximum_time_although_each_byte_is_in_time(address: str) -> None:
    with pytest.raises(TimeoutError, match="takes more than 2 seconds"):
        download(f"{address}/slow", max_bytes=1000, timeout=0.2)
