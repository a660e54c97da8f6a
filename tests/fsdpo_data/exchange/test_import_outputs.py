"""Import recorded outputs of other programs: formats, order of rows, unusable rows, resumption."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from fsdpo_bench.cli.app import app as bench
from fsdpo_cards.dataset import policy_argument, stage_entries
from helpers import quarantine_counts, read_sample_settings, stage_options, statistics_of
from made_runs import written
from recorded_imports import import_file, lines
from recorded_rows import EXAMPLES, RIGHT, WRONG, lighteval
from small_tokenizer import CHAT, save_tokenizer
from typer.testing import CliRunner

from fsdpo_data.api import open_dataset
from fsdpo_data.cli.app import app
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.dataset.stage_records import ProblemsRecord
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.exchange.formats import (
    FORMATS,
    find_response_format,
    response_formats,
)
from fsdpo_data.exchange.outputs import (
    grade_outputs,
    read_outputs,
)
from fsdpo_data.exchange.response_formats import ResponseReading
from fsdpo_data.models.prompts import get_template


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_is_imported(tmp_path: Path, name: str) -> None:
    rows, question, prompt = EXAMPLES[name]
    form = find_response_format(rows[0])
    assert form is FORMATS[name]
    manifest, rows = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert ["".join(row["completions"]) for row in rows] == [RIGHT, WRONG]
    assert [set(row["labels"]) for row in rows] == [{True}, {False}]
    assert {row["question"] for row in rows} == {question}
    assert {row["prompt"] for row in rows} == {prompt}
    assert {row["gold"] for row in rows} == {"4"}
    token_counts = [row["n_tokens"] for row in rows]
    assert token_counts == ([3, 1] if name == "lighteval" else [None, None])
    assert manifest.cost.tokens == (4 if name == "lighteval" else None)
    assert manifest.rows.solutions == 2 and not quarantine_counts(manifest)


def test_every_format_has_example_rows() -> None:
    assert EXAMPLES.keys() | {"batch", "no-gold"} == response_formats().keys()


def test_parquet_of_older_lighteval(tmp_path: Path) -> None:
    rows = [lighteval("__doc__", "__model_response__")]
    pl.DataFrame(rows).write_parquet(tmp_path / "details.parquet")
    manifest, rows = import_file(tmp_path / "details.parquet", tmp_path / "out")
    assert [row["outcome"] for row in rows] == ["correct", "incorrect"]
    assert manifest.cost.tokens == 4


def plain(question: str, gold: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"question": question, "answer": gold, "response": text, **fields}


def test_samples_of_one_problem_may_be_in_several_files(tmp_path: Path) -> None:
    """The second problem has one sample less than the first."""
    rows = [plain("2+2?", "4", RIGHT), plain("3+3?", "6", "6"), plain("2+2?", "4", WRONG)]
    written(tmp_path / "rs0.jsonl", rows[:2])
    written(tmp_path / "rs1.jsonl", rows[2:])
    manifest, rows = import_file(tmp_path / "rs*.jsonl", tmp_path / "out")
    assert [(row["question"], row["sample_index"]) for row in rows] == [
        ("2+2?", 0),
        ("2+2?", 1),
        ("3+3?", 0),
    ]
    assert read_sample_settings(manifest).sampling.n == 2


def test_options_and_fields_reach_the_manifest_and_other_values_are_unknown(tmp_path: Path) -> None:
    reported = {"finish_reason": "length", "n_tokens": 7}
    file = written(tmp_path / "theirs.jsonl", [plain("2+2?", "4", RIGHT, **reported)])
    options = {
        "model_name": "My 7B, step 400",
        "temperature": 0.6,
        "template": "alpaca",
    }
    manifest, [row] = import_file(file, tmp_path / "out", **options)
    assert read_sample_settings(manifest).model.name == "My 7B, step 400"
    assert read_sample_settings(manifest).model.revision == "unknown"
    sampling = read_sample_settings(manifest).sampling
    assert sampling.temperature == 0.6
    assert read_sample_settings(manifest).unknown_fields == ("top_p", "max_tokens", "seed")
    assert (row["finish_reason"], row["n_tokens"]) == ("length", 7)
    assert "### Instruction:\n2+2?" in row["prompt"]
    sealed = json.loads((tmp_path / "out/manifest.json").read_text())
    assert stage_options(sealed, "sample")["engine"]["recording"] == f"sha256:{file_sha256(file)}"
    assert policy_argument(stage_entries(sealed)) == "BASE_MODEL"
    card = (tmp_path / "out/README.md").read_text()
    assert "| model | `My 7B, step 400`, of an unknown revision |" in card
    assert f"| recorded responses | a file with the digest `sha256:{file_sha256(file)}` |" in card


def test_columns_of_problems_are_kept_and_those_of_responses_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        plain(question, "4", text, difficulty=level, seconds=seconds, tags=["a"], note=None)
        for question, level, seconds, text in (
            ("2+2?", 3, 1.5, RIGHT),
            ("2+2?", 3, 2.5, WRONG),
            ("1+3?", 5, 1.5, RIGHT),
        )
    ]
    file = written(tmp_path / "rows.jsonl", rows)
    manifest, imported = import_file(file, tmp_path / "out")
    metadata = {row["question"]: json.loads(row["metadata"]) for row in imported}
    assert metadata == {"2+2?": {"difficulty": 3}, "1+3?": {"difficulty": 5}}
    assert "columns that are not imported: tags, seconds. Their values differ" in caplog.text
    selected = open_dataset(tmp_path / "out").select(
        out=tmp_path / "hard", problem_filter="difficulty > 4"
    )
    assert (manifest.rows.problems, selected.manifest.rows.problems) == (2, 1)


def test_step_scores_of_an_unknown_version_say_so(tmp_path: Path) -> None:
    row = plain("2+2?", "4", RIGHT, steps=[RIGHT], step_scores=[0.5])
    file = written(tmp_path / "theirs.jsonl", [row])
    import_file(file, tmp_path / "out", prm_name="Their PRM")
    card = (tmp_path / "out/README.md").read_text()
    assert "| step rewards | `Their PRM`, of an unknown revision, engine outputs" in card


def test_two_files_with_the_same_problems_have_other_solution_ids(tmp_path: Path) -> None:
    """The names and revisions of the models are unknown, and the problems are given."""
    problems = written(tmp_path / "problems.jsonl", [{"question": "2+2?", "answer": "4"}])
    ids = set()
    for text in (RIGHT, WRONG):
        file = written(tmp_path / "theirs.jsonl", [plain("2+2?", "4", text)])
        _, [row] = import_file(file, tmp_path / text[-1], problems=[str(problems)])
        ids.add(row["solution_id"])
    assert len(ids) == 2


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


def test_batch_responses_are_joined_with_requests_and_golds(tmp_path: Path) -> None:
    """The responses, the requests and the golds are in three files."""
    few = "Question: 3+3?\nAnswer: 6\n\nQuestion: 2 + 2?\nAnswer:"
    system = {"role": "system", "content": "Be brief."}
    requests = [
        request("a", messages=[system, {"role": "user", "content": "3+3? Put it in a box."}]),
        request("b", prompt=few),
        request("c", messages=[{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}]),
        request("d", prompt="What?"),
    ]
    cut = response("b", "2")
    cut["response"]["body"]["choices"][0] = {"text": "First, 4", "finish_reason": "length"}
    reasoned = response("c", r"\boxed{2}", completion_tokens=9)
    reasoned["response"]["body"]["choices"][0]["message"]["reasoning_content"] = "Hm."
    failed = {"custom_id": "e", "response": None, "error": {"code": 500}}
    answers = [response("a", "6", "7", completion_tokens=5), cut, reasoned]
    rows = [*answers, response("d", "x"), failed, response("z", "x")]
    golds = [("3+3?", "6"), ("2+2?", "4"), ("1+1?", "2"), ("9+9?", "18")]
    manifest, solutions = import_file(
        written(tmp_path / "out.jsonl", rows),
        tmp_path / "run",
        requests=written(tmp_path / "in.jsonl", requests),
        problems=str(
            written(tmp_path / "golds.jsonl", [{"question": q, "answer": a} for q, a in golds])
        ),
    )
    assert [(row["question"], row["outcome"]) for row in solutions] == [
        ("3+3?", "correct"),
        ("3+3?", "incorrect"),
        ("2+2?", "no_answer"),
        ("1+1?", "correct"),
    ]
    assert [row["prompt"] for row in solutions] == [*["3+3? Put it in a box."] * 2, few, "1+1?"]
    # The usage of a response with two choices covers both of them, so it has no token counts.
    assert [row["n_tokens"] for row in solutions] == [None, None, None, 9]
    assert read_sample_settings(manifest).model.name == "org/their-7b"
    assert manifest.get("problems", ProblemsRecord).options.sources[0].name == "golds.jsonl"
    aside = lines(tmp_path / "run/quarantine.jsonl")
    assert [(row["row"], row["reason"]) for row in aside] == [
        (4, "the question matches no problem, or several"),
        (
            5,
            "the row does not have the format of OpenAI and vLLM batches: None is not a list",
        ),
        (6, "no request 'z': give the file of requests with `requests`"),
    ]
    run = lines(tmp_path / "run/completions.jsonl")
    assert run[2]["completions"][0]["reasoning"] == "Hm."


@pytest.mark.parametrize(
    "form",
    [
        "Q: {}\nA: 4\n\nQ: {}\nA:",
        "Solve the problem.\n\nProblem 1: {} Answer: 4\nProblem 2: {} Answer:",
        "### Instruction:\n{}\n\n### Response:\n4\n\n### Instruction:\n{}\n\n### Response:\n",
    ],
)
@pytest.mark.parametrize("has_requests", [True, False])
def test_a_prompt_without_a_stated_question_is_not_taken_for_its_example(
    tmp_path: Path, form: str, has_requests: bool
) -> None:
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    prompts = [form.format("2+2?", "2+2?"), form.format("2+2?", "5+5?")]
    options: dict[str, Any] = {"problems": [str(golds)]}
    if has_requests:
        rows = [response(str(index), "10") for index in range(2)]
        requests = [request(str(index), prompt=prompt) for index, prompt in enumerate(prompts)]
        options["requests"] = written(tmp_path / "in.jsonl", requests)
    else:
        rows = [{"prompt": prompt, "answer": "?", "response": "10"} for prompt in prompts]
    file = written(tmp_path / "out.jsonl", rows)
    _, solutions = import_file(file, tmp_path / "run", **options)
    assert [row["prompt"] for row in solutions] == prompts[:1]
    [aside] = lines(tmp_path / "run/quarantine.jsonl")
    assert (aside["row"], "another question" in aside["reason"]) == (2, True)


def test_a_longer_variant_of_a_known_question_is_unknown(tmp_path: Path) -> None:
    golds = written(tmp_path / "golds.jsonl", [{"question": "2x = 10. Find x.", "answer": "5"}])
    questions = ["2x = 10. Find x. Then find 3x.", "2x = 10. Find x."]
    rows = [
        {"question": question, "prompt": f"Question: {question}\nAnswer:", "response": "5"}
        for question in questions
    ]
    file = written(tmp_path / "theirs.jsonl", rows)
    _, [solution] = import_file(file, tmp_path / "out", problems=str(golds))
    assert solution["prompt"] == rows[1]["prompt"] and solution["outcome"] == "correct"
    [aside] = lines(tmp_path / "out/quarantine.jsonl")
    assert aside["row"] == 1 and "the question goes on after a question" in aside["reason"]


@pytest.mark.parametrize(
    "instruction",
    ["\nPlease reason step by step, and put your final answer within \\boxed{}.", "\nAnswer:"],
)
def test_an_instruction_after_a_question_is_no_part_of_it(tmp_path: Path, instruction: str) -> None:
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    question = f"2+2?{instruction}"
    rows = [
        {"question": question, "prompt": f"<user>{question}<assistant>", "response": "4"},
        {"question": question, "response": "4"},
        {"question": f"Q: {question}", "prompt": f"<user>Q: {question}", "response": "4"},
    ]
    for number, row in enumerate(rows):
        file = written(tmp_path / f"{number}.jsonl", [row])
        _, [solution] = import_file(file, tmp_path / f"out{number}", problems=str(golds))
        assert solution["outcome"] == "correct"


def test_rows_of_solutions_take_their_golds_from_the_problems(tmp_path: Path) -> None:
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    row = {"question": "2+2?", "answer": "5", "solution_id": "a", "outcome": "correct"}
    file = written(tmp_path / "theirs.jsonl", [row | {"response": "5"}])
    _, [solution] = import_file(file, tmp_path / "out", problems=str(golds))
    assert solution["outcome"] == "incorrect"
    steps = written(tmp_path / "steps.jsonl", [row | {"completions": ["2+2", " is 5"]}])
    with pytest.raises(InputError, match="has the steps of one solution: join them"):
        import_file(steps, tmp_path / "steps", problems=str(golds), response_field="completions")


CHAT_RESPONSE = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": RIGHT}]


@pytest.mark.parametrize(
    "responses",
    [
        {"response": CHAT_RESPONSE},
        {"responses": [CHAT_RESPONSE]},
        {"response": [*CHAT_RESPONSE, {"role": "user", "content": "Thanks."}]},
        {"responses": [[RIGHT]]},
        {"response": CHAT_RESPONSE, "steps": [RIGHT], "step_scores": [0.5]},
        {"response": CHAT_RESPONSE[1:], "steps": [RIGHT], "step_scores": [0.5]},
        {"response": json.dumps(CHAT_RESPONSE)},
        {"completions": [RIGHT], "labels": ["algebra"]},
        {"completions": [RIGHT], "labels": [True], "correct": [True]},
        {"completions": RIGHT, "solution_id": "a"},
    ],
)
def test_a_chat_is_one_response(tmp_path: Path, responses: dict[str, Any]) -> None:
    row = {"question": "2+2?", "answer": "4", **responses}
    _, [solution] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert "".join(solution["completions"]) == RIGHT


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"completions": ["2+2", " is 4."], "labels": [True, True]}, "may have the steps"),
        ({"completions": ["2+2", " is 4."], "labels": ["+", None]}, "may have the steps"),
        ({"completions": '["2+2", " is 4."]', "labels": "[1, 0]"}, "may have the steps"),
        ({"response": "4", "solution_id": "a", "outcome": "correct"}, "`answer` is the model's"),
        (
            {"completions": ["2+2 is 4."], "solution_id": "a", "outcome": "correct"},
            "`answer` is the model's",
        ),
        ({"completions": [["2+2", " is 4."], ["It is 5."]]}, "a response is a list of 2 texts"),
        ({"response": CHAT_RESPONSE[:1]}, "a chat without a message of the assistant"),
    ],
)
def test_steps_and_questions_are_no_responses(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    rows = [{"question": "2+2?", "answer": "4", **fields}]
    with pytest.raises(InputError, match=reason):
        import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")


def test_a_named_field_has_responses(tmp_path: Path) -> None:
    row = {"question": "2+2?", "answer": "4", "completions": ["4", "5"], "labels": [True, False]}
    file = written(tmp_path / "theirs.jsonl", [row])
    _, rows = import_file(file, tmp_path / "out", response_field="completions")
    assert [row["outcome"] for row in rows] == ["correct", "incorrect"]


def test_rows_with_only_a_prompt_have_its_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = [get_template("alpaca").render(question) for question in ("2+2?", "2 plus 2?")]
    rows = [{"prompt": prompt, "answer": "4", "response": RIGHT} for prompt in prompts]
    _, solutions = import_file(written(tmp_path / "known.jsonl", rows), tmp_path / "known")
    assert [row["question"] for row in solutions] == ["2+2?", "2 plus 2?"]
    assert [row["prompt"] for row in solutions] == prompts
    assert "no known template" not in caplog.text
    rows = [row | {"prompt": row["prompt"] + "\nThink."} for row in rows]
    import_file(written(tmp_path / "unknown.jsonl", rows), tmp_path / "unknown")
    assert "2 prompts have no known template" in caplog.text


@pytest.mark.parametrize(
    "body",
    [None, [], {"prompt": [1, 2]}, {"messages": []}, {"prompt": [{"image_url": "x"}]}],
)
def test_invalid_requests_are_reported(tmp_path: Path, body: Any) -> None:
    requests = written(tmp_path / "in.jsonl", [{"custom_id": "a", "body": body}])
    file = written(tmp_path / "out.jsonl", [response("a", RIGHT)])
    with pytest.raises(InputError, match=r"requests = .*: row 1 is not a request of a batch"):
        import_file(file, tmp_path / "run", requests=requests)


def test_repeated_request_ids_are_refused(tmp_path: Path) -> None:
    requests = written(
        tmp_path / "in.jsonl", [request("a", prompt="1+1?"), request("a", prompt="q")]
    )
    file = written(tmp_path / "out.jsonl", [response("a", RIGHT)])
    with pytest.raises(InputError, match="row 2 is not a request of a batch, or repeats the name"):
        import_file(file, tmp_path / "run", requests=requests)


def test_contradictory_golds_are_not_used(tmp_path: Path) -> None:
    known_golds = [("2+2?", "4"), ("2 + 2?", "5"), ("3+3?", "6"), ("3 + 3?", "6")]
    golds = written(
        tmp_path / "golds.jsonl", [{"question": q, "answer": a} for q, a in known_golds]
    )
    rows = [{"question": q, "response": "6"} for q in ("2+2?", "3+3?")]
    file, out = written(tmp_path / "theirs.jsonl", rows), tmp_path / "out"
    _, [row] = import_file(file, out, problems=str(golds))
    assert (row["gold"], row["outcome"]) == ("6", "correct")
    (aside,) = [row for row in lines(out / "quarantine.jsonl") if row["source"] == str(file)]
    assert aside["reason"] == "the question matches no problem, or several"


def test_responses_to_another_split_name_the_split(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Responses to test problems match none of the default split, ``train``."""
    golds = tmp_path / "golds"
    golds.mkdir()
    for split, question in (("train", "1+1?"), ("test", "2+2?")):
        written(golds / f"{split}.jsonl", [{"question": question, "answer": question[0]}])
    responses = [{"question": question, "response": RIGHT} for question in ("2+2?", "1+1?")]
    theirs = written(tmp_path / "theirs.jsonl", responses[:1])
    hint = rf"The problems are split train of {golds}\. For .*, such as `split=test`\."
    with pytest.raises(InputError, match=rf"no output matches the given problems\. {hint}"):
        import_file(theirs, tmp_path / "none", problems=[str(golds)])
    mixed = written(tmp_path / "mixed.jsonl", responses)
    import_file(mixed, tmp_path / "mixed", problems=[str(golds)])
    assert re.search(rf"1 of 2 rows are in quarantine\..* {hint}", caplog.text)
    caplog.clear()
    import_file(mixed, tmp_path / "file", problems=[str(golds / "train.jsonl")])
    assert "in quarantine" in caplog.text and "`split=" not in caplog.text
    import_file(theirs, tmp_path / "test", problems=[str(golds)], split="test")


