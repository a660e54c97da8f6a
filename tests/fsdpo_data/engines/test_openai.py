"""The openai engine with a faulty server: completions are not lost, and keys are not written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import openai_server
import polars as pl
import pytest
from fakes import Judge, sample_all
from fsdpo_bench.cli.app import app as bench
from helpers import read_sample_settings, stage_names, statistics_of
from openai_server import Script, says, sends, serving
from small_tokenizer import save_tokenizer
from typer.testing import CliRunner

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.cli.app import app
from fsdpo_data.cli.console import run_app
from fsdpo_data.core import http_client
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError, ItemError, RunMismatchError, UnavailableError
from fsdpo_data.core.http_client import retry_delay
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.separate_thinking import find_solutions_without_thinking
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.beam_search import BeamSampler, BeamSpec
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.samplers.openai import OpenAiSampler
from fsdpo_data.engines.samplers.replay import ReplaySampler
from fsdpo_data.engines.server_client import MAX_ANSWERS_WITHOUT_RESULT
from fsdpo_data.models.resolve import served_weights
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.label import LabelOptions, make_label_stage
from fsdpo_data.stages.pipeline import BuildOptions, run_build

PROMPTS = ["1 + 1?", "1 + 2?", "1 + 3?"]
SPEC = SamplingSpec(n=4, max_tokens=16, stop=("\n\n",))
KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def short_retry_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdpo_data.core.http_client.MAX_DELAY_SECONDS", 0.01)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


def connect(url: str, **changes: Any) -> OpenAiSampler:
    server = ServerOptions(base_url=url, **changes)
    options = SamplerOptions(engine="openai", server=server)
    return OpenAiSampler(served_weights("tiny"), options)


def test_samples_are_complete_and_in_order(script: Script, url: str) -> None:
    completions = sample_all(connect(url), PROMPTS, SPEC)
    seeds = [SPEC.prompt_seed(Prompt(prompt)) for prompt in PROMPTS]
    assert [
        [completion.text for completion in prompt_completions] for prompt_completions in completions
    ] == [[f"{seed + i} it is." for i in range(4)] for seed in seeds]
    # The server counts the tokens of all four samples together.
    assert all(
        sum(completion.n_tokens for completion in prompt_completions) == 13
        for prompt_completions in completions
    )
    assert {
        completion.finish_reason
        for prompt_completions in completions
        for completion in prompt_completions
    } == {"stop"}
    assert len(script.requests) == 3
    request = next(request for request in script.requests if request["prompt"] == PROMPTS[0])
    assert request == {
        "model": "tiny",
        "prompt": "1 + 1?",
        "n": 4,
        "temperature": SPEC.temperature,
        "top_p": SPEC.top_p,
        "max_tokens": SPEC.max_tokens,
        "seed": seeds[0],
        "stop": ["\n\n"],
    }


@pytest.mark.parametrize("trick", ["busy", "broken", "html", "cut", "hang_up", "slow"])
def test_failed_requests_are_repeated(script: Script, url: str, trick: str) -> None:
    expected = sample_all(connect(url), PROMPTS, SPEC)
    script.requests.clear()
    script.tricks += [getattr(openai_server, trick)] * 4
    impatient = {"timeout": 0.5} if trick == "slow" else {}
    again = sample_all(connect(url, **impatient), PROMPTS, SPEC)
    assert [[completion.text for completion in completions] for completions in again] == [
        [completion.text for completion in completions] for completions in expected
    ]
    n_requests = len(script.requests)
    # On a busy machine a response may be too late although the server was not slow.
    assert n_requests == 7 or (impatient and n_requests > 7)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"choices": []},
        {"choices": None},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "finish_reason": "stop", "text": 7}]},
        {"choices": [{"index": 0, "finish_reason": None, "text": "half"}]},
        {"choices": [{"index": 0, "finish_reason": "abort", "text": "half"}]},
        {"choices": [{"index": 0, "finish_reason": "ERROR", "text": "half"}]},
    ],
)
def test_malformed_responses_are_requested_again(script: Script, url: str, answer: Any) -> None:
    script.tricks.append(says(answer))
    assert sample_all(connect(url), PROMPTS[:1], SPEC)[0][0].text.endswith("it is.")
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"index": Infinity, "finish_reason": "stop", "text": "a"}]}',
        b'{"choices": [{"index": 1e999, "finish_reason": "stop", "text": "a"}]}',
        b'{"choices": [{"index": NaN, "finish_reason": "stop", "text": "a"}]}',
        b'{"choices": ' + b"[" * 100_000,
        b'{"choices": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"choices": [{"index": ' + b"9" * 5000 + b', "finish_reason": "stop", "text": "a"}]}',
        b"\xff\xfe",
    ],
)
def test_hostile_responses_are_requested_again(script: Script, url: str, body: bytes) -> None:
    script.tricks.append(sends(body))
    assert sample_all(connect(url), PROMPTS[:1], SPEC)[0][0].text.endswith("it is.")
    assert len(script.requests) == 2


@pytest.fixture
def busy_answers(monkeypatch: pytest.MonkeyPatch) -> list[openai_server.Trick]:
    """Answers of the server to the next requests for its models."""
    answers: list[openai_server.Trick] = []
    list_models = openai_server.Handler.do_GET

    def answer(handler: openai_server.Handler) -> None:
        if answers:
            answers.pop(0)(handler)
        else:
            list_models(handler)

    monkeypatch.setattr(openai_server.Handler, "do_GET", answer)
    return answers


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_list_of_models_is_requested_again(
    script: Script, url: str, status: int, busy_answers: list[openai_server.Trick]
) -> None:
    script.prm = "tiny"  # a model of vLLM
    busy_answers += [says({"error": "loading"}, status)] * 3
    sample_all(connect(url), PROMPTS[:1], SPEC)
    [request] = script.requests
    # Without these fields, vLLM takes them from generation_config.json of the model.
    defaults = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert {name: request.get(name) for name in defaults} == defaults
    assert not busy_answers


def test_a_server_may_have_no_list_of_models(
    script: Script, url: str, busy_answers: list[openai_server.Trick]
) -> None:
    busy_answers.append(says({"error": "no such path"}, 404))
    sample_all(connect(url), PROMPTS[:1], SPEC)
    assert "top_k" not in script.requests[0] and not busy_answers


def test_a_server_that_fails_at_the_list_of_models_is_used_with_a_warning(
    script: Script,
    url: str,
    busy_answers: list[openai_server.Trick],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.server_client.retry_delay", lambda *_, **__: 0.0)
    busy_answers += [says({"error": "no list"}, 500)] * 10
    sample_all(connect(url), PROMPTS[:1], SPEC)
    assert "does not list its models (500" in caplog.text
    assert len(busy_answers) == 10 - MAX_ANSWERS_WITHOUT_RESULT


def test_a_server_that_stays_busy_is_an_error_before_the_first_prompt(
    script: Script,
    url: str,
    busy_answers: list[openai_server.Trick],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.server_client.IDLE_TIMEOUT_SECONDS", 0.2)
    busy_answers += [says({"error": "loading"}, 503)] * 10_000
    message = r'no list of models in 0\.2 seconds \(the server answered 503: {"error": "loading"}'
    with pytest.raises(UnavailableError, match=message):
        connect(url)
    assert not script.requests


#: Answers without a result, and the part of the reason that a user reads.
BAD_ANSWERS = [
    (says({"choices": []}), 'no choices: {"choices": []}'),
    (says({"error": {"message": "KV cache"}}), 'KeyError: \'choices\': {"error": {"message": "KV'),
    (says({"error": {"message": "KV cache"}}, 500), 'answered 500: {"error": {"message": "KV'),
    (
        says({"choices": [{"index": 0, "finish_reason": "stop", "message": None}]}),
        "KeyError: 'text'",
    ),
]


@pytest.mark.parametrize(("trick", "reason"), BAD_ANSWERS)
def test_a_request_that_alone_has_no_result_has_failed(
    script: Script, url: str, trick: openai_server.Trick, reason: str
) -> None:
    script.faults["1 + 2?"] = trick
    engine = connect(url)
    outcomes = dict(engine.sample([*map(Prompt, PROMPTS)], SPEC))
    assert [len(outcomes[index]) for index in (0, 2)] == [4, 4]
    assert reason in str(outcomes[1]) and "6 times without a result" in str(outcomes[1])
    with pytest.raises(ItemError, match="answers other requests"):
        sample_all(engine, PROMPTS, SPEC)


def test_the_reason_of_a_busy_server_is_quoted(
    script: Script, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    quota = {"error": {"message": f"{KEY}: You exceeded your current quota. " + "x" * 999}}
    script.tricks += [says(quota, 429)] * 10_000
    monkeypatch.setattr("fsdpo_data.engines.server_client.IDLE_TIMEOUT_SECONDS", 0.2)
    engine = connect(url)
    with pytest.raises(UnavailableError) as unavailable:
        sample_all(engine, PROMPTS[:1], SPEC)
    message = str(unavailable.value)
    assert 'answered 429: {"error": {"message": "…: You exceeded your current quota.' in message
    assert KEY not in message and len(message) < 700


def test_a_response_that_drips_without_end_is_requested_again(script: Script, url: str) -> None:
    script.tricks.append(openai_server.drips)
    start = time.monotonic()
    assert sample_all(connect(url, timeout=3.0), PROMPTS[:1], SPEC)[0][0].text.endswith("it is.")
    assert len(script.requests) == 2 and time.monotonic() - start < 30


def test_a_response_without_end_is_refused_at_a_size(script: Script, url: str) -> None:
    script.tricks += [openai_server.floods] * 100
    with pytest.raises(UnavailableError, match=r"exceeds [\d,]+ bytes"):
        sample_all(connect(url), PROMPTS[:1], SPEC)
    assert len(script.requests) == 1


def test_a_list_of_models_without_end_is_refused(
    script: Script, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_server.Handler, "do_GET", openai_server.floods)
    with pytest.raises(UnavailableError, match=r"exceeds [\d,]+ bytes"):
        connect(url)


def test_escape_sequences_of_a_server_do_not_reach_the_terminal(
    script: Script, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script.tricks += [sends("\x1b]0;title\x07\x1b[2J\u202eno\x9b31m".encode(), 400)] * 2
    with pytest.raises(InputError) as refused:
        sample_all(connect(url), PROMPTS[:1], SPEC)
    assert not set("\x1b\x07\x9b\u202e") & set(str(refused.value))

    def fail() -> None:
        raise InputError("a\x1b[2Jb\u202ec")

    with pytest.raises(SystemExit):
        run_app(fail)
    assert capfd.readouterr().err == "error: a\ufffd[2Jb\ufffdc\n"


def choice_sampler(script: Script, url: str, choice: dict[str, Any]) -> LoadedSampler:
    """Connect to a server whose next responses have the same choice."""
    choices = [{"index": 0, "finish_reason": "stop", "text": "One.", **choice}]
    script.tricks += [says({"choices": choices})] * 9
    return LoadedSampler(connect(url))


#: Choices after the end of the sequence by a server that names stop strings, or truncated ones.
KNOWN_ENDS: list[dict[str, Any]] = [
    {"stop_reason": None},
    {"stop_reason": 151643},
    {"matched_stop": None},
    {"matched_stop": 151643},
    {"finish_reason": "length"},
]


def test_a_server_that_does_not_name_the_stop_string_is_refused_where_it_counts(
    script: Script, url: str
) -> None:
    sampler = choice_sampler(script, url, {})
    searcher = BeamSampler(sampler, Judge(0), "newline@1", BeamSpec(b1=1, max_steps=1))
    with pytest.raises(InputError, match=r"does not name the stop string .* vLLM or SGLang"):
        sample_all(searcher, PROMPTS[:1], SamplingSpec(n=1))
    spec = SamplingSpec(n=1, stop=("<|im_end|>",))
    with pytest.raises(InputError, match=r"does not name the stop string .* vLLM or SGLang"):
        sample_all(sampler, ["1 + 1?<think>\n"], spec)
    # Without thinking, a stop string and the end of the sequence end a completion alike.
    [[completion]] = sample_all(sampler, PROMPTS[:1], spec)
    assert (completion.text, completion.finish_reason) == ("One.", "stop")
    # Without stop strings, only the end of the sequence ends a completion.
    searcher = BeamSampler(sampler, Judge(0), "thinking@2", BeamSpec(b1=1, max_steps=1))
    [[solution]] = sample_all(searcher, PROMPTS[:1], SamplingSpec(n=1))
    assert (solution.text, solution.finish_reason) == ("One.", "stop")


@pytest.mark.parametrize("choice", KNOWN_ENDS)
def test_a_null_stop_string_is_the_end_of_the_sequence(
    script: Script, url: str, choice: dict[str, Any]
) -> None:
    sampler = choice_sampler(script, url, choice)
    searcher = BeamSampler(sampler, Judge(0), "newline@1", BeamSpec(b1=1, max_steps=1))
    finish_reason = choice.get("finish_reason", "stop")
    [[solution]] = sample_all(searcher, PROMPTS[:1], SamplingSpec(n=1))
    assert (solution.text, solution.finish_reason) == ("One.", finish_reason)
    spec = SamplingSpec(n=1, stop=("<|im_end|>",))
    [[completion]] = sample_all(sampler, ["1 + 1?<think>\n"], spec)
    assert (completion.text, completion.finish_reason) == ("One.", finish_reason)


def test_filtered_completions_count_as_truncated(script: Script, url: str) -> None:
    cut = {"index": 0, "finish_reason": "content_filter", "text": "half"}
    script.tricks.append(says({"choices": [cut]}))
    [[completion]] = sample_all(connect(url), PROMPTS[:1], SamplingSpec(n=1))
    assert (completion.text, completion.finish_reason) == ("half", "length")


def test_unknown_finish_reasons_count_as_truncated_and_are_named(
    script: Script, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    choices = [
        {"index": index, "finish_reason": reason, "text": "half"}
        for index, reason in enumerate(["repetition", "loop", "loop", "stop"])
    ]
    script.tricks.append(says({"choices": choices}))
    [completions] = sample_all(connect(url), PROMPTS[:1], SPEC)
    assert [completion.finish_reason for completion in completions] == ["length"] * 3 + ["stop"]
    assert "unknown finish reasons, which count as truncated: 'loop' (2)." in caplog.text


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [(7, 7), (-1, None), (2**62, None), (True, None), ("many", None), (None, None)],
)
def test_invalid_token_counts_are_unknown(
    script: Script, url: str, usage: Any, tokens: int | None
) -> None:
    choice = {"index": 0, "finish_reason": "stop", "text": "done"}
    script.tricks.append(says({"choices": [choice], "usage": {"completion_tokens": usage}}))
    [[completion]] = sample_all(connect(url), PROMPTS[:1], SamplingSpec(n=1))
    assert (completion.text, completion.n_tokens) == ("done", tokens)


def test_servers_with_one_sample_per_request(script: Script, url: str) -> None:
    expected = sample_all(connect(url), PROMPTS, SPEC)
    script.max_choices = 1
    assert [
        [completion.text for completion in completions]
        for completions in sample_all(connect(url), PROMPTS, SPEC)
    ] == [[completion.text for completion in completions] for completions in expected]
    script.requests.clear()
    script.tricks.append(says({"error": "n must be 1"}, 400))
    completions = sample_all(connect(url, concurrency=1), PROMPTS, SPEC)
    assert [completion.text for completion in completions[2]] == [
        completion.text for completion in expected[2]
    ]
    assert [request["n"] for request in script.requests] == [4] + [1] * 12


def test_permanent_errors_are_raised_at_once(
    script: Script, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    script.tricks.append(says({"error": f"{KEY} asks for too much"}, 400))
    with pytest.raises(InputError, match=r"400: .*asks for too much") as refused:
        sample_all(connect(url), PROMPTS[:1], SamplingSpec(n=1))
    assert KEY not in str(refused.value) and script.keys == [f"Bearer {KEY}"]
    script.tricks.append(says({"error": f"wrong key {KEY}"}, 401))
    with pytest.raises(UnavailableError, match="401: OPENAI_API_KEY is refused") as refused:
        sample_all(connect(url), PROMPTS[:1], SPEC)
    assert KEY not in str(refused.value)
    with pytest.raises(InputError, match=r"the server has tiny\. Nearest: tiny\."):
        OpenAiSampler(
            served_weights("tinny"),
            SamplerOptions(engine="openai", server=ServerOptions(base_url=url)),
        )
    with pytest.raises(UnavailableError, match="no server answers"):
        connect("http://127.0.0.1:9/v1")


def test_a_silent_server_is_an_error_after_the_idle_timeout(
    script: Script, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.server_client.IDLE_TIMEOUT_SECONDS", 2.0)
    engine = connect(url, concurrency=1)
    script.tricks += [lambda handler: False] + [openai_server.broken] * 1000
    arrived = []
    with pytest.raises(UnavailableError, match=r"no response in 2 seconds .*500.*resume the run"):
        for index, _ in engine.sample([*map(Prompt, PROMPTS)], SPEC):
            arrived.append(index)
    assert arrived == [0]
    script.tricks.clear()
    assert len(sample_all(engine, PROMPTS, SPEC)) == 3  # the sampler can be used again


def options(url: str, out: Path, **changes: Any) -> BuildOptions:
    settings: dict[str, Any] = {"engine": "openai", "base_url": url, "limit": 8, "samples": 2}
    settings |= {"out": out, "concurrency": 2}
    return make_options(BuildOptions, settings | changes)


def test_completions_received_before_a_server_dies_are_kept(
    script: Script, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("fsdpo_data.engines.server_client.IDLE_TIMEOUT_SECONDS", 2.0)
    out = tmp_path / "run"
    script.tricks += [lambda handler: False] * 5 + [openai_server.hang_up] * 1000
    with pytest.raises(UnavailableError, match="resume the run"):
        run_build(options(url, out), NO_PROGRESS)
    lines = (out / "completions.jsonl").read_text().splitlines()
    assert len(lines) == 5
    script.tricks.clear()
    script.requests.clear()
    run_build(options(url, out, resume=True), NO_PROGRESS)
    assert len(script.requests) == 3
    manifest = validate(out)
    engine = {"api": "completions", "dtype": "auto", "name": "openai", "seeds": "not guaranteed"}
    assert read_sample_settings(manifest).engine.to_dict() == engine
    assert read_sample_settings(manifest).model == ModelRef("tiny", "served")
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert KEY.encode() not in written and url.encode() not in written


def test_chat_responses_keep_the_reasoning(script: Script, url: str, tmp_path: Path) -> None:
    script.reasoning = "Let me think."
    script.reply = lambda body, i: f"Thus \\boxed{{{i}}}."
    out, _ = run_build(options(url, tmp_path / "run", api="chat", limit=2), NO_PROGRESS)
    (question, *_) = [request["messages"][0]["content"] for request in script.requests]
    assert question.endswith("put your final answer within \\boxed{}.") and "<|" not in question
    rows = [json.loads(line) for line in (out / "completions.jsonl").read_text().splitlines()]
    assert [completion["reasoning"] for row in rows for completion in row["completions"]] == [
        "Let me think."
    ] * 4
    assert [completion["text"] for completion in rows[0]["completions"]] == [
        "Thus \\boxed{0}.",
        "Thus \\boxed{1}.",
    ]
    replay = SamplerOptions(engine="replay", replay=out / "completions.jsonl")
    (again,) = sample_all(
        ReplaySampler(served_weights("tiny"), replay), [rows[0]["prompt"]], SamplingSpec(n=2)
    )
    assert [completion.reasoning for completion in again] == ["Let me think."] * 2
    server = ServerOptions(base_url=url, api="chat")
    engine = SamplerOptions(engine="openai", server=server)
    label_options = LabelOptions(data=out, out=tmp_path / "labels", engine=engine, rollouts=2)
    with pytest.raises(InputError, match="cannot continue a text"):
        make_label_stage(label_options)


#: A chat template as that of DeepSeek-R1: the prompt opens the thinking.
THINKER = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
)


def test_separate_thinking_becomes_text_with_the_tags_of_the_model(
    script: Script, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("transformers")
    script.prm = save_tokenizer(tmp_path / "thinker", chat=THINKER)  # the name on the server
    script.reasoning = "It may be \\boxed{7}."
    script.reply = lambda body, i: ["Thus \\boxed{0}.", ""][i]
    build_options = options(url, tmp_path / "known", api="chat", limit=2, model=script.prm)
    out, manifest = run_build(build_options, NO_PROGRESS)
    rows = pl.read_parquet(out / "solutions")
    assert rows["completions"].to_list() == 2 * [
        ["It may be \\boxed{7}.\n</think>\n\n", "Thus \\boxed{0}."],
        ["It may be \\boxed{7}."],
    ]
    assert rows["thinking_closed"].to_list() == 2 * [True, False]
    assert rows["answer"].to_list() == 2 * ["0", None]  # the box is not in the answer
    assert not find_solutions_without_thinking(out, manifest)
    stage = GradeStage(grader=get_grader().version)
    derive_dataset(out, tmp_path / "graded", [stage], progress=NO_PROGRESS)
    outcomes = statistics_of(tmp_path / "graded").solutions.outcomes
    assert outcomes == statistics_of(out).solutions.outcomes
    assert not [text for text in caplog.messages if "lack their thinking" in text]

    script.prm = "thinker"  # a name without a tokenizer
    build_options = options(url, tmp_path / "unknown", api="chat", limit=2, model="thinker")
    out, manifest = run_build(build_options, NO_PROGRESS)
    assert len(find_solutions_without_thinking(out, manifest)) == 2
    [warning] = [text for text in caplog.messages if "lack their thinking" in text]
    assert warning.startswith("solutions lack their thinking, which is in a field of its own: thin")


def test_labelling_and_benchmarks_with_a_server(script: Script, url: str, tmp_path: Path) -> None:
    script.reply = lambda body, i: f"Step 1: 1 + 1 = 2.\nStep 2: The answer is: {i}"
    out, _ = run_build(options(url, tmp_path / "run", limit=2), NO_PROGRESS)
    server = ["--engine", "openai", "--base-url", url]
    line = ["label", str(out), "--rollouts", "2", "--out", str(tmp_path / "labels"), *server]
    labelled = CliRunner().invoke(app, line)
    assert labelled.exit_code == 0, labelled.output
    assert "label" in stage_names(validate(tmp_path / "labels"))
    line = ["run", "--task", "embedded", "--limit", "3", "--model", "tiny", *server]
    result = CliRunner().invoke(bench, [*line, "--out", str(tmp_path / "bench")])
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "bench/greedy/config.json").read_text())
    engine = config["stages"]["sample"]["engine"]
    assert engine["name"] == "openai" and engine["seeds"] == "not guaranteed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "openai"}, "`engine=openai` and `base_url=URL` need each other"),
        ({"base_url": "http://a/v1"}, "`engine=openai` and `base_url=URL` need each other"),
        ({"engine": "openai", "base_url": "a:8000/v1"}, "expected http://HOST:PORT/v1"),
        ({"engine": "openai", "base_url": f"http://me:{KEY}@a/v1"}, "without a user or a key"),
        ({"engine": "openai", "base_url": f"http://a/v1?key={KEY}"}, "without a user or a key"),
    ],
)
def test_conflicting_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_options(SamplerOptions, changes)


def test_retry_delays_follow_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_DELAY_SECONDS", 60.0)
    monkeypatch.setattr(http_client.random, "uniform", lambda low, high: high)
    assert [retry_delay("", attempt) for attempt in (0, 1, 5, 50)] == [1, 2, 32, 60]
    assert [retry_delay(retry_after, 9) for retry_after in ("3", "0.5", "1000", "-1")] == [
        3,
        0.5,
        60,
        0,
    ]
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    delay = retry_delay(soon, 0)
    assert delay is not None and 30 < delay <= 50
    assert retry_delay("soon", 1) == 2
    assert (retry_delay("nan", 1), retry_delay("inf", 1)) == (2, 60)
    assert [retry_delay("3", attempt, max_attempts=6) for attempt in (4, 5)] == [3, None]
    assert [retry_delay("3", 0, max_seconds=seconds) for seconds in (3, 2.9)] == [3, None]


def test_a_chat_request_has_the_arguments_and_fields_of_the_user(script: Script, url: str) -> None:
    system = {"role": "system", "content": "Be brief."}
    server = ServerOptions(
        base_url=url,
        api="chat",
        request_field=("top_k=20", f"messages={json.dumps([system])}"),
    )
    arguments = ("enable_thinking=false",)
    options = SamplerOptions(engine="openai", server=server, template_arg=arguments)
    sample_all(OpenAiSampler(served_weights("tiny"), options), PROMPTS[:1], SPEC)
    [request] = script.requests
    assert request["messages"] == [system, {"role": "user", "content": PROMPTS[0]}]
    assert request["chat_template_kwargs"] == {"enable_thinking": False}
    assert request["top_k"] == 20


@pytest.mark.parametrize("field", ["n=2", "prompt=x", "messages=[]", "seed=1"])
def test_fields_of_other_options_are_refused(url: str, field: str) -> None:
    with pytest.raises(InputError, match="follows from the problems"):
        ServerOptions(base_url=url, request_field=(field,))


def test_arguments_and_fields_change_the_identity_of_samples(
    script: Script, url: str, tmp_path: Path
) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}))
    changes: list[dict[str, Any]] = [
        {},
        {"template_arg": ["enable_thinking=false"]},
        {"request_field": ["top_k=20"]},
    ]
    ids = set()
    for index, change in enumerate(changes):
        values = {"problems": [str(problems)], "out": tmp_path / str(index), "model": "tiny"}
        values |= {"engine": "openai", "base_url": url, "api": "chat", "samples": 1, **change}
        _, manifest = run_build(make_options(BuildOptions, values), NO_PROGRESS)
        ids.add(read_sample_settings(manifest).sampling_id)
        with pytest.raises(RunMismatchError):
            other = {"request_field": ["top_k=21"]} | {"out": tmp_path / str(index)}
            run_build(make_options(BuildOptions, {**values, **other}), NO_PROGRESS)
    assert len(ids) == 3
