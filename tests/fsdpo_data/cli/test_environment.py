"""Commands in unusual environments: locales, encodings, widths, paths and memory."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import run as run_here
from helpers import small_build

from fsdpo_data.cli.console import run_app
from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.memory_limit import is_memory_error


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "built"
    small_build(out)
    return out


#: Runs several command lines in one process, since each start takes a second.
RUN_LINES = """
import json
import os
import sys

from fsdpo_data.cli.app import main

for line in json.loads(sys.argv[1]):
    sys.argv = ["fsdpo-data", *map(os.fsdecode, map(bytes.fromhex, line))]
    try:
        main()
    except SystemExit as ended:
        sys.stderr.flush()
        sys.stdout.flush()
        os.write(1, f"exit code {ended.code}\\n".encode())
"""


class Ran(NamedTuple):
    """The end of several commands."""

    codes: list[int]  #: Their exit codes.
    stdout: bytes
    stderr: bytes


def run(*lines: Sequence[object], **variables: str) -> Ran:
    words = [[os.fsencode(str(word)).hex() for word in line] for line in lines]
    ran = subprocess.run(
        [sys.executable, "-c", RUN_LINES, json.dumps(words)],
        env=os.environ | variables,
        capture_output=True,
        timeout=120,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr.decode(errors="replace")
    codes = [int(code) for code in re.findall(rb"^exit code (\d+)$", ran.stdout, flags=re.M)]
    assert len(codes) == len(lines)
    return Ran(codes, ran.stdout, ran.stderr)


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
    ran = run(["inspect", copy, "--count", "1"], ["build", "--help"], **variables)
    assert ran.codes == [0, 0] and b"/" in ran.stdout and b"--samples" in ran.stdout


def test_a_run_with_an_accent_in_its_path_is_resumed(dataset: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(dataset, tmp_path / "été-ω"))
    line = ["grade", source, "--out", tmp_path / "gradé-ω"]
    ran = run(line, [*line, "--resume"], line, **ENCODINGS[0])
    assert ran.codes == [0, 0, 1] and b"error: " in ran.stderr


def test_a_locale_without_accents_is_named(dataset: Path, tmp_path: Path) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    lines = (["inspect", dataset, "--count", "1"], ["inspect", tmp_path / "été"])
    ran = run(*lines, **ascii_locale)
    assert ran.codes == [0, 1] and b"set PYTHONUTF8=1 if the locale is not UTF-8" in ran.stderr


@pytest.mark.parametrize("columns", ["-3", "x"])
def test_any_number_of_columns_is_accepted(
    columns: str,
    dataset: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "0")
    assert run_here(capsys, "inspect", str(dataset), "--count", "1")[0] == 0
    assert run_here(capsys, "build", "--help")[0] == 0


def test_paths_that_are_not_utf8_are_refused(dataset: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9")
    copy = shutil.copytree(dataset, tmp_path / name)
    ran = run(
        ["inspect", copy],
        ["grade", copy, "--out", tmp_path / "out"],
        ["grade", dataset, "--out", tmp_path / f"{name}-out"],
        ["build", "--problems", copy, "--out", tmp_path / "built"],
    )
    assert ran.codes == [1] * 4 and ran.stderr.count(b"expected valid UTF-8") == 4


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
