"""Tests of the command line: a user's mistake gives one message and exit code 1, no traceback."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from helpers import problem_set, small_build

from fsdpo_data.cli.console import run_app
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.models.prompts import TEMPLATES
from fsdpo_data.models.resolve import MODELS


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    small_build(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--samples", "0"], "--samples 0: expected at least 1."),
        (["build", "--temperature", "-1"], "--temperature -1: expected at least 0."),
        (["build", "--temperature", "0"], "Use --samples 1, or a temperature above 0."),
        (["build", "--top-p", "0"], "--top-p 0: expected more than 0 and at most 1."),
        (["build", "--max-tokens", "0"], "--max-tokens 0: expected at least 1."),
        (["build", "--limit", "0"], "--limit 0: expected at least 1."),
        (["build", "--batch-size", "0"], "--batch-size 0: expected at least 1."),
        (
            ["build", "--segmenter", "lines"],
            "--segmenter lines: expected one of auto@1, step-marker@1",
        ),
        (
            ["build", "--engine", "replay"],
            "--engine replay and --replay FILE need each other",
        ),
        (["build", "--engine-arg", "x"], "--engine-arg x: expected KEY=VALUE"),
        (["build", "--model", "qwen-7b-sft"], "Nearest short names: qwen2-7b-sft"),
        (["build", "--problems", "nosuch.jsonl"], "nosuch.jsonl"),
        (["build", "--template", "alpacca"], "alpaca"),
        (["build", "--template", ""], "alpaca"),
        (["build", "--problems", "a" * 300], "File name too long"),
        (
            ["build", "--model", "~nobody-of-that-name/x"],
            "no such file or directory. Expected a model directory",
        ),
        (["validate", "nowhere"], "no such file or directory: nowhere. Expected a dataset"),
        (["inspect", "nowhere"], "no such file or directory: nowhere. Expected a dataset"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert err.startswith("error: ") and message in err
    assert not list(tmp_path.iterdir()), "nothing is written before the options are checked"


def test_a_requested_gpu_that_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run(capsys, "build", "--device", "cuda")
    assert code == 1 and "--device cuda: torch sees no GPU here. Use cpu" in err


def test_an_unsealed_run_says_how_to_finish_it(
    capsys: pytest.CaptureFixture[str], dataset: Path
) -> None:
    (dataset / "manifest.json").unlink()
    code, _, err = run(capsys, "validate", str(dataset))
    assert code == 1 and "stopped is finished by the same command with --resume" in err


def test_a_file_is_no_dataset(capsys: pytest.CaptureFixture[str], dataset: Path) -> None:
    code, _, err = run(capsys, "validate", str(dataset / "manifest.json"))
    assert code == 1 and "manifest.json holds no dataset" in err and "Expected a directory" in err


def test_what_a_model_wrote_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Emoji codes and wide spaces stay text, and escape sequences are replaced."""
    text = "The ratio is 3:100:5,\u3000so\x1b[31m 4. [b]The answer is 4"
    row = {"question": "2+2?", "answer": "4", "responses": [text]}
    (tmp_path / "said.jsonl").write_text(json.dumps(row))
    out = str(tmp_path / "out")
    assert not run(capsys, "import", f"{tmp_path}/said.jsonl", "--from", "outputs", "--out", out)[0]
    _, output, _ = run(capsys, "inspect", out)
    assert text.replace("\x1b", "\ufffd") in output


def test_replaying_a_run_gives_the_same_dataset(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = problem_set(5)
    small_build(tmp_path / "a", source)
    rows = [{"question": p.question, "answer": p.answer} for p in source.problems]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"question": "no gold?"}]))
    arguments = ["build", "--problems", str(file), "--samples", "4", "--engine", "replay"]
    arguments += ["--replay", str(tmp_path / "a/completions.jsonl"), "--out", str(tmp_path / "b")]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "sealed" in out and "25.0 %" in out and "next: fsdpo-data inspect" in out
    assert "quarantined" in out
    code, out, _ = run(capsys, "validate", str(tmp_path / "b"))
    assert code == 0 and "5 problems, 20 solutions" in out
    recorded = (tmp_path / "a/completions.jsonl").read_bytes()
    assert (tmp_path / "b/completions.jsonl").read_bytes() == recorded
    one_each = tmp_path / "one each.jsonl"
    with one_each.open("w") as lines:
        for line in map(json.loads, recorded.splitlines()):
            for completion in line["completions"]:
                lines.write(
                    json.dumps({"prompt": line["prompt"], "completions": [completion]}) + "\n"
                )
    arguments[-3:] = [str(one_each), "--out", str(tmp_path / "c [1]")]
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and f"next: fsdpo-data inspect '{tmp_path / 'c [1]'}'" in out
    assert (tmp_path / "c [1]/completions.jsonl").read_bytes() == recorded


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("{}\n", "line 1: expected one JSON object with `prompt` and `completions`"),
        (
            '{"prompt": "another", "completions": []}\n',
            "the file has no completions of the prompt",
        ),
    ],
)
def test_a_recording_that_does_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "p.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    (tmp_path / "r.jsonl").write_text(content)
    arguments = ["build", "--problems", str(tmp_path / "p.jsonl"), "--engine", "replay"]
    arguments += ["--replay", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *arguments)
    assert code == 1 and message in err


