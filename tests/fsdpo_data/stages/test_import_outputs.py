"""Other people's outputs become sealed datasets, whoever wrote them down and in whatever order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from bench_runs import written
from fsdpo_cards.commands import policy_argument, rebuild_commands
from typer.testing import CliRunner

from fsdpo_data.cli.app import app
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.validate import validate
from fsdpo_data.problems.recorded_responses import (
    RESPONSE_FORMATS,
    find_response_format,
    unknown_format_message,
)
from fsdpo_data.problems.row_formats import UnusableRowError
from fsdpo_data.stages.import_outputs import ImportOutputsOptions, run_import

RIGHT, WRONG = "Step 1: 2 + 2 = 4.\nThe answer is: 4", "So it is 5.\nThe answer is: 5"


def sealed(file: Path, out: Path, **how: Any) -> tuple[Manifest, list[dict[str, Any]]]:
    """Import, check, and return the manifest and the solutions with their problems."""
    _, manifest = run_import(
        ImportOutputsOptions(file=file, out=out, workers=1, **how), NO_PROGRESS
    )
    validate(out)
    problems = pl.read_parquet(out / "problems/*.parquet")
    solutions = pl.read_parquet(out / "solutions/*.parquet")
    found = solutions.join(problems, on="problem_id", how="left", maintain_order="left")
    return manifest, found.rename({"answer_right": "gold"}).to_dicts()


def lm_eval(**more: Any) -> dict[str, Any]:
    return {
        "doc_id": 0,
        "doc": {"question": "2+2?"},
        "target": "2+2=4\n#### 4",
        "arguments": {"gen_args_0": {"arg_0": "Q: 2+2?\nA:", "arg_1": {}}},
        "resps": [[RIGHT, WRONG]],
        "filter": "strict-match",
        **more,
    }


def lighteval(doc: str = "doc", response: str = "model_response") -> dict[str, Any]:
    return {
        doc: {"query": "Solve.\n2+2?", "choices": ["3", "4"], "gold_index": [1], "specific": None},
        response: {
            "input": "<user>Solve.\n2+2?",
            "text": [RIGHT, WRONG],
            "output_tokens": [[1, 2, 3], [4]],
        },
        "metric": {"extractive_match": 1.0},
    }


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


#: Rows as each of them writes it, and the question and prompt that they tell; all have the gold 4,
#: and first a right response, then a wrong one.
TOLD: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "openai": (
        [
            {
                "question": "2+2?",
                "ground_truth": "At A: 2+2\nA: 4",
                name: {"solution": text, "is_correct": True},
            }
            for name, text in (("m", RIGHT), ("m", WRONG))
        ],
        "2+2?",
        "2+2?",
    ),
    "tora": ([{"question": "2+2?", "gt": "4", "code": [RIGHT, WRONG]}], "2+2?", "2+2?"),
    "abel": (
        [
            {"prompt": "Question:\n2+2?\nAnswer:\n", "gold": "4", "response": text, "result": True}
            for text in (RIGHT, WRONG)
        ],
        "2+2?",
        "Question:\n2+2?\nAnswer:\n",
    ),
    "nemo": (
        [
            {"problem": "2+2?", "expected_answer": "4", "generation": text}
            for text in (RIGHT, WRONG)
        ],
        "2+2?",
        "2+2?",
    ),
    "areal": (
        [
            {
                "prompt": "<｜User｜>2+2?<｜Assistant｜><think>\n",
                "generateds": [RIGHT, WRONG],
                "solutions": ["\\boxed{4}"],
                "rewards": [5.0, -5.0],
            }
        ],
        "2+2?",
        "2+2?",
    ),
    "lm-eval": ([lm_eval(), lm_eval(filter="flexible-extract")], "2+2?", "Q: 2+2?\nA:"),
    "lighteval": ([lighteval()], "Solve.\n2+2?", "<user>Solve.\n2+2?"),
    "plain": (
        [{"problem": "2+2?", "answer": 4.0, "responses": [{"text": RIGHT}, WRONG]}],
        "2+2?",
        "2+2?",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_every_form_is_sealed(tmp_path: Path, name: str) -> None:
    rows, question, prompt = TOLD[name]
    form = find_response_format(rows[0])
    assert form is RESPONSE_FORMATS[name]
    manifest, found = sealed(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert ["".join(each["completions"]) for each in found] == [RIGHT, WRONG]
    assert [each["labels"] for each in found] == [[True], [False, False]]
    assert {each["question"] for each in found} == {question}
    assert {each["prompt"] for each in found} == {prompt}
    assert {each["gold"] for each in found} == {"4"}
    told = [each["n_tokens"] for each in found]
    assert told == ([3, 1] if name == "lighteval" else [None, None])
    assert manifest.cost.tokens == (4 if name == "lighteval" else "unknown")
    assert manifest.rows.solutions == 2 and not manifest.quarantined


def test_every_form_has_a_row_of_its_own() -> None:
    assert TOLD.keys() | {"batch", "no-gold"} == RESPONSE_FORMATS.keys()


def test_parquet_of_older_lighteval(tmp_path: Path) -> None:
    rows = [lighteval("__doc__", "__model_response__")]
    pl.DataFrame(rows).write_parquet(tmp_path / "details.parquet")
    manifest, found = sealed(tmp_path / "details.parquet", tmp_path / "out")
    assert [each["outcome"] for each in found] == ["correct", "incorrect"]
    assert manifest.cost.tokens == 4


def plain(question: str, gold: str, text: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "answer": gold, "response": text, **more}


def test_samples_may_stand_anywhere_and_be_more_or_fewer(tmp_path: Path) -> None:
    """Sample by sample in two files, as samplers write them; one problem lacks its second."""
    rows = [plain("2+2?", "4", RIGHT), plain("3+3?", "6", "6"), plain("2+2?", "4", WRONG)]
    written(tmp_path / "rs0.jsonl", rows[:2])
    written(tmp_path / "rs1.jsonl", rows[2:])
    manifest, found = sealed(tmp_path / "rs*.jsonl", tmp_path / "out")
    assert [(each["question"], each["sample_index"]) for each in found] == [
        ("2+2?", 0),
        ("2+2?", 1),
        ("3+3?", 0),
    ]
    assert manifest.spec.sampling.n == 2


def test_what_is_stated_is_said_and_the_rest_unknown(tmp_path: Path) -> None:
    more = {"finish_reason": "length", "n_tokens": 7}
    file = written(tmp_path / "theirs.jsonl", [plain("2+2?", "4", RIGHT, **more)])
    how = {"model_name": "My 7B, step 400", "temperature": 0.6, "template": "alpaca"}
    manifest, [one] = sealed(file, tmp_path / "out", **how)
    assert manifest.spec.model.name == "My 7B, step 400"
    assert manifest.spec.model.revision == f"sha256:{file_sha256(file)}"
    sampling = manifest.spec.sampling
    assert (sampling.temperature, sampling.top_p) == (0.6, "unknown")
    assert (sampling.max_tokens, sampling.seed) == ("unknown", "unknown")
    assert (one["finish_reason"], one["n_tokens"]) == ("length", 7)
    assert "### Instruction:\n2+2?" in one["prompt"]
    spec = json.loads((tmp_path / "out/manifest.json").read_text())["spec"]
    [command] = [line.replace(" \\\n ", "") for line in rebuild_commands(spec)]
    assert command == (
        "fsdpo-data import FILE --from outputs --model-name 'My 7B, step 400' --split train "
        "--temperature 0.6 --template alpaca@1 --segmenter auto@1 --out runs/built"
    )
    assert policy_argument(spec) == "BASE_MODEL"


def response(name: str, *texts: str, **usage: int) -> dict[str, Any]:
    choices = [
        {"index": k, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for k, text in enumerate(texts)
    ]
    body = {"model": "org/their-7b", "choices": choices, "usage": usage}
    answer = {"status_code": 200, "request_id": name, "body": body}
    return {"id": f"vllm-{name}", "custom_id": name, "response": answer, "error": None}


def request(name: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def test_batches_have_their_questions_and_golds_elsewhere(tmp_path: Path) -> None:
    """One file has the answers, one what was asked, one the golds."""
    few = "Question: 3+3?\nAnswer: 6\n\nQuestion: 2 + 2?\nAnswer:"
    system = {"role": "system", "content": "Be brief."}
    asked = [
        request("a", messages=[system, {"role": "user", "content": "3+3? Put it in a box."}]),
        request("b", prompt=few),
        request("c", messages=[{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}]),
        request("d", prompt="What?"),
    ]
    cut = response("b", "2")
    cut["response"]["body"]["choices"][0] = {"text": "First, 4", "finish_reason": "length"}
    thought = response("c", r"\boxed{2}", completion_tokens=9)
    thought["response"]["body"]["choices"][0]["message"]["reasoning_content"] = "Hm."
    failed = {"custom_id": "e", "response": None, "error": {"code": 500}}
    answers = [response("a", "6", "7", completion_tokens=5), cut, thought]
    rows = [*answers, response("d", "x"), failed, response("z", "x")]
    golds = [("3+3?", "6"), ("2+2?", "4"), ("1+1?", "2"), ("9+9?", "18")]
    manifest, found = sealed(
        written(tmp_path / "out.jsonl", rows),
        tmp_path / "run",
        requests=written(tmp_path / "in.jsonl", asked),
        problems=str(
            written(tmp_path / "golds.jsonl", [{"question": q, "answer": a} for q, a in golds])
        ),
    )
    assert [(each["question"], each["outcome"]) for each in found] == [
        ("3+3?", "correct"),
        ("3+3?", "incorrect"),
        ("2+2?", "no_answer"),
        ("1+1?", "correct"),
    ]
    assert [each["prompt"] for each in found] == [*["3+3? Put it in a box."] * 2, few, "1+1?"]
    # Of two answers the usage is that of both together.
    assert [each["n_tokens"] for each in found] == [None, None, None, 9]
    assert manifest.spec.model.name == "org/their-7b"
    assert manifest.spec.sources[0].name == "golds.jsonl"
    aside = lines(tmp_path / "run/quarantine.jsonl")
    assert [(each["row"], each["reason"]) for each in aside] == [
        (4, "the question matches no problem, or several"),
        (5, "not the form of OpenAI and vLLM batches (TypeError('None is no list'))"),
        (6, "no request 'z': give the file of requests with `requests`"),
    ]
    run = lines(tmp_path / "run/completions.jsonl")
    assert run[2]["completions"][0]["reasoning"] == "Hm."


@pytest.mark.parametrize("body", [None, [], {"prompt": [1, 2]}, {"messages": []}])
def test_requests_that_are_none_are_named(tmp_path: Path, body: Any) -> None:
    asked = written(tmp_path / "in.jsonl", [{"custom_id": "a", "body": body}])
    file = written(tmp_path / "out.jsonl", [response("a", RIGHT)])
    with pytest.raises(InputError, match=r"requests = .*: row 1 is not a request of a batch"):
        sealed(file, tmp_path / "run", requests=asked)


def test_two_requests_of_one_name_are_refused(tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", [request("a", prompt="1+1?"), request("a", prompt="q")])
    file = written(tmp_path / "out.jsonl", [response("a", RIGHT)])
    with pytest.raises(InputError, match="row 2 is not a request of a batch, or repeats the name"):
        sealed(file, tmp_path / "run", requests=asked)


def test_of_golds_that_differ_none_is_taken(tmp_path: Path) -> None:
    known = [("2+2?", "4"), ("2 + 2?", "5"), ("3+3?", "6"), ("3 + 3?", "6")]
    golds = written(tmp_path / "golds.jsonl", [{"question": q, "answer": a} for q, a in known])
    rows = [{"question": q, "response": "6"} for q in ("2+2?", "3+3?")]
    file, out = written(tmp_path / "theirs.jsonl", rows), tmp_path / "out"
    _, [one] = sealed(file, out, problems=str(golds))
    assert (one["gold"], one["outcome"]) == ("6", "correct")
    (aside,) = [each for each in lines(out / "quarantine.jsonl") if each["source"] == str(file)]
    assert aside["reason"] == "the question matches no problem, or several"


def test_files_without_outputs_do_not_hide_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    written(tmp_path / "theirs/a.jsonl", [{"note": "x"}, plain("1+1?", "2", "2", model="A")])
    written(tmp_path / "theirs/b.jsonl", [plain("2+2?", "4", RIGHT, model="B")])
    with pytest.raises(InputError, match="several models: choose one with `series=A`"):
        sealed(tmp_path / "theirs", tmp_path / "none")
    manifest, [one] = sealed(tmp_path / "theirs", tmp_path / "out", series="B")
    assert (one["question"], manifest.spec.model.name) == ("2+2?", "B")
    with pytest.raises(
        InputError, match=r"contains no outputs of C\. First problem: fields note\. Expected"
    ):
        sealed(tmp_path / "theirs", tmp_path / "none", series="C")


def test_how_a_response_ended_is_said_in_several_ways(tmp_path: Path) -> None:
    cut = [{"finish_reason": {"type": "length"}}, {"stop_reason": "max_tokens"}]
    cut.append({"finish_reason": "content_filter"})
    thinking = {"message": {"content": None, "reasoning": "Hm"}, "finish_reason": "length"}
    told = [*({"text": RIGHT, **how} for how in cut), thinking, {"text": RIGHT}]
    row = {"question": "2+2?", "answer": "4", "responses": told}
    _, found = sealed(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert [each["finish_reason"] for each in found] == ["length"] * 4 + ["stop"]
    assert [each["outcome"] for each in found] == ["correct"] * 3 + ["no_answer", "correct"]


@pytest.mark.parametrize(
    ("value", "right"),
    [("True", True), ("False", False), ("0", False), ("", None), (1.0, True), (None, None)],
)
def test_verdicts_of_publishers_may_be_words(value: Any, right: bool | None) -> None:
    row = SourceRow(1, plain("2+2?", "4", RIGHT, correct=value))
    assert [each.correct for each in RESPONSE_FORMATS["plain"].read_responses(row)] == [right]


def test_a_logit_without_bounds_is_no_crash() -> None:
    row = {"question": "q", "gt": "1", "code": ["a"], "pred_score": [[-1000.0]]}
    with pytest.raises(UnusableRowError, match="math range error"):
        RESPONSE_FORMATS["tora"].read_responses(SourceRow(1, row))


def test_half_surrogates_of_prompts_and_responses_are_replaced(tmp_path: Path) -> None:
    row = plain("2+2?", "4", "It is\ud800 4", prompt="Q\ud800: 2+2?")
    _, [one] = sealed(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert (one["prompt"], one["completions"]) == ("Q\ufffd: 2+2?", ["It is\ufffd 4"])


@pytest.mark.parametrize("count", [-1, 2**31, 1.5, "7", True, None])
def test_what_is_no_count_of_tokens_is_unknown(tmp_path: Path, count: Any) -> None:
    row = plain("2+2?", "4", RIGHT, n_tokens=count)
    manifest, [one] = sealed(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert (one["n_tokens"], manifest.cost.tokens) == (None, "unknown")


def test_a_run_of_ours_is_read_with_its_problems(tmp_path: Path) -> None:
    told = {"text": RIGHT, "finish_reason": "stop", "n_tokens": 3, "seconds": 0.1}
    rows = [{"problem_id": "x", "prompt": "Problem: 2+2?\nSolution:\n", "completions": [told]}]
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    file = written(tmp_path / "completions.jsonl", rows)
    _, [one] = sealed(file, tmp_path / "out", problems=str(golds))
    assert (one["outcome"], one["n_tokens"], one["prompt"]) == ("correct", 3, rows[0]["prompt"])


def test_rows_that_cannot_be_used_are_set_aside(tmp_path: Path) -> None:
    rows: list[Any] = [
        plain("2+2?", "4", RIGHT, prompt="Q 2+2?"),
        plain("2+2?", "4", WRONG, prompt="Say, 2+2?"),
        plain("3+3?", "6", "6", prompt="Q 2+2?"),
        plain("", "4", "4"),
        plain("2+2?", " ", "4"),
        plain("2+2?", "4", "4", response=5),
        plain("\ud800?", "4", "4"),
        {"question": "1+1?", "responses": ["2"]},
        {"a": 1},
        [1],
    ]
    manifest, [one] = sealed(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert one["prompt"] == "Q 2+2?"
    aside = lines(tmp_path / "out/quarantine.jsonl")
    assert [each["reason"] for each in aside] == [
        "the problem has another prompt in an earlier row",
        "another problem has the same prompt",
        "the question is missing: give the problems with `problems`",
        "the answer is empty",
        "the response is 5, expected text",
        "the text holds half a surrogate pair, which is no character",
        "the gold is missing: give the problems with `problems`",
        unknown_format_message({"a": 1}),
        "a JSON list, not an object",
    ]
    assert sum(manifest.quarantined.values()) == len(aside) == 9


def test_a_file_of_several_models_is_of_one(shared: Path, tmp_path: Path) -> None:
    file = shared / "data/outputs/openai_gsm8k/example_model_solutions.jsonl"
    with pytest.raises(InputError, match="several models: choose one with `series=6b_finetuning`"):
        sealed(file, tmp_path / "none")
    with pytest.raises(InputError, match="contains no outputs of nobody"):
        sealed(file, tmp_path / "none", series="nobody")
    manifest, found = sealed(file, tmp_path / "out", series="175b_verification")
    assert manifest.spec.model.name == "175b_verification"
    assert (len(found), manifest.outcomes["correct"]) == (1319, 742)


@pytest.mark.parametrize(
    ("name", "rows", "correct"),
    [
        ("qwen_math_cot/math_cot_100", 800, 729),
        ("abel_gsm8k/7b_first300", 300, 193),
        ("tora_gsm8k/tora-code-34b-v1.0_first300", 300, None),
        ("nemo_skills/output-rs*", 100, 74),
    ],
)
def test_published_outputs(
    shared: Path, tmp_path: Path, name: str, rows: int, correct: int | None
) -> None:
    """Verdicts are those that the benchmark harness gives to the same files."""
    manifest, found = sealed(shared / f"data/outputs/{name}.jsonl", tmp_path / "out")
    assert (len(found), manifest.quarantined) == (rows, {})
    assert correct in (None, manifest.outcomes["correct"])


def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path: Path) -> None:
    rows = [plain(f"{k}+{k}?", str(2 * k), f"It is {2 * k}.") for k in range(40)]
    file = written(tmp_path / "theirs.jsonl", [*rows, *rows[:10]])
    whole, _ = sealed(file, tmp_path / "whole")
    sealed(file, tmp_path / "part")
    (tmp_path / "part/manifest.json").unlink()
    lines = (tmp_path / "part/completions.jsonl").read_bytes()
    (tmp_path / "part/completions.jsonl").write_bytes(lines[: len(lines) // 2])
    part, found = sealed(file, tmp_path / "part", resume=True)
    assert part.digest == whole.digest and len(found) == 50


def test_the_command_line(tmp_path: Path) -> None:
    file, out = written(tmp_path / "theirs.jsonl", TOLD["lm-eval"][0]), tmp_path / "out"
    line = ["import", str(file), "--out", str(out), "--from"]
    done = CliRunner().invoke(app, [*line, "outputs", "--model-name", "Theirs", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "Theirs" in done.output and f"next: fsdpo-data inspect {out}" in done.output
    for flag, value in (("--temperature", "0.5"), ("--problems", "gsm8k"), ("--series", "x")):
        with pytest.raises(InputError, match=f"{flag} .*goes with --from outputs"):
            CliRunner().invoke(app, [*line, "prm800k", flag, value], catch_exceptions=False)
    told = r"contains no outputs\. First problem: fields a\. Expected .*; plain \(answer"
    with pytest.raises(InputError, match=told):
        sealed(written(tmp_path / "theirs.jsonl", [{"a": 1}]), tmp_path / "none")
