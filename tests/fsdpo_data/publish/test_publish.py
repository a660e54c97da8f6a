"""Tests of publishing: one commit and one tag on a Hub, even after failures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers import seal_json
from hub_repo import Repo
from hub_server import (
    READ_TOKEN,
    TOKEN,
    HubServer,
    client_env,
    run_client,
    run_new_client,
    running_hub,
)
from paired_data import paired_dataset

from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.publish.readme import merge_card

#: The file that only a push writes, because it contains the name and the tag.
CARD = "README.md"
COMMANDS = """
import contextlib, io, json, sys
from fsdpo_data.cli.app import main
for arguments in {commands!r}:
    sys.argv = ["fsdpo-data", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a later version of ``dataset``: the same solutions with other rewards."""
    return paired_dataset(tmp_path_factory.mktemp("changed"), salt="2")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def run(
    hub: HubServer | str,
    home: Path,
    *commands: Sequence[str | Path],
    token: str = TOKEN,
    run_code: Callable[..., subprocess.CompletedProcess[str]] = run_client,
    **env: str,
) -> list[tuple[int, str, str]]:
    """Run commands of ``fsdpo-data`` in one process; return their exit codes and output."""
    command_lines = [[str(argument) for argument in command] for command in commands]
    endpoint = hub if isinstance(hub, str) else hub.url
    env = client_env(endpoint, home, **({"HF_TOKEN": token} if token else {}), **env)
    ran = run_code(COMMANDS.format(commands=command_lines), env)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
    return [tuple(json.loads(line)) for line in ran.stdout.splitlines()]


def repo_of(hub: HubServer) -> Repo:
    return hub.repos["dataset", "o/r"]


def our_files(dataset: Path) -> set[str]:
    paths = {path.relative_to(dataset).as_posix() for path in dataset.glob("*/*.parquet")}
    return paths | {CARD, "manifest.json"}


def test_datasets_of_the_hub_have_urls(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    url = "hf://datasets/o/r"
    ran = run(
        hub,
        tmp_path / "home",
        ["push", dataset, "o/r"],
        ["validate", url],
        ["validate", f"{url}@v1.0.0"],
        ["grade", url, "--out", "hf://datasets/o/r/graded"],
        ["validate", "hf://datasets/o/r/graded"],
        ["push", f"{url}/graded", "o/graded"],
        **cache,
    )
    assert [code for code, _, _ in ran] == [0] * len(ran), ran
    files = repo_of(hub).at("main")
    assert {"graded/manifest.json", "manifest.json"} <= set(files)


def test_push_then_load_then_pull(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    (dry, first, again), out = (
        run(
            hub,
            tmp_path / "home",
            ["push", dataset, "o/r", "--dry-run"],
            ["push", dataset, "o/r"],
            ["push", dataset, "o/r"],
        ),
        tmp_path / "out",
    )
    assert dry[0] == 0 and f"new private dataset {hub.url}/datasets/o/r" in dry[1]
    assert "  add " in dry[1] and "solutions/train-00000-of-00001.parquet" in dry[1]
    assert first[0] == 0, first[2]
    repo = repo_of(hub)
    assert repo.private and repo.refs["main"] == repo.refs["v1.0.0"]
    assert set(repo.at("v1.0.0")) == our_files(dataset) | {".gitattributes"}
    assert len(repo.commits) == 2  # the Hub's own, and one
    assert (
        again[1].strip() == f"{hub.url}/datasets/o/r is up to date: v1.0.0 at " + repo.refs["main"]
    )

    code = (
        "from datasets import load_dataset\n"
        "for config in ('problems', 'solutions', 'pairs'):\n"
        "    rows = load_dataset('o/r', config, split='train', revision='v1.0.0')\n"
        "    streamed = load_dataset('o/r', config, revision='v1.0.0', streaming=True)['train']\n"
        "    assert list(streamed) == list(rows)\n"
        "    print(config, len(rows))\n"
    )
    loaded = run_client(code, client_env(hub.url, tmp_path / "loader", HF_TOKEN=TOKEN))
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split() == ["problems", "3", "solutions", "12", "pairs", "12"]

    (pulled,) = run(hub, tmp_path / "other", ["pull", "o/r@v1.0.0", "--out", out])
    assert pulled[0] == 0, pulled[2]
    for path in our_files(dataset) - {CARD}:
        assert (out / path).read_bytes() == (dataset / path).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"home", "loader", "other", "out"}


def test_only_what_changed_is_sent(
    hub: HubServer, dataset: Path, changed: Path, tmp_path: Path
) -> None:
    assert run(hub, tmp_path / "home", ["push", dataset, "o/r"])[0][0] == 0
    repo = repo_of(hub)
    stale = repo.commit({**repo.at(), "pairs/old.parquet": b"stale", "notes.txt": b"theirs"})
    (answer,) = run(hub, tmp_path / "home", ["push", changed, "o/r"])
    assert answer[0] == 0, answer[2]
    lines = {tuple(line.split()) for line in answer[1].splitlines()}
    assert ("remove", "pairs/old.parquet") in lines
    assert not [line for line in lines if "problems/train-00000-of-00001.parquet" in line]
    assert repo.resolve("v1.0.1") == repo.refs["main"] != stale
    assert set(repo.at("v1.0.1")) == our_files(changed) | {".gitattributes", "notes.txt"}
    assert repo.at("v1.0.0") != repo.at("v1.0.1")
    card = repo.at("v1.0.1")["README.md"].decode()
    assert 'load_dataset("o/r", "solutions", split="train", revision="v1.0.1")' in card


def test_a_stopped_push_goes_on(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    hub.fail("/commit/", 400, times=1)
    hub.fail("/tag/", 400, times=1)
    before_commit, before_tag, complete = run(
        hub, tmp_path / "home", *[["push", dataset, "o/r"]] * 3
    )
    assert before_commit[0] == before_tag[0] == 1
    assert f"push {dataset} again later; the push continues where it stopped" in before_commit[2]
    assert complete[0] == 0, complete[2]
    assert repo_of(hub).refs["v1.0.0"] == repo_of(hub).refs["main"]
    assert len([request for request in hub.requests if request.startswith("PUT /lfs/")]) == 3


def test_a_busy_hub_is_waited_for(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    for part in ("GET /api/datasets", "/repos/create", "/preupload/", "/commit/", "/tag/"):
        hub.fail(part, 429, times=2, Retry_After="0")
    hub.cut("PUT /lfs/", body_bytes=500, times=2)
    (answer,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
    assert answer[0] == 0, answer[2]
    assert set(repo_of(hub).at("v1.0.0")) == our_files(dataset) | {".gitattributes"}


def test_large_files_go_by_xet_where_it_is_installed(
    hub: HubServer, dataset: Path, changed: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hf_xet", reason="comes with huggingface-hub, but not everywhere")
    xet = {"HF_HUB_DISABLE_XET": "0"}
    hub.fail("/commit/", 400, times=1)
    push = ["push", dataset, "o/r"]
    stopped, complete = run(hub, tmp_path / "home", push, push, **xet)
    assert stopped[0] == 1 and complete[0] == 0, complete[2]
    change = ["push", changed, "o/r"]
    later, repeated = run(hub, tmp_path / "home", change, change, **xet)
    assert later[0] == 0 and "is up to date: v1.0.1" in repeated[1]
    assert set(repo_of(hub).at("v1.0.0")) == our_files(dataset) | {".gitattributes"}
    for version, source in (("v1.0.0", dataset), ("v1.0.1", changed)):
        for path in our_files(source) - {CARD}:
            assert repo_of(hub).at(version)[path] == (source / path).read_bytes()
    assert not [request for request in hub.requests if "/lfs/" in request]
    pull = ["pull", "o/r@v1.0.0", "--out", tmp_path / "out"]
    assert run(hub, tmp_path / "other", pull, **xet)[0][0] == 0


def test_a_hub_that_stays_busy(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    hub.fail("/commit/", 429, Retry_After="0")
    (answer,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
    assert answer[0] == 1
    assert "answered 429 for dataset o/r. The Hub limits the rate" in answer[2]
    assert set(repo_of(hub).at()) == {".gitattributes"}


def test_answers_that_are_not_from_a_hub(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    """The Hub client raises errors of decoders and missing keys."""
    hub.add("dataset", "o/r", {".gitattributes": b""})
    for request, body in (("/refs", b"\xff"), ("/tree", b"[[]]"), ("/commit/", b"{}")):
        hub.changed_bodies.clear()
        hub.changed_bodies[request] = lambda _, body=body: body  # type: ignore[misc]
        (answer,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
        assert answer[0] == 1 and "answers, but not like a Hugging Face Hub" in answer[2]


def test_a_missing_answer_is_not_another_push(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    """The commit succeeds, but the client receives a 503, and a 412 for its second attempt."""
    repo = hub.add("dataset", "o/r", {".gitattributes": b""})
    files: dict[str, bytes] = {}

    def commit_and_fail() -> None:
        del hub.hooks["/commit/"]
        paths = our_files(dataset) - {CARD}
        data = {path: (dataset / path).read_bytes() for path in paths}
        files.update(data, **{CARD: merge_card(card).encode()})
        repo.commit(files)

    manifest = read_manifest(dataset)
    card = dataset_card(dataset, manifest, name="o/r", revision="v1.0.0")
    hub.hooks["/commit/"] = commit_and_fail
    (answer,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
    assert answer[0] == 0, answer[2]
    assert repo.at("v1.0.0") == files


def test_one_of_two_pushes_wins_and_the_other_fails(
    hub: HubServer, dataset: Path, changed: Path, tmp_path: Path
) -> None:
    hub.add("dataset", "o/r", {".gitattributes": b""})
    # Both have seen the same head before either commits.
    hub.hooks["/commit/"] = threading.Barrier(2).wait
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(
                run,
                hub,
                tmp_path / source.parent.name,
                ["push", source, "o/r"],
                run_code=run_new_client,
            )
            for source in (dataset, changed)
        ]
        ended = [answer.result()[0] for answer in answers]
    assert sorted(code for code, _, _ in ended) == [0, 1]
    lost = next(err for code, _, err in ended if code)
    repo = repo_of(hub)
    assert (
        f"another user has pushed since this push began (branch main is now at {repo.refs['main']}"
        in lost
    )
    winner = (dataset, changed)[[code for code, _, _ in ended].index(0)]
    assert repo.at("v1.0.0")["manifest.json"] == (winner / "manifest.json").read_bytes()
    assert len(repo.commits) == 2


@pytest.mark.proof  # the Hub's client waits half a minute in vain
def test_an_upload_that_is_cut_for_good_changes_nothing(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    hub.cut("PUT /lfs/", body_bytes=500)
    (stopped,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
    assert stopped[0] == 1
    assert f"cannot reach the Hugging Face Hub at {hub.url} for dataset o/r" in stopped[2]
    assert f"push {dataset} again later; the push continues where it stopped" in stopped[2]
    assert set(repo_of(hub).at()) == {".gitattributes"} and not repo_of(hub).tags


def test_who_may_not_push(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    push = ["push", dataset, "o/r"]
    (nobody,) = run(hub, tmp_path / "a", push, token="")
    (wrong,) = run(hub, tmp_path / "b", push, token="hf_wrong")
    (reader,) = run(hub, tmp_path / "c", push, token=READ_TOKEN)
    assert "no token: pushing needs a token with write access." in nobody[2]
    assert "answered 401" in wrong[2] and "check that your token is still valid" in wrong[2]
    assert "your token is for reading only. Check that your token may write" in reader[2]
    assert not hub.repos
    hub.add("dataset", "o/gated", {"README.md": b""}, gated=True)
    (gated,) = run(hub, tmp_path / "d", ["pull", "o/gated"], token="")
    assert "dataset o/gated is gated: ask for access" in gated[2]


def test_without_a_network(dataset: Path, tmp_path: Path) -> None:
    with running_hub() as gone:
        pass
    (push, pull) = run(gone.url, tmp_path / "home", ["push", dataset, "o/r"], ["pull", "o/r"])
    for code, _, err in (push, pull):
        assert code == 1
        assert f"cannot reach the Hugging Face Hub at {gone.url} for dataset o/r" in err


def test_a_dry_run_needs_no_token(dataset: Path, tmp_path: Path) -> None:
    """A first try lists the files that a push would send, and says what the push needs."""
    with running_hub() as gone:
        pass
    (dry,) = run(gone.url, tmp_path, ["push", dataset, "o/r", "--dry-run"], token="")
    assert dry[0] == 0 and "new private dataset" in dry[1] and "manifest.json" in dry[1]
    assert "warning: planned as a first push, without the Hub: no token" in dry[2]


def test_a_dry_run_refuses_what_the_push_refuses(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    """The plan of a first push comes before the refusal, and nothing is sent."""
    with running_hub() as gone:
        pass
    hub.add("dataset", "o/theirs", {"README.md": b""})
    for url, name, token, refusal in (
        (gone.url, "o/r", TOKEN, "cannot reach the Hugging Face Hub"),
        (hub.url, "o/r", READ_TOKEN, "your token is for reading only"),
        (hub.url, "x/r", TOKEN, "who is not in the organisation x"),
        (hub.url, "o/theirs", READ_TOKEN, "answered 403"),
    ):
        line = ["push", dataset, name]
        dry, wet = run(url, tmp_path / "home", [*line, "--dry-run"], line, token=token)
        assert dry[0] == wet[0] == 1
        assert refusal in dry[2] and refusal in wet[2], dry[2]
        assert "this is the plan of a first push" in dry[1] and "manifest.json" in dry[1]
    assert set(hub.repos) == {("dataset", "o/theirs")}
    (dry,) = run(hub, tmp_path / "home", ["push", dataset, "o/r", "--dry-run"])
    assert dry[0] == 0 and "new private dataset" in dry[1] and ("dataset", "o/r") not in hub.repos


OWN_README = """---
license: cc0-1.0
paper: my-paper
---
# My dataset

My own section.
"""


def test_the_text_of_the_owner_stays_in_the_readme(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    repo = hub.add("dataset", "o/r", {CARD: OWN_README.encode()})
    push = ["push", dataset, "o/r"]
    assert run(hub, tmp_path / "home", push)[0][0] == 0
    readme = repo.at()[CARD].decode()
    assert readme.endswith("# My dataset\n\nMy own section.\n")
    assert "paper: my-paper\n" in readme and "load_dataset" in readme
    assert readme.count("license: ") == readme.count("license: cc0-1.0\n") == 1
    (again,) = run(hub, tmp_path / "home", push)
    assert "is up to date" in again[1]
    edited = readme.replace("My own section.", "Edited.").replace("load_dataset", "stale")
    begin = "<!-- fsdpo: the card begins."
    edited = edited.replace(begin, f"Above.\n\n{begin}", 1)
    repo.commit({**repo.at(), CARD: edited.encode()})
    assert run(hub, tmp_path / "home", push)[0][0] == 0
    newest = repo.at()[CARD].decode()
    assert "\nAbove.\n" in newest and newest.endswith("# My dataset\n\nEdited.\n")
    assert newest.count("the card begins.") == 1 and "stale" not in newest


def test_opening_and_branches(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    push = ["push", dataset, "o/r"]
    private, public, branch = run(
        hub, tmp_path / "home", push, [*push, "--public"], [*push, "--revision", "draft"]
    )
    assert [private[0], public[0], branch[0]] == [0, 0, 0], private[2] + public[2] + branch[2]
    assert not repo_of(hub).private
    assert repo_of(hub).refs["draft"] == repo_of(hub).refs["main"]
    assert len(repo_of(hub).commits) == 2


def test_what_is_not_pushed(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    torn = shutil.copytree(dataset, tmp_path / "torn")
    (torn / "pairs/train-00000-of-00001.parquet").write_bytes(b"PAR1")
    broken, versioned_name = run(
        hub, tmp_path / "home", ["push", torn, "o/r"], ["push", dataset, "o/r@v1.0.0"]
    )
    assert "was changed since it was sealed" in broken[2]
    assert (
        "'o/r@v1.0.0' is not a repository name: expected org/name, with no @revision"
        in versioned_name[2]
    )
    assert not hub.requests


def test_secrets_stay_here(hub: HubServer, tmp_path: Path) -> None:
    for number, secret in enumerate((TOKEN, str(tmp_path / "home") + "/models/mine")):
        dataset = paired_dataset(tmp_path / str(number))
        file = dataset / "manifest.json"
        manifest = json.loads(file.read_text())
        file.write_text(seal_json({**manifest, "made_by": secret + manifest["made_by"]}))
        (answer,) = run(hub, tmp_path / "home", ["push", dataset, "o/r"])
        assert answer[0] == 1
        assert ("contains your token" if secret == TOKEN else "a path of this machine") in answer[2]
    assert not hub.requests


def test_pull_refuses(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    hub.add("dataset", "o/plain", {"README.md": b"", "train.jsonl": b"{}"})
    repo = hub.add("dataset", "o/bad", {"README.md": b""})
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["files"][0]["path"] = "../../escaped.parquet"
    repo.commit({"README.md": b"", "manifest.json": json.dumps(manifest).encode()})
    repo.refs["newer"] = repo.commit({"manifest.json": b'{"schema_version": 3}'}, "newer")
    assert run(hub, tmp_path / "home", ["push", dataset, "o/r"])[0][0] == 0
    damaged = repo_of(hub)
    solutions = "solutions/train-00000-of-00001.parquet"
    damaged.commit({**damaged.at(), solutions: damaged.at()[solutions] + b"x"})
    names = ("o/plain", "o/bad", "o/bad@newer", "o/r@v9", "nonsense", "o/r")
    pull_commands = [["pull", name, "--out", tmp_path / "out"] for name in names]
    answers = run(hub, tmp_path / "home", *pull_commands)
    plain, escape, newer, tag, name, torn = (err for _, _, err in answers)
    assert "dataset o/plain has no manifest.json, so fsdpo did not make it" in plain
    assert "the path '../../escaped.parquet' is not of the form" in escape
    assert "is of schema version 3; fsdpo 0.1.0 reads the versions 1.x" in newer
    assert "dataset o/r has no revision 'v9'" in tag
    assert "'nonsense' is not a dataset on the Hub" in name
    assert f"{solutions} of dataset o/r at" in torn and "was changed on the Hub" in torn
    assert not (tmp_path / "out").exists()
    ((_, _, error),) = run(hub, tmp_path / "home", ["pull", "o/r@v1.0.0", "--out", "."])
    assert "error: . is not the dataset o/r@v1.0.0" in error


def test_a_stopped_pull_goes_on(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pull = ["pull", "o/r@v1.0.0", "--out", out]
    assert run(hub, tmp_path / "home", ["push", dataset, "o/r"])[0][0] == 0
    hub.fail("/resolve/" + repo_of(hub).refs["main"] + "/solutions", 404)
    (stopped,) = run(hub, tmp_path / "home", pull)
    assert stopped[0] == 1 and not out.exists()
    hub.faults.clear()
    hub.requests.clear()
    complete, again = run(hub, tmp_path / "home", pull, pull)
    assert complete[0] == again[0] == 0, complete[2]
    assert not [
        request for request in hub.requests if request.startswith("GET") and "problems/" in request
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    (other,) = run(hub, tmp_path / "home", ["pull", "o/r", "--out", tmp_path / "other"])
    assert "is not the dataset o/r" in other[2]


def test_a_damaged_download_is_repeated(hub: HubServer, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pull = ["pull", "o/r@v1.0.0", "--out", out]
    assert run(hub, tmp_path / "home", ["push", dataset, "o/r"])[0][0] == 0
    hub.fail("/resolve/" + repo_of(hub).refs["main"] + "/solutions", 404)
    assert run(hub, tmp_path / "home", pull)[0][0] == 1
    hub.faults.clear()
    partial = tmp_path / ".out.partial"
    problems = partial / "problems/train-00000-of-00001.parquet"
    content = problems.read_bytes()
    problems.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (partial / "manifest.json").write_text('{"schema_version": 1}')
    (partial / "solutions").mkdir(exist_ok=True)
    (partial / "solutions/of-another-version.parquet").write_bytes(b"")
    (complete,) = run(hub, tmp_path / "home", pull)
    assert complete[0] == 0, complete[2]
    paths = {entry.path for entry in read_manifest(dataset).files}
    assert file_names(out) == {*paths, "manifest.json", "README.md"}
    assert [entry.name for entry in tmp_path.glob(".out*")] == []


def test_a_file_that_is_damaged_on_the_hub_is_not_kept(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    pull = ["pull", "o/r", "--out", tmp_path / "out"]
    assert run(hub, tmp_path / "home", ["push", dataset, "o/r"])[0][0] == 0
    repo = repo_of(hub)
    files = dict(repo.at())
    solutions = "solutions/train-00000-of-00001.parquet"
    repo.commit({**files, solutions: files[solutions] + b"x"})
    (damaged,) = run(hub, tmp_path / "home", pull)
    assert damaged[0] == 1 and "was changed on the Hub" in damaged[2]
    assert "seal the edit" not in damaged[2]
    assert not (tmp_path / ".out.partial").exists()
    repo.commit(files)
    (healed,) = run(hub, tmp_path / "home", pull)
    assert healed[0] == 0, healed[2]


@pytest.mark.parametrize(
    "name", ["a\0b.parquet", "x" * 5000 + ".parquet", "a\nb.parquet", ".parquet/../x.parquet"]
)
def test_hostile_file_names_are_refused_and_nothing_stays(
    name: str, hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["files"][0]["path"] = f"problems/{name}"
    content = seal_json(manifest).encode()
    hub.add("dataset", "o/bad", {"README.md": b"", "manifest.json": content})
    work = tmp_path / "work"
    work.mkdir()
    (answer,) = run(hub, tmp_path / "home", ["pull", "o/bad", "--out", work / "out"])
    assert answer[0] == 1 and "is not of the form config/name.parquet" in answer[2]
    assert len(answer[2]) < 2000 and list(work.iterdir()) == []


def file_names(folder: Path) -> set[str]:
    """Return the paths of all files in a folder, except for its lock."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in files if name != ".lock"}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_files_open_in_other_readers(dataset: Path, config: str) -> None:
    files = dataset / config / "*.parquet"
    rows = pl.read_parquet(files).to_dicts()
    assert rows
    frame = pd.concat(pd.read_parquet(file) for file in sorted(dataset.glob(f"{config}/*.parquet")))
    table = duckdb.sql(f"select * from '{files}'").fetchall()
    assert [plain(row) for row in frame.to_dict("records")] == rows
    assert [dict(zip(rows[0], row, strict=True)) for row in table] == rows


def plain(value: Any) -> Any:
    """Convert the arrays and NaN of pandas to lists and None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    return None if isinstance(value, float) and value != value else value


def test_help_loads_no_hub_client() -> None:
    code = "import sys, fsdpo_data.cli.app; assert 'huggingface_hub' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
