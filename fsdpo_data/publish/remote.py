"""What a dataset repository holds, and how that differs from what is here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.identity import file_sha256
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION
from fsdpo_data.hub.client import TIMEOUT, HubRepo

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_TAG = re.compile(rf"v{SCHEMA_VERSION}\.(\d+)")
#: Files of a repository that a push may remove: those that an earlier push may have written.
_OURS = re.compile(rf"({'|'.join(CONFIGS)})/[^/]+\.parquet")


@dataclass(frozen=True, slots=True)
class Content:
    """A file to publish, from the disk or made on the spot."""

    path: str  #: Its path in the repository.
    source: Path | bytes  #: Where it is, or its bytes.
    size: int  #: In bytes.
    #: The names the Hub may know it by: SHA-256 if it is large, git's id if it is small.
    ids: frozenset[str]

    @classmethod
    def of_file(cls, root: Path, path: str) -> Content:
        """Describe ``root / path``."""
        file = root / path
        size = file.stat().st_size
        git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                git.update(block)
        return cls(path, file, size, frozenset({file_sha256(file), git.hexdigest()}))

    @classmethod
    def of_bytes(cls, path: str, data: bytes) -> Content:
        """Describe a file that is only in memory."""
        git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
        ids = {hashlib.sha256(data).hexdigest(), git.hexdigest()}
        return cls(path, data, len(data), frozenset(ids))


@dataclass(frozen=True, slots=True)
class Remote:
    """A dataset repository at one moment."""

    private: bool | None = None  #: Whether strangers may not read it; None if it does not exist.
    #: Commit of the branch; that of ``main``, from which it will start, if it is new.
    head: str | None = None
    new_branch: bool = False  #: Whether the branch is still to be made.
    #: The Hub's id of each file at ``head``.
    files: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)  #: Commits by tag.

    @classmethod
    def read(cls, api: HfApi, repo: HubRepo, branch: str) -> Remote:
        """Look at a repository; one that does not exist is empty."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        try:
            info: Any = api.dataset_info(repo.name, timeout=TIMEOUT)
        except GatedRepoError:  # a kind of RepositoryNotFoundError, but it is there
            raise
        except RepositoryNotFoundError:
            return cls(new_branch=branch != "main")
        refs = api.list_repo_refs(repo.name, repo_type="dataset")
        branches = {each.name: each.target_commit for each in refs.branches}
        head = branches.get(branch, branches.get("main"))
        tags = {each.name: each.target_commit for each in refs.tags}
        files = listing(api, repo, head) if head else {}
        return cls(info.private, head, branch not in branches, files, tags)

    @property
    def head_tag(self) -> str | None:
        """Return the latest tag of ours on the head; None if there is none."""
        here = [name for name, commit in self.tags.items() if commit == self.head]
        return max(filter(_TAG.fullmatch, here), key=_number, default=None)

    @property
    def next_tag(self) -> str:
        """Return the first free tag after all of ours."""
        taken = [_number(name) for name in self.tags if _TAG.fullmatch(name)]
        return f"v{SCHEMA_VERSION}.{max(taken, default=-1) + 1}"

    def changed(self, contents: Sequence[Content]) -> tuple[Content, ...]:
        """Return those of ``contents`` that the head lacks, or has otherwise."""
        return tuple(each for each in contents if self.files.get(each.path) not in each.ids)

    def surplus(self, contents: Sequence[Content]) -> tuple[str, ...]:
        """Return the data files of the head that are not among ``contents``."""
        wanted = {each.path for each in contents}
        return tuple(sorted(p for p in self.files if _OURS.fullmatch(p) and p not in wanted))


def _number(tag: str) -> int:
    return int(tag.rpartition(".")[2])


def listing(api: HfApi, repo: HubRepo, revision: str) -> dict[str, str]:
    """Return the Hub's id of each file at a revision."""
    from huggingface_hub import RepoFile

    entries = api.list_repo_tree(repo.name, repo_type="dataset", revision=revision, recursive=True)
    return {
        entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id
        for entry in entries
        if isinstance(entry, RepoFile)
    }
