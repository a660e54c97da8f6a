"""What counts as a completion that was recorded; anything else in a run is owed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from helpers import problem_set, small_build

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import is_completion
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import load_problems

WHOLE = {"text": "42", "finish_reason": "stop", "n_tokens": 2, "seconds": 0.1}
BROKEN: list[Any] = [
    None,
    "text",
    [],
    {},
    *({key: value for key, value in WHOLE.items() if key != gone} for gone in list(WHOLE)[:3]),
    *(WHOLE | {"n_tokens": value} for value in (-1, 10**22, 1.5, "2")),
    WHOLE | {"text": None},
    WHOLE | {"finish_reason": "eos"},
    WHOLE | {"seconds": "1"},
    WHOLE | {"other": 1},
]


@pytest.mark.parametrize("value", BROKEN)
def test_what_is_not_whole_is_none(value: Any) -> None:
    assert is_completion(WHOLE) and not is_completion(value)


def test_tokens_that_nobody_counted_are_whole() -> None:
    assert is_completion(WHOLE | {"n_tokens": None})


def test_a_run_owes_what_is_not_whole(tmp_path: Path) -> None:
    source = problem_set(3)
    small_build(tmp_path, source)
    old_content = (tmp_path / "completions.jsonl").read_bytes()
    lines = old_content.splitlines()
    record = json.loads(lines[1])
    record["completions"][0] = {"text": 5}
    (tmp_path / "completions.jsonl").write_bytes(
        b"\n".join([lines[0], json.dumps(record).encode(), *lines[2:]]) + b"\n"
    )
    (tmp_path / "manifest.json").unlink()
    small_build(tmp_path, source, resume=True)
    assert len((tmp_path / "completions.jsonl").read_bytes().splitlines()) == 4


def test_a_replay_that_is_not_whole_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problems, recorded = tmp_path / "problems.jsonl", tmp_path / "recorded.jsonl"
    problems.write_text('{"question": "20 + 22?", "answer": "42"}\n')
    build = ("build", "--problems", str(problems), "--samples", "1", "--template", "problem")
    replay = ("--engine", "replay", "--replay", str(recorded), "--out", str(tmp_path / "out"))
    prompt = get_template("problem").render("20 + 22?")
    recorded.write_text(json.dumps({"prompt": prompt, "completions": [{"text": 5}]}) + "\n")
    code, _, err = run(capsys, *build, *replay)
    assert code == 1 and "is incomplete" in err


def test_a_file_has_no_split_of_another_name(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text('{"question": "20 + 22?", "answer": "42"}\n')
    with pytest.raises(InputError, match="expected one of train, test"):
        load_problems([str(file)], split="nosplit")
