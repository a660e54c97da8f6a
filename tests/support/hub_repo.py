"""A repository on the loopback Hub: commits, refs, and file listings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Suffixes that the Hub keeps in large-file storage whatever their size (its ``.gitattributes``).
LFS_SUFFIXES = (".parquet", ".safetensors", ".bin", ".arrow", ".zip")
LFS_SIZE = 10_000_000


@dataclass
class Repo:
    """A repository: commits, each a full set of files, and branches and tags that name them."""

    kind: str
    name: str
    gated: bool = False
    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit with exactly these files to ``branch``; return its hash."""
        file_hashes = sorted((path, hashlib.sha1(data).hexdigest()) for path, data in files.items())
        parent = self.refs.get(branch, "")
        sha = hashlib.sha1(repr((self.name, parent, file_hashes)).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """Return the commit of a branch, tag or commit id."""
        return revision if revision in self.commits else self.refs.get(revision)

    def at(self, revision: str = "main") -> dict[str, bytes]:
        """Return the files of a revision that exists."""
        commit = self.resolve(revision)
        assert commit is not None, revision
        return self.commits[commit]


def is_lfs(path: str, size: int) -> bool:
    """Whether the Hub keeps a file in large-file storage."""
    return path.endswith(LFS_SUFFIXES) or size > LFS_SIZE


def git_blob(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    """Return the id of a file in large-file storage."""
    return hashlib.sha256(data).hexdigest()


def etag(path: str, data: bytes) -> str:
    """Return the ETag of a file."""
    return sha256(data) if is_lfs(path, len(data)) else git_blob(data)


def info(repo: Repo, commit: str) -> dict[str, object]:
    """Return the Hub's description of a repository at a commit."""
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
        "siblings": [{"rfilename": path} for path in sorted(repo.commits[commit])],
    }


def refs(repo: Repo) -> dict[str, object]:
    """Return branches and tags as the Hub lists them."""
    refs_by_kind: dict[str, list[dict[str, str]]] = {"branches": [], "tags": []}
    for name, commit in repo.refs.items():
        kind, path = ("tags", "tags") if name in repo.tags else ("branches", "heads")
        refs_by_kind[kind].append(
            {"name": name, "ref": f"refs/{path}/{name}", "targetCommit": commit}
        )
    return {**refs_by_kind, "converts": []}


def entries(files: Mapping[str, bytes], path: str) -> list[dict[str, object]]:
    """Return the listing entry of a file or folder; nothing if there is neither."""
    if path in files:
        return [_file_entry(path, files[path])]
    if any(name.startswith(f"{path}/") for name in files):
        return [{"type": "directory", "path": path, "oid": git_blob(path.encode()), "size": 0}]
    return []


def _file_entry(path: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(data)}
    if not is_lfs(path, len(data)):
        return {**entry, "oid": git_blob(data)}
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\n"
    pointer += f"size {len(data)}\n"
    lfs = {"oid": sha256(data), "size": len(data), "pointerSize": len(pointer)}
    return {**entry, "oid": git_blob(pointer.encode()), "lfs": lfs}


def tree(files: Mapping[str, bytes], folder: str, recursive: bool) -> list[dict[str, object]]:
    """Return the listing of a folder."""
    prefix = f"{folder}/" if folder else ""
    inside = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
    names = {part for path in inside for part in _parts(path, recursive)}
    return [entry for name in sorted(names) for entry in entries(files, prefix + name)]


def _parts(path: str, recursive: bool) -> list[str]:
    pieces = path.split("/")
    depth = len(pieces) if recursive else 1
    return ["/".join(pieces[: i + 1]) for i in range(depth)]