def test_files_without_outputs_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    written(tmp_path / "theirs/a.jsonl", [{"note": "x"}, plain("1+1?", "2", "2", model="A")])
    written(tmp_path / "theirs/b.jsonl", [plain("2+2?", "4", RIGHT, model="B")])
    with pytest.raises(InputError, match="several models: choose one with `series=A`"):
        import_file(tmp_path / "theirs", tmp_path / "none")
    manifest, [row] = import_file(tmp_path / "theirs", tmp_path / "out", series="B")
    assert (row["question"], read_sample_settings(manifest).model.name) == ("2+2?", "B")
    with pytest.raises(
        InputError, match=r"contains no outputs of C\. First problem: fields note\. Expected"
    ):
        import_file(tmp_path / "theirs", tmp_path / "none", series="C")


def test_finish_reasons_are_read_from_several_fields(tmp_path: Path) -> None:
    cut = [{"finish_reason": {"type": "length"}}, {"stop_reason": "max_tokens"}]
    cut.append({"finish_reason": "content_filter"})
    thinking = {"message": {"content": None, "reasoning": "Hm"}, "finish_reason": "length"}
    responses = [*({"text": RIGHT, **ending} for ending in cut), thinking, {"text": RIGHT}]
    row = {"question": "2+2?", "answer": "4", "responses": responses}
    _, solutions = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert [row["finish_reason"] for row in solutions] == ["length"] * 4 + ["stop"]
    assert [row["outcome"] for row in solutions] == ["correct"] * 3 + ["no_answer", "correct"]


