"""A changed input ends in a message or is accepted: no traceback, no hang, no foreign write.

Each reader is a command that reads a file of one kind. A few changes of each file are tested with
every change of the code, and many as a proof.
"""

from __future__ import annotations

import contextlib
import functools
import json
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest
from file_changes import ESCAPE_SEQUENCE, changed_contents
from hub_server import TOKEN, HubServer, running_hub
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from in_process import run_in_process
from reader_inputs import (
    FROZEN,
    TRAININGS,
    make_data_inputs,
    make_model_inputs,
    step_label_file,
)
from recorded_rows import EXAMPLES
from write_guard import WriteGuard

from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.exchange.formats import export_formats, step_label_formats

#: Maximum clock seconds of a command, also on a busy machine.
MAX_SECONDS = 60
MAX_MEMORY_BYTES = 2 * 10**9
# An example is one change, so a failing example needs no smaller one.
FEW = settings(max_examples=4, phases=[Phase.generate])
MANY = settings(FEW, max_examples=100, derandomize=False, database=None)


@dataclass(frozen=True)
class Reader:
    """A command that reads a file or a folder.

    In the command, ``FILE`` is the changed copy, ``INPUTS`` is the folder of all inputs, and
    ``OUT`` is an unused output path.

    Attributes:
        source: The file or folder, relative to the folder of the inputs.
        command: Words of the command.
        files: Patterns of the files of a folder that may be changed.
        is_sealed: Whether the command must refuse any change, unless the digests match the change.
        has_identity: Whether the output must record the digest of the file.
    """

    source: str
    command: str
    files: tuple[str, ...] = ()
    is_sealed: bool = False
    has_identity: bool = False

    def __str__(self) -> str:
        program, command, *_ = self.command.split()
        return f"{program} {command} {self.source}"

    def run(self, inputs: Path, file: Path, out: Path) -> tuple[int | None, str]:
        """Run the command; return its exit code and its output."""
        command = self.command.replace("INPUTS", str(inputs))
        command = command.replace("FILE", str(file)).replace("OUT", str(out))
        return run_in_process(command.split())


DATASET_FILES = ("manifest.json", "*/*.parquet")
BUILD = "fsdpo_data build --samples 4 --engine replay --workers 1"
BUILD_INPUTS = f"{BUILD} --problems INPUTS/problems.jsonl --replay INPUTS/recorded.jsonl"
IMPORT = "fsdpo_data import --from outputs --workers 1 --out OUT"
GRADE = "fsdpo_data grade --workers 1"
BENCH = "fsdpo_bench run --engine replay --workers 1 --template problem --out OUT"
MEASURE = "fsdpo_bench prm --prm INPUTS/prm --template problem"

DATASET_READERS = [
    *(
        Reader("pairs", command, files=DATASET_FILES, is_sealed=True)
        for command in (
            "fsdpo_data validate FILE",
            "fsdpo_data diff INPUTS/pairs FILE",
            "fsdpo_data view FILE --out OUT",
            "fsdpo_data inspect FILE",
            "fsdpo_data export FILE --to trl-preference --out OUT",
            "fsdpo_data export FILE --to prm800k --out OUT",
            "fsdpo_data grade FILE --workers 1 --out OUT",
            "fsdpo_data pair FILE --no-require-outcome --top 1 --out OUT",
            "fsdpo_data decontaminate FILE --against INPUTS/problems.jsonl --out OUT",
        )
    ),
    # The measurement of step rewards reads neither problems nor pairs.
    Reader(
        "pairs",
        "fsdpo_bench prm FILE",
        files=("manifest.json", "solutions/*.parquet"),
        is_sealed=True,
    ),
]

