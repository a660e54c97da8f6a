"""Push a sealed dataset to the Hub: one commit, one tag, then a check of the uploaded files.

A push that was stopped continues when it runs again:

- Large files are uploaded first, under the SHA-256 of their content. Readers see no change.
- The commit, which is atomic, names them. The tag comes last.
- The next push sends only missing data: with Xet, which the Hub's client includes, the missing
  chunks; with LFS (``HF_HUB_DISABLE_XET=1``), the missing files.

The check compares the SHA-256 of each file in both cases.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import InputError, SchemaError, UnavailableError
from fsdpo_data.core.lazy import hf, hf_errors
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.benchmark_problems import check_no_benchmark_problems
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.dataset.validate import validate
from fsdpo_data.hub.client import (
    HUB_TIMEOUT_SECONDS,
    HubRepo,
    answer_errors,
    call_hub,
    hub_errors,
)
from fsdpo_data.publish.readme import merge_card

ResultT = TypeVar("ResultT")

_VERSION_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")  #: Schema MAJOR.MINOR, and a number from 0.
#: Paths of files that a push may delete, because only a push writes them.
_DATA_FILE = re.compile(rf"({'|'.join(CONFIGS)})/[^/]+\.parquet")
CARD_FILE = "README.md"  #: File of the card in a repository.
MISSING_TOKEN = (
    "no token: pushing needs a token with write access. Make one in the Hub's settings, then set "
    "HF_TOKEN, or log in with `hf auth login`."
)
_READ_BLOCK_BYTES = 1 << 20
_HTTP_CONFLICT = 409  #: The Hub's status if a tag exists already.
_HTTP_PRECONDITION_FAILED = 412  #: The Hub's status if the parent commit is no longer the head.


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file to publish, from the disk or from memory."""

    path: str  #: Path in the repository.
    source: Path | bytes  #: File on disk, or the content.
    size: int  #: Size in bytes.
    #: The Hub's possible ids of the file: SHA-256 if it is large, git's blob id if it is small.
    hub_ids: frozenset[str]

    @classmethod
    def from_source(cls, path: str, source: Path | bytes) -> PublishedFile:
        """Compute the size and the ids of a file on disk or in memory."""
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        content_hash = hashlib.sha256()
        git_hash = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as stream:
            while block := stream.read(_READ_BLOCK_BYTES):
                content_hash.update(block)
                git_hash.update(block)
        hub_ids = frozenset({content_hash.hexdigest(), git_hash.hexdigest()})
        return cls(path=path, source=source, size=size, hub_ids=hub_ids)


