"""SFT and preference training end a chat solution with the token that the model ends it with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_random_model

transformers = pytest.importorskip("transformers")

from fsdpo_train import DpoConfig, SftConfig  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.sft import train as sft  # noqa: E402

EOS = 0
TURN_END = 1  # "<|pad|>" of the random model


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with a token that ends its turns, next to the one of its tokenizer."""
    path = save_random_model(tmp_path_factory.mktemp("chat"))
    file = path / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [EOS, TURN_END]}))
    return path


def record_results(monkeypatch: pytest.MonkeyPatch, stage: Any, function_name: str) -> list[Any]:
    """Record the results of a function that a stage calls."""
    results: list[Any] = []
    function = getattr(stage, function_name)

    def call_and_record(*args: Any, **options: Any) -> Any:
        results.append(function(*args, **options))
        return results[-1]

    monkeypatch.setattr(stage, function_name, call_and_record)
    return results


@pytest.mark.parametrize(("turn_text", "last_id"), [("<|pad|>", TURN_END), ("", EOS)])
def test_sft_ends_completions_like_the_model(
    chat_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    turn_text: str,
    last_id: int,
) -> None:
    rows = [{"prompt": f"2 + 2?{turn_text}\n", "completion": "It is 4."}]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    encoded = record_results(monkeypatch, sft, "encode_rows")
    sft.train_sft(SftConfig(data=data, model=str(chat_model), out=tmp_path / "out", max_steps=1))
    assert encoded[0].rows[0].solution.input_ids[-1] == last_id


@pytest.mark.parametrize("space", ["", "\n"])
def test_an_end_of_turn_in_the_completion_is_a_token(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: str
) -> None:
    """Chat templates write a line end after a turn."""
    rows = [
        {"prompt": "2 + 2?<|pad|>\n", "completion": f"It is 4.{end}"}
        for end in ("", f"<|pad|>{space}")
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    encoded = record_results(monkeypatch, sft, "encode_rows")
    sft.train_sft(SftConfig(data=data, model=str(chat_model), out=tmp_path / "out", max_steps=1))
    plain, ended = (row.solution.input_ids.tolist() for row in encoded[0].rows)
    assert plain == ended


@pytest.mark.parametrize(("turn_text", "last_id"), [("<|pad|>", TURN_END), ("", EOS)])
def test_preference_training_ends_solutions_like_the_model(
    chat_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    turn_text: str,
    last_id: int,
) -> None:
    rows = [{**row, "prompt": row["prompt"] + turn_text} for row in preference_rows()]
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    tokenized = record_results(monkeypatch, dpo, "tokenize_groups")
    options: dict[str, Any] = dict(loss="public-code", max_steps=1)
    dpo.train_dpo(DpoConfig(data=data, model=str(chat_model), out=tmp_path / "out", **options))
    [(groups, _)] = tokenized
    for group in groups:
        assert {solution.tokens.input_ids[-1] for solution in group.solutions} == {last_id}