ROW_READERS = [
    *(
        Reader(f"problems.{suffix}", command)
        for suffix in ("jsonl", "json", "csv", "parquet")
        for command in (
            f"{BUILD} --problems FILE --replay INPUTS/recorded.jsonl --out OUT",
            "fsdpo_data decontaminate INPUTS/problems.jsonl --against FILE",
        )
    ),
    Reader("recorded.jsonl", f"{BUILD} --problems INPUTS/problems.jsonl --replay FILE --out OUT"),
    Reader("recorded.jsonl", f"{BENCH} --task INPUTS/problems.jsonl --replay FILE"),
    Reader("problems.jsonl", f"{BENCH} --task FILE --replay INPUTS/recorded.jsonl"),
    Reader("responses.jsonl", f"{GRADE} FILE"),
    Reader("outputs/lm-eval.jsonl", f"{GRADE} FILE"),
    *(Reader(f"outputs/{name}.jsonl", f"{IMPORT} FILE") for name in EXAMPLES),
    Reader(
        "batch.jsonl",
        f"{IMPORT} FILE --problems INPUTS/problems.jsonl --requests INPUTS/requests.jsonl",
    ),
    Reader(
        "requests.jsonl",
        f"{IMPORT} INPUTS/batch.jsonl --problems INPUTS/problems.jsonl --requests FILE",
    ),
    Reader("template.txt", f"{BUILD_INPUTS} --template FILE --out OUT", has_identity=True),
    # Recorded responses need no prompts, so this command accepts every readable template.
    Reader("template.txt", f"{IMPORT} INPUTS/responses.jsonl --template FILE", has_identity=True),
]

STEP_LABEL_COMMANDS = [
    Reader(step_label_file(name), f"fsdpo_data import FILE --from {name} --out {out}")
    for name in step_label_formats()
    # Only labels with a prompt for each solution can become a dataset.
    for out in (("OUT.jsonl", "OUT") if name in export_formats() else ("OUT.jsonl",))
]

RUN_READERS = [
    Reader("unsealed", f"{BUILD_INPUTS} --resume --out FILE", files=("*.json*",)),
    Reader(
        "shard1",
        "fsdpo_data merge FILE INPUTS/shard2 --out OUT",
        files=("*.json*",),
    ),
    *(
        Reader("bench", command, files=("**/*.json*",))
        for command in (
            "fsdpo_bench report FILE",
            "fsdpo_bench diff INPUTS/bench FILE",
        )
    ),
]

DEFINITION_READERS = [
    Reader("benchmark.toml", f"{BENCH} --task FILE --replay INPUTS/recorded.jsonl"),
    Reader("recipe.toml", "fsdpo_bench recipe FILE --dry-run"),
    Reader("embedded.toml", "fsdpo_bench recipe FILE --dry-run"),
    Reader(
        "format.toml",
        "fsdpo_data label INPUTS/pairs --judge tiny --judge-format FILE --out OUT",
    ),
]

READERS = [
    *DATASET_READERS,
    *ROW_READERS,
    *STEP_LABEL_COMMANDS,
    *RUN_READERS,
    *DEFINITION_READERS,
]

SAMPLE = (
    "fsdpo_data build --problems INPUTS/problems.jsonl --limit 1 --samples 1 --max-tokens 2 "
    "--workers 1 --engine transformers --template chat --model FILE --out OUT"
)
SCORE = "fsdpo_data score INPUTS/pairs --out OUT --prm"

