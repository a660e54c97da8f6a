"""Tests of problem files: every row becomes a problem, or is quarantined with a reason."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.problems.golds import gold_text
from fsdpo_data.problems.load import ProblemSet, load_problems, problems_digest

PLAIN = [{"question": f"{i}+{i}?", "answer": str(2 * i)} for i in range(5)]
GSM8K = [{"question": f"Add {i} and {i}.", "answer": f"Easy.\n#### {2000 * i:,}"} for i in range(5)]


def lines(rows: Sequence[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def load(path: Path, content: str | bytes, **options: Any) -> ProblemSet:
    return load_problems([write(path, content)], **options)


def pairs(problem_set: ProblemSet) -> list[tuple[str, str]]:
    return [(problem.question, problem.answer) for problem in problem_set.problems]


def aside(problem_set: ProblemSet) -> list[tuple[int, str]]:
    return [(row.row, row.reason) for row in problem_set.quarantined_rows]


# --- the forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"question": "q", "answer": "so\n#### x #### 1,234"}, "q", "1,234"),
        ({"problem": "p", "solution": r"a \boxed{1} b \boxed{\frac{1}{2}}."}, "p", r"\frac{1}{2}"),
        ({"problem": "p", "solution": r"it is $\boxed 2$."}, "p", "2"),
        ({"problem": "p", "solution": r"no \boxed{1}", "answer": "7"}, "p", "7"),
        ({"question": " q ", "answer": " 5 kg "}, " q ", " 5 kg "),
        ({"prompt": "p", "answer": "3", "chosen": "x", "rejected": "y"}, "p", "3"),
        ({"instruction": "i", "answer": ["18"], "output": "…"}, "i", "18"),
        ({"input": "i", "target": 43.0, "type": "singleeq"}, "i", "43"),
        ({"body": "Two facts.", "question": "How many?", "answer": "9 (apples)"},
         "Two facts. How many?", "9 (apples)"),
        ({"question": "q", "answer": 145.0}, "q", "145"),
        ({"question": "q", "answer": 0}, "q", "0"),
        ({"question": "q", "answer": 123456789012345678901234567890}, "q",
         "123456789012345678901234567890"),
    ],
)  # fmt: skip
def test_forms(tmp_path: Path, row: object, question: str, answer: str) -> None:
    problem_set = load(tmp_path / "a.jsonl", lines([row]))
    assert pairs(problem_set) == [(question, answer)]
    assert aside(problem_set) == []


def test_what_else_a_row_says_is_kept(tmp_path: Path) -> None:
    rows = [
        {"problem": "p", "solution": r"\boxed{1}", "level": "Level ?", "type": "Algebra"},
        {"prompt": "p", "answer": "3", "dataset": "gsm8k", "chosen": "x", "full_rejected": "y"},
    ]
    math_row, step_dpo = load(tmp_path / "a.jsonl", lines(rows)).problems
    assert math_row.metadata == {"level": "Level ?", "type": "Algebra", "solution": r"\boxed{1}"}
    assert step_dpo.metadata == {"dataset": "gsm8k"}
    (gsm8k,) = load(tmp_path / "b.jsonl", lines(GSM8K[:1])).problems
    assert gsm8k.metadata == {"solution": "Easy.\n#### 0"}
    assert (gsm8k.source, gsm8k.split) == ("b.jsonl", "train")


def test_our_own_problems_come_back_as_they_were(tmp_path: Path) -> None:
    first = load(tmp_path / "a.jsonl", lines(GSM8K)).problems
    again = load(tmp_path / "b.jsonl", lines([problem.to_row() for problem in first]), split="test")
    assert again.problems == first  # source and split are still those of the first time
    grown = [problem.to_row() | {"topic": "sums"} for problem in first]
    with_topics = load(tmp_path / "c.jsonl", lines(grown)).problems
    for problem, plain_problem in zip(with_topics, first, strict=True):
        assert problem.metadata == plain_problem.metadata | {"topic": "sums"}
        assert (problem.source, problem.split) == (plain_problem.source, plain_problem.split)


def test_a_gsm8k_row_without_its_last_line_is_not_its_own_gold(tmp_path: Path) -> None:
    rows = [
        *GSM8K,
        {"question": "q", "answer": "Half of 8 is 4."},
        {"question": "r", "answer": "####"},
    ]
    problem_set = load(tmp_path / "a.jsonl", lines(rows))
    assert pairs(problem_set)[-1] == ("Add 4 and 4.", "8,000")
    assert aside(problem_set) == [
        (6, "the answer does not mark its gold, as most others do"),
        (7, "the answer is empty"),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "q"}, "no answer"),
        ({"question": "q", "answer": None}, "no answer"),
        ({"question": "q", "answer": " "}, "the answer is empty"),
        ({"question": "q", "answer": ["1", "2"]}, "the answer is a list, not text or a number"),
        ({"question": "q", "answer": True}, "the answer is a bool, not text or a number"),
        ({"question": "q", "answer": math.nan}, "the answer is nan"),
        ({"question": " \n", "answer": "1"}, "the question is empty"),
        ({"question": 7, "answer": "1"}, "the question is a int, not text"),
        ({"question": "half a \ud800", "answer": "1"},
         "the text holds half a surrogate pair, which is no character"),
        ({"problem": "p", "solution": "so 4"}, r"the solution has no \boxed answer"),
        ({"problem": "p", "solution": r"so \boxed{}"}, r"the solution's \boxed is empty"),
        ({"title": "t"}, "neither question nor answer"),
        ({"prompt": "p", "answer": "4", "solution_id": "s", "completions": [], "outcome": "wrong"},
         "a row of the solutions of a dataset: its `answer` is the model's. The rows of `problems` "
         "have the gold answers"),
        ([1, 2], "a JSON list, not an object"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_problem_is_set_aside(tmp_path: Path, row: object, reason: str) -> None:
    problem_set = load(tmp_path / "a.jsonl", lines([PLAIN[1], row, PLAIN[2]]))
    assert pairs(problem_set) == [("1+1?", "2"), ("2+2?", "4")]
    assert aside(problem_set) == [(2, reason)]
    assert problem_set.quarantined_rows[0].source.endswith("a.jsonl")
    problem_set.quarantined_rows[0].raw.encode()  # whatever was in it, a report can hold it


def test_duplicates_are_set_aside_and_name_the_first(tmp_path: Path) -> None:
    first, second = (
        write(tmp_path / "a.jsonl", lines(PLAIN)),
        write(tmp_path / "b.jsonl", lines([PLAIN[3], {"question": "3+3?", "answer": "six"}])),
    )
    problem_set = load_problems([first, second, first])
    assert pairs(problem_set)[5:] == [("3+3?", "six")]  # another gold is another problem
    assert aside(problem_set)[0] == (1, f"duplicate: {first} row 4")
    assert len(problem_set.quarantined_rows) == 1 + 5
    assert len({problem.id for problem in problem_set.problems}) == len(problem_set.problems) == 6


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_numbers_keep_their_value(value: float) -> None:
    text = gold_text(value)
    assert type(value)(text) == value
    assert not text.endswith(".0")


@given(st.one_of(st.none(), st.booleans(), st.dictionaries(st.text(), st.text()),
                 st.lists(st.integers(), min_size=2)))  # fmt: skip
def test_what_cannot_be_an_answer_is_none(value: object) -> None:
    with pytest.raises(UnusableRowError):
        gold_text(value)


# --- files ---------------------------------------------------------------------------------------


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    question = "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven"
    text = json.dumps({"question": question, "answer": "1"}, ensure_ascii=False)
    assert len(text.splitlines()) > 1
    assert pairs(load(tmp_path / "a.jsonl", f"{text}\n{lines(PLAIN[:1])}")) == [
        (question, "1"),
        ("0+0?", "0"),
    ]


def test_bom_crlf_blank_lines_and_no_last_newline(tmp_path: Path) -> None:
    text = "\r\n".join(["\ufeff" + json.dumps(PLAIN[0]), "", " ", json.dumps(PLAIN[1])])
    problem_set = load(tmp_path / "a.jsonl", text)
    assert len(problem_set.problems) == 2
    assert aside(problem_set) == []


def test_broken_lines_are_set_aside_with_their_number(tmp_path: Path) -> None:
    good = json.dumps(PLAIN[1]).encode()
    digits = b'{"question": "q", "answer": ' + b"1" * 5000 + b"}"
    deep = b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    text = b"\n".join([good, b"\xff\xfe", deep, digits, b"", good[:-5]])
    problem_set = load(tmp_path / "a.jsonl", text)
    assert pairs(problem_set) == [("1+1?", "2")]
    assert [row.row for row in problem_set.quarantined_rows] == [2, 3, 4, 6]
    reasons = [row.reason for row in problem_set.quarantined_rows]
    assert reasons[0] == "not UTF-8 at byte 1"
    assert all(reason.startswith("not JSON (") for reason in reasons[1:])
    assert problem_set.quarantined_rows[3].raw == good[:-5].decode()
    assert max(len(row.raw) for row in problem_set.quarantined_rows) <= 2000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_set_aside_or_a_message(tmp_path: Path, data: bytes) -> None:
    problem_set = load(tmp_path / "a.jsonl", lines(PLAIN[:1]).encode() + data)
    rows = [line for line in data.split(b"\n") if line.strip()]
    assert len(problem_set.problems) + len(problem_set.quarantined_rows) == 1 + len(rows)


@pytest.mark.parametrize(
    "text",
    [json.dumps(PLAIN), json.dumps(PLAIN, indent=1), "\ufeff" + json.dumps(PLAIN), lines(PLAIN)],
)
def test_json_is_a_list_or_lines(tmp_path: Path, text: str) -> None:
    assert len(load(tmp_path / "a.json", text).problems) == 5


def test_parquet_and_csv(tmp_path: Path) -> None:
    import polars

    polars.DataFrame(GSM8K).write_parquet(tmp_path / "a.parquet")
    assert pairs(load_problems([str(tmp_path / "a.parquet")]))[1] == ("Add 1 and 1.", "2,000")
    csv = '\ufeffquestion,answer\r\n"How many, if\nany?","1,000"\r\nid?,007\r\nq,1,2\r\nq\r\n'
    problem_set = load(tmp_path / "a.csv", csv)
    assert pairs(problem_set) == [("How many, if\nany?", "1,000"), ("id?", "007")]
    assert aside(problem_set) == [(row, "more or fewer values than columns") for row in (3, 4)]


def test_numbers_of_32_bits_are_the_decimals_that_were_written(tmp_path: Path) -> None:
    import polars

    golds = polars.Series("answer", [0.1, 2.5, 3.0], dtype=polars.Float32)
    frame = polars.DataFrame({"question": ["a", "b", "c"], "answer": golds, "level": golds})
    frame.write_parquet(tmp_path / "a.parquet")
    problems = load_problems([str(tmp_path / "a.parquet")]).problems
    assert [problem.answer for problem in problems] == ["0.1", "2.5", "3"]
    assert problems[0].metadata == {"level": 0.1}


def test_a_value_of_a_csv_file_may_be_long(tmp_path: Path) -> None:
    (problem,) = load(tmp_path / "a.csv", f"question,answer\n{'x' * 200_000},7\n").problems
    assert len(problem.question) == 200_000


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_the_delimiter_of_a_csv_file_is_found(tmp_path: Path, delimiter: str) -> None:
    text = '"question";"answer";"a, b"\n"What is 1,5 + 1?";"2,5";x\n'
    (problem,) = load(tmp_path / "a.csv", text.replace(";", delimiter)).problems
    assert (problem.question, problem.answer) == ("What is 1,5 + 1?", "2,5")
    assert problem.metadata == {"a, b": "x"}


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"two columns have the same name: question, answer, answer\."
    ):
        load(tmp_path / "a.csv", "question,answer,answer\nq,1,2\n")


def test_a_folder_may_be_named_as_its_files(tmp_path: Path) -> None:
    write(tmp_path / "data/train.jsonl/part-0.jsonl", lines(PLAIN))
    assert len(load_problems([str(tmp_path / "data")]).problems) == 5


def test_directories_and_globs(tmp_path: Path) -> None:
    write(tmp_path / "MATH/b.jsonl", lines(PLAIN[:2]))
    write(tmp_path / "MATH/a.jsonl", lines(PLAIN[2:]))
    write(tmp_path / "MATH/files.txt", "not data")
    write(tmp_path / "MATH/.hidden.json", "not data")
    full_set = load_problems([str(tmp_path / "MATH")])
    assert [problem.question[0] for problem in full_set.problems] == ["2", "3", "4", "0", "1"]
    assert [problem.source for problem in full_set.problems] == ["a.jsonl"] * 3 + ["b.jsonl"] * 2
    matched = load_problems([str(tmp_path / "MATH" / "*.jsonl")])
    assert matched.problems == full_set.problems
    assert matched.source_refs[0].revision == full_set.source_refs[0].revision
    (tmp_path / "MATH/a.jsonl").rename(tmp_path / "MATH/c.jsonl")
    assert (
        load_problems([str(tmp_path / "MATH")]).source_refs[0].revision
        != full_set.source_refs[0].revision
    )


def test_a_directory_gives_only_the_requested_split(tmp_path: Path) -> None:
    for split, row in zip(("train", "test"), PLAIN, strict=False):
        write(tmp_path / f"named/{split}-00000.jsonl", lines([row]))
        write(tmp_path / f"original/{split}/algebra/1.json", json.dumps(row))
        write(tmp_path / f"deep/data/{split}/x.jsonl", lines([row]))
    for layout in ("named", "original", "deep"):
        for split, row in zip(("train", "test"), PLAIN, strict=False):
            problem_set = load_problems([str(tmp_path / layout)], split=split)
            assert pairs(problem_set) == [(row["question"], row["answer"])]
        with pytest.raises(
            InputError, match=r"contains no dev data.*has files of split test, train\."
        ):
            load_problems([str(tmp_path / layout)], split="dev")


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        (["train.jsonl", "more.jsonl"], "more.jsonl"),  # more.jsonl names no split
        (["a.jsonl", "more/b.jsonl"], "more/b.jsonl"),
        (["a.jsonl", "more/train.jsonl"], "more/train.jsonl"),
        (["train.jsonl", "test.jsonl", "more/test.jsonl", ".cache/a.jsonl"], ""),
        (["a.jsonl", "b.jsonl"], ""),
        (["one/a.jsonl", "two/b.jsonl"], ""),
    ],
)
def test_a_warning_names_files_of_a_directory_that_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, files: list[str], left_out: str
) -> None:
    for name, row in zip(files, PLAIN, strict=False):
        write(tmp_path / "data" / name, lines([row]))
    n_read = len(load_problems([str(tmp_path / "data")]).problems)
    assert bool(caplog.text) == bool(left_out)
    assert not left_out or (f"Left out: {left_out}." in caplog.text and n_read == len(files) - 1)


def test_a_sealed_dataset_gives_its_problems(tmp_path: Path) -> None:
    write(tmp_path / "run/manifest.json", "{}")
    write(tmp_path / "run/solutions/train.jsonl", lines([{"prompt": "p", "answer": "1"}]))
    write(tmp_path / "run/problems/train.jsonl", lines(PLAIN))
    assert len(load_problems([str(tmp_path / "run")]).problems) == 5


def test_the_input_of_an_instruction_is_a_part_of_the_question(tmp_path: Path) -> None:
    rows = [{"instruction": "Add.", "input": text, "answer": "3"} for text in ("1, 2", "")]
    problem_set = load(tmp_path / "a.jsonl", lines(rows))
    assert [problem.question for problem in problem_set.problems] == ["Add.\n1, 2", "Add."]


@pytest.mark.parametrize(
    ("name", "value"),
    [("choices", ["1", "2"]), ("context", "Ann has 2."), ("images", ["a.png"]), ("options", [])],
)
def test_a_part_of_a_question_is_not_dropped(tmp_path: Path, name: str, value: object) -> None:
    rows = [*PLAIN, {"question": "How many?", "answer": "2", name: value}]
    quarantined = load(tmp_path / "a.jsonl", lines(rows)).quarantined_rows
    assert bool(quarantined) == bool(value)
    assert not value or f"the field `{name}` may be a part" in quarantined[0].reason


@pytest.mark.parametrize("name", ["ground_truth", "expected_answer"])
def test_an_answer_next_to_the_gold_is_not_the_gold(tmp_path: Path, name: str) -> None:
    row = {"question": "1+1?", "answer": "It is 3.", name: 2}
    [problem] = load(tmp_path / "a.jsonl", lines([row])).problems
    assert (problem.answer, problem.metadata) == ("2", {"answer": "It is 3."})


@pytest.mark.parametrize("gold", ["proof", "NotFound", " N/A ", "nan"])
def test_a_word_in_place_of_a_gold_is_no_gold(tmp_path: Path, gold: str) -> None:
    rows = [*PLAIN, {"question": "Prove it.", "answer": gold}]
    rows.append({"question": "How many?", "answer": "None"})  # an answer in GSM-Plus
    problem_set = load(tmp_path / "a.jsonl", lines(rows))
    assert len(problem_set.problems) == len(PLAIN) + 1
    assert aside(problem_set) == [(6, f"{gold.strip()!r} in place of a gold answer")]


def test_a_question_with_two_golds_is_remarked_on(tmp_path: Path) -> None:
    rows = [*PLAIN, {**PLAIN[3], "answer": "7"}]
    problem_set = load(tmp_path / "a.jsonl", lines(rows))
    assert len(problem_set.problems) == 6
    assert problem_set.warnings == [
        "1 question with different gold answers, each of them a problem of its own, such as "
        "'3+3?': 6, 7."
    ]
    assert not load(tmp_path / "b.jsonl", lines(PLAIN)).warnings


@pytest.mark.parametrize("n_bad", [1, 2])
def test_many_rows_in_quarantine_are_remarked_on(tmp_path: Path, n_bad: int) -> None:
    """More than a twentieth of the rows, with the most frequent reason."""
    rows = [{"question": f"{i}?", "answer": "1"} for i in range(20 - n_bad)]
    rows += [{"question": "", "answer": "1"}] * n_bad
    warnings = load(tmp_path / "a.jsonl", lines(rows)).warnings
    assert bool(warnings) == (n_bad > 1)
    if warnings:
        assert "2 of 20 rows are in quarantine. The most frequent reason (2 times" in warnings[0]
        assert "first in row 19)" in warnings[0]


def test_a_test_file_read_as_train_is_remarked_on(tmp_path: Path) -> None:
    path = write(tmp_path / "test.jsonl", lines(PLAIN))
    assert load_problems([path], split="test").warnings == []
    (warning,) = load_problems([path]).warnings
    assert warning == f"{path} is named after split test, but was read as train."


def test_mistakes_name_the_way_out(tmp_path: Path) -> None:
    path = write(tmp_path / "problems.jsonl", lines(PLAIN))
    write(tmp_path / "empty.jsonl", "\n\n")
    write(tmp_path / "torn.json", '[{"question": ')
    write(tmp_path / "other.jsonl", lines([{"title": "t", "text": "x"}] * 2))
    write(tmp_path / "no_gold.jsonl", lines([{"prompt": "p", "chosen": "x"}] * 2))
    write(tmp_path / "a.xml", "<x/>")
    write(tmp_path / "a.parquet", "not parquet")
    (tmp_path / "folder").mkdir()
    for name, message in {
        "problem.jsonl": r"no such file or directory: .*problem\.jsonl\. "
        rf"Nearest in {tmp_path}: problems\.jsonl",
        "nowhere/deep.jsonl": r"no such file or directory: .*nowhere/deep\.jsonl\.$",
        "*.txt": r"no file matches '.*\*\.txt'",
        "empty.jsonl": r"empty\.jsonl: empty\. Expected one of: .*question \+ answer",
        "torn.json": r"torn\.json: not JSON \(.*line 1",
        "other.jsonl": r"none of its 2 rows is a problem\. Fields found: text, title\. Expected "
        r"one of: .*question \+ answer.*First quarantined row, 1: neither question nor answer",
        "no_gold.jsonl": r"Fields found: chosen, prompt\..*First quarantined row, 1: no answer",
        "a.xml": r"cannot read files ending in '\.xml'",
        "a.parquet": r"a\.parquet: not parquet",
        "folder": r"folder contains no train data",
    }.items():
        with pytest.raises(InputError, match=message):
            load_problems([str(tmp_path / name)])
    with pytest.raises(InputError, match=r"no source 'gsm9k'.*Nearest: gsm8k"):
        load_problems(["gsm9k"])
    for nothing in ([], [""]):  # the latter is what a variable without a value comes to
        with pytest.raises(InputError, match="no source of problems given"):
            load_problems(nothing)
    with pytest.raises(InputError, match="no such file or directory: ~nobody-of-that-name"):
        load_problems(["~nobody-of-that-name/a.jsonl"])
    by_key = write(tmp_path / "keys.json", json.dumps({f"k{i:03}": {} for i in range(500)}))
    with pytest.raises(InputError, match=r"Fields found: k000, .*k019\. Expected"):
        load_problems([by_key])
    with pytest.raises(InputError, match="limit 0: expected at least 1"):
        load_problems([path], limit=0)


# --- choosing ------------------------------------------------------------------------------------


def test_a_limit_chooses_by_content_and_seed(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": "1"} for i in range(200)]
    path = tmp_path / "a.jsonl"
    few, many = (load(path, lines(rows), limit=n).problems for n in (10, 50))
    assert len(few) == 10
    # Pinned: a choice that changed with a release would make old runs impossible to repeat.
    assert [p.question for p in load(path, lines(rows), limit=3).problems] == [
        "q130",
        "q138",
        "q166",
    ]
    assert set(pairs_of(few)) < set(pairs_of(many))
    assert [int(problem.question[1:]) for problem in many] == sorted(
        int(problem.question[1:]) for problem in many
    )
    random.Random(1).shuffle(rows)
    assert set(pairs_of(load(path, lines(rows), limit=10).problems)) == set(pairs_of(few))
    assert set(pairs_of(load(path, lines(rows), limit=10, seed=1).problems)) != set(pairs_of(few))
    assert len(load(path, lines(rows), limit=500).problems) == 200


def test_a_set_of_problems_has_one_digest_in_any_order() -> None:
    assert problems_digest(["a", "b"]) == problems_digest(["b", "a"])
    assert problems_digest(["a", "b"]) != problems_digest(["a", "b", "b"])


def pairs_of(problems: Sequence[Any]) -> list[tuple[str, str]]:
    return [(problem.question, problem.answer) for problem in problems]


def test_the_embedded_world() -> None:
    problem_set = load_problems(["embedded"])
    assert len(problem_set.problems) == 200
    assert problem_set.source_refs[0].name == "embedded"
    assert problem_set.source_refs[0].revision
    assert load_problems(["embedded"], limit=7).problems == problem_set.problems[:7]
    assert not {p.id for p in problem_set.problems} & {
        p.id for p in load_problems(["embedded"], split="test").problems
    }