def test_separate_thinking_is_imported_with_the_tags_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = save_tokenizer(tmp_path / "model", chat=CHAT + "{# <think> </think> #}")
    responses = [{"message": {"content": RIGHT, "reasoning": "Hm."}}]
    row = {"question": "2+2?", "answer": "4", "responses": responses}
    file = written(tmp_path / "theirs.jsonl", [row])
    _, [solution] = import_file(file, tmp_path / "out", model_name=model)
    assert solution["completions"][0] == "<think>\nHm.\n</think>\n\n"
    assert "".join(solution["completions"][1:]) == RIGHT
    assert (solution["thinking_closed"], solution["outcome"]) == (True, "correct")
    _, [solution] = import_file(file, tmp_path / "unknown", model_name="somebody")
    assert "".join(solution["completions"]) == RIGHT


@pytest.mark.parametrize("field", ["finish_reasons", "finish_reason", "stop_reason"])
def test_each_response_has_its_finish_reason(tmp_path: Path, field: str) -> None:
    reasons = ["stop", "MAX_TOKENS", {"type": "length"}, None, "abort", "ERROR"]
    row = {"question": "2+2?", "answer": "4", "responses": [RIGHT] * len(reasons), field: reasons}
    manifest, solutions = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert [row["finish_reason"] for row in solutions] == ["stop", "length", "length", "stop"]
    assert quarantine_counts(manifest) == {"the response is not finished": 2}