#: Commands that load a model.
MODEL_READERS = [
    *(
        Reader("policy", SAMPLE, files=(pattern,), has_identity=True)
        for pattern in (
            "config.json",
            "model.safetensors",
            "tokenizer*.json",
            "chat_template.jinja",
        )
    ),
    *(
        Reader("prm", f"{SCORE} FILE", files=(pattern,), has_identity=True)
        for pattern in ("config.json", "model.safetensors", "tokenizer*.json")
    ),
    Reader("quantized", SAMPLE, files=("config.json",)),
    Reader("format.toml", f"{SCORE} INPUTS/prm --prm-format FILE"),
    Reader("processbench.json", f"{MEASURE} --processbench FILE"),
    Reader(
        "processbench.json",
        f"{MEASURE} --processbench INPUTS/processbench.json --tune-on FILE",
    ),
    Reader("prmbench.jsonl", f"{MEASURE} --prmbench FILE"),
    *(
        Reader(f"{method}.jsonl", f"{training} FILE --out OUT")
        for method, training in TRAININGS.items()
    ),
    # The options of a training, and its reference cache.
    *(
        Reader(
            f"trained/{method}",
            f"{training} INPUTS/{method}.jsonl --resume --out FILE",
            files=(f"{method}.json", "reference/*"),
        )
        for method, training in TRAININGS.items()
    ),
    # A training reads and checks only one config, because the others cannot change its weights.
    *(
        Reader(
            "pairs",
            f"{TRAININGS[method]} FILE --out OUT",
            files=(f"{config}/*.parquet",),
            is_sealed=True,
        )
        for method, config in (("prm", "solutions"), ("dpo", "pairs"))
    ),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the inputs; the commands have no network and temporary files of their own."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("tmp", "examples"):
        (folder / name).mkdir()
    WriteGuard.install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        make_data_inputs(folder)
        yield folder


@pytest.fixture(scope="module")
def model_inputs(inputs: Path) -> Path:
    """Make the inputs of commands that load a model."""
    pytest.importorskip("torch")
    make_model_inputs(inputs)
    return inputs


@pytest.mark.parametrize("reader", READERS, ids=str)
@FEW
@given(data=st.data())
def test_changed_files_end_in_messages(reader: Reader, inputs: Path, data: st.DataObject) -> None:
    check_reader(reader, inputs, data)


# Where a text is not UTF-8, polars raises an error and leaves a second one, which nothing catches.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.proof
@pytest.mark.parametrize("reader", READERS, ids=str)
@MANY
@given(data=st.data())
def test_many_changed_files_end_in_messages(
    reader: Reader, inputs: Path, data: st.DataObject
) -> None:
    check_reader(reader, inputs, data)


@pytest.mark.proof
@pytest.mark.parametrize("reader", MODEL_READERS, ids=str)
@settings(MANY, max_examples=20)
@given(data=st.data())
def test_changed_files_of_models_and_trainings_end_in_messages(
    reader: Reader, model_inputs: Path, data: st.DataObject
) -> None:
    check_reader(reader, model_inputs, data)


def check_reader(reader: Reader, inputs: Path, data: st.DataObject) -> None:
    """Change a copy of a reader's source, run the command, and check its end."""
    with tempfile.TemporaryDirectory(dir=inputs / "examples") as name:
        folder = Path(name)
        copy = folder / "input" / Path(reader.source).name
        out = folder / "out" / "new"
        for path in (copy.parent, out.parent, folder / "cwd"):
            path.mkdir()
        source = inputs / reader.source
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)
        file = draw_file(reader, copy, data)
        old_content = file.read_bytes()
        new_content = data.draw(changed_contents(old_content, file.suffix))
        if is_equivalent(old_content, new_content):
            return
        file.write_bytes(new_content)
        is_resealed = reader.is_sealed and data.draw(st.booleans(), label="resealed")
        if is_resealed:
            reseal(copy, file)
        allowed_folders = [out.parent, inputs / "tmp"]
        if "--out FILE" in reader.command or "report FILE" in reader.command:
            allowed_folders.append(copy.parent)
        with (
            guarded_command(),
            contextlib.chdir(folder / "cwd"),
            WriteGuard.watch(allowed_folders) as foreign_paths,
        ):
            code, output = reader.run(inputs, copy, out)
        check_end(code, output)
        assert not foreign_paths and not any((folder / "cwd").iterdir())
        if code == 0:
            assert is_resealed or not reader.is_sealed, "the changed dataset was accepted"
            if reader.has_identity:
                assert read_identity(out) != unchanged_identity(reader, inputs)


def draw_file(reader: Reader, copy: Path, data: st.DataObject) -> Path:
    """Draw the file that is changed."""
    if not reader.files:
        return copy
    files = {
        pattern: [file for file in sorted(copy.glob(pattern)) if file.stat().st_size]
        for pattern in reader.files
    }
    pattern = data.draw(st.sampled_from([pattern for pattern in files if files[pattern]]))
    return data.draw(st.sampled_from(files[pattern]))