@dataclass(frozen=True, slots=True)
class RemoteState:
    """The state of a dataset repository at one moment."""

    is_private: bool | None = None  #: Whether the repository is private; None if it is missing.
    #: Commit of the branch. A new branch starts at the commit of ``main``.
    head: str | None = None
    is_new_branch: bool = False  #: Whether the branch does not exist yet.
    file_ids: Mapping[str, str] = field(default_factory=dict)  #: The Hub's id of each file.
    tags: Mapping[str, str] = field(default_factory=dict)  #: Commit of each tag.
    readme: str = ""  #: Text of the README at the head; empty without one.

    @classmethod
    def read(cls, api: hf.HfApi, repo: HubRepo, branch: str) -> RemoteState:
        """Read the state of a repository; a missing repository has an empty state."""
        try:
            info: Any = api.dataset_info(repo.name, timeout=HUB_TIMEOUT_SECONDS)
        except hf_errors.GatedRepoError:  # a subclass of RepositoryNotFoundError, but it exists
            raise
        except hf_errors.RepositoryNotFoundError:
            return cls(is_new_branch=branch != "main")
        refs = api.list_repo_refs(repo.name, repo_type="dataset")
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        head = branches.get(branch, branches.get("main"))
        file_ids = remote_file_ids(api, repo, head) if head else {}
        return cls(
            is_private=info.private,
            head=head,
            is_new_branch=branch not in branches,
            file_ids=file_ids,
            tags={ref.name: ref.target_commit for ref in refs.tags},
            readme=_download_readme(api, repo, head) if head and CARD_FILE in file_ids else "",
        )

    @property
    def head_tag(self) -> str | None:
        """The latest version tag on the head; None without one."""
        head_tags = [name for name, commit in self.tags.items() if commit == self.head]
        return max(filter(_VERSION_TAG.fullmatch, head_tags), key=_version_number, default=None)

    def next_tag(self, schema_version: str) -> str:
        """Return the next version tag of a dataset, which starts with its schema version."""
        prefix = f"v{schema_version}."
        tags = [tag for tag in self.tags if _VERSION_TAG.fullmatch(tag) and tag.startswith(prefix)]
        numbers = [_version_number(tag)[-1] for tag in tags]
        return f"{prefix}{max(numbers, default=-1) + 1}"

    def changed_files(self, files: Sequence[PublishedFile]) -> tuple[PublishedFile, ...]:
        """Return the ``files`` that are missing or different at the head."""
        return tuple(file for file in files if self.file_ids.get(file.path) not in file.hub_ids)

    def obsolete_files(self, files: Sequence[PublishedFile]) -> tuple[str, ...]:
        """Return the paths of data files at the head that are not among ``files``."""
        new_paths = {file.path for file in files}
        data_paths = filter(_DATA_FILE.fullmatch, self.file_ids)
        return tuple(sorted(path for path in data_paths if path not in new_paths))


def _download_readme(api: hf.HfApi, repo: HubRepo, revision: str) -> str:
    """Return the text of the README at a revision."""
    file = api.hf_hub_download(repo.name, CARD_FILE, repo_type="dataset", revision=revision)
    return Path(file).read_text(encoding="utf-8", errors="replace")