def test_unknown_finish_reasons_are_truncated_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = ["stop", "repetition", "loop", "loop"]
    row = {"question": "2+2?", "answer": "4", "responses": [RIGHT] * 4, "finish_reason": reasons}
    file = written(tmp_path / "theirs.jsonl", [row])
    _, solutions = import_file(file, tmp_path / "out")
    assert [row["finish_reason"] for row in solutions] == ["stop"] + ["length"] * 3
    sentence = "unknown finish reasons, which count as truncated: 'loop' (2)."
    assert f"the rows have {sentence}" in caplog.text
    _, _, printed = run(capsys, "grade", str(file))
    assert f"warning: the rows have {sentence}" in printed


def test_unknown_verdicts_are_none_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    verdicts = ["Correct", False, "no ", "", None, "partly", 0.5]
    row = {"question": "2+2?", "answer": "4", "responses": [RIGHT] * 7, "correct": verdicts}
    file = written(tmp_path / "theirs.jsonl", [row])
    _, solutions = import_file(file, tmp_path / "out")
    recorded = [row["imported_correct"] for row in solutions]
    assert recorded == [True, False, False, None, None, None, None]
    sentence = "unknown verdicts, which count as no verdict: '0.5' (1), 'partly' (1)."
    assert f"the rows have {sentence}" in caplog.text
    _, _, printed = run(capsys, "grade", str(file))
    assert f"warning: the rows have {sentence}" in printed


