"""Tests of recorded completions: what is written is read, and a run samples the rest again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from fakes import sample_all
from helpers import problem_set, small_build

from fsdpo_data.core.completion_records import (
    dump_completion,
    load_completions,
    load_record,
    read_records,
)
from fsdpo_data.core.errors import InputError, StoreError
from fsdpo_data.core.jsonl_log import LineSpan
from fsdpo_data.core.sampling import Completion, SamplingSpec, SearchCost
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.replay import ReplaySampler
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import served_weights
from fsdpo_data.problems.load import load_problems

COMPLETE = {"text": "42", "finish_reason": "stop", "n_tokens": 2, "seconds": 0.1}
STEPPED = COMPLETE | {"step_chars": [1, 1]}
BROKEN: list[Any] = [
    None,
    "text",
    [],
    {},
    *({key: value for key, value in COMPLETE.items() if key != gone} for gone in COMPLETE),
    *(COMPLETE | {"n_tokens": value} for value in (-1, 10**22, 1.5, "2")),
    COMPLETE | {"text": None},
    COMPLETE | {"finish_reason": "eos"},
    COMPLETE | {"seconds": "1"},
    COMPLETE | {"n_tokens": True},
    *(COMPLETE | {"seconds": value} for value in (True, -1.0, math.inf, math.nan)),
    COMPLETE | {"reasoning": 5},
    COMPLETE | {"stop_string": 5},
    COMPLETE | {"token_ids": [1, 2]},
    COMPLETE | {"other": 1},
    COMPLETE | {"step_rewards": [0.5]},
    COMPLETE | {"step_chars": [1000]},
    COMPLETE | {"step_chars": "1"},
    *(STEPPED | {"step_rewards": value} for value in ([], [2], [None], [True, 1], "1")),
    STEPPED | {"step_rewards": [0.5, math.inf]},
    *(COMPLETE | {name: [1.0]} for name in ("imported_labels", "imported_ratings")),
    *(STEPPED | {name: [1.0]} for name in ("imported_labels", "imported_ratings")),
    *(COMPLETE | {"imported_correct": value} for value in (1, "yes")),
    *(COMPLETE | {"search_cost": value} for value in (5, {}, {"prm_calls": 3})),
    COMPLETE | {"search_cost": {"discarded_tokens": 7, "prm_calls": None}},
    COMPLETE | {"search_cost": {"discarded_tokens": -7, "prm_calls": 3}},
]


@pytest.mark.parametrize("value", BROKEN)
def test_an_invalid_completion_is_refused(value: Any) -> None:
    assert load_completions([COMPLETE]) == [Completion("42", "stop", 2, 0.1)]
    with pytest.raises(ValueError):
        load_completions([COMPLETE, value])


def test_a_replay_may_leave_the_cost_out(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    values = {"text": "42", "finish_reason": "stop"}
    record = {"prompt": "20 + 22?", "completions": [values, COMPLETE | {"n_tokens": None}]}
    file.write_text(json.dumps(record) + "\n")
    options = SamplerOptions(engine="replay", replay=str(file))
    sampler = ReplaySampler(served_weights("tiny"), options)
    [[first, second]] = sample_all(sampler, ["20 + 22?"], SamplingSpec(n=2))
    assert (first.n_tokens, first.seconds) == (None, 0.0)
    assert (second.n_tokens, second.seconds) == (None, 0.1)


@pytest.mark.parametrize("name", ["problem_id", "prompt"])
@pytest.mark.parametrize("value", [5, ["x"], None])
def test_the_texts_of_a_record_are_checked(name: str, value: Any) -> None:
    record = {"problem_id": "p1", "prompt": "?", "completions": [COMPLETE]}
    assert load_record(record).problem_id == "p1"
    with pytest.raises(TypeError, match=f"the {name} is not a text"):
        load_record(record | {name: value})


@pytest.mark.parametrize(
    "completion",
    [
        Completion("42", "length", None, 1.0),
        Completion("42", "stop", 2, reasoning="Hm."),
        Completion("42", "stop", 2, step_chars=(1, 1), step_rewards=(0, -2.5)),
        Completion("42", "stop", step_chars=(2,), imported_labels=(0.3,), imported_ratings=(-1,)),
        Completion("", "stop", 1, step_chars=(), step_rewards=(), imported_correct=False),
        *(
            Completion("42", "stop", 2, search_cost=SearchCost(tokens, 3))
            for tokens in (None, 0, 7)
        ),
    ],
)
def test_a_completion_is_read_as_it_was_written(completion: Completion) -> None:
    values = dump_completion(completion)
    encoded = json.dumps(values)
    [loaded] = load_completions([json.loads(encoded)])
    assert loaded == completion
    assert json.dumps(dump_completion(loaded)) == encoded


def test_fields_without_a_value_are_not_written() -> None:
    assert dump_completion(Completion("42", "stop", 2, 0.1, stop_string="x")) == COMPLETE


def test_an_invalid_completion_of_a_sampler_is_named(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    record = {"problem_id": "p1", "prompt": "?", "completions": [COMPLETE | {"n_tokens": -1}]}
    line = json.dumps(record).encode()
    file.write_bytes(line)
    with pytest.raises(StoreError, match=r"a completion of p1 is invalid, 0\.n_tokens: "):
        list(read_records(file, [LineSpan(0, len(line))]))


@pytest.mark.parametrize("gone", ["text", "n_tokens", "seconds"])
def test_a_run_samples_incomplete_records_again(tmp_path: Path, gone: str) -> None:
    source = problem_set(3)
    small_build(tmp_path, source)
    old_content = (tmp_path / "completions.jsonl").read_bytes()
    lines = old_content.splitlines()
    record = json.loads(lines[1])
    del record["completions"][0][gone]
    (tmp_path / "completions.jsonl").write_bytes(
        b"\n".join([lines[0], json.dumps(record).encode(), *lines[2:]]) + b"\n"
    )
    (tmp_path / "manifest.json").unlink()
    small_build(tmp_path, source, resume=True)
    assert len((tmp_path / "completions.jsonl").read_bytes().splitlines()) == 4


def test_an_incomplete_replay_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problems, recorded = tmp_path / "problems.jsonl", tmp_path / "recorded.jsonl"
    problems.write_text('{"question": "20 + 22?", "answer": "42"}\n')
    build = ("build", "--problems", str(problems), "--samples", "1", "--template", "problem")
    replay = ("--engine", "replay", "--replay", str(recorded))
    prompt = get_template("problem").render("20 + 22?")
    hostile_fields: list[dict[str, Any]] = [
        {"n_tokens": True},
        {"n_tokens": "many"},
        {"n_tokens": 2**40},
    ]
    completions = [5, {"text": 5}, *(COMPLETE | fields for fields in hostile_fields)]
    for number, completion in enumerate(completions):
        out = ("--out", str(tmp_path / f"out{number}"))
        recorded.write_text(json.dumps({"prompt": prompt, "completions": [completion]}) + "\n")
        code, _, err = run(capsys, *build, *replay, *out)
        assert code == 1 and "is incomplete" in err


def test_a_file_has_no_split_of_another_name(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text('{"question": "20 + 22?", "answer": "42"}\n')
    with pytest.raises(InputError, match="expected one of train, test"):
        load_problems([str(file)], split="nosplit")
