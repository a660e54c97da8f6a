"""Push a sealed dataset to the Hub: one commit and one tag, then read back. Run again, it goes on.

Large files go first, each under the SHA-256 of its content, and change nothing that anybody reads;
the commit that names them is all or nothing; the tag comes last. So a push that is stopped leaves
the repository as it was, and the next one sends what is missing: by Xet, which comes with the Hub's
client, the chunks that the Hub lacks; by LFS (``HF_HUB_DISABLE_XET=1``), the files. What is read
back is compared by the same SHA-256 either way.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import InputError, SchemaError, UnavailableError
from fsdpo_data.core.lazy import hf, hf_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.retry import RETRYABLE_STATUSES, retry_delay
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import MANIFEST_FILE
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION
from fsdpo_data.dataset.validate import validate
from fsdpo_data.hub.client import HUB_TIMEOUT_SECONDS, HubRepo, hub_errors

T = TypeVar("T")

_TAG = re.compile(rf"v{SCHEMA_VERSION}\.(\d+)")
#: Files of a repository that a push may remove: those that an earlier push may have written.
_OURS = re.compile(rf"({'|'.join(CONFIGS)})/[^/]+\.parquet")
_ATTEMPTS = 5  #: Failures after which a call is made once more, and for the last time.
#: What most calls of the Hub's client want to be told.
_DATASET: dict[str, Any] = {"repo_type": "dataset"}


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file to publish, from the disk or made on the spot."""

    path: str  #: Its path in the repository.
    source: Path | bytes  #: Where it is, or its bytes.
    size: int  #: In bytes.
    hub_ids: frozenset[str]  #: The Hub's names for it: SHA-256 if it is large, git's id if small.

    @classmethod
    def from_source(cls, path: str, source: Path | bytes) -> PublishedFile:
        """Describe a file that is on disk, or only in memory."""
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        large, small = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as opened:
            while block := opened.read(1 << 20):
                large.update(block)
                small.update(block)
        return cls(path, source, size, frozenset({large.hexdigest(), small.hexdigest()}))


@dataclass(frozen=True, slots=True)
class RemoteState:
    """A dataset repository at one moment."""

    is_private: bool | None = None  #: Whether strangers may not read it; None if it does not exist.
    head: str | None = None  #: Commit of the branch; that of ``main``, where it starts, if new.
    is_new_branch: bool = False  #: Whether the branch is still to be made.
    file_ids: Mapping[str, str] = field(
        default_factory=dict
    )  #: The Hub's ids of files at ``head``.
    tags: Mapping[str, str] = field(default_factory=dict)  #: Commits by tag.

    @classmethod
    def read(cls, api: hf.HfApi, repo: HubRepo, branch: str) -> RemoteState:
        """Look at a repository; one that does not exist is empty."""
        try:
            info: Any = api.dataset_info(repo.name, timeout=HUB_TIMEOUT_SECONDS)
        except hf_errors.GatedRepoError:  # a kind of RepositoryNotFoundError, but it is there
            raise
        except hf_errors.RepositoryNotFoundError:
            return cls(is_new_branch=branch != "main")
        refs = api.list_repo_refs(repo.name, repo_type="dataset")
        branches = {each.name: each.target_commit for each in refs.branches}
        head = branches.get(branch, branches.get("main"))
        tags = {each.name: each.target_commit for each in refs.tags}
        files = remote_file_ids(api, repo, head) if head else {}
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

    def changed_files(self, contents: Sequence[PublishedFile]) -> tuple[PublishedFile, ...]:
        """Return those of ``contents`` that the head lacks, or has otherwise."""
        return tuple(each for each in contents if self.file_ids.get(each.path) not in each.hub_ids)

    def obsolete_files(self, contents: Sequence[PublishedFile]) -> tuple[str, ...]:
        """Return the data files of the head that are not among ``contents``."""
        wanted = {each.path for each in contents}
        return tuple(sorted(p for p in self.file_ids if _OURS.fullmatch(p) and p not in wanted))


def _number(tag: str) -> int:
    return int(tag.rpartition(".")[2])