def test_a_file_is_graded_as_it_is_imported(tmp_path: Path) -> None:
    """The prompt opens the thinking, which the response does not end."""
    row = {"question": "2+2?", "answer": "4", "prompt": "2+2?\n<think>\n", "response": RIGHT}
    file = written(tmp_path / "theirs.jsonl", [row, {**row, "response": f"Hm.</think>{RIGHT}"}])
    _, solutions = import_file(file, tmp_path / "out")
    graded = grade_outputs(read_outputs(file), workers=1)
    outcomes = [response.verdict.status for response in graded]
    assert outcomes == [solution["outcome"] for solution in solutions] == ["no_answer", "correct"]


def test_what_the_rows_do_not_say_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Several models under one name, and responses that may be truncated."""
    rows = [plain("1+1?", "2", "2", model="A"), plain("2+2?", "4", RIGHT, model="B")]
    file = written(tmp_path / "theirs.jsonl", rows)
    import_file(file, tmp_path / "out", model_name="both")
    assert "the responses of 2 models are samples of one model here: A, B." in caplog.text
    assert "the rows have no finish reason" in caplog.text
    caplog.clear()
    file = written(tmp_path / "one.jsonl", [{**rows[0], "finish_reason": "stop"}])
    import_file(file, tmp_path / "one")
    assert not caplog.text


@pytest.mark.parametrize("name", ["gold", "ground_truth", "expected_answer"])
def test_an_answer_next_to_the_gold_is_not_the_gold(tmp_path: Path, name: str) -> None:
    row = {"question": "2+2?", "answer": "5", name: "4", "response": WRONG}
    _, [solution] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert (solution["gold"], solution["outcome"]) == ("4", "incorrect")


def test_a_part_of_a_question_is_not_dropped(tmp_path: Path) -> None:
    rows = [plain("2+2?", "4", RIGHT), plain("Which?", "B", "B", choices=["3", "4"])]
    manifest, _ = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert manifest.rows.problems == 1 and sum(quarantine_counts(manifest).values()) == 1
    assert "the field `choices` may be a part" in (tmp_path / "out/quarantine.jsonl").read_text()


@pytest.mark.parametrize("has_problems", [False, True])
def test_given_problems_replace_the_question_and_the_gold(
    tmp_path: Path, has_problems: bool
) -> None:
    """A row without a gold of its own, or with parts of a question, is usable with them."""
    rows = [
        plain("2+2?", "4", RIGHT),
        plain("3+3?", "N/A", "6"),
        plain("1+1?", "2", "2", image="a"),
    ]
    file = written(tmp_path / "theirs.jsonl", rows)
    problems = written(
        tmp_path / "problems.jsonl",
        [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in (1, 2, 3)],
    )
    options = {"problems": [str(problems)]} if has_problems else {}
    manifest, _ = import_file(file, tmp_path / "out", **options)
    assert manifest.rows.problems == (3 if has_problems else 1)


def test_problems_of_a_sealed_dataset_keep_their_golds_and_metadata(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The golds of the file do not count, and its verdicts are kept next to ours."""
    problem_rows = [
        {"question": "1 / 3?", "answer": "0.333", "gold_tolerance": 0.01},
        {"question": "x^2 = 4?", "answer": "2", "alternative_golds": ["-2"], "group": "square"},
        {"question": "2+2?", "answer": "4"},
    ]
    responses = [plain(row["question"], row["answer"], row["answer"]) for row in problem_rows]
    golds = written(tmp_path / "golds.jsonl", problem_rows)
    file = written(tmp_path / "known.jsonl", responses)
    import_file(file, tmp_path / "known", problems=[str(golds)])
    theirs = [
        plain("1/3?", "wrong gold", "It is 0.334.", correct=False),
        plain("x^2 = 4?", "wrong gold", "It is -2.", correct=True),
        plain("x^2 = 4?", "wrong gold", "It is 3."),
    ]
    file = written(tmp_path / "theirs.jsonl", theirs)
    _, rows = import_file(file, tmp_path / "out", problems=[str(tmp_path / "known")])
    assert [row["outcome"] for row in rows] == ["correct", "correct", "incorrect"]
    assert [row["exactly_correct"] for row in rows] == [False, None, None]
    assert [row["imported_correct"] for row in rows] == [False, True, None]
    assert [row["gold"] for row in rows] == ["0.333", "2", "2"]
    assert json.loads(rows[1]["metadata"])["group"] == "square"
    assert "has responses to 2 of the 3 given problems" in caplog.text


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [("qwen_math_cot/math_cot_100", (800, 728)), ("abel_gsm8k/7b_first300", (300, 193))],
)
def test_published_verdicts_are_kept(
    shared: Path, tmp_path: Path, name: str, verdicts: tuple[int, int]
) -> None:
    _, rows = import_file(shared / f"data/outputs/{name}.jsonl", tmp_path / "out")
    stated = [row["imported_correct"] for row in rows if row["imported_correct"] is not None]
    assert (len(stated), sum(stated)) == verdicts


