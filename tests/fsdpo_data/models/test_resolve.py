"""Tests of model names: they become pinned models, and each error names the next step."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hub_server import TOKEN, HubServer, client_env, run_client, running_hub
from small_tokenizer import save_tokenizer

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.models import resolve as models
from fsdpo_data.models.prompts import TEMPLATES, TemplateRef, get_template
from fsdpo_data.models.resolve import MODELS, content_revision, resolve, resolve_served
from fsdpo_data.models.trained_template import (
    TEMPLATE_FILE,
    read_trained_template,
    write_trained_template,
)

SFT = "xinlai/Qwen2-7B-SFT"

CLIENT = """
import json, logging, time
logging.basicConfig(format="%(message)s")
logging.getLogger("httpx").disabled = True
from fsdpo_data.hub import client as hub
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.models.resolve import resolve
hub.HUB_TIMEOUT_SECONDS = {timeout}
for name in {names!r}:
    start = time.monotonic()
    try:
        model = resolve(name)
        answer = [
            model.ref.name, model.ref.revision, model.path, model.template.name, model.commit
        ]
    except FsdpoError as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps([time.monotonic() - start, *answer]))
"""


def ask(
    names: Sequence[str], endpoint: str, home: Path, timeout: float = 8, **env: str
) -> tuple[list[Any], str]:
    """Resolve names in a new process; return the result of each, and the log."""
    code = CLIENT.format(names=list(names), timeout=timeout)
    ran = run_client(code, client_env(endpoint, home, **env))
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    for seconds, *_ in answers:
        assert seconds < 120, "a storm of retries"
    return [answer for _, *answer in answers], ran.stderr


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        server.add("model", SFT, {"config.json": b"{}"})
        yield server


def save_model(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "tokenizer.json").write_text("{}")
    return path


def test_the_table_is_sound() -> None:
    for name, model in MODELS.items():
        assert name == name.lower()
        assert model.template in TEMPLATES
        assert model.repo or model.note or name == "tiny"


def test_a_local_model_is_known_by_its_content(tmp_path: Path) -> None:
    path = save_model(tmp_path / "a" / "model")
    model = resolve(str(path), "alpaca")
    assert model.path == str(path)
    assert model.ref.name == "model"  # the folder's name; manifests hold no local paths
    assert model.ref.revision.startswith("sha256:")
    assert len(model.ref.revision) == len("sha256:") + 64
    assert model.commit is None
    assert model.template.name == "alpaca@1"

    copied = shutil.copytree(path, tmp_path / "elsewhere")
    (copied / "optimizer.pt").write_bytes(b"state")
    (copied / "README.md").write_text("words")
    assert content_revision(copied) == model.ref.revision
    (copied / "model.safetensors").rename(copied / "model-00001-of-00001.safetensors")
    assert content_revision(copied) != model.ref.revision


def test_a_snapshot_of_the_hub_cache_has_the_template_of_its_repository(tmp_path: Path) -> None:
    """Otherwise a base model would silently get its chat template instead of Alpaca's prompt."""
    snapshot = save_model(tmp_path / "models--xinlai--Qwen2-7B-SFT/snapshots/0a1b")
    link = tmp_path / "policy"
    link.symlink_to(snapshot, target_is_directory=True)
    for path in (snapshot, link):
        assert resolve(str(path)).template.name == "alpaca@1"


def test_unchanged_files_of_a_model_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(models.CHECKPOINT, tmp_path / "model")
    read_files: list[str] = []
    file_sha256 = models.file_sha256

    def record(file: Path) -> str:
        read_files.append(file.name)
        return file_sha256(file)

    monkeypatch.setattr(models, "file_sha256", record)
    revision = content_revision(tmp_path / "model")
    assert "config.json" in read_files
    read_files.clear()
    assert content_revision(tmp_path / "model") == revision and not read_files
    weights = tmp_path / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert content_revision(tmp_path / "model") != revision and read_files


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
     "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
     "vocab.json", "merges.txt", "chat_template.jinja", "model.safetensors.index.json"],
)  # fmt: skip
def test_every_file_that_matters_is_in_the_revision(tmp_path: Path, name: str) -> None:
    path = save_model(tmp_path / "model")
    old_revision = content_revision(path)
    (path / name).write_text("changed")
    assert content_revision(path) != old_revision


def test_a_local_model_uses_its_chat_template_by_default(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model")
    save_tokenizer(path)
    assert resolve(str(path)).template.name == "chat-boxed@1"
    assert resolve(str(path), "qwen2-boxed").template.stop == ("<|im_end|>", "<|endoftext|>")


def test_local_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path / "checkpoint-100")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputError, match=r"no such file or directory\. .* Similar names: checkpoint-100\."
    ):
        resolve(str(tmp_path / "checkpoint-10"))
    with pytest.raises(InputError, match=r"no config\.json, .* Found: nothing"):
        resolve(str(tmp_path / "empty"))
    with pytest.raises(InputError, match=r"template = 'alpacca'"):
        resolve(str(tmp_path / "checkpoint-100"), "alpacca")
    with pytest.raises(InputError, match="Nearest short names: qwen2-7b-sft,"):
        resolve("qwen2-7b-stf")
    with pytest.raises(InputError, match=r"name no public checkpoint.*fsdpo-train sft"):
        resolve("llama-3-8b-sft")
    monkeypatch.setattr(models, "CHECKPOINT", tmp_path / "nowhere")
    with pytest.raises(UnavailableError, match=r"model = 'tiny': .*nowhere is missing"):
        resolve("tiny")