def remote_file_ids(api: hf.HfApi, repo: HubRepo, revision: str) -> dict[str, str]:
    """Return the Hub's id of each file at a revision."""
    entries = api.list_repo_tree(repo.name, repo_type="dataset", revision=revision, recursive=True)
    return {
        entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id
        for entry in entries
        if isinstance(entry, hf.RepoFile)
    }


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push will do."""

    repo: HubRepo  #: Where to.
    branch: str  #: Branch that gets the commit.
    tag: str  #: Name of the new version; that of the head if there is nothing to commit.
    files: tuple[PublishedFile, ...]  #: Every file of the version.
    uploads: tuple[PublishedFile, ...]  #: Those that the head lacks, or has otherwise.
    deletions: tuple[str, ...]  #: Data files of the head that are no longer part of the dataset.
    remote: RemoteState  #: What the plan was made for.

    @property
    def has_changes(self) -> bool:
        """Whether anything is to be committed."""
        return bool(self.uploads or self.deletions)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the Hub has this version already, tag and all."""
        return not (self.has_changes or self.remote.is_new_branch) and self.tag in self.remote.tags


def plan_push(
    root: Path, name: str, *, branch: str = "main", remote: RemoteState | None = None
) -> PushPlan:
    """Check a dataset, look at the Hub, and say what a push would do; nothing is changed.

    ``remote`` is what is there; the Hub is asked if None.

    Raises:
        SchemaError: if the dataset is not valid.
        InputError: if ``name`` is no repository name, or the manifest holds what nobody may see.
        Unavailable: if there is no token, or the Hub cannot be reached or refuses.
    """
    repo = HubRepo.parse(name, "dataset")
    if repo is None or repo.revision:
        raise InputError(f"{name!r} is no repository name: expected org/name, with no @revision.")
    way_out = f"push {root} again later: it goes on where it stopped"
    repo = replace(repo, required_access="write", advice=way_out)
    manifest = validate(root)
    _refuse_secrets(root, manifest)
    with hub_errors(repo):
        if remote is None:
            remote = call_with_retries(RemoteState.read, authenticated_hub_api(), repo, branch)
        return _plan(repo, branch, root, manifest, remote)


def authenticated_hub_api() -> hf.HfApi:
    """Return the Hub's client of somebody who has a token; Unavailable without one."""
    if hf.get_token() is None:
        raise UnavailableError(
            "no token: pushing needs one that may write. Make one in the Hub's settings, then set "
            "HF_TOKEN, or log in with `hf auth login`."
        )
    return hf.HfApi()


def _refuse_secrets(root: Path, manifest: Manifest) -> None:
    """Refuse to publish a token or a path of this machine."""
    text = manifest.to_json()
    token = hf.get_token()
    if token and token in text:
        raise InputError(
            f"{root}/{MANIFEST_FILE} holds your token. Build the dataset again without it."
        )
    for place in (str(Path.home()) + os.sep, str(root.resolve())):
        if place in text:
            raise InputError(
                f"{root}/{MANIFEST_FILE} names {place}, a path of this machine, which nobody else can "
                "use. Build the dataset again with names in place of paths."
            )


def _plan(
    repo: HubRepo, branch: str, root: Path, manifest: Manifest, remote: RemoteState
) -> PushPlan:
    paths = [*(entry.path for entry in manifest.files), MANIFEST_FILE]
    files = [PublishedFile.from_source(path, root / path) for path in paths]
    tag = remote.head_tag or remote.next_tag
    contents = (*files, _card(root, manifest, repo, tag))
    if tag in remote.tags and (remote.changed_files(contents) or remote.obsolete_files(contents)):
        tag = remote.next_tag
        contents = (*files, _card(root, manifest, repo, tag))
    send, remove = remote.changed_files(contents), remote.obsolete_files(contents)
    return PushPlan(repo, branch, tag, contents, send, remove, remote)


def _card(root: Path, manifest: Manifest, repo: HubRepo, tag: str) -> PublishedFile:
    card = dataset_card(root, manifest, name=repo.name, revision=tag)
    return PublishedFile.from_source("README.md", card.encode())