def test_a_null_costs_only_its_response(tmp_path: Path) -> None:
    row = {"question": "1+1?", "answer": "2", "responses": ["It is 2.", None, "It is 3."]}
    manifest, solutions = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert [solution["outcome"] for solution in solutions] == ["correct", "incorrect"]
    [quarantined] = (tmp_path / "out/quarantine.jsonl").read_text().splitlines()
    assert "the response is null; expected text (sample 1)" in quarantined
    assert manifest.rows.problems == 1


def test_the_warning_counts_rows_of_which_a_part_is_imported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"question": "1+1?", "answer": "2", "responses": ["It is 2.", None]}
    rows = [row, {**row, "question": "2+0?", "responses": [None]}]
    import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    text = "2 of 2 rows are in quarantine, 1 of them with some of their responses only."
    assert text in caplog.text


def test_several_models_give_one_message_with_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a common name the import stops, so it does not say that it joins the models."""
    rows = [plain("1+1?", "2", "2", model="A"), plain("2+2?", "4", RIGHT, model="B")]
    file = written(tmp_path / "theirs.jsonl", rows)
    command = ["import", str(file), "--from", "outputs", "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *command)
    assert code == 1 and "choose one with --series A" in " ".join(err.split())
    assert "samples of one model" not in err
    code, _, err = run(capsys, *command, "--model-name", "both")
    assert code == 0 and "The option --series imports one of them" in " ".join(err.split())


def test_generations_of_open_r1(tmp_path: Path) -> None:
    row = {
        "problem": "1+1?",
        "answer": "2",
        "solution": "Add them.",
        "generations": [r"<think>hm</think> \boxed{2}", r"<think>1 + 1 is 2, so"],
        "finish_reasons": ["stop", "length"],
        "correctness_math_verify": [True, False],
    }
    _, solutions = import_file(written(tmp_path / "r1.jsonl", [row]), tmp_path / "out")
    assert [solution["outcome"] for solution in solutions] == ["correct", "no_answer"]
    assert [solution["finish_reason"] for solution in solutions] == ["stop", "length"]


def test_a_question_with_another_gold_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {**plain("1+1?", gold, "2"), "finish_reason": "stop"}
        for gold in ("2", "2", *["3"] * 2, *["2"] * 20)
    ]
    manifest, _ = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert manifest.rows.solutions == 22
    assert "an earlier row: 2, such as '1+1?': 2, 3." in caplog.text
    assert "2 of 24 rows are in quarantine" in caplog.text


def test_every_command_counts_an_undecided_answer_as_wrong(tmp_path: Path) -> None:
    """The same dataset has one accuracy in `import`, `inspect`, `grade`, `select` and `report`."""
    rows = [
        plain("1+1?", "2", "The answer is 2."),
        plain("x?", "42", r"So it is $\boxed{\text{at least } 42}$."),
    ]
    file = written(tmp_path / "theirs.jsonl", rows)
    _, solutions = import_file(file, tmp_path / "out")
    assert sorted(row["outcome"] for row in solutions) == ["correct", "undecided"]
    statistics = statistics_of(tmp_path / "out")
    summary = dict(summary_rows(statistics))
    assert summary["accuracy"].endswith("(1 of 2; 1 undecided count as wrong)")
    assert summary["pass@1"].endswith("(1 of 2)")
    accuracy = statistics.solutions.accuracy
    assert (accuracy.value, accuracy.n) == (0.5, 2)

    [scores] = json.loads(invoke(app, "grade", file, "--json"))
    assert (scores["correct"], scores["n"], scores["upper_bound"]) == (1, 2, 2)
    invoke(app, "select", tmp_path / "out", "--per-problem", 1, "--out", tmp_path / "selected")
    assert statistics_of(tmp_path / "selected").solutions.accuracy == accuracy
    invoke(bench, "report", tmp_path / "out", "--out", tmp_path / "report")
    results = json.loads((tmp_path / "report/results.json").read_text())
    reported = results["tasks"]["theirs"]["decoders"]["greedy"]["accuracy"]
    assert (reported["value"], reported["n"]) == (0.5, 2)


def invoke(program: Any, *arguments: object) -> str:
    """Run a command in this process, and return its standard output."""
    result = CliRunner().invoke(program, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("value", "right"),
    [("True", True), ("False", False), ("0", False), ("", None), (1.0, True), (None, None)],
)
def test_published_verdicts_may_be_words(value: Any, right: bool | None) -> None:
    row = SourceRow(1, plain("2+2?", "4", RIGHT, correct=value))
    [response] = response_formats()["plain"].read_responses(row)
    assert response.completion.imported_correct is right


def test_lone_surrogates_in_prompts_and_responses_are_replaced(tmp_path: Path) -> None:
    row = plain("2+2?", "4", "It is\ud800 4", prompt="Q\ud800: 2+2?")
    _, [solution] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert (solution["prompt"], solution["completions"]) == ("Q\ufffd: 2+2?", ["It is\ufffd 4"])


@pytest.mark.parametrize("count", [-1, 2**31, 1.5, "7", True, None])
def test_invalid_token_counts_are_unknown(tmp_path: Path, count: Any) -> None:
    row = plain("2+2?", "4", RIGHT, n_tokens=count)
    manifest, [solution] = import_file(written(tmp_path / "theirs.jsonl", [row]), tmp_path / "out")
    assert (solution["n_tokens"], manifest.cost.tokens) == (None, None)


def test_completions_of_a_build_are_imported(tmp_path: Path) -> None:
    completion = {"text": RIGHT, "finish_reason": "stop", "n_tokens": 3, "seconds": 0.1}
    rows = [
        {"problem_id": "x", "prompt": "Problem: 2+2?\nSolution:\n", "completions": [completion]}
    ]
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    file = written(tmp_path / "completions.jsonl", rows)
    _, [row] = import_file(file, tmp_path / "out", problems=str(golds))
    assert (row["outcome"], row["n_tokens"], row["prompt"]) == ("correct", 3, rows[0]["prompt"])


def test_unusable_rows_are_quarantined(tmp_path: Path) -> None:
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
    manifest, [row] = import_file(written(tmp_path / "theirs.jsonl", rows), tmp_path / "out")
    assert row["prompt"] == "Q 2+2?"
    aside = lines(tmp_path / "out/quarantine.jsonl")
    with pytest.raises(UnusableRowError) as unknown_format:
        find_response_format({"a": 1})
    assert [row["reason"] for row in aside] == [
        "the problem has another prompt in an earlier row",
        "another problem has the same prompt",
        "the question is missing: give the problems with `problems`",
        "the answer is empty",
        "the response is 5; expected text",
        "the text holds half a surrogate pair, which is no character",
        "the gold is missing: give the problems with `problems`",
        str(unknown_format.value),
        "a JSON list, not an object",
    ]
    assert sum(quarantine_counts(manifest).values()) == len(aside) == 9


def test_one_series_of_a_file_with_several_models_is_imported(shared: Path, tmp_path: Path) -> None:
    file = shared / "data/outputs/openai_gsm8k/example_model_solutions.jsonl"
    with pytest.raises(InputError, match="several models: choose one with `series=6b_finetuning`"):
        import_file(file, tmp_path / "none")
    for read in (
        lambda: import_file(file, tmp_path / "none", series="nobody"),
        lambda: read_outputs(file, ResponseReading(series="nobody")),
    ):
        with pytest.raises(InputError, match=r"of this model\. Its models are 175b_fi"):
            read()
    manifest, rows = import_file(file, tmp_path / "out", series="175b_verification")
    assert read_sample_settings(manifest).model.name == "175b_verification"
    outcomes = statistics_of(tmp_path / "out").solutions.outcomes
    assert (len(rows), outcomes["correct"]) == (1319, 742)


@pytest.mark.parametrize(
    ("name", "n_rows", "correct"),
    [
        ("qwen_math_cot/math_cot_100", 800, 729),
        ("abel_gsm8k/7b_first300", 300, 193),
        ("tora_gsm8k/tora-code-34b-v1.0_first300", 300, None),
        ("nemo_skills/output-rs*", 100, 74),
    ],
)
def test_published_outputs(
    shared: Path, tmp_path: Path, name: str, n_rows: int, correct: int | None
) -> None:
    """The verdicts equal the benchmark's verdicts on these files."""
    manifest, rows = import_file(shared / f"data/outputs/{name}.jsonl", tmp_path / "out")
    assert (len(rows), quarantine_counts(manifest)) == (n_rows, {})
    assert correct in (None, statistics_of(tmp_path / "out").solutions.outcomes["correct"])


