"""A Hub on the loopback: the HTTP API that the real, unpatched Hub clients read from.

It knows repositories made of commits, revisions, file listings, downloads with ETags and ranges,
gated and private repositories, and faults on demand. Every request is written down. Repositories
are plain objects, so that a test (or a later write API) can add a commit to one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).parents[1]
TOKEN = "hf_loopbacktesttoken"

_API = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(.*))?"
)
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repo:
    """A repository: commits, each a full set of files, and branches and tags that name them."""

    kind: str
    name: str
    gated: bool = False
    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit with exactly these files to ``branch``; return its hash."""
        listed = sorted((path, hashlib.sha1(data).hexdigest()) for path, data in files.items())
        parent = self.refs.get(branch, "")
        sha = hashlib.sha1(repr((self.name, parent, listed)).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a branch, tag or commit stands for."""
        return revision if revision in self.commits else self.refs.get(revision)


@dataclass
class Fault:
    """What to answer instead of the truth."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class HubServer:
    """The server: add repositories and faults, then point clients at ``url``."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.faults: dict[str, Fault] = {}
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"hub": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

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

    def fail(self, part_of_path: str, status: int, **headers: str) -> None:
        """Answer ``status`` to every request whose path holds ``part_of_path``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults[part_of_path] = Fault(status, named)

    def start(self) -> None:
        """Serve from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port: from here on, connections are refused."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *args: object) -> None:
        """Say nothing; ``HubServer.requests`` has it."""

    def _answer(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        for part, fault in self.hub.faults.items():
            if part in path:
                return self._send(fault.status, fault.body, fault.headers)
        # Revisions such as refs/pr/1 hold slashes, so they are matched while still quoted.
        raw = urlsplit(self.path).path
        if match := _API.fullmatch(raw):
            return self._api(match, body)
        if match := _RESOLVE.fullmatch(raw):
            return self._resolve(match)
        return self._send(404, b"Not Found")

    def _api(self, match: re.Match[str], body: bytes) -> None:
        kind, name, what, revision, rest = match.groups()
        found = self._find("dataset" if kind == "datasets" else "model", name, revision or "main")
        if found is None:
            return None
        repo, commit = found
        files = repo.commits[commit]
        if what in (None, "revision"):
            return self._json(_info(repo, commit, files))
        if repo.gated and not self._token():
            return self._refuse_gated(repo)
        if what == "tree":
            folder = unquote(rest).strip("/")
            query = parse_qs(urlsplit(self.path).query)
            return self._json(
                _tree(files, folder, query.get("recursive", [""])[0] in ("true", "True"))
            )
        form = parse_qs(body.decode())
        if not form and body:
            form = {"paths": json.loads(body)["paths"]}
        return self._json([entry for path in form["paths"] for entry in _entries(files, path)])

    def _resolve(self, match: re.Match[str]) -> None:
        datasets, name, revision, path = match.groups()
        found = self._find("dataset" if datasets else "model", name, revision)
        if found is None:
            return None
        repo, commit = found
        if repo.gated and not self._token():
            return self._refuse_gated(repo)
        headers = {"X-Repo-Commit": commit}
        data = repo.commits[commit].get(unquote(path))
        if data is None:
            return self._send(404, b"Entry not found", headers | {"X-Error-Code": "EntryNotFound"})
        headers |= {"ETag": f'"{_blob(data)}"', "Accept-Ranges": "bytes"}
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
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _refuse_gated(self, repo: Repo) -> None:
        status = 403 if self.headers.get("Authorization") else 401
        message = f"Access to {repo.kind} {repo.name} is restricted."
        self._send(status, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": message})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _info(repo: Repo, commit: str, files: Mapping[str, bytes]) -> dict[str, object]:
    return {
        "_id": hashlib.sha1(repo.name.encode()).hexdigest()[:24],
        "id": repo.name,
        "sha": commit,
        "private": repo.private,
        "gated": "manual" if repo.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "lastModified": "2026-01-01T00:00:00.000Z",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "siblings": [{"rfilename": path} for path in sorted(files)],
    }


def _blob(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entries(files: Mapping[str, bytes], path: str) -> list[dict[str, object]]:
    """Return the listing entry of a file or folder; nothing if there is neither."""
    if path in files:
        data = files[path]
        return [{"type": "file", "path": path, "oid": _blob(data), "size": len(data)}]
    if any(name.startswith(f"{path}/") for name in files):
        return [{"type": "directory", "path": path, "oid": _blob(path.encode()), "size": 0}]
    return []


def _tree(files: Mapping[str, bytes], folder: str, recursive: bool) -> list[dict[str, object]]:
    prefix = f"{folder}/" if folder else ""
    inside = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
    names = {part for path in inside for part in _parts(path, recursive)}
    return [entry for name in sorted(names) for entry in _entries(files, prefix + name)]


def _parts(path: str, recursive: bool) -> list[str]:
    pieces = path.split("/")
    depth = len(pieces) if recursive else 1
    return ["/".join(pieces[: i + 1]) for i in range(depth)]


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """Run a server for the length of a ``with`` block."""
    hub = HubServer()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def client_env(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a client that knows this Hub alone and has no cache or token."""
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTHONWARNINGS": "error",
        **more,
    }


def run_client(code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python code as a client of a Hub: its endpoint is read once, at import."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(env),
        cwd=env["HOME"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