def check_end(code: int | None, output: str) -> None:
    """Check that a command succeeded or ended in a message."""
    assert code in (0, 1, 2), output
    assert "Traceback (most recent call last)" not in output, output
    assert ESCAPE_SEQUENCE not in output, "the command printed an escape sequence of the file"


class _TimeLimitError(BaseException):
    """The time of a command is over."""


@contextlib.contextmanager
def guarded_command() -> Iterator[None]:
    """Limit the time and the memory of a command."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise _TimeLimitError

    old_handler = signal.signal(signal.SIGALRM, stop)
    old_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old_handler)
    new_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (new_peak - old_peak) * 1024 < MAX_MEMORY_BYTES, "the command used too much memory"


def is_equivalent(content_a: bytes, content_b: bytes) -> bool:
    """Return whether two contents are equal as bytes or as JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(content_a) == json.loads(content_b))
    return content_a == content_b


def reseal(root: Path, file: Path) -> None:
    """Make the digests of a dataset match a changed file, if its manifest is still JSON."""
    manifest_file = root / "manifest.json"
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        manifest = json.loads(manifest_file.read_bytes())
        for entry in manifest["files"]:
            if root / entry["path"] == file:
                entry["sha256"] = file_sha256(file)
                entry["bytes"] = file.stat().st_size
        files = [(entry["path"], entry["sha256"]) for entry in manifest["files"]]
        manifest["digest"] = digest(files)
        manifest.pop("manifest_digest", None)
        manifest["manifest_digest"] = digest(manifest)
        manifest_file.write_text(json.dumps(manifest))


def read_identity(dataset: Path) -> list[str | None]:
    """Return the digest of the template and the revisions of the models of a sealed dataset."""
    stages = json.loads((dataset / "manifest.json").read_text())["stages"]
    options = {entry["name"]: entry["options"] for entry in stages}
    sampled = options["sample"]
    prm = options.get("score", {}).get("prm", {})
    return [sampled["template"]["digest"], sampled["model"]["revision"], prm.get("revision")]


def unchanged_identity(reader: Reader, inputs: Path) -> list[str | None]:
    """Return the identity of the output of a reader for the unchanged source."""
    with tempfile.TemporaryDirectory(dir=inputs / "examples") as name:
        out = Path(name) / "out"
        code, output = reader.run(inputs, inputs / reader.source, out)
        assert code == 0, output
        return read_identity(out)


#: Parts of the requests of a pull, and of a push.
PULL_REQUESTS = ("/api/datasets/", "/api/datasets/o/data/revision")
PUSH_REQUESTS = (
    "/api/", "/api/datasets/o/data", "/api/repos/create", "/refs", "/tree", "/preupload",
    "/commit/", "/tag/", "/info/lfs",
)  # fmt: skip


HubCheck = Callable[[HubServer, Mapping[str, bytes], Path, st.DataObject], None]


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    """Start a Hub, and make the Hub's client in this process use it."""
    constants = "huggingface_hub.constants"
    with running_hub() as server, pytest.MonkeyPatch.context() as patch:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        patch.setattr(f"{constants}.ENDPOINT", server.url)
        patch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
        patch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
        patch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture(scope="module")
