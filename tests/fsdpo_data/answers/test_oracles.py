"""The grader against verdicts that were published with models' responses.

The tests list every difference with its reason, and fail if a difference is new or disappears.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks
from oracles import NEMO_0, NEMO_1, TORA, Differences, float_equal
from verdicts import grade_requests

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.exchange.formats import response_formats
from fsdpo_data.exchange.outputs import read_outputs
from fsdpo_data.exchange.response_formats import RecordedResponse
from fsdpo_data.stages.verdicts import grading_request

QWEN: Differences = {
    (73, "sample 7"): ("correct", "wrong", "theirs does not read 10{,}000 as 10000"),
}


@cache
def grade_file(file: Path) -> tuple[list[RecordedResponse], list[Verdict]]:
    recorded = read_outputs(file)
    return recorded, MathGrader().grade(
        [GradingRequest(response.gold, response.completion.text) for response in recorded]
    )


@pytest.fixture(scope="module")
def outputs(shared: Path) -> Path:
    return shared / "data" / "outputs"


def differing_verdicts(file: Path) -> dict[tuple[int, str], tuple[str, str]]:
    recorded, verdicts = grade_file(file)
    words = {True: "correct", False: "wrong"}
    return {
        (response.row, response.series): (
            words[_right(verdict)],
            words[_recorded_verdict(response)],
        )
        for response, verdict in zip(recorded, verdicts, strict=True)
        if _recorded_verdict(response) not in (None, _right(verdict))
    }


def count_correct(file: Path) -> Counter[str]:
    """Count the correct responses by series."""
    recorded, verdicts = grade_file(file)
    right = (response.series for response, v in zip(recorded, verdicts, strict=True) if _right(v))
    return Counter(right)


def _recorded_verdict(response: RecordedResponse) -> bool | None:
    return response.completion.imported_correct


def _right(verdict: Verdict) -> bool:
    return verdict.status == "correct"


def without_reasons(differences: Differences) -> dict[tuple[int, str], tuple[str, str]]:
    return {key: (ours, theirs) for key, (ours, theirs, _) in differences.items()}


def test_openai_gsm8k_solutions(outputs: Path) -> None:
    file = outputs / "openai_gsm8k" / "example_model_solutions.jsonl"
    assert len(grade_file(file)[0]) == 4 * 1319
    assert count_correct(file) == {
        "6b_finetuning": 286,
        "6b_verification": 515,
        "175b_finetuning": 458,
        "175b_verification": 742,
    }
    assert differing_verdicts(file) == {}


def test_abel(outputs: Path) -> None:
    file = outputs / "abel_gsm8k" / "7b_first300.jsonl"
    assert count_correct(file) == {"": 193}
    assert differing_verdicts(file) == {}


@pytest.mark.parametrize(
    ("name", "marked", "expected"), [("output-rs0", 31, NEMO_0), ("output-rs1", 37, NEMO_1)]
)
def test_nemo_skills(outputs: Path, name: str, marked: int, expected: Differences) -> None:
    file = outputs / "nemo_skills" / f"{name}.jsonl"
    assert sum(bool(_recorded_verdict(response)) for response in grade_file(file)[0]) == marked
    assert differing_verdicts(file) == without_reasons(expected)
    assert count_correct(file) == {"": marked + len(expected)}


def test_qwen(outputs: Path) -> None:
    file = outputs / "qwen_math_cot" / "math_cot_100.jsonl"
    recorded, _ = grade_file(file)
    assert (
        len(recorded),
        sum(bool(_recorded_verdict(response)) for response in recorded),
    ) == (800, 728)
    assert differing_verdicts(file) == without_reasons(QWEN)
    assert count_correct(file).total() == 728 + len(QWEN)
    assert count_correct(file)["sample 0"] == 90


def test_qwen_any_of_eight_and_best_by_reward_model(outputs: Path) -> None:
    file = outputs / "qwen_math_cot" / "math_cot_100.jsonl"
    recorded, verdicts = grade_file(file)
    right = {(r.row, r.series): _right(v) for r, v in zip(recorded, verdicts, strict=True)}
    rows = [json.loads(line) for line in file.read_bytes().splitlines()]
    best = [max(range(8), key=lambda i: row["pred_score"][i][0]) for row in rows]
    chosen = [(row, f"sample {i}") for row, i in enumerate(best, start=1)]
    theirs = {(response.row, response.series): _recorded_verdict(response) for response in recorded}
    assert sum(bool(theirs[sample]) for sample in chosen) == 94
    # The chosen sample of row 73 is its only right one, and the published grader misreads it.
    assert sum(right[sample] for sample in chosen) == 95 and (73, "sample 7") in chosen
    assert len({row for (row, _), is_right in theirs.items() if is_right}) == 96
    assert len({row for (row, _), is_right in right.items() if is_right}) == 97


def test_qwen_majority_over_classes_of_equal_answers(outputs: Path) -> None:
    """The file's flags give 93; string equality with the gold would give 90."""
    recorded, verdicts = grade_file(outputs / "qwen_math_cot" / "math_cot_100.jsonl")
    solved = 0
    for start in range(0, 800, 8):
        answers = [verdict.answer or "" for verdict in verdicts[start : start + 8]]
        votes = [sum(_equal(a, b) for b in answers) for a in answers]
        solved += _right(verdicts[start + votes.index(max(votes))])
    assert solved == 93
    assert recorded[0].gold == "420"


