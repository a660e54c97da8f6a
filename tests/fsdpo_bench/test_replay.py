"""Replay published responses and compare the verdicts with their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench_runs import read_rows, written
from fsdpo_bench.cli.app import app
from fsdpo_bench.runs.make_job import run_job
from fsdpo_bench.runs.options import RunOptions
from oracles import NEMO_0, NEMO_1, TORA, float_equal
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.exchange.outputs import grade_outputs, read_outputs
from fsdpo_data.exchange.response_file import read_response_file
from fsdpo_data.exchange.response_formats import question_key
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import resolve


@pytest.fixture(scope="module")
def outputs(shared: Path) -> Path:
    return shared / "data" / "outputs"


@pytest.fixture
def replay_file(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    def replay(file: Path, *options: str) -> list[dict[str, Any]]:
        out = tmp_path / "run"
        line = ["run", "--engine", "replay", "--replay", str(file), "--out", str(out), "--json"]
        done = CliRunner().invoke(app, [*line, "--workers", "1", *options])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0
        return read_rows(out)

    return replay


def right(records: list[dict[str, Any]], name: str) -> int:
    return sum(bool(record["decoded"][name]["correct"]) for record in records)


QWEN = "qwen_math_cot/math_cot_100.jsonl"


def test_qwen_results_on_100_problems_with_8_samples(
    outputs: Path, replay_file: Callable[..., Any]
) -> None:
    """Compare with the flags of the file: first 90, any 96, majority 93, best by reward 94.

    One of 800 verdicts differs: sample 7 of row 73 has 10{,}000, which the file's grader does not
    read as 10000. The sample is the only right one of its row and has the highest reward, so any of
    8 and best of 8 are one higher here.
    """
    ks = [option for k in (1, 4, 8) for option in ("--k", str(k))]
    run_records = replay_file(outputs / QWEN, "--decoder", "greedy,sc,bon", *ks)
    assert len(run_records) == 100
    assert (
        right(run_records, "greedy")
        == right(run_records, "sc@1")
        == right(run_records, "bon@1:min")
        == 90
    )
    assert right(run_records, "sc@8") == 93
    assert right(run_records, "bon@8:min") == 94 + 1
    samples = [[row["correct"] for row in record["samples"]] for record in run_records]
    assert sum(map(sum, samples)) == 728 + 1
    assert sum(map(any, samples)) == 96 + 1
    flags = [json.loads(line)["score"] for line in (outputs / QWEN).read_bytes().splitlines()]
    differing = [
        (row + 1, index)
        for row, (ours, theirs) in enumerate(zip(samples, flags, strict=True))
        for index in range(8)
        if ours[index] != theirs[index]
    ]
    assert differing == [(73, 7)]
    assert run_records[72]["decoded"]["bon@8:min"]["sample"] == 7


def test_several_responses_without_a_decoder_are_not_greedy(
    outputs: Path, replay_file: Callable[..., Any], tmp_path: Path
) -> None:
    """The first of eight samples was once shown as `greedy`; it is one random sample (90 right)."""
    run_records = replay_file(outputs / QWEN)
    assert list(run_records[0]["decoded"]) == ["first", "sc@8"]
    assert (right(run_records, "first"), right(run_records, "sc@8")) == (90, 93)
    results = json.loads((tmp_path / "run/results.json").read_text())
    [task] = results["tasks"].values()
    assert task["avg_at_k"]["8"]["accuracy"] == pytest.approx(729 / 800)
    assert task["maj_at_k"]["8"]["accuracy"] == pytest.approx(0.93)
    output = CliRunner().invoke(app, ["report", str(tmp_path / "run")]).output
    assert "avg@8" in output and "maj@8" in output and "greedy" not in output


def test_a_replay_names_a_greedy_decoder_that_may_be_a_random_sample(
    outputs: Path, tmp_path: Path
) -> None:
    warnings: list[str] = []
    options = RunOptions(
        engine=SamplerOptions(engine="replay", replay=str(outputs / QWEN)),
        decoder=("greedy",),
        limit=2,
        out=tmp_path / "run",
        workers=1,
    )
    run_job(options, warnings.append)
    assert [line for line in warnings if "has at least 8 responses to each problem" in line]


@pytest.mark.parametrize(
    ("count", "options", "names"),
    [
        (1, (), ["greedy"]),
        (1, ("--temperature", "0"), ["greedy"]),
        (1, ("--temperature", "0.7"), ["first"]),
        (3, (), ["first", "sc@3"]),
        (3, ("--temperature", "0"), ["greedy"]),
        (3, ("--decoder", "maj", "--k", "2"), ["sc@2"]),
    ],
)
def test_the_default_decoders_of_completions_by_prompt(
    tmp_path: Path,
    replay_file: Callable[..., Any],
    count: int,
    options: tuple[str, ...],
    names: list[str],
) -> None:
    line = {
        "prompt": get_template("problem").render("2+2?"),
        "completions": [COMPLETION] * count,
    }
    responses_file = written(tmp_path / "completions.jsonl", [line])
    task = written(tmp_path / "task.jsonl", [{"question": "2+2?", "answer": "4"}])
    [record] = replay_file(responses_file, "--task", str(task), "--template", "problem", *options)
    assert list(record["decoded"]) == names


def test_qwen_results_graded_with_the_golds_of_math(
    shared: Path, outputs: Path, replay_file: Callable[..., Any]
) -> None:
    """Match the responses by question to MATH, for its golds, subjects and levels.

    In row 4 the file's gold is truncated to "4:30p..". With MATH's gold, 4:30 p.m., all eight
    samples are right.
    """
    data = str(shared / "data" / "benchmarks")
    options = ("--decoder", "sc,bon", "--k", "8", "--task", "math", "--data", data)
    run_records = replay_file(outputs / QWEN, *options)
    assert len(run_records) == 100 and all(record["metadata"]["subject"] for record in run_records)
    assert (right(run_records, "sc@8"), right(run_records, "bon@8:min")) == (93 + 1, 95 + 1)
    assert sum(row["correct"] for record in run_records for row in record["samples"]) == 729 + 8


@pytest.mark.parametrize(
    ("series", "correct"),
    [
        ("6b_finetuning", 286),
        ("6b_verification", 515),
        ("175b_finetuning", 458),
        ("175b_verification", 742),
    ],
)
def test_openai_results_on_gsm8k(
    shared: Path, outputs: Path, replay_file: Callable[..., Any], series: str, correct: int
) -> None:
    """All verdicts on the 1,319 problems agree."""
    file = outputs / "openai_gsm8k" / "example_model_solutions.jsonl"
    data = str(shared / "data" / "benchmarks")
    run_records = replay_file(file, "--series", series, "--task", "gsm8k", "--data", data)
    assert (len(run_records), right(run_records, "greedy")) == (1319, correct)


#: Number of responses that the publisher calls correct, and the rows with another verdict here.
#: NEMO_0, NEMO_1 and TORA give the reason for each row.
SINGLE = {
    "abel_gsm8k/7b_first300": (193, []),
    "tora_gsm8k/tora-70b-v1.0_first300": (260, list(TORA["tora-70b-v1.0"][1])),
    "tora_gsm8k/tora-code-34b-v1.0_first300": (239, list(TORA["tora-code-34b-v1.0"][1])),
    "nemo_skills/output-rs0": (31, [row for row, _ in NEMO_0]),
    "nemo_skills/output-rs1": (37, [row for row, _ in NEMO_1]),
}


@pytest.mark.parametrize("name", SINGLE)
def test_verdicts_on_files_with_one_response_per_problem(
    outputs: Path, replay_file: Callable[..., Any], name: str
) -> None:
    """The files of ToRA have no verdicts, so its rule (equal floats) is applied to its answers."""
    count, differing = SINGLE[name]
    run_records = replay_file(outputs / f"{name}.jsonl")
    ours = [bool(record["decoded"]["greedy"]["correct"]) for record in run_records]
    rows = [json.loads(line) for line in (outputs / f"{name}.jsonl").read_bytes().splitlines()]
    theirs = [float_equal(row) if "pred" in row and "gt" in row else verdict(row) for row in rows]
    assert len(run_records) == (50 if "nemo" in name else 300) and sum(theirs) == count
    assert [
        i for i, verdicts in enumerate(zip(ours, theirs, strict=True), 1) if len({*verdicts}) > 1
    ] == (differing)


def verdict(row: dict[str, Any]) -> bool:
    return bool(row["result"] if "result" in row else row["symbolic_correct"])


def plain(texts: list[str], **fields: Any) -> list[dict[str, Any]]:
    return [{"question": "2+2?", "answer": "4", "response": text, **fields} for text in texts]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            plain(["4", "5"]),
            ["--decoder", "sc", "--k", "3"],
            "--k 3: .* contains only 2 responses .* --k 2",
        ),
        (plain(["4"]), ["--decoder", "bon", "--k", "1"], "contains no reward for row 1"),
        (plain(["4"]), ["--decoder", "sbs"], "recorded responses cannot be continued"),
        (
            plain(["4"]),
            ["--data", "nowhere"],
            "--data nowhere: the responses are graded with the golds",
        ),
        (plain(["4"]), ["--series", "gpt"], "--series gpt: .* contains no model names"),
        ([{"answer": "4", "response": "4"}], [], "row 1: the question is missing"),
        ([{"gt": "4", "code": ["4"], "question": ["?"]}], [], "the question is .*; expected text"),
    ],
)
def test_requests_that_a_recording_cannot_answer_are_refused(
    tmp_path: Path, replay_file: Callable[..., Any], rows: Any, options: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        replay_file(written(tmp_path / "rows.jsonl", rows), *options)


def test_several_models_in_one_file_are_not_mixed(outputs: Path) -> None:
    file = outputs / "openai_gsm8k" / "example_model_solutions.jsonl"
    with pytest.raises(
        InputError, match=r"several models\. Choose one, e\.g\. `series=6b_finetuning`"
    ):
        read_response_file(file, None)


def test_a_recording_without_problems_of_the_task_is_refused(
    shared: Path, outputs: Path, replay_file: Callable[..., Any]
) -> None:
    data = str(shared / "data" / "benchmarks")
    with pytest.raises(InputError, match="no response to any problem of AddSub"):
        replay_file(outputs / QWEN, "--task", "addsub", "--data", data)


def test_questions_are_matched_regardless_of_whitespace() -> None:
    assert question_key("a  b\nc ") == question_key("a b c")


COMPLETION = {"text": "The answer is 4.", "finish_reason": "stop"}


def test_a_replay_records_model_name_and_sampling(
    tmp_path: Path, replay_file: Callable[..., Any]
) -> None:
    file = written(tmp_path / "rows.jsonl", plain(["The answer is 4."]))
    out = tmp_path / "run"
    replay_file(file, "--model-name", "Another 7B", "--temperature", "0.6")
    results = json.loads((out / "results.json").read_text())
    run_section = results["run"]
    assert run_section["model"] == {"name": "Another 7B", "revision": "unknown"}
    assert run_section["engine"]["recording"] == f"sha256:{file_sha256(file)}"
    expected_sampling = {
        "temperature": 0.6,
        **dict.fromkeys(("top_p", "max_tokens", "seed"), "unknown"),
    }
    assert {name: run_section["sampling"][name] for name in expected_sampling} == expected_sampling
    assert results["cost"]["first"]["tokens"] == "unknown"
    assert results["tasks"]["rows"]["decoders"]["first"]["cost"]["tokens"] == "unknown"
    card = (out / "README.md").read_text()
    assert "top-p unknown" in card
    assert "fsdpo-bench run" not in card  # a recording is not sampled again
    page = (out / "report.html").read_text()
    assert "tokens unknown" in page
    output = CliRunner().invoke(app, ["inspect", str(out)]).output
    assert "tokens unknown" in output and "0 tokens" not in output


CUT_OFF = {"text": "First we add the 4 apples", "finish_reason": "length"}


def test_a_truncated_recorded_response_has_no_answer(
    tmp_path: Path, replay_file: Callable[..., Any]
) -> None:
    """Responses can be found by prompt or by question, and the run can be graded again."""
    line = {"prompt": get_template("problem").render("2+2?"), "completions": [CUT_OFF]}
    task = written(tmp_path / "task.jsonl", [{"question": "2+2?", "answer": "4"}])
    responses_file = written(tmp_path / "completions.jsonl", [line])
    replay_file(responses_file, "--task", str(task), "--template", "problem")
    (tmp_path / "run").rename(tmp_path / "first")
    ended = {"finish_reason": "length", "response": CUT_OFF["text"]}
    rows = [{"question": "2+2?", "answer": "4", **ended}]
    replay_file(written(tmp_path / "rows.jsonl", rows))
    again = ["grade", str(tmp_path / "run"), "--out", str(tmp_path / "again")]
    assert CliRunner().invoke(app, again).exit_code == 0
    for run in ("first", "run", "again"):
        [record] = read_rows(tmp_path / run)
        greedy = record["decoded"]["greedy"]
        assert greedy["solution"]["finish_reason"] == "length"
        assert (greedy["status"], greedy["rule"]) == ("no_answer", "cut-off")
    [scored] = grade_outputs(read_outputs(tmp_path / "rows.jsonl"))
    assert (scored.verdict.status, scored.verdict.rule) == ("no_answer", "cut-off")


def test_a_replay_without_a_model_name_reports_it_as_unknown(
    tmp_path: Path, replay_file: Callable[..., Any]
) -> None:
    """Completions by prompt need a template but no model."""
    line = {"prompt": get_template("problem").render("2+2?"), "completions": [COMPLETION]}
    responses_file = written(tmp_path / "completions.jsonl", [line])
    task = written(tmp_path / "task.jsonl", [{"question": "2+2?", "answer": "4"}])
    replay_file(responses_file, "--task", str(task), "--template", "problem")
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["run"]["model"]["name"] == "unknown"
    assert results["run"]["sampling"]["temperature"] == "unknown"
    assert results["cost"]["greedy"]["tokens"] == "unknown"
    card = (tmp_path / "run/README.md").read_text()
    assert "tiny" not in card


def test_a_replay_with_a_model_records_that_model(
    tmp_path: Path, replay_file: Callable[..., Any]
) -> None:
    file = written(tmp_path / "rows.jsonl", plain(["The answer is 4."]))
    replay_file(file, "--model", "tiny")
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["run"]["model"] == asdict(resolve("tiny").ref)


@pytest.fixture
def prm(tmp_path: Path) -> str:
    pytest.importorskip("torch")
    from random_model import save_random_model, save_random_prm

    return str(save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy")))


def test_a_reward_model_ranks_recorded_responses(
    tmp_path: Path, replay_file: Callable[..., Any], prm: str
) -> None:
    """Best-of-4 uses the rewards under the template of the reward model."""
    from fsdpo_data.engines.load import load_scorer
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput

    texts = [f"First, {n} + 1.\nThe answer is {n}." for n in (4, 5, 6, 7)]
    file = written(tmp_path / "rows.jsonl", plain(texts))
    options = ("--decoder", "bon,sc", "--k", "4", "--prm", prm, "--device", "cpu")
    [record] = replay_file(file, *options, "--template", "problem")
    prompt = get_template("problem").render("2+2?")
    scorer = load_scorer(prm, ScorerOptions(device="cpu"))
    steps = [sample["steps"] for sample in record["samples"]]
    rewards = scorer.score([ScorerInput(prompt, sample_steps, "2+2?") for sample_steps in steps])
    assert len(rewards) == 4
    for sample, expected in zip(record["samples"], rewards, strict=True):
        assert sample["rewards"] == pytest.approx(expected, abs=1e-4)
    worst = [min(sample_rewards or [0]) for sample_rewards in rewards]
    assert record["decoded"]["bon@4:min"]["sample"] == worst.index(max(worst))
    run = json.loads((tmp_path / "run/config.json").read_text())
    assert run["prm"]["template"]["name"] == "problem@1"
    with pytest.raises(InputError, match="--template: missing: the recorded responses have no"):
        CliRunner().invoke(
            app,
            ["run", "--engine", "replay", "--replay", str(file), "--out", "no", *options],
            catch_exceptions=False,
        )


def test_model_name_is_refused_without_a_replay() -> None:
    with pytest.raises(InputError, match=r"has its own name.* Add `replay=FILE`"):
        RunOptions(model="tiny", model_name="me")