def _version_number(tag: str) -> list[int]:
    """Return the numbers of a version tag."""
    return [int(number) for number in tag.removeprefix("v").split(".")]


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
    """The changes that a push will make."""

    repo: HubRepo  #: The dataset repository.
    branch: str  #: Branch that gets the commit.
    tag: str  #: Tag of the new version, or of the head if nothing changes.
    files: tuple[PublishedFile, ...]  #: All files of the version.
    uploads: tuple[PublishedFile, ...]  #: Files that are missing or different at the head.
    deletions: tuple[str, ...]  #: Data files at the head that the dataset no longer contains.
    remote: RemoteState  #: State of the repository when the plan was made.

    @property
    def has_changes(self) -> bool:
        """Whether the push makes a commit."""
        return bool(self.uploads or self.deletions)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the Hub has this version already, with its tag."""
        return not (self.has_changes or self.remote.is_new_branch) and self.tag in self.remote.tags


def plan_push(
    root: Path,
    name: str,
    *,
    branch: str = "main",
    remote: RemoteState | None = None,
    allow_benchmark: bool = False,
) -> PushPlan:
    """Check a dataset, read the state of the repository, and plan the push; nothing changes.

    Args:
        root: Directory of the dataset.
        name: Name of the repository, ``org/name``.
        branch: Branch that gets the commit.
        remote: State of the repository; read from the Hub if None.
        allow_benchmark: Whether the dataset may have benchmark problems.

    Raises:
        SchemaError: if the dataset is not valid.
        InputError: if ``name`` is not a repository name, the dataset has benchmark problems, or the
            manifest contains a token or a path of this machine.
        UnavailableError: if there is no token, or the Hub cannot be reached or refuses.
    """
    repo = HubRepo.parse(name, "dataset")
    if repo is None or repo.revision:
        raise InputError(
            f"{name!r} is not a repository name: expected org/name, with no @revision."
        )
    advice = f"push {root} again later; the push continues where it stopped"
    repo = replace(repo, required_access="write", custom_advice=advice)
    manifest = validate(root)
    if not allow_benchmark:
        check_no_benchmark_problems(root, manifest)
    _refuse_secrets(root, manifest)
    with hub_errors(repo):
        if remote is None:
            api = authenticated_hub_api()
            remote = call_hub(RemoteState.read, api, repo, branch)
            check_write_access(api, repo, exists=remote.is_private is not None)
        return _make_plan(root, manifest, repo=repo, branch=branch, remote=remote)


def authenticated_hub_api() -> hf.HfApi:
    """Return the Hub's client for a user with a token.

    Raises:
        UnavailableError: if there is no token.
    """
    if hf.get_token() is None:
        raise UnavailableError(MISSING_TOKEN)
    return hf.HfApi()


def check_write_access(api: hf.HfApi, repo: HubRepo, *, exists: bool) -> None:
    """Check that the token may write to a repository, or create it; nothing changes.

    Raises:
        UnavailableError: if the user is in no organisation that could own a new repository, or the
            token is for reading only.
    """
    if exists:
        call_hub(api.auth_check, repo.name, repo_type=repo.kind, write=True)
        return
    user: Any = call_hub(api.whoami)
    owner = repo.name.partition("/")[0]
    with answer_errors():
        owners = [user["name"], *(organisation["name"] for organisation in user["orgs"])]
        role = user.get("auth", {}).get("accessToken", {}).get("role")
    if owner not in owners:
        raise UnavailableError(
            f"{repo} does not exist, and your token may not create it: it belongs to "
            f"{owners[0]}, who is not in the organisation {owner}. Push to one of "
            f"{', '.join(f'{name}/…' for name in owners)}."
        )
    if role == "read":
        raise UnavailableError(
            f"{repo} does not exist, and your token is for reading only. Check that your token may "
            "write, or make another one in the Hub's settings."
        )


def _refuse_secrets(root: Path, manifest: Manifest) -> None:
    """Refuse to publish a manifest with a token or a path of this machine."""
    text = manifest.to_json()
    token = hf.get_token()
    if token and token in text:
        raise InputError(
            f"{root}/{MANIFEST_FILE} contains your token. Build the dataset again without it."
        )
    for local_path in (str(Path.home()) + os.sep, str(root.resolve())):
        if local_path in text:
            raise InputError(
                f"{root}/{MANIFEST_FILE} contains {local_path}, a path of this machine, which "
                "other users do not have. Build the dataset again with names instead of paths."
            )


def _make_plan(
    root: Path, manifest: Manifest, *, repo: HubRepo, branch: str, remote: RemoteState
) -> PushPlan:
    """Compare the files of the dataset with the repository."""
    paths = [*(entry.path for entry in manifest.files), MANIFEST_FILE]
    dataset_files = [PublishedFile.from_source(path, root / path) for path in paths]
    tag = remote.head_tag or remote.next_tag(manifest.schema_version)
    files = (*dataset_files, _make_card(root, manifest, repo, tag, remote.readme))
    if remote.changed_files(files) or remote.obsolete_files(files):
        # A new version needs a new card, because the card contains the tag.
        tag = remote.next_tag(manifest.schema_version) if tag in remote.tags else tag
        files = (*dataset_files, _make_card(root, manifest, repo, tag, remote.readme))
    return PushPlan(
        repo=repo,
        branch=branch,
        tag=tag,
        files=files,
        uploads=remote.changed_files(files),
        deletions=remote.obsolete_files(files),
        remote=remote,
    )


def _make_card(
    root: Path, manifest: Manifest, repo: HubRepo, tag: str, readme: str
) -> PublishedFile:
    """Return the card of a version, with the owner's text in the README of the repository."""
    card = dataset_card(root, manifest, name=repo.name, revision=tag)
    return PublishedFile.from_source(CARD_FILE, merge_card(card, readme).encode())


