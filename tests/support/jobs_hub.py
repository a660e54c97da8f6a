"""The Jobs API of a Hub on the loopback, which the real ``hf jobs`` talks to.

A job runs here as a process, with only its own environment and that of its image. The folder of the
bucket takes the place of the mount.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER = "ann"


@dataclass
class JobsHub:
    """The jobs of a Hub.

    Attributes:
        bucket: Folder of the bucket that the jobs mount.
        image: Environment of the jobs' image.
        url: Address of the server.
        jobs: Specs of the jobs, as the client sent them, in order.
        stages: Stage of each job, such as ``COMPLETED`` or ``ERROR``.
        logs: Output of each finished job.
        worker: Runs one job after another.
    """

    bucket: Path
    image: dict[str, str]
    url: str = ""
    jobs: list[dict[str, Any]] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def start_job(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Put a job into the queue, and return its description."""
        index = len(self.jobs)
        self.jobs.append(spec)
        self.stages.append("SCHEDULING")
        self.worker.submit(self.run_job, index)
        return self.describe_job(index)

    def run_job(self, index: int) -> None:
        """Run a job until it succeeds, at most as often as its number of attempts."""
        spec = self.jobs[index]
        [volume] = spec["volumes"]
        assert volume["type"] == "bucket" and not volume.get("readOnly")
        command = [
            word.replace(f"cd {volume['mountPath']}\n", f"cd '{self.bucket}'\n")
            for word in spec["command"]
        ]
        environment = {**self.image, **spec["environment"], **spec.get("secrets", {})}
        for _ in range(spec.get("attempts", 1)):
            ran = subprocess.run(command, env=environment, capture_output=True, text=True)
            if ran.returncode == 0:
                break
        self.logs.append(ran.stdout + ran.stderr)
        self.stages[index] = "ERROR" if ran.returncode else "COMPLETED"

    def describe_job(self, index: int) -> dict[str, Any]:
        """Return the JSON of a job in the form of the Hub."""
        owner = {"id": "1", "name": USER, "type": "user"}
        status = {"stage": self.stages[index], "message": None}
        return {"id": f"job{index}", "status": status, "owner": owner, **self.jobs[index]}


@contextmanager
def serve_jobs(hub: JobsHub) -> Iterator[JobsHub]:
    """Serve the API until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/whoami-v2":
                return self.send_json({"name": USER, "type": "user"})
            prefix, _, index = self.path.rpartition("/job")
            if prefix == f"/api/jobs/{USER}":
                return self.send_json(hub.describe_job(int(index)))
            return self.send_json({}, status=404)

        def do_POST(self) -> None:
            assert self.path == f"/api/jobs/{USER}"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_json(hub.start_job(json.loads(body)))

        def send_json(self, value: object, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.worker.shutdown()
        server.shutdown()
        thread.join()
        server.server_close()