def test_inspect_shows_steps_and_labels(capsys: pytest.CaptureFixture[str], dataset: Path) -> None:
    code, out, _ = run(capsys, "inspect", str(dataset), "--count", "1", "--samples", "2")
    assert code == 0
    assert "accuracy" in out and "gold 42" in out
    assert "+   1  Step 1: 20 + 22 = 42." in out
    assert "-   2  Step 2: So it is 43. The answer is: 43" in out
    assert "2 of 4 solutions of this problem; --samples 4 shows all" in out


def test_inspect_says_how_to_see_all_problems(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small_build(tmp_path / "run", problem_set(3))
    line = ("inspect", str(tmp_path / "run"), "--count")
    assert run(capsys, *line, "2")[1].splitlines()[-1] == (
        "2 of 3 problems, a random choice; --count 3 shows all"
    )
    assert "a random choice" not in run(capsys, *line, "3")[1]


def test_an_import_without_a_format_lists_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "import", "rows.jsonl", "--out", "rows")
    assert code == 1
    assert "--from: missing. Give the format of the file: outputs, fields, trl-stepwise, " in err
    line = ("import", "rows.jsonl", "--from", "outputs", "--out", "rows")
    code, _, err = run(capsys, *line, "--segmenter", "")
    assert code == 1 and "--segmenter '': expected one of" in err


def test_inspect_filters(capsys: pytest.CaptureFixture[str], dataset: Path) -> None:
    _, out, _ = run(capsys, "inspect", str(dataset), "--outcome", "no_answer", "--samples", "9")
    assert "#3 no_answer" in out and "#0" not in out
    code, _, err = run(capsys, "inspect", str(dataset), "--problem", "zzz")
    assert code == 1 and "holds no problem 'zzz'" in err


def test_validate_prints_the_manifest_for_machines(
    capsys: pytest.CaptureFixture[str], dataset: Path
) -> None:
    _, out, _ = run(capsys, "validate", str(dataset), "--json")
    files = json.loads(out)["files"]
    assert [file["rows"] for file in files if file["path"].startswith("solutions/")] == [12]


def test_only_warnings_get_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("fsdpo_train")

    def talks() -> None:
        log.setLevel(logging.INFO)
        log.info("3 rows")
        log.warning("odd")

    try:
        with pytest.raises(SystemExit):
            run_app(talks)
    finally:
        log.setLevel(logging.NOTSET)
    assert capsys.readouterr().err == "3 rows\nwarning: odd\n"


def test_progress_bars_do_not_overwrite_output_after_them(dataset: Path) -> None:
    """On a terminal, progress bars move the cursor only over their own lines."""
    ours, terminal = os.openpty()
    line = [sys.executable, "-m", "fsdpo_data", "grade", str(dataset), "--workers", "1"]
    environment = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(
        [*line, "--out", str(dataset.parent / "again")],
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    output = b""
    with contextlib.suppress(OSError):  # Linux raises this for a closed terminal
        while read := os.read(ours, 1 << 16):
            output += read
    os.close(ours)
    assert child.wait() == 0 and b"validate" in output
    _, sealed, text_after = output.partition(b"sealed")
    assert sealed and b"\x1b[1A" in output and b"\x1b[1A" not in text_after


@pytest.mark.parametrize("columns", [80, 10_000])
def test_names_of_models_fold_where_there_is_a_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shutil.get_terminal_size", lambda otherwise: os.terminal_size((columns, 0))
    )
    for kind, names in (("models", MODELS), ("prm-formats", PRM_FORMATS)):
        _, out, _ = run(capsys, "list", kind)
        assert max(map(len, out.splitlines())) <= columns
        assert (len(out.splitlines()) == len(names)) is (columns > 80)
        assert [name for name in names if f"{name} " not in out] == []


def test_only_templates_have_a_text_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list", "templates")[1].split() == list(TEMPLATES)
    assert (
        run(capsys, "list", "templates", "alpaca")[1].strip() == TEMPLATES["alpaca@1"].text.strip()
    )
    code, _, err = run(capsys, "list", "models", "tiny")
    assert code == 1 and "only templates have a text" in err