def test_tiny_needs_no_network() -> None:
    model = resolve("tiny")
    assert model.ref.name == "tiny"
    assert model.template.name == "problem@1"
    assert (Path(model.path) / "config.json").is_file()


def test_names_on_the_hub(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.repos["model", SFT]
    first = repo.refs["v1"] = repo.refs["main"]
    second = repo.commit({"config.json": b"{ }"})
    hub.add("model", "some/plain", {"config.json": b"{}"})
    chatty = save_tokenizer(tmp_path / "tokenizer")
    files = {file.name: file.read_bytes() for file in Path(chatty).iterdir()}
    third = hub.add("model", "some/chatty", {"config.json": b"{}", **files}).refs["main"]

    for name in ("alpaca@1", None):
        write_trained_template(tmp_path, get_template(name).ref if name else None)
        template = {TEMPLATE_FILE: (tmp_path / TEMPLATE_FILE).read_bytes()}
        hub.add("model", f"some/{name}"[:11], {"config.json": b"{}", **files, **template})

    names = ["qwen2-7b-sft", SFT, f"{SFT}@v1", f"{SFT}@{first}", "some/chatty", "some/plain"]
    names += ["some/alpaca", "some/None"]
    answers, log = ask(names, hub.url, tmp_path)
    for answer, commit in zip(answers, [second, second, first, first], strict=False):
        assert answer == [SFT, commit, SFT, "alpaca@1", commit]
    assert answers[4] == ["some/chatty", third, "some/chatty", "chat-boxed@1", third]
    assert answers[5][0] == "InputError"
    assert "choose a template other than chat" in answers[5][1]
    assert answers[6][3] == "alpaca@1"
    assert answers[7][0] == "InputError" and "no known template" in answers[7][1]
    assert log == ""


def test_without_a_network_a_cached_copy_will_do(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.repos["model", SFT].refs["main"]
    ask(["qwen2-7b-sft"], hub.url, tmp_path)
    hub.stop()
    names = ["qwen2-7b-sft", f"{SFT}@{commit}", f"{SFT}@v1", "qwen2-7b-instruct"]
    (branch, pinned, tagged, absent), log = ask(names, hub.url, tmp_path)
    assert branch[1] == pinned[1] == commit
    assert f"Using the cached commit {commit}." in log
    assert tagged[0] == absent[0] == "UnavailableError"
    (offline,), log = ask(["qwen2-7b-sft"], hub.url, tmp_path, HF_HUB_OFFLINE="1")
    assert offline[1] == commit
    assert log == ""
    hub.stop = lambda: None  # type: ignore[method-assign]  # it has stopped


def test_a_file_that_the_hub_does_not_give_is_named(hub: HubServer, tmp_path: Path) -> None:
    """The model may state the template of its training in this file."""
    chatty = save_tokenizer(tmp_path / "tokenizer")
    files = {file.name: file.read_bytes() for file in Path(chatty).iterdir()}
    hub.add("model", "some/chatty", {"config.json": b"{}", **files})
    hub.fail(TEMPLATE_FILE, 503)
    (answer,), log = ask(["some/chatty"], hub.url, tmp_path)
    assert answer[3] == "chat-boxed@1"
    assert f"the Hub does not tell whether the repository has {TEMPLATE_FILE}" in log


def test_no_network_gives_one_message_at_once(tmp_path: Path) -> None:
    with socket.socket() as open_socket:
        open_socket.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        port = open_socket.getsockname()[1]
        (refused,), log = ask(["qwen2-7b-sft"], f"http://me:secret@127.0.0.1:{port}", tmp_path)
    assert refused[0] == "UnavailableError"
    assert refused[1] == (
        f"cannot reach the Hugging Face Hub at http://127.0.0.1:{port} for model {SFT} "
        "([Errno 111] Connection refused). Next steps: check the network, or set HF_ENDPOINT to a "
        "mirror you can reach, and log in with `hf auth login` if the repository is private; or "
        "give a local path, or use the model tiny, which needs no network."
    )
    assert log == ""
    (offline,), _ = ask(["qwen2-7b-sft"], "http://127.0.0.1:9", tmp_path, HF_HUB_OFFLINE="1")
    assert "(offline mode is on). Next steps: unset HF_HUB_OFFLINE" in offline[1]


def test_a_silent_hub_is_given_up_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (answer,), _ = ask(["qwen2-7b-sft"], endpoint, tmp_path, timeout=0.5)
    assert "timed out" in answer[1]


def test_what_the_hub_can_answer(hub: HubServer, tmp_path: Path) -> None:
    llama = "meta-llama/Meta-Llama-3-8B-Instruct"
    hub.add("model", llama, {"config.json": b"{}"}, gated=True)
    hub.add("model", "o/gguf", {"model.gguf": b""})
    hub.fail("/o/busy", 429)
    hub.fail("/o/broken", 500)
    hub.fail("/o/forbidden", 403)
    hub.fail("/o/html", 200)
    hub.add("model", "o/bytes", {"config.json": b"{}"})
    hub.changed_bodies["/api/models/o/bytes"] = lambda body: body.replace(b"sha", b"\xe5")
    hub.add("model", "o/list", {"config.json": b"{}"})
    hub.changed_bodies["/api/models/o/list"] = lambda body: b'{"id": "o/list", "sha": [1]}'
    names = ["llama-3-8b-instruct", "xinlai/Qwen2-7B-SFTT", f"{SFT}@v9", "o/gguf"]
    answers, log = ask(
        [*names, "o/busy", "o/broken", "o/forbidden", "o/html", "o/bytes", "o/list", "o/--"],
        hub.url,
        tmp_path,
    )
    gated, unknown, revision, gguf, busy, broken, forbidden, *foreign, invalid = answers
    assert gated[0] == "UnavailableError"
    assert f"is gated: ask for access at {hub.url}/{llama}, then log in" in gated[1]
    assert unknown[0] == "InputError"
    assert "there is no model xinlai/Qwen2-7B-SFTT" in unknown[1]
    assert "Nearest short names: qwen2-7b-sft, " in unknown[1]
    assert "has no revision 'v9'" in revision[1]
    assert "model o/gguf has no config.json" in gguf[1]
    assert "answered 429 for model o/busy. The Hub limits the rate" in busy[1]
    assert "answered 500 for model o/broken. Try again later" in broken[1]
    assert "answered 403 for model o/forbidden. Check that your token" in forbidden[1]
    assert len(foreign) == 3
    assert all("answers, but not like a Hugging Face Hub" in answer[1] for answer in foreign)
    assert "'o/--' is not a Hub repository name" in invalid[1]
    assert log == ""


def test_tokens_open_doors_and_stay_secret(hub: HubServer, tmp_path: Path) -> None:
    hub.add("model", "o/gated", {"config.json": b"{}"}, gated=True)
    hub.add("model", SFT, {"config.json": b"{}"}, private=True)
    (opened,), _ = ask(["qwen2-7b-sft"], hub.url, tmp_path, HF_TOKEN=TOKEN)
    assert opened[0] == SFT
    wrong = "hf_wrongandsecret"
    answers, log = ask(["qwen2-7b-sft", "o/gated"], hub.url, tmp_path / "b", HF_TOKEN=wrong)
    for kind, message in answers:
        assert kind == "UnavailableError"
        assert "check that your token is still valid (HF_TOKEN is set)" in message
    assert wrong not in json.dumps(answers) + log


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_model_directory_with_a_pipe_or_a_device_is_refused(tmp_path: Path, kind: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    file = model / "tokenizer.json"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"tokenizer\.json is a pipe or a device"):
        resolve(str(model))


@pytest.mark.parametrize("name", ["made-up-model", "/models/made-up"])
def test_a_served_model_without_a_tokenizer_here_needs_no_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is there at once, and names what works with any server."""

    def refuse(*_: Any) -> None:
        raise AssertionError("no tokenizer may be loaded")

    monkeypatch.setattr(models, "resolve_commit", refuse)
    monkeypatch.setattr("fsdpo_data.models.prompts.read_tokenizer", refuse)
    with pytest.raises(InputError, match=r"`api=chat`.*`template=problem`"):
        resolve_served(name, None, chat=False)
    assert resolve_served(name, "problem", chat=False).template.name == "problem@1"
    assert resolve_served(name, None, chat=True).template.name == "chat-boxed@1"


def test_a_served_model_takes_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    path = save_tokenizer(tmp_path)
    prompt = resolve_served(path, "chat", chat=False).template.render("2+2?")
    assert prompt.endswith("<user>2+2?<assistant>")


def test_a_model_that_was_trained_with_a_template_file_is_sampled_with_its_text(
    tmp_path: Path,
) -> None:
    """The name of the file is the one of a template here, whose text differs."""
    (tmp_path / "alpaca.txt").write_text("Q: {question}\nA: ")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    write_trained_template(model, get_template(str(tmp_path / "alpaca.txt")).ref)
    (tmp_path / "alpaca.txt").unlink()  # the model is complete without it
    template = resolve(str(model)).template
    assert template.name == "alpaca" and template.render("1+1?") == "Q: 1+1?\nA: "
    assert template.ref == read_trained_template(model)


@pytest.mark.parametrize(
    "ref",
    [
        TemplateRef(name="alpaca@1", digest="0" * 32),  # of a plug-in with another text
        TemplateRef(name="nothing@1", digest="0" * 32),
        TemplateRef(name="my", digest="0" * 32, text="{question}"),  # an edited file
    ],
)
def test_a_template_with_another_digest_is_unknown(ref: TemplateRef, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_trained_template(tmp_path, ref)
    with pytest.raises(InputError, match="no known template"):
        resolve(str(tmp_path))