def test_a_resumed_import_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    rows = [plain(f"{k}+{k}?", str(2 * k), f"It is {2 * k}.") for k in range(40)]
    file = written(tmp_path / "theirs.jsonl", [*rows, *rows[:10]])
    complete_run, _ = import_file(file, tmp_path / "whole")
    import_file(file, tmp_path / "part")
    (tmp_path / "part/manifest.json").unlink()
    lines = (tmp_path / "part/completions.jsonl").read_bytes()
    (tmp_path / "part/completions.jsonl").write_bytes(lines[: len(lines) // 2])
    resumed_run, rows = import_file(file, tmp_path / "part", resume=True)
    assert resumed_run.digest == complete_run.digest and len(rows) == 50


def test_the_command_line(tmp_path: Path) -> None:
    file, out = written(tmp_path / "theirs.jsonl", EXAMPLES["lm-eval"][0]), tmp_path / "out"
    line = ["import", str(file), "--out", str(out), "--from"]
    done = CliRunner().invoke(app, [*line, "outputs", "--model-name", "Theirs", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "Theirs" in done.output and f"next: fsdpo-data inspect {out}" in done.output
    for flag, value in (("--temperature", "0.5"), ("--problems", "gsm8k"), ("--series", "x")):
        with pytest.raises(InputError, match=f"{flag} .*use one that reads it: outputs"):
            CliRunner().invoke(app, [*line, "prm800k", flag, value], catch_exceptions=False)
    message = (
        r"contains no outputs\. First problem: fields a\. Expected .*; "
        r"rows of answer and response \(answer"
    )
    with pytest.raises(InputError, match=message):
        import_file(written(tmp_path / "theirs.jsonl", [{"a": 1}]), tmp_path / "none")


def texts_by_id(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["solution_id"]: "".join(row["completions"]) for row in rows}


def test_other_texts_of_a_file_have_other_ids(tmp_path: Path) -> None:
    """The position of a text in a problem depends on the options, so they are part of its id."""
    rows = [
        {"question": "2+2?", "answer": "4", "model": model, "a": f"{model}: 4", "b": f"{model}: 5"}
        for model in ("X", "Y")
    ]
    file = written(tmp_path / "theirs.jsonl", rows)
    options = [
        {"response_field": "a", "series": "X"},
        {"response_field": "b", "series": "X"},
        {"response_field": "a", "series": "X", "model_name": "Z"},
        {"response_field": "a", "series": "Y", "model_name": "Z"},
    ]
    all_texts: dict[str, str] = {}
    for index, values in enumerate(options):
        _, imported = import_file(file, tmp_path / f"out{index}", **values)
        all_texts |= texts_by_id(imported)
    assert len(all_texts) == len(options)


def test_a_response_without_scores_moves_no_other_text_under_its_id(tmp_path: Path) -> None:
    keys = [{"problem_id": "p", "candidate_index": index} for index in range(3)]
    candidates = [
        {
            **key,
            "question": "2+2?",
            "gold": "4",
            "response": f"{index}: 4",
            "steps": [f"{index}: 4"],
        }
        for index, key in enumerate(keys)
    ]
    file = written(tmp_path / "theirs.jsonl", candidates)
    texts = []
    for missing in (None, 0, 1, 1):
        rows = [{**key, "step_scores": [0.5]} for index, key in enumerate(keys) if index != missing]
        scores = written(tmp_path / "scores.jsonl", rows)
        _, imported = import_file(file, tmp_path / f"out{len(texts)}", scores=scores)
        texts.append(texts_by_id(imported))
    complete, without_first, without_second, without_second_again = texts
    assert not complete.keys() & without_first.keys()
    assert not without_first.keys() & without_second.keys()
    assert without_second == without_second_again
