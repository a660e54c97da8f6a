"""The Hub's API for writing: repositories, uploads, commits, tags. Each call is one answer.

A commit is all or nothing, on top of the parent that its writer has seen; large files come before
it, by their SHA-256, and one that is there already is not asked for again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hub_repo import LFS_SUFFIXES, Repo, etag, is_lfs, sha256

if TYPE_CHECKING:
    from hub_server import HubServer


@dataclass
class Answer:
    """A status, a body for the client's JSON parser, and headers."""

    status: int
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(status: int, message: str, code: str = "") -> Answer:
    """Return an error as the Hub words it."""
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return Answer(status, {"error": message}, headers)


def create_repo(hub: HubServer, request: dict[str, Any]) -> Answer:
    """Make a repository with the first commit that the Hub makes itself."""
    kind, name = request.get("type", "model"), f"{request['organization']}/{request['name']}"
    url = {"url": f"{hub.url}/{'datasets/' if kind == 'dataset' else ''}{name}"}
    if (kind, name) in hub.repos:
        return Answer(409, {**url, "error": "You already created this repo"})
    attributes = "".join(
        f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES
    )
    private = request.get("visibility") == "private"
    hub.add(kind, name, {".gitattributes": attributes.encode()}, private=private)
    return Answer(200, url)


def validate_yaml(hub: HubServer, request: dict[str, Any]) -> Answer:
    """Check that a card begins with YAML that can be read."""
    import yaml

    _, _, remainder = request["content"].partition("---\n")
    try:
        yaml.safe_load(remainder.partition("\n---\n")[0])
    except yaml.YAMLError as error:
        return Answer(400, {"errors": [{"message": str(error)}], "warnings": []})
    return Answer(200, {"errors": [], "warnings": []})


def preupload(repo: Repo, revision: str, body: bytes) -> Answer:
    """Say of each file how it is to be sent, and what is there under its name."""
    head = repo.at(revision)
    files = [
        {
            "path": file["path"],
            "uploadMode": "lfs" if is_lfs(file["path"], file["size"]) else "regular",
            "shouldIgnore": False,
            "oid": etag(file["path"], head[file["path"]]) if file["path"] in head else None,
        }
        for file in json.loads(body)["files"]
    ]
    return Answer(200, {"files": files})


def lfs_batch(hub: HubServer, request: dict[str, Any]) -> Answer:
    """Say where each large file is to be put; nowhere if it is there."""
    objects = []
    for entry in request["objects"]:
        entry = {"oid": entry["oid"], "size": entry["size"]}
        if entry["oid"] not in hub.large_files:
            entry["actions"] = {
                "upload": {"href": f"{hub.url}/lfs/{entry['oid']}"},
                "verify": {"href": f"{hub.url}/lfs/verify"},
            }
        objects.append(entry)
    return Answer(200, {"transfer": "basic", "objects": objects})


def lfs_put(hub: HubServer, oid: str, body: bytes) -> Answer:
    """Take a large file, if it is what it claims to be."""
    if sha256(body) != oid:
        return refusal(400, "the content is not what its id says")
    hub.large_files[oid] = body
    return Answer(200)


def lfs_verify(hub: HubServer, request: dict[str, Any]) -> Answer:
    """Confirm that a large file has arrived whole."""
    data = hub.large_files.get(request["oid"])
    is_complete = data is not None and len(data) == request["size"]
    return Answer(200) if is_complete else refusal(404, "no such object")


def commit(hub: HubServer, repo: Repo, revision: str, body: bytes) -> Answer:
    """Add a commit: all of its operations, or none."""
    lines = [json.loads(line) for line in body.splitlines()]
    header = lines[0]["value"]
    with hub.writing:
        parent = header.get("parentCommit")
        if parent is not None and parent != repo.refs[revision]:
            return refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.at(revision))
        for line in lines[1:]:
            problem = _OPERATIONS[line["key"]](hub, files, line["value"])
            if problem:
                return refusal(400, problem)
        oid = repo.commit(files, revision)
    hub.messages[oid] = header["summary"]
    url = f"{hub.url}/datasets/{repo.name}/commit/{oid}"
    return Answer(200, {"success": True, "commitOid": oid, "commitUrl": url})


def _add_file(hub: HubServer, files: dict[str, bytes], value: dict[str, Any]) -> str:
    files[value["path"]] = base64.b64decode(value["content"])
    return ""


def _add_large_file(hub: HubServer, files: dict[str, bytes], value: dict[str, Any]) -> str:
    data = hub.large_files.get(value["oid"]) or hub.xet.read(value["oid"], value["size"])
    if data is None:
        return f"{value['path']}: the large file was never uploaded"
    files[value["path"]] = data
    return ""


def _delete_file(hub: HubServer, files: dict[str, bytes], value: dict[str, Any]) -> str:
    return "" if files.pop(value["path"], None) is not None else f"no file {value['path']}"


def _delete_folder(hub: HubServer, files: dict[str, bytes], value: dict[str, Any]) -> str:
    inside = [path for path in files if path.startswith(value["path"].rstrip("/") + "/")]
    for path in inside:
        del files[path]
    return "" if inside else f"no folder {value['path']}"


_OPERATIONS: dict[str, Callable[[Any, dict[str, bytes], dict[str, Any]], str]] = {
    "file": _add_file,
    "lfsFile": _add_large_file,
    "deletedFile": _delete_file,
    "deletedFolder": _delete_folder,
}


def tag(hub: HubServer, repo: Repo, revision: str, body: bytes) -> Answer:
    """Name a commit for good."""
    name, commit_id = json.loads(body)["tag"], repo.resolve(revision)
    with hub.writing:
        if name in repo.refs:
            return refusal(409, f"Tag reference {name} already exists")
        assert commit_id is not None
        repo.refs[name] = commit_id
        repo.tags.add(name)
    return Answer(200, {"name": name})


def branch(hub: HubServer, repo: Repo, name: str, body: bytes) -> Answer:
    """Begin a branch at a commit, else at the head of ``main``."""
    if name in repo.refs:
        return refusal(409, f"Reference {name} already exists")
    start = json.loads(body or b"{}").get("startingPoint", "main")
    repo.refs[name] = repo.resolve(start) or repo.refs["main"]
    return Answer(200)


def settings(repo: Repo, body: bytes) -> Answer:
    """Open or close a repository."""
    repo.private = json.loads(body)["visibility"] == "private"
    return Answer(200, {"private": repo.private})