def _equal(left: str, right: str) -> bool:
    return left == right or _right(compare_answers(left, right))


@pytest.mark.parametrize("model", TORA)
def test_tora(outputs: Path, model: str) -> None:
    """Outputs of programs get the authors' verdicts; some texts after the programs do not.

    Such texts do not mark the answer, and they end with another number.
    """
    file = outputs / "tora_gsm8k" / f"{model}_first300.jsonl"
    count, differing = TORA[model]
    rows = [json.loads(line) for line in file.read_bytes().splitlines()]
    printed = MathGrader().grade([GradingRequest(row["gt"], str(row["pred"][0])) for row in rows])
    assert sum(map(_right, printed)) == sum(map(float_equal, rows)) == count
    _, texts = grade_file(file)
    unlike = [i for i, pair in enumerate(zip(texts, printed, strict=True), 1) if _differ(*pair)]
    assert unlike == list(differing)
    assert not any(_right(texts[row - 1]) for row in differing)


def _differ(left: Verdict, right: Verdict) -> bool:
    return _right(left) != _right(right)


#: Rows of ProcessBench whose flag on the final answer differs from our verdict.
PROCESSBENCH = {
    "gsm8k": {
        "gsm8k-70": ("correct", "wrong", "59 is boxed and is the gold"),
        "gsm8k-74": ("correct", "wrong", "2 is boxed and is the gold"),
        "gsm8k-319": ("wrong", "correct", "boxed are 4 blue and 6 red boxes, asked was how many"),
    },
    "math": {
        "math-50": ("correct", "wrong", "7 is boxed and is the gold"),
        "math-123": ("correct", "wrong", "411/333 is 137/111, unsimplified"),
        "math-221": ("correct", "wrong", "23/2 is 11.5"),
        "math-247": ("correct", "wrong", "-58/87 is -2/3, unsimplified"),
        "math-248": ("correct", "wrong", "10.5 pi is 21/2 pi"),
        "math-278": ("correct", "wrong", "the ratio 1:2 as 1/2"),
        "math-392": ("correct", "wrong", "1/(sin x cos x) - tan x is cot x, unsimplified"),
        "math-571": ("wrong", "correct", "unmarked; it ends on x^3 = 12 for the gold 12"),
        "math-791": ("wrong", "correct", "it says '… the integer value 0' for the gold 1"),
    },
}


@pytest.mark.parametrize("name", PROCESSBENCH)
def test_processbench(shared: Path, name: str) -> None:
    """The solutions are by a dozen models, and the golds come from the test splits."""
    benchmarks = shared / "data" / "benchmarks"
    problems = {_key(p.question): p for p in load_task(builtin_tasks()[name], benchmarks).problems}
    file = shared / "data" / "stepwise" / "processbench" / f"{name}.json"
    rows = json.loads(file.read_bytes())
    requests = [
        grading_request(problems[_key(row["problem"])], "\n\n".join(row["steps"])) for row in rows
    ]
    verdicts = grade_requests(requests, workers=1)
    words = {True: "correct", False: "wrong"}
    differences = {
        row["id"]: (words[_right(verdict)], words[row["final_answer_correct"]])
        for row, verdict in zip(rows, verdicts, strict=True)
        if _right(verdict) != row["final_answer_correct"]
    }
    assert len(rows) == {"gsm8k": 400, "math": 1000}[name]
    assert differences == {key: difference[:2] for key, difference in PROCESSBENCH[name].items()}


def _key(question: str) -> str:
    return "".join(question.split())


#: Rows whose reference solution states only a part of the gold, or more; all have notes.
REFERENCES = {
    "gsm8k": ("answer", []),
    "math": ("solution", [2716, 2912]),
    "ocw": ("solution", [155]),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_solutions_are_right(shared: Path, name: str) -> None:
    column, partial = REFERENCES[name]
    loaded = load_task(builtin_tasks()[name], shared / "data" / "benchmarks")
    requests = [
        grading_request(problem, problem.metadata[column])._replace(tolerance=None)
        for problem in loaded.problems
    ]
    verdicts = grade_requests(requests, workers=1)
    assert [row for row, verdict in enumerate(verdicts) if not _right(verdict)] == partial
    assert {loaded.ids[row] for row in partial} <= builtin_tasks()[name].notes.keys()


def test_rows_of_an_unknown_format_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    for content, message in (
        ('{"a": 1}\n', "row 1: fields a. Expected one of: OpenAI"),
        ('{"gt": "1", "code": 5}\n', "row 1: the row does not have the format of ToRA"),
        ('{"gt": "1", "code": ["1"]}\n{"gt": "1", "code": []}\n', "row 2: the row has no response"),
        ('{"answer": "1", "response": null}\n', "row 1: the response is missing"),
        ('{"gold": [1, 2], "response": "1", "result": true}\n', "row 1: the answer is a list"),
        ("nonsense\n", "row 1: not JSON"),
        ("", "no responses found"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=message):
            read_outputs(file)
    assert {form.responses.publisher for form in response_formats().values()} >= {
        "Abel",
        "NeMo-Skills",
    }
