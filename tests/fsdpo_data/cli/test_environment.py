"""Commands in unusual environments: locales, encodings, widths, paths and memory."""

from __future__ import annotations

import errno
import os
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


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "built"
    small_build(out)
    return out


def run(arguments: Sequence[object], **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fsdpo_data", *arguments]
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


def test_a_run_with_an_accent_in_its_path_is_resumed(dataset: Path, tmp_path: Path) -> None:
    variables = ENCODINGS[0]
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


@pytest.mark.parametrize("columns", ["-3", "x"])
def test_any_number_of_columns_is_accepted(columns: str, dataset: Path) -> None:
    assert run(["inspect", dataset, "--count", "1"], COLUMNS=columns, LINES="0").returncode == 0
    assert run(["build", "--help"], COLUMNS=columns).returncode == 0


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
