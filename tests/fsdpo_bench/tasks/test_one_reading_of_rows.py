"""Every command reads the fields and the golds of rows in the same way."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from datasets import Dataset
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.own_rows import RowOptions
from fsdpo_bench.tasks.table import get_task
from made_runs import written
from recorded_imports import import_file

from fsdpo_data.core.errors import InputError
from fsdpo_data.exchange.outputs import read_outputs
from fsdpo_data.exchange.response_formats import ResponseReading
from fsdpo_data.problems.golds import GoldReading
from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.row_formats import RowReading
from fsdpo_data.rewards import outcome

SOLUTION = "Natalia sold 48 / 2 = 24 clips in May.\nAltogether she sold 72.\n#### 72"
#: Golds as in files, and what they mean.
GOLDS: list[tuple[Any, str]] = [
    (SOLUTION, "72"),
    (r"We add them. Then the sum of both numbers is $\boxed{72}$.", "72"),
    ("72", "72"),
    (72, "72"),
    (72.0, "72"),
    (["72"], "72"),
]


def rows_of(gold: Any) -> list[dict[str, Any]]:
    return [{"question": "How many clips?", "answer": gold, "response": r"\boxed{72}"}]


def by_build(file: Path, gold: GoldReading) -> str:
    [problem] = load_problems([str(file)], reading=RowReading(gold=gold)).problems
    return problem.answer


def by_benchmark(file: Path, gold: GoldReading) -> str:
    [task] = RowOptions(gold=gold).apply([get_task(str(file))])
    [problem] = load_task(task).problems
    return problem.answer


def by_import(file: Path, gold: GoldReading) -> str:
    _, [solution] = import_file(file, file.with_name("sealed"), gold=gold)
    return str(solution["gold"])


def by_grade(file: Path, gold: GoldReading) -> str:
    [response] = read_outputs(file, ResponseReading(gold=gold))
    return response.gold


GoldReader = Callable[[Path, GoldReading], str]
READERS: list[GoldReader] = [by_build, by_benchmark, by_import, by_grade]


@pytest.mark.parametrize("reading", ["auto", "extract"])
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("gold", "answer"), GOLDS)
def test_a_gold_is_the_answer_that_it_marks(
    tmp_path: Path, read: GoldReader, gold: Any, answer: str, reading: GoldReading
) -> None:
    assert read(written(tmp_path / "rows.jsonl", rows_of(gold)), reading) == answer


@pytest.mark.parametrize("read", READERS)
def test_a_gold_may_be_taken_as_given(tmp_path: Path, read: GoldReader) -> None:
    file = written(tmp_path / "rows.jsonl", rows_of(SOLUTION))
    assert read(file, "as-given") == SOLUTION


@pytest.mark.parametrize(("gold", "answer"), GOLDS[:-1])
def test_a_reward_reads_the_same_golds(gold: Any, answer: str) -> None:
    assert outcome()(prompts=["q"], completions=[rf"\boxed{{{answer}}}"], answer=[gold]) == [1.0]
    assert outcome()(prompts=["q"], completions=[r"\boxed{5}"], answer=["N/A"]) == [None]


def test_raw_rows_of_gsm8k_are_decided(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (shared / "data/train/gsm8k/train.jsonl").read_text().splitlines()[:30]
    rows = []
    for number, line in enumerate(lines):
        row = json.loads(line)
        answer = row["answer"].rpartition("#### ")[2] if number % 2 else "no idea"
        rows.append({**row, "response": f"The answer is {answer}."})
    file = written(tmp_path / "rows.jsonl", rows)
    code, out, err = run(capsys, "grade", str(file), "--json")
    [scores] = json.loads(out)
    assert (code, err, scores["correct"], scores["n"]) == (0, "", 15, 30)
    code, out, err = run(capsys, "grade", str(file), "--gold", "as-given")
    assert "30 of 30 gold answers look like complete solutions" in err


def test_named_fields_are_read(tmp_path: Path) -> None:
    """The row has all usual fields too, with other contents."""
    row = {
        **{"question": "wrong", "answer": "wrong", "response": "wrong", "choices": ["1"]},
        **{"task": "1 + 1?", "key": 2, "output of A": r"\boxed{2}"},
    }
    file = written(tmp_path / "rows.jsonl", [row])
    names = {"question_field": "task", "gold_field": "key"}
    [problem] = load_problems([str(file)], reading=RowReading(**names)).problems
    assert (problem.question, problem.answer) == ("1 + 1?", "2")
    [task] = RowOptions(**names).apply([get_task(str(file))])
    assert load_task(task).problems[0].question == "1 + 1?"
    names["response_field"] = "output of A"
    _, [solution] = import_file(file, tmp_path / "out", **names)
    assert (solution["question"], solution["outcome"]) == ("1 + 1?", "correct")
    [response] = read_outputs(file, ResponseReading(**names))
    assert (response.question, response.gold) == ("1 + 1?", "2")
    assert response.completion.text == r"\boxed{2}"


def test_a_named_field_that_is_missing_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", rows_of("72"))
    for names in ({"question_field": "task"}, {"gold_field": "task"}):
        with pytest.raises(InputError, match="the field `task` is missing"):
            load_problems([str(file)], reading=RowReading(**names))
    with pytest.raises(InputError, match="the response is missing"):
        read_outputs(file, ResponseReading(response_field="task"))
    with pytest.raises(InputError, match="the question is missing"):
        import_file(file, tmp_path / "out", question_field="task")


def test_a_benchmark_keeps_all_parts_of_a_question(tmp_path: Path) -> None:
    row = {"instruction": "Add.", "input": "1 and 1", "answer": "2"}
    [problem] = load_task(get_task(str(written(tmp_path / "a.jsonl", [row])))).problems
    assert problem.question == "Add.\n1 and 1"
    for part in ({"choices": ["1", "2"]}, {"context": "Two."}, {"images": ["a.png"]}):
        file = written(tmp_path / "b.jsonl", [{"question": "Which?", "answer": "2", **part}])
        with pytest.raises(InputError, match=f"the field `{next(iter(part))}` may be a part"):
            load_task(get_task(str(file)))


def toml_benchmark(file: Path, text: str = "") -> str:
    """Write the description of a benchmark with the rows of a file; return its path."""
    description = file.with_suffix(".toml")
    description.write_text(f'data = "{file.name}"\n{text}')
    return str(description)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "N/A"}, "'N/A' in place of a gold answer"),
        ({"options": ["A) 3", "B) 4"]}, "the field `options` may be a part of the question"),
    ],
)
def test_a_description_without_formats_keeps_the_checks_of_rows(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = written(tmp_path / "my.jsonl", [{"question": "Which?", "answer": "B", **changes}])
    for name in (str(file), toml_benchmark(file)):
        with pytest.raises(InputError, match=message):
            load_task(get_task(name))
    formats = 'formats = [{ question = ["question"], answer = "answer" }]\n'
    assert load_task(get_task(toml_benchmark(file, formats))).problems


def test_a_description_without_formats_reads_the_same_gold(tmp_path: Path) -> None:
    row = {"question": "1 + 1?", "answer": "I think it is 3", "ground_truth": "2"}
    file = written(tmp_path / "my.jsonl", [row])
    for name in (str(file), toml_benchmark(file)):
        assert load_task(get_task(name)).problems[0].answer == "2"


def test_fields_that_grade_only_without_a_description_are_named(tmp_path: Path) -> None:
    row = {"question": "1 + 1?", "answer": "2", "alternative_golds": ["two"]}
    file = written(tmp_path / "my.jsonl", [row])
    assert not load_task(get_task(str(file))).warnings
    [warning] = load_task(get_task(toml_benchmark(file))).warnings
    assert warning.startswith("my: the field `alternative_golds` has no effect")


def test_an_extra_field_does_not_change_the_format(tmp_path: Path) -> None:
    row = rows_of("72")[0] | {"problem_id": 3, "candidate_index": 0, "steps": ["72"]}
    row["response"] = "72"
    _, [solution] = import_file(written(tmp_path / "rows.jsonl", [row]), tmp_path / "out")
    assert (solution["gold"], solution["outcome"]) == ("72", "correct")


def test_files_of_other_tools_are_problems(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    Dataset.from_list(rows).save_to_disk(tmp_path / "dict/train")
    (tmp_path / "dict/dataset_dict.json").write_text('{"splits": ["train"]}')
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/part.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "UPPER.JSONL").write_text(lines)
    for name in ("saved", "dict", "packed", "UPPER.JSONL"):
        problems = load_problems([str(tmp_path / name)]).problems
        assert [problem.answer for problem in problems] == ["1", "2", "3"], name


@pytest.mark.parametrize("name", ["mine.jsonl.gz", "mine.JSONL.GZ", "MINE.JSONL"])
def test_files_of_other_tools_are_benchmarks(tmp_path: Path, name: str) -> None:
    lines = json.dumps({"question": "1 + 1?", "answer": "2"}).encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(lines) if name.lower().endswith(".gz") else lines)
    loaded = load_task(get_task(str(file)))
    assert loaded.task.name in ("mine", "MINE") and loaded.problems[0].answer == "2"
