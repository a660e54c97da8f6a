"""A Hub on the loopback: the HTTP API that the real, unpatched Hub clients read and write.

It knows repositories made of commits, revisions, file listings, downloads with ETags and ranges,
uploads and commits, tags, gated and private repositories, and faults on demand. Every request is
written down. Repositories are plain objects, so that a test can add a commit to one.

Large files come by LFS or by Xet, as the client likes: ``HF_HUB_DISABLE_XET`` decides.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import hub_writes
from hub_repo import Repo, entries, etag, info, refs, tree
from hub_writes import Answer, refusal
from hub_xet import XetStore
from warm import DATA_MODULES, WarmInterpreter

ROOT = Path(__file__).parents[2]
TOKEN = "hf_loopbacktesttoken"
#: A token that may read everything and write nothing.
READ_TOKEN = "hf_loopbackreadtoken"

_API = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(.*)|/(refs))?"
)
_WRITE = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)/(preupload|commit|tag|branch|settings)(?:/([^/]+))?"
)
_AUTH_CHECK = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/auth-check/write")
_XET_TOKEN = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/xet-write-token/([^/]+)")
_LFS_BATCH = re.compile(r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch")
_LFS_PUT = re.compile(r"/lfs/([0-9a-f]{64})")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Fault:
    """A fault instead of an answer.

    Attributes:
        status: Status code of the answer; 0 cuts the connection without an answer.
        headers: Headers of the answer.
        times: Number of requests with the fault; later requests succeed.
        after: Bytes of the request's body read before the connection is cut.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    times: float = float("inf")
    body_bytes: int = 0