def answers(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Record a body that the Hub answers to each kind of request of a push and a pull."""
    bodies: dict[str, bytes] = {}

    def record(request: str, body: bytes) -> bytes:
        bodies[request] = body
        return body

    for request in (*PULL_REQUESTS, *PUSH_REQUESTS):
        hub.changed_bodies[request] = functools.partial(record, request)
    folder = tmp_path_factory.mktemp("pulled")
    with use_hub_cache(folder / "cache"):
        for command in (f"push {FROZEN} o/data", f"pull o/data --out {folder}/out"):
            result = run_in_process(["fsdpo_data", *command.split()])
            assert result.code == 0, result.output
    return bodies


def check_pull(
    hub: HubServer, answers: Mapping[str, bytes], folder: Path, data: st.DataObject
) -> None:
    """Pull a dataset with a changed file, or with changed answers of the Hub."""
    root = shutil.copytree(FROZEN, folder / "repo")
    (root / "README.md").touch()
    if data.draw(st.booleans(), label="changes a file"):
        manifest = root / "manifest.json"
        file = data.draw(st.sampled_from([manifest, manifest, *sorted(root.glob("*/*.parquet"))]))
        file.write_bytes(data.draw(changed_contents(file.read_bytes(), file.suffix)))
        if data.draw(st.booleans(), label="resealed"):
            reseal(root, file)
    else:
        change_answers(hub, answers, PULL_REQUESTS, data)
    files = [file for file in root.rglob("*") if file.is_file()]
    contents = {file.relative_to(root).as_posix(): file.read_bytes() for file in files}
    hub.add("dataset", "o/data", contents)
    out = folder / "out"
    code, output = run_in_process(["fsdpo_data", "pull", "o/data", "--out", str(out)])
    check_end(code, output)
    assert out.exists() == (code == 0)
    if code == 0:
        assert run_in_process(["fsdpo_data", "validate", str(out)]).code == 0


def check_push(
    hub: HubServer, answers: Mapping[str, bytes], folder: Path, data: st.DataObject
) -> None:
    """Push a dataset to a Hub with changed answers."""
    if data.draw(st.booleans(), label="the repository exists"):
        hub.add("dataset", "o/data", {"README.md": b"# Data"})
    change_answers(hub, answers, PUSH_REQUESTS, data)
    check_end(*run_in_process(["fsdpo_data", "push", str(FROZEN), "o/data"]))


def change_answers(
    hub: HubServer, answers: Mapping[str, bytes], requests: Sequence[str], data: st.DataObject
) -> None:
    """Change the answers to one of some kinds of requests."""
    recorded_requests = [request for request in requests if answers.get(request)]
    request = data.draw(st.sampled_from(recorded_requests))
    changed_body = data.draw(changed_contents(answers[request], ".json"))
    hub.changed_bodies[request] = lambda _: changed_body


def check_hub(
    check: HubCheck, hub: HubServer, answers: Mapping[str, bytes], data: st.DataObject
) -> None:
    """Check a command with an empty Hub and a folder of its own."""
    hub.repos.clear()
    hub.changed_bodies.clear()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with use_hub_cache(folder / "cache"), guarded_command():
            check(hub, answers, folder, data)


@contextlib.contextmanager
def use_hub_cache(folder: Path) -> Iterator[None]:
    """Make the Hub's client keep its files in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
        yield


# huggingface-hub sends a file in a way that its own HTTP library calls outdated.
OUTDATED_UPLOAD = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@OUTDATED_UPLOAD
@pytest.mark.parametrize("check", [check_pull, check_push])
@settings(FEW, max_examples=6)
@given(data=st.data())
def test_changed_answers_of_the_hub_end_in_messages(
    check: HubCheck, hub: HubServer, answers: Mapping[str, bytes], data: st.DataObject
) -> None:
    check_hub(check, hub, answers, data)


@OUTDATED_UPLOAD
def test_an_upload_without_its_address_ends_in_a_message(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos.clear()
    hub.large_files.clear()
    changed_bodies = {"/info/lfs": lambda body: body.replace(b'"upload"', b'"other"')}
    monkeypatch.setattr(hub, "changed_bodies", changed_bodies)
    with use_hub_cache(tmp_path):
        code, output = run_in_process(["fsdpo_data", "push", str(FROZEN), "o/data"])
    assert code == 1 and "answers, but not like a Hugging Face Hub" in output


@OUTDATED_UPLOAD
@pytest.mark.proof
@pytest.mark.parametrize("check", [check_pull, check_push])
@MANY
@given(data=st.data())
def test_many_changed_answers_of_the_hub_end_in_messages(
    check: HubCheck, hub: HubServer, answers: Mapping[str, bytes], data: st.DataObject
) -> None:
    check_hub(check, hub, answers, data)
