"""Tests of run directories: saved per problem, bound to their options, and repaired on resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsdpo_data.core.completion_records import CompletionRecord
from fsdpo_data.core.errors import RunMismatchError, StoreError
from fsdpo_data.core.sampling import Completion
from fsdpo_data.dataset.run_directory import COMPLETIONS_FILE, RunDir, differing_keys

N_SAMPLES = 2
CONFIG: dict[str, Any] = {
    "sampling": {"n": N_SAMPLES, "temperature": 0.8, "stop": ("x",)},
    "model": "m",
}


def record(problem_id: str, text: str = "a") -> CompletionRecord:
    completion = Completion(text, "stop", 1, 0.5)
    return CompletionRecord(problem_id, f"prompt of {problem_id}", [completion] * N_SAMPLES)


def start_run(path: Path, *ids: str) -> Path:
    with RunDir.open(path, CONFIG, n_samples=N_SAMPLES, resume=False) as run:
        run.append([record(record_id) for record_id in ids])
    return path


def read_run(path: Path) -> tuple[list[str], int]:
    with RunDir.open(path, CONFIG, n_samples=N_SAMPLES, resume=True) as run:
        return list(run.line_spans), run.incomplete_lines


def test_records_are_found_again(tmp_path: Path) -> None:
    run_dir = start_run(tmp_path / "run", "p1", "p2")
    with RunDir.open(run_dir, CONFIG, n_samples=N_SAMPLES, resume=True) as run:
        start, length = run.line_spans["p2"]
        line = run.completions_path.read_bytes()[start : start + length]
    assert json.loads(line)["prompt"] == "prompt of p2"
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    ("damage", "left", "torn"),
    [
        (lambda raw: raw[:-5], ["p1"], 1),
        (lambda raw: raw[:-1], ["p1"], 1),
        (lambda raw: raw + b'{"problem_id": "p3"', ["p1", "p2"], 1),
        (lambda raw: raw + b"\x00" * 4096, ["p1", "p2"], 1),
        (lambda raw: b"not json\n" + raw, ["p1", "p2"], 1),
        (lambda raw: raw.replace(b'"p1"', b'["p1"]'), ["p2"], 1),
        (lambda raw: raw.replace(b',"finish_reason":"stop"', b"", 1), ["p2"], 1),
        (lambda raw: raw.replace(b'"n_tokens":1', b'"n_tokens":"1"', 1), ["p2"], 1),
        (lambda raw: raw.replace(b'"prompt":"prompt of p1"', b'"prompt":1', 1), ["p2"], 1),
        (lambda raw: raw + raw, ["p1", "p2"], 0),
        (lambda raw: raw.replace(b'[{"text":"a"', b"[", 1)[: -len(raw) // 2], [], 1),
        (lambda raw: b"", [], 0),
    ],
)
def test_damage_costs_only_what_it_hit(
    tmp_path: Path, damage: Any, left: list[str], torn: int
) -> None:
    path = start_run(tmp_path / "run", "p1", "p2") / COMPLETIONS_FILE
    path.write_bytes(damage(path.read_bytes()))
    assert read_run(tmp_path / "run") == (left, torn)
    with RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=True) as run:
        run.append([record("p9")])
    assert read_run(tmp_path / "run")[0] == [*left, "p9"]


def test_a_record_with_too_few_samples_is_missing(tmp_path: Path) -> None:
    path = start_run(tmp_path / "run", "p1")
    incomplete_record = json.loads((path / COMPLETIONS_FILE).read_text()) | {"problem_id": "p2"}
    incomplete_record["completions"].pop()
    with (path / COMPLETIONS_FILE).open("a") as file:
        file.write(json.dumps(incomplete_record) + "\n")
    assert read_run(path) == (["p1"], 1)


def test_another_config_is_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    start_run(tmp_path / "run", "p1")
    other = {"sampling": {**CONFIG["sampling"], "temperature": 1.0}, "model": "n"}
    with (
        pytest.raises(RunMismatchError) as caught,
        RunDir.open(tmp_path / "run", other, n_samples=N_SAMPLES, resume=True),
    ):
        pass
    assert "model: 'm' in the run, 'n' now" in str(caught.value)
    assert "sampling.temperature: 0.8 in the run, 1.0 now" in str(caught.value)
    assert "stop" not in str(caught.value)


def test_resuming_needs_the_option(tmp_path: Path) -> None:
    start_run(tmp_path / "run", "p1")
    with (
        pytest.raises(RunMismatchError, match="`resume=True`, choose another `out`, or delete"),
        RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=False),
    ):
        pass


def test_a_directory_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with (
        pytest.raises(RunMismatchError, match=r"thesis\.tex"),
        RunDir.open(tmp_path, CONFIG, n_samples=N_SAMPLES, resume=True),
    ):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "dear"


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    with (
        RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=False),
        pytest.raises(StoreError, match="another process is writing"),
        RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=True),
    ):
        pass


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with (
        pytest.raises(StoreError, match="a file is in the way; choose another `out`"),
        RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=False),
    ):
        pass


def test_lone_surrogates_are_stored_as_replacement_characters(tmp_path: Path) -> None:
    with RunDir.open(tmp_path / "run", CONFIG, n_samples=N_SAMPLES, resume=False) as run:
        run.append([record("p1", "a\ud800b\x00😀")])
        raw = json.loads(run.completions_path.read_bytes())
    assert raw["completions"][0]["text"] == "a\ufffdb\x00😀"


def test_differing_keys() -> None:
    old = {"a": {"b": 1, "c": [1]}, "d": 2, "config_digest": "x"}
    new = {"a": {"b": 1, "c": [2]}, "e": 3, "config_digest": "y"}
    assert differing_keys(old, new) == [("a.c", [1], [2]), ("d", 2, None), ("e", None, 3)]