class HubServer:
    """The server: add repositories and faults, then point clients at ``url``.

    Attributes:
        repos: Repositories by (kind, name).
        faults: Faults by a part of the request, ``METHOD path``.
        hooks: Functions that run before a request that contains the key.
        changed_bodies: Functions that change the body of the answer to a request with the key.
        large_files: Uploaded files by SHA-256, also those that no commit names.
        xet: Files uploaded by Xet.
        messages: Commit messages by commit.
        requests: Every request, as ``METHOD path``.
        writing: Held while a repository changes.
    """

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.faults: dict[str, Fault] = {}
        self.hooks: dict[str, Callable[[], object]] = {}
        self.changed_bodies: dict[str, Callable[[bytes], bytes]] = {}
        self.large_files: dict[str, bytes] = {}
        self.xet = XetStore()
        self.messages: dict[str, str] = {}
        self.requests: list[str] = []
        self.writing = threading.Lock()
        self.counting = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def add(
        self,
        kind: str,
        name: str,
        files: Mapping[str, bytes],
        *,
        gated: bool = False,
        private: bool = False,
    ) -> Repo:
        """Create a repository with one commit on ``main``."""
        repo = Repo(kind, name, gated, private)
        repo.commit(files)
        self.repos[kind, name] = repo
        return repo

    def fail(self, part: str, status: int, times: float = float("inf"), **headers: str) -> None:
        """Answer ``status`` to the next requests, ``METHOD path``, that hold ``part``."""
        header_values = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults[part] = Fault(status, header_values, times)

    def cut(self, part: str, *, body_bytes: int, times: float = float("inf")) -> None:
        """Cut the connection of the next such requests after so many bytes of their bodies."""
        self.faults[part] = Fault(0, times=times, body_bytes=body_bytes)

    def fault(self, request: str) -> Fault | None:
        """Return the fault for a request, if there is one, and count it."""
        with self.counting:
            for part, fault in self.faults.items():
                if part in request and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def start(self) -> None:
        """Serve from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port: from here on, connections are refused."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.xet.close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *args: object) -> None:
        """Print nothing, because ``HubServer.requests`` lists the requests."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        fault = self.hub.fault(request)
        length = int(self.headers.get("Content-Length", 0))
        if fault and not fault.status:
            self.rfile.read(min(fault.body_bytes, length))
            self.close_connection = True
            return None
        body = self.rfile.read(length)
        if fault:
            return self._send(fault.status, b"", fault.headers)
        for part, hook in list(self.hub.hooks.items()):
            if part in request:
                hook()
        # Revisions such as refs/pr/1 hold slashes, so they are matched while still quoted.
        raw = urlsplit(self.path).path
        if answer := self._write(raw, body):
            return self._json(answer.body, answer.status, answer.headers)
        if raw == "/api/whoami-v2":
            return self._whoami()
        if match := _AUTH_CHECK.fullmatch(raw):
            answer = self._may_not_write() or Answer(200)
            return self._json(answer.body, answer.status, answer.headers)
        if match := _API.fullmatch(raw):
            return self._api(match, body)
        if match := _RESOLVE.fullmatch(raw):
            return self._resolve(match)
        return self._send(404, b"Not Found")

    def _write(self, path: str, body: bytes) -> Answer | None:
        """Answer a request that writes; return None for other requests."""
        if match := _LFS_PUT.fullmatch(path):
            return hub_writes.lfs_put(self.hub, match[1], body)  # signed URLs need no token
        calls = {
            "/api/repos/create": hub_writes.create_repo,
            "/lfs/verify": hub_writes.lfs_verify,
        }
        if path == "/api/validate-yaml":
            return hub_writes.validate_yaml(self.hub, json.loads(body))  # anybody may ask
        call = calls.get(path)
        if _LFS_BATCH.fullmatch(path):
            call = hub_writes.lfs_batch
        if call is not None:
            return self._may_not_write() or call(self.hub, json.loads(body))
        if _XET_TOKEN.fullmatch(path):
            return self._may_not_write() or Answer(200, self.hub.xet.connection())
        if match := _WRITE.fullmatch(path):
            return self._may_not_write() or self._write_repo(match, body)
        return None

    def _write_repo(self, match: re.Match[str], body: bytes) -> Answer:
        kind, name, action, quoted = match.groups()
        repo = self.hub.repos.get((kind.removesuffix("s"), name))
        if repo is None:
            return refusal(404, "Repository not found", "RepoNotFound")
        revision = unquote(quoted or "main")
        if action == "settings":
            return hub_writes.settings(repo, body)
        if action == "branch":
            return hub_writes.branch(self.hub, repo, revision, body)
        if repo.resolve(revision) is None:
            return refusal(404, "Invalid rev id", "RevisionNotFound")
        if action == "preupload":
            return hub_writes.preupload(repo, revision, body)
        if action == "commit" and "create_pr=1" in urlsplit(self.path).query:
            repo.refs["refs/pr/1"] = repo.refs[revision]
            answer = hub_writes.commit(self.hub, repo, "refs/pr/1", body)
            answer.body["pullRequestUrl"] = f"{self.hub.url}/{name}/discussions/1"
            return answer
        call = {"commit": hub_writes.commit, "tag": hub_writes.tag}[action]
        return call(self.hub, repo, revision, body)

    def _may_not_write(self) -> Answer | None:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        if self._token():
            return refusal(403, "You don't have the rights to create or change this repository")
        return refusal(401, "Invalid credentials in Authorization header")

    def _whoami(self) -> None:
        """Answer with the user of the token, who is in the organisation ``o``."""
        if not self._token():
            message = "Invalid credentials in Authorization header"
            return self._send(401, b"", {"X-Error-Message": message})
        role = "write" if self.headers["Authorization"] == f"Bearer {TOKEN}" else "read"
        user = {"name": "u", "orgs": [{"name": "o"}], "auth": {"accessToken": {"role": role}}}
        return self._json(user)

    def _api(self, match: re.Match[str], body: bytes) -> None:
        kind, name, action, revision, path, all_refs = match.groups()
        repo_or_refusal = self._find(kind.removesuffix("s"), name, revision or "main")
        if repo_or_refusal is None:
            return None
        repo, commit = repo_or_refusal
        files = repo.commits[commit]
        if all_refs:
            return self._json(refs(repo))
        if action in (None, "revision"):
            return self._json(info(repo, commit))
        if repo.gated and not self._token():
            return self._refuse_gated(repo)
        if action == "tree":
            folder = unquote(path).strip("/")
            query = parse_qs(urlsplit(self.path).query)
            recursive = query.get("recursive", [""])[0] in ("true", "True")
            return self._json(tree(files, folder, recursive))
        form = parse_qs(body.decode())
        if not form and body:
            form = {"paths": json.loads(body)["paths"]}
        return self._json([entry for path in form["paths"] for entry in entries(files, path)])

    def _resolve(self, match: re.Match[str]) -> None:
        datasets, name, revision, path = match.groups()
        repo_or_refusal = self._find("dataset" if datasets else "model", name, revision)
        if repo_or_refusal is None:
            return None
        repo, commit = repo_or_refusal
        if repo.gated and not self._token():
            return self._refuse_gated(repo)
        headers = {"X-Repo-Commit": commit}
        data = repo.commits[commit].get(unquote(path))
        if data is None:
            return self._send(404, b"Entry not found", headers | {"X-Error-Code": "EntryNotFound"})
        headers |= {"ETag": f'"{etag(unquote(path), data)}"', "Accept-Ranges": "bytes"}
        if span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(span[1]), int(span[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            return self._send(206, data[start : end + 1], headers)
        return self._send(200, data, headers)

    def _find(self, kind: str, name: str, revision: str) -> tuple[Repo, str] | None:
        """Return a repository and a commit of it; if there is none, answer and return None."""
        repo = self.hub.repos.get((kind, name))
        token = self.headers.get("Authorization")
        if token and not self._token():
            message = "Invalid credentials in Authorization header"
            self._send(401, b"", {"X-Error-Message": message})
            return None
        if repo is None or (repo.private and not self._token()):
            # The Hub does not tell strangers whether a repository exists.
            self._send(404 if token else 401, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        commit = repo.resolve(unquote(revision))
        if commit is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return None
        return repo, commit

    def _token(self) -> bool:
        return self.headers.get("Authorization") in (f"Bearer {TOKEN}", f"Bearer {READ_TOKEN}")

    def _refuse_gated(self, repo: Repo) -> None:
        status = 403 if self.headers.get("Authorization") else 401
        message = f"Access to {repo.kind} {repo.name} is restricted."
        self._send(status, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": message})

    def _json(
        self, value: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        typed = {"Content-Type": "application/json", **(headers or {})}
        self._send(status, json.dumps(value).encode(), typed)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        for part, change in self.hub.changed_bodies.items():
            if part in f"{self.command} {self.path}":
                body = change(body)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """Run a server for the length of a ``with`` block."""
    hub = HubServer()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def client_env(endpoint: str, home: Path, **extra: str) -> dict[str, str]:
    """Return the environment of a client that knows this Hub alone and has no cache or token."""
    home.mkdir(exist_ok=True)
    inherited = {
        name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ
    }
    return inherited | {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        # huggingface-hub 2.4 sends a file in a way that its own HTTP library calls outdated.
        "PYTHONWARNINGS": "error,ignore:Use 'content=<...>':DeprecationWarning",
        **extra,
    }


def run_client(code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python code as a client of a Hub, which has imported the commands before."""
    interpreter = _client_interpreter(env["PYTHONWARNINGS"])
    return interpreter.complete("-c", code, folder=Path(env["HOME"]), env=env)


@functools.cache
def _client_interpreter(warning_filters: str) -> WarmInterpreter:
    """Return an interpreter without the Hub's client, which reads its endpoint at its import."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    interpreter = WarmInterpreter(env | {"PYTHONWARNINGS": warning_filters}, DATA_MODULES)
    atexit.register(interpreter.stop)
    return interpreter


def run_new_client(code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python code as a client of a Hub in a new interpreter, also from several threads."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(env),
        cwd=env["HOME"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
