"""Commands in unusual environments: locales, encodings, widths, -OO, paths, locks and memory."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers import small_build

from fsdpo_data.cli.console import run_app
from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.memory_limit import is_memory_error
from fsdpo_data.problems.embedded import CHECKPOINT


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "built"
    small_build(out)
    return out


def run(
    arguments: Sequence[object], *flags: str, package: str = "fsdpo_data", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *flags, "-m", package, *arguments]
    ran = subprocess.run(
        [os.fsencode(str(word)) for word in command],
        env=os.environ | variables,
        capture_output=True,
        timeout=120,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr.decode(errors="replace")
    return ran


#: Locales and encodings of an old terminal.
ENCODINGS = [
    {"LC_ALL": "C"},
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii"},
]


@pytest.mark.parametrize("variables", ENCODINGS, ids=lambda variables: " ".join(variables.values()))
def test_inspect_prints_what_the_terminal_cannot_show(
    variables: dict[str, str], dataset: Path, tmp_path: Path
) -> None:
    # The Greek letter is in none of these encodings.
    copy = Path(shutil.copytree(dataset, tmp_path / "été-ω"))
    ran = run(["inspect", copy, "--count", "1"], **variables)
    assert ran.returncode == 0 and b"/" in ran.stdout
    assert run(["build", "--help"], **variables).returncode == 0


@pytest.mark.parametrize("variables", ENCODINGS, ids=lambda variables: " ".join(variables.values()))
def test_a_run_with_an_accent_in_its_path_is_resumed(
    variables: dict[str, str], dataset: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(dataset, tmp_path / "été-ω"))
    out = tmp_path / "gradé-ω"
    assert run(["grade", source, "--out", out], **variables).returncode == 0
    assert run(["grade", source, "--out", out, "--resume"], **variables).returncode == 0
    refused = run(["grade", source, "--out", out], **variables)
    assert refused.returncode == 1 and b"error: " in refused.stderr


def test_a_locale_without_accents_is_named(dataset: Path, tmp_path: Path) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(["inspect", dataset, "--count", "1"], **ascii_locale).returncode == 0
    ran = run(["inspect", tmp_path / "été"], **ascii_locale)
    assert ran.returncode == 1 and b"Python reads ascii here: set PYTHONUTF8=1" in ran.stderr


@pytest.mark.parametrize("columns", ["0", "-3", "x", "1", ""])
def test_any_number_of_columns_is_accepted(columns: str, dataset: Path) -> None:
    assert run(["inspect", dataset, "--count", "1"], COLUMNS=columns, LINES="0").returncode == 0
    assert run(["build", "--help"], COLUMNS=columns).returncode == 0


@pytest.mark.parametrize(
    ("package", "command"),
    [("fsdpo_data", "build"), ("fsdpo_train", "dpo"), ("fsdpo_bench", "run")],
)
def test_the_help_survives_without_docstrings(package: str, command: str) -> None:
    with_docstrings = run([command, "--help"], package=package)
    without = run([command, "--help"], "-OO", package=package)
    assert without.returncode == 0 and without.stdout == with_docstrings.stdout


def test_models_are_refused_without_docstrings(dataset: Path, tmp_path: Path) -> None:
    assert run(["inspect", dataset], "-OO").returncode == 0
    build = ["build", "--limit", "1", "--engine", "transformers", "--out", tmp_path / "out"]
    train = ["prm", dataset, "--model", "tiny", "--out", tmp_path / "prm"]
    for arguments, package in ((build, "fsdpo_data"), (train, "fsdpo_train")):
        ran = run(arguments, "-OO", package=package)
        assert ran.returncode == 1
        assert b"transformers does not work under `python -OO`" in ran.stderr


def test_paths_that_are_not_utf8_are_refused(dataset: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9")
    copy = shutil.copytree(dataset, tmp_path / name)
    for arguments in (
        ["inspect", copy],
        ["grade", copy, "--out", tmp_path / "out"],
        ["grade", dataset, "--out", tmp_path / f"{name}-out"],
        ["build", "--problems", copy, "--out", tmp_path / "built"],
    ):
        ran = run(arguments)
        assert ran.returncode == 1 and b"expected valid UTF-8" in ran.stderr


@pytest.mark.parametrize("kib", [400_000, 1_500_000, 2_200_000, 4_500_000])
def test_a_memory_limit_gives_a_result_or_a_clear_error(
    kib: int, dataset: Path, tmp_path: Path
) -> None:
    limit = kib * 1024

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-m", "fsdpo_data", "grade", dataset, "--workers", "2"]
    command += ["--out", tmp_path / "out"]
    ran = subprocess.run(
        [*map(str, command)], preexec_fn=set_limit, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in ran.stderr
    if kib < 4_000_000:
        assert ran.returncode == 1
        assert f"the limit of the address space is {kib:,} KiB (`ulimit -v`)" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr


def test_used_up_memory_is_an_error_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def use_all_memory() -> None:
        raise MemoryError

    with pytest.raises(SystemExit) as ended:
        run_app(use_all_memory)
    assert ended.value.code == 1 and "memory of this process is used up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 64 bytes"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (RuntimeError("shapes do not match"), False),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), False),
        (StoreError("the worker was killed, out of memory"), False),
    ],
)
def test_errors_of_memory_are_recognised(error: Exception, is_memory: bool) -> None:
    assert is_memory_error(error) == is_memory


@pytest.mark.proof
@pytest.mark.parametrize("gib", [4, 6, 8, 16])
def test_torch_and_grading_workers_run_under_a_limit_of_a_few_gib(gib: int, tmp_path: Path) -> None:
    """Each thread reserves address space, so the libraries get as many as on a large machine."""
    pytest.importorskip("torch")
    limit = gib * 2**30
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    line = ["build", "--model", "tiny", "--limit", "4", "--samples", "2", "--workers", "8"]
    ran = subprocess.run(
        [sys.executable, "-m", "fsdpo_data", *line, "--out", str(tmp_path / "out")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        env=os.environ | dict.fromkeys(names, "64"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.proof
def test_a_model_beyond_the_limit_gives_a_clear_error(tmp_path: Path) -> None:
    """torch raises a RuntimeError, which is neither a traceback nor a damaged file for the user."""
    pytest.importorskip("torch")
    folder = shutil.copytree(CHECKPOINT, tmp_path / "config")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 4096, "intermediate_size": 400_000}  # 6.5 GB per matrix
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "sft.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 2)
    limit = 5 * 2**30
    line = ["sft", tmp_path / "sft.jsonl", "--from-config", folder, "--out", tmp_path / "out"]
    ran = subprocess.run(
        [sys.executable, "-m", "fsdpo_train", *map(str, line)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "error: the memory of this process is used up (" in ran.stderr
    assert "allocate memory" in ran.stderr and "raise the memory limit" in ran.stderr