def push_dataset(plan: PushPlan, *, public: bool = False, progress: Progress) -> str:
    """Carry out a plan and return the commit of its tag.

    Args:
        plan: The plan.
        public: Make the repository public. Otherwise, a new repository is private, and the
            visibility of an existing repository does not change.
        progress: Receives the progress of the push.

    Raises:
        UnavailableError: if the Hub cannot be reached or refuses, or if another user has pushed
            after the plan was made. The repository is then unchanged.
        SchemaError: if the uploaded files differ from the dataset.
    """
    name = plan.repo.name
    remote = plan.remote
    with hub_errors(plan.repo):
        api = authenticated_hub_api()
        if remote.is_private is None:
            call_hub(api.create_repo, name, repo_type="dataset", private=not public, exist_ok=True)
        if remote.is_new_branch:
            call_hub(
                api.create_branch, name, repo_type="dataset", branch=plan.branch, exist_ok=True
            )
        progress.phase("upload", max(1, len(plan.uploads)))
        commit = _create_commit(api, plan) if plan.has_changes else str(remote.head)
        progress.advance(max(1, len(plan.uploads)))
        progress.phase("tag", 1)
        _create_tag(api, plan, commit)
        if public and remote.is_private:
            call_hub(api.update_repo_settings, name, repo_type="dataset", private=False)
        progress.advance(1)
        progress.phase("read back", len(plan.files))
        _check_uploaded_files(api, plan)
        progress.advance(len(plan.files))
    return commit


def _create_commit(api: hf.HfApi, plan: PushPlan) -> str:
    """Commit on top of the head that the plan was made for; return the new commit."""
    name = plan.repo.name
    operations: list[Any] = [hf.CommitOperationAdd(file.path, file.source) for file in plan.uploads]
    operations += [hf.CommitOperationDelete(path) for path in plan.deletions]
    parent = plan.remote.head
    if not parent:  # a repository that this push has created
        parent = call_hub(RemoteState.read, api, plan.repo, plan.branch).head
    try:
        commit_info = call_hub(
            api.create_commit,
            name,
            operations,
            commit_message=plan.tag,
            repo_type="dataset",
            revision=plan.branch,
            parent_commit=parent,
        )
        return str(commit_info.oid)
    except hf_errors.HfHubHTTPError as error:
        if error.response.status_code != _HTTP_PRECONDITION_FAILED:
            raise
    current = call_hub(RemoteState.read, api, plan.repo, plan.branch)
    # If the Hub's answer was lost, the new head is the commit of this push.
    is_complete = not current.changed_files(plan.files) and not current.obsolete_files(plan.files)
    if current.head and is_complete:
        return current.head
    raise UnavailableError(
        f"{name}: another user has pushed since this push began (branch {plan.branch} "
        f"is now at {current.head}). Your push made no commit. See {plan.repo.url}/commits, then "
        "push again; uploaded files are not sent twice."
    )


def _create_tag(api: hf.HfApi, plan: PushPlan, commit: str) -> None:
    """Tag the commit; an existing tag on the same commit is accepted."""
    name = plan.repo.name
    try:
        call_hub(api.create_tag, name, tag=plan.tag, revision=commit, repo_type="dataset")
    except hf_errors.HfHubHTTPError as error:
        if error.response.status_code != _HTTP_CONFLICT:
            raise
        refs = call_hub(api.list_repo_refs, name, repo_type="dataset")
        commits_by_tag = {ref.name: ref.target_commit for ref in refs.tags}
        if commits_by_tag.get(plan.tag) != commit:
            raise UnavailableError(
                f"{name}: another user has created the tag {plan.tag} meanwhile. Your "
                f"files are on {plan.branch} at {commit}. Push again to get a new tag."
            ) from None


def _check_uploaded_files(api: hf.HfApi, plan: PushPlan) -> None:
    """Compare the files under the tag with the dataset by their digests."""
    file_ids = call_hub(remote_file_ids, api, plan.repo, plan.tag)
    tagged = RemoteState(file_ids=file_ids)
    different_paths = [file.path for file in tagged.changed_files(plan.files)]
    different_paths += tagged.obsolete_files(plan.files)
    if different_paths:
        raise SchemaError(
            f"{plan.repo.name}@{plan.tag} differs from the dataset in these files: "
            f"{', '.join(different_paths)}. Push again, and do not use that revision."
        )
