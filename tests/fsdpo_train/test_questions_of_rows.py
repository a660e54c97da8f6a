"""Training prompts of a sealed dataset know their question, and get the format of a chat server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import fixed_sampler, problem_set, sample_settings, small_build
from made_runs import written
from paired_data import SOLUTIONS, paired_dataset
from small_tokenizer import save_tokenizer

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.exchange.export import export
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_train.trainer.row_formats import PRM_ROWS, SFT_ROWS
from fsdpo_train.trainer.row_source import open_data, open_source, render_chat_prompts


def test_prompts_have_the_questions_of_their_problems(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    files = read_manifest(root).config_paths(root, "problems")
    problems = scan_rows("problems", files).collect()
    questions = dict(problems.select("problem_id", "question").iter_rows())
    rows = [row for _, row in open_source(root, PRM_ROWS).rows()]
    assert rows
    for row in rows:
        assert isinstance(row["prompt"], Prompt)
        assert row["prompt"].question == questions[row["problem_id"]]


def test_a_copy_without_problems_has_plain_prompts(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    shutil.rmtree(root / "problems")
    source = open_source(root, PRM_ROWS, allow_benchmark=True)
    assert not any(isinstance(row["prompt"], Prompt) for _, row in source.rows())


def test_rows_of_files_may_state_their_question(tmp_path: Path) -> None:
    """An export for SFT does, so that special tokens in the question are text."""
    rows = export(paired_dataset(tmp_path / "data"), "trl-sft", tmp_path / "rows").file
    prompts = [row["prompt"] for _, row in open_source(rows, SFT_ROWS).rows()]
    assert prompts
    assert all(isinstance(prompt, Prompt) and prompt.question in prompt for prompt in prompts)
    plain = written(tmp_path / "plain.jsonl", [{"prompt": "2+2?", "completion": "4"}])
    [(_, row)] = open_source(plain, SFT_ROWS).rows()
    assert not isinstance(row["prompt"], Prompt)


def build_dataset(root: Path, api: str) -> Path:
    """Build a dataset that a server sampled with an API."""
    source = problem_set(2)
    engine = EngineRef(name="openai", dtype="auto", api=api)
    settings = sample_settings(n=4).model_copy(update={"engine": engine})
    sampler = fixed_sampler(source, SOLUTIONS)
    small_build(root, source, sampling=settings, make_sampler=lambda: sampler)
    return root


def test_prompts_of_a_chat_server_get_the_chat_format(tmp_path: Path) -> None:
    """The rows have the message of the user; the server wrote `<user>` and `<assistant>`."""
    tokenizer = load_tokenizer(save_tokenizer(tmp_path / "model"))
    for api, start, end in (("chat", "<user>", "<assistant>"), ("completions", "", "")):
        data = open_data([build_dataset(tmp_path / api, api)], PRM_ROWS)
        plain_prompts = [row["prompt"] for _, row in data.rows()]
        rendered = [row["prompt"] for _, row in render_chat_prompts(data, tokenizer).rows()]
        assert rendered == [f"{start}{prompt}{end}" for prompt in plain_prompts]
        assert all(isinstance(prompt, Prompt) and prompt.question for prompt in rendered)


def test_prompts_of_a_chat_server_need_a_chat_template(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path / "model", chat=None))
    data = open_data([build_dataset(tmp_path / "chat", "chat")], PRM_ROWS)
    with pytest.raises(InputError, match="lack the chat format of the server"):
        render_chat_prompts(data, tokenizer)


def test_an_export_of_prompts_without_chat_format_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for api in ("completions", "chat"):
        export(build_dataset(tmp_path / api, api), "trl-sft", tmp_path / f"{api}-rows")
        assert ("lack the chat format" in caplog.text) == (api == "chat")