def push_dataset(plan: PushPlan, *, public: bool = False, progress: Progress) -> str:
    """Carry out a plan; return the commit that the tag names.

    A new repository is private unless ``public``; one that exists stays as it is unless so.

    Raises:
        Unavailable: if the Hub cannot be reached or refuses, or if somebody else has pushed since
            the plan was made. The repository is then as it was.
        SchemaError: if what is read back is not what was sent.
    """
    with hub_errors(plan.repo):
        api = authenticated_hub_api()
        name, remote = plan.repo.name, plan.remote
        if remote.is_private is None:
            call_with_retries(api.create_repo, name, private=not public, exist_ok=True, **_DATASET)
        if remote.is_new_branch:
            call_with_retries(
                api.create_branch, name, branch=plan.branch, exist_ok=True, **_DATASET
            )
        progress.phase("upload", max(1, len(plan.uploads)))
        commit = _commit(api, plan) if plan.has_changes else str(remote.head)
        progress.advance(max(1, len(plan.uploads)))
        progress.phase("tag", 1)
        _tag(api, plan, commit)
        if public and remote.is_private:
            call_with_retries(api.update_repo_settings, name, private=False, **_DATASET)
        progress.advance(1)
        progress.phase("read back", len(plan.files))
        _read_back(api, plan)
        progress.advance(len(plan.files))
    return commit


def _commit(api: hf.HfApi, plan: PushPlan) -> str:
    """Commit on top of what the plan was made for; return the commit."""
    name = plan.repo.name
    operations: list[Any] = [hf.CommitOperationAdd(each.path, each.source) for each in plan.uploads]
    operations += [hf.CommitOperationDelete(path) for path in plan.deletions]
    parent = (
        plan.remote.head or call_with_retries(RemoteState.read, api, plan.repo, plan.branch).head
    )
    options = {"commit_message": plan.tag, "revision": plan.branch, "parent_commit": parent}
    try:
        return str(
            call_with_retries(api.create_commit, name, operations, **options, **_DATASET).oid
        )
    except hf_errors.HfHubHTTPError as error:
        if error.response.status_code != 412:
            raise
    now = call_with_retries(RemoteState.read, api, plan.repo, plan.branch)
    # If the Hub's answer was lost, our own commit looks like somebody else's.
    if now.head and not now.changed_files(plan.files) and not now.obsolete_files(plan.files):
        return now.head
    raise UnavailableError(
        f"{name}: somebody else has pushed since this push began (branch {plan.branch} "
        f"is now at {now.head}). Nothing of yours was committed. See {plan.repo.url}/commits, then "
        "push again; files that arrived are not sent twice."
    )


def _tag(api: hf.HfApi, plan: PushPlan, commit: str) -> None:
    name = plan.repo.name
    try:
        call_with_retries(api.create_tag, name, tag=plan.tag, revision=commit, **_DATASET)
    except hf_errors.HfHubHTTPError as error:
        if error.response.status_code != 409:
            raise
        refs = api.list_repo_refs(name, **_DATASET)
        if {each.name: each.target_commit for each in refs.tags}[plan.tag] != commit:
            raise UnavailableError(
                f"{name}: somebody else has taken the tag {plan.tag} meanwhile. Your "
                f"files are on {plan.branch} at {commit}. Push again to have them tagged."
            ) from None


def _read_back(api: hf.HfApi, plan: PushPlan) -> None:
    """Compare what the Hub has under the tag with what was sent, digest by digest."""
    there = RemoteState(file_ids=call_with_retries(remote_file_ids, api, plan.repo, plan.tag))
    wrong = [each.path for each in there.changed_files(plan.files)]
    wrong += there.obsolete_files(plan.files)
    if wrong:
        raise SchemaError(
            f"{plan.repo.name}@{plan.tag} is not what was sent; these files differ: "
            f"{', '.join(wrong)}. Push again, and do not use that revision."
        )


def call_with_retries(action: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call a function, and again while the Hub is too busy, for as long as it asks to wait."""
    for attempt in range(_ATTEMPTS):
        try:
            return action(*arguments, **options)
        except hf_errors.HfHubHTTPError as error:
            if error.response.status_code not in RETRYABLE_STATUSES:
                raise
            time.sleep(retry_delay(error.response.headers.get("Retry-After", ""), attempt))
    return action(*arguments, **options)
