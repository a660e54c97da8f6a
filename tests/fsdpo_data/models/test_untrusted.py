"""Tests of untrusted checkpoints: their code never runs, and their templates terminate."""

from __future__ import annotations

import ast
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run
from random_model import save_random_model, save_random_prm

from fsdpo_data.cli.app import main as data_main
from fsdpo_data.core.errors import InputError
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.untrusted import limit_execution
from fsdpo_train.cli.app import main as train_main

ROOT = Path(__file__).parents[3]
PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks", "cards")


def loads() -> list[tuple[str, ast.Call]]:
    """Return every call of ``from_pretrained`` in the source, with its location."""
    calls = []
    for path in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained":
                calls.append((f"{path.relative_to(ROOT)}:{node.lineno}", node))
    return calls


def test_no_load_trusts_remote_code() -> None:
    assert len(loads()) > 5
    for location, call in loads():
        trust_argument = {keyword.arg: keyword.value for keyword in call.keywords}.get(
            "trust_remote_code"
        )
        assert isinstance(trust_argument, ast.Constant) and trust_argument.value is False, location


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Write a checkpoint with its own architecture, whose code creates a file."""
    path = save_random_prm(tmp_path / "evil", save_random_model(tmp_path / "policy"))
    config = json.loads((path / "config.json").read_text())
    names = {"AutoConfig": "Config", "AutoModelForCausalLM": "Model"}
    config |= {"model_type": "evil", "auto_map": {k: f"evil.{v}" for k, v in names.items()}}
    (path / "config.json").write_text(json.dumps(config))
    mark = f"open({str(tmp_path / 'mark')!r}, 'w').close()\n"
    (path / "evil.py").write_text(mark + "class Config: ...\nclass Model: ...\n")
    return path


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (data_main, ["build", "--limit", "2", "--samples", "2", "--template", "problem",
                     "--engine", "transformers", "--model"]),
        (train_main, ["sft", "rows.jsonl", "--model"]),
    ],
    ids=["build", "sft"],
)  # fmt: skip
def test_a_yes_on_standard_input_runs_nothing(
    main: Callable[[], None],
    line: list[str],
    evil: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"prompt": "1 + 1?", "completion": "2"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.chdir(tmp_path)
    answers = io.StringIO("y\n" * 20)
    monkeypatch.setattr("sys.stdin", answers)
    code, _, err = run(capsys, *line, str(evil), "--out", "out", main=main)
    assert not (tmp_path / "mark").exists() and answers.tell() == 0
    assert code == 1 and "Python code from the checkpoint, which fsdpo never runs" in err


def test_a_prm_with_code_of_its_own_is_refused(evil: Path, tmp_path: Path) -> None:
    from fsdpo_data.core.errors import UnavailableError
    from fsdpo_data.engines.weights import resolve_prm

    with pytest.raises(
        UnavailableError, match=r"prm = .*Python code from the checkpoint, which fsdpo never runs"
    ):
        resolve_prm(str(evil))
    assert not (tmp_path / "mark").exists()


def test_a_chat_template_without_an_end_is_stopped(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = save_random_model(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer.chat_template = loop + "{{ messages[0].content }}"
    tokenizer.save_pretrained(path)
    started = time.process_time()
    with pytest.raises(InputError, match="does not come to an end"):
        get_template("chat", str(path))
    assert time.process_time() - started < 60


def test_a_budget_leaves_tracing_as_it_was() -> None:
    def forever() -> None:
        while True:
            pass

    old_trace = sys.gettrace()
    with pytest.raises(InputError, match="it does not come to an end"), limit_execution("it", 1000):
        forever()
    assert sys.gettrace() is old_trace
