"""The engine openai against a hostile server: nothing is lost, and no key is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import openai_server
import pytest
from fsdpo_bench.cli.app import app as bench
from openai_server import Script, says, serving
from typer.testing import CliRunner

from fsdpo_data.cli.app import app
from fsdpo_data.core import retry
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.retry import retry_delay
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.openai import OpenAiSampler
from fsdpo_data.engines.samplers.replay import ReplaySampler
from fsdpo_data.models.resolve import served_weights
from fsdpo_data.stages.label import LabelOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build

PROMPTS = ["1 + 1?", "1 + 2?", "1 + 3?"]
SPEC = SamplingSpec(n=4, max_tokens=16, stop=("\n\n",))
KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdpo_data.engines.samplers.openai.retry_delay", lambda *_: 0.01)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


def sampler(url: str, **changes: Any) -> OpenAiSampler:
    options = SamplerOptions(engine="openai", base_url=url, **{"idle_timeout": 60.0, **changes})
    return OpenAiSampler(served_weights("tiny"), options)


def test_samples_come_whole_and_in_order(script: Script, url: str) -> None:
    found = sampler(url).sample(PROMPTS, SPEC)
    seeds = [SPEC.prompt_seed(prompt) for prompt in PROMPTS]
    assert [[each.text for each in some] for some in found] == [
        [f"{seed + i} it is." for i in range(4)] for seed in seeds
    ]
    # What the server counted for all four is theirs together.
    assert all(sum(each.n_tokens for each in some) == 13 for some in found)
    assert {each.finish_reason for some in found for each in some} == {"stop"}
    assert len(script.requests) == 3
    asked = next(each for each in script.requests if each["prompt"] == PROMPTS[0])
    assert asked == {
        "model": "tiny",
        "prompt": "1 + 1?",
        "n": 4,
        "temperature": 0.8,
        "top_p": 1.0,
        "max_tokens": 16,
        "seed": seeds[0],
        "stop": ["\n\n"],
    }


@pytest.mark.parametrize("trick", ["busy", "broken", "html", "cut", "hang_up", "slow"])
def test_what_fails_is_asked_for_again(script: Script, url: str, trick: str) -> None:
    whole = sampler(url).sample(PROMPTS, SPEC)
    script.requests.clear()
    script.tricks += [getattr(openai_server, trick)] * 4
    impatient = {"timeout": 0.5} if trick == "slow" else {}
    again = sampler(url, **impatient).sample(PROMPTS, SPEC)
    assert [[each.text for each in some] for some in again] == [
        [each.text for each in some] for some in whole
    ]
    asked = len(script.requests)
    # On a busy machine an answer may be too late though the server was not slow.
    assert asked == 7 or (impatient and asked > 7)


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
    ],
)
def test_answers_of_another_form_are_not_believed(script: Script, url: str, answer: Any) -> None:
    script.tricks.append(says(answer))
    assert sampler(url).sample(PROMPTS[:1], SPEC)[0][0].text.endswith("it is.")
    assert len(script.requests) == 2


def test_what_a_filter_cuts_is_cut_off(script: Script, url: str) -> None:
    cut = {"index": 0, "finish_reason": "content_filter", "text": "half"}
    script.tricks.append(says({"choices": [cut]}))
    [[found]] = sampler(url).sample(PROMPTS[:1], SamplingSpec(n=1))
    assert (found.text, found.finish_reason) == ("half", "length")


@pytest.mark.parametrize(("counted", "tokens"), [(7, 7), (-1, None), ("many", None), (None, None)])
def test_what_is_no_count_of_tokens_is_unknown(
    script: Script, url: str, counted: Any, tokens: int | None
) -> None:
    whole = {"index": 0, "finish_reason": "stop", "text": "done"}
    script.tricks.append(says({"choices": [whole], "usage": {"completion_tokens": counted}}))
    [[found]] = sampler(url).sample(PROMPTS[:1], SamplingSpec(n=1))
    assert (found.text, found.n_tokens) == ("done", tokens)


def test_servers_that_give_one_sample_at_a_time(script: Script, url: str) -> None:
    whole = sampler(url).sample(PROMPTS, SPEC)
    script.max_choices = 1
    assert [[each.text for each in some] for some in sampler(url).sample(PROMPTS, SPEC)] == [
        [each.text for each in some] for some in whole
    ]
    script.requests.clear()
    script.tricks.append(says({"error": "n must be 1"}, 400))
    found = sampler(url, concurrency=1).sample(PROMPTS, SPEC)
    assert [each.text for each in found[2]] == [each.text for each in whole[2]]
    assert [each["n"] for each in script.requests] == [4] + [1] * 12


def test_what_will_not_pass_is_told_at_once(
    script: Script, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    script.tricks.append(says({"error": f"{KEY} asks for too much"}, 400))
    with pytest.raises(InputError, match=r"400: .*asks for too much") as told:
        sampler(url).sample(PROMPTS[:1], SamplingSpec(n=1))
    assert KEY not in str(told.value) and script.keys == [f"Bearer {KEY}"]
    script.tricks.append(says({"error": f"wrong key {KEY}"}, 401))
    with pytest.raises(UnavailableError, match="401: OPENAI_API_KEY is refused") as refused:
        sampler(url).sample(PROMPTS[:1], SPEC)
    assert KEY not in str(refused.value)
    with pytest.raises(InputError, match=r"the server has tiny\. Nearest: tiny\."):
        OpenAiSampler(served_weights("tinny"), SamplerOptions(engine="openai", base_url=url))
    with pytest.raises(UnavailableError, match="no server answers"):
        sampler("http://127.0.0.1:9/v1")


def test_a_server_that_stays_silent_is_given_up(script: Script, url: str) -> None:
    engine = sampler(url, idle_timeout=0.3, concurrency=1)
    script.tricks += [lambda handler: False] + [openai_server.broken] * 1000
    arrived = []
    with pytest.raises(
        UnavailableError, match=r"no response in 0\.3 seconds .*500.*resume the run"
    ):
        for place, _ in engine.stream(PROMPTS, SPEC):
            arrived.append(place)
    assert arrived == [0]
    script.tricks.clear()
    assert len(engine.sample(PROMPTS, SPEC)) == 3  # it can be asked again


def options(url: str, out: Path, **changes: Any) -> BuildOptions:
    settings: dict[str, Any] = {"engine": "openai", "base_url": url, "limit": 8, "samples": 2}
    return BuildOptions(**settings | {"out": out, "idle_timeout": 0.3, "concurrency": 2} | changes)


def test_a_server_that_dies_costs_nothing_that_was_received(
    script: Script, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
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
    assert manifest.spec.engine.to_dict() == engine
    assert manifest.spec.model.to_dict() == {"name": "tiny", "revision": "served"}
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert KEY.encode() not in written and url.encode() not in written


def test_a_chat_keeps_what_the_model_thought(script: Script, url: str, tmp_path: Path) -> None:
    script.reasoning = "Let me think."
    script.reply = lambda body, i: f"Thus \\boxed{{{i}}}."
    out, _ = run_build(options(url, tmp_path / "run", api="chat", limit=2), NO_PROGRESS)
    (question, *_) = [each["messages"][0]["content"] for each in script.requests]
    assert question.endswith("put your final answer within \\boxed{}.") and "<|" not in question
    rows = [json.loads(line) for line in (out / "completions.jsonl").read_text().splitlines()]
    assert [each["reasoning"] for row in rows for each in row["completions"]] == [
        "Let me think."
    ] * 4
    assert [each["text"] for each in rows[0]["completions"]] == [
        "Thus \\boxed{0}.",
        "Thus \\boxed{1}.",
    ]
    replay = SamplerOptions(engine="replay", replay=out / "completions.jsonl")
    (again,) = ReplaySampler(served_weights("tiny"), replay).sample(
        [rows[0]["prompt"]], SamplingSpec(n=2)
    )
    assert [each.reasoning for each in again] == ["Let me think."] * 2
    asked = {"data": out, "out": tmp_path / "labels", "engine": "openai", "base_url": url}
    with pytest.raises(InputError, match="cannot continue a text"):
        LabelOptions(**asked, api="chat", rollouts=2).continuation_sampler(2)


def test_a_server_continues_and_is_measured(script: Script, url: str, tmp_path: Path) -> None:
    script.reply = lambda body, i: f"Step 1: 1 + 1 = 2.\nStep 2: The answer is: {i}"
    out, _ = run_build(options(url, tmp_path / "run", limit=2), NO_PROGRESS)
    server = ["--engine", "openai", "--base-url", url]
    line = ["label", str(out), "--rollouts", "2", "--out", str(tmp_path / "labels"), *server]
    labelled = CliRunner().invoke(app, line)
    assert labelled.exit_code == 0, labelled.output
    assert validate(tmp_path / "labels").spec.labels is not None
    line = ["run", "--task", "embedded", "--limit", "3", "--model", "tiny", *server]
    measured = CliRunner().invoke(bench, [*line, "--out", str(tmp_path / "bench")])
    assert measured.exit_code == 0, measured.output
    config = json.loads((tmp_path / "bench/config.json").read_text())
    assert config["engine"]["name"] == "openai" and config["engine"]["seeds"] == "not guaranteed"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": "openai"}, "`engine=openai` and `base_url=URL` need each other"),
        ({"base_url": "http://a/v1"}, "`engine=openai` and `base_url=URL` need each other"),
        ({"engine": "openai", "base_url": "a:8000/v1"}, "expected http://HOST:PORT/v1"),
        ({"engine": "openai", "base_url": f"http://me:{KEY}@a/v1"}, "without a user or a key"),
        ({"engine": "openai", "base_url": f"http://a/v1?key={KEY}"}, "without a user or a key"),
    ],
)
def test_options_that_do_not_go_together(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SamplerOptions(**changes)


def test_a_pause_is_as_long_as_the_server_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.random, "uniform", lambda low, high: high)
    assert [retry_delay("", attempt) for attempt in (0, 1, 5, 50)] == [1, 2, 32, 60]
    assert [retry_delay(asked, 9) for asked in ("3", "0.5", "1000", "-1")] == [3, 0.5, 60, 0]
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    assert 30 < retry_delay(soon, 0) <= 50
    assert retry_delay("soon", 1) == 2
