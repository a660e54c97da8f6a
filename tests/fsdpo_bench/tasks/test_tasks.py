"""The task table: every file format of a benchmark gives the same problems."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fsdpo_bench.tasks.load import find_file, load_task, read_problems
from fsdpo_bench.tasks.table import builtin_tasks, get_task, read_task, select_tasks, suites
from hub_server import client_env, run_client, running_hub

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.problems.load import problems_digest

#: The paper's counts.
COUNTS = {
    "gsm8k": 1319,
    "math": 5000,
    "ocw": 272,
    "gk2023": 385,
    "svamp": 1000,
    "addsub": 395,
    "asdiv": 2215,
    "gsm_ic2": 1000,
    "gsm_icm": 1000,
    "math500": 500,
}

VARIANTS = [
    ("gsm8k", "variants/deepseek_math_test.jsonl"),
    ("gsm8k", "variants/step_dpo_GSM8K_test_data.jsonl"),
    ("ocw", "variants/qwen_minerva_math_test.jsonl"),
    ("svamp", "raw/SVAMP.json"),
    ("svamp", "variants/tora_test.jsonl"),
    ("addsub", "raw/AddSub.json"),
    ("addsub", "variants/tora_mawps_addsub.jsonl"),
    ("asdiv", "raw/ASDiv.xml"),
    ("gsm_ic2", "raw/GSM-IC2.json"),
    ("gsm_icm", "raw/GSM-ICM.json"),
]


def rows(task: str, *fields: dict[str, object]) -> list[tuple[str, str]]:
    records = [SourceRow(i, row_fields) for i, row_fields in enumerate(fields, start=1)]
    return [(p.question, p.answer) for p in read_problems(builtin_tasks()[task], records, "here")]


@pytest.fixture(scope="module")
def benchmarks(shared: Path) -> Path:
    return shared / "data" / "benchmarks"


def test_the_table_has_the_papers_benchmarks() -> None:
    papers = {name: builtin_tasks()[name].count for name in (*COUNTS, "embedded")}
    assert papers == COUNTS | {"embedded": 500}
    assert sum(builtin_tasks()[name].count for name in suites()["all"]) == 12_586
    assert set(suites()["all"]) == {*suites()["in-domain"], *suites()["ood"]}


@pytest.mark.parametrize("name", COUNTS)
def test_rows_and_digest_match_the_table(benchmarks: Path, name: str) -> None:
    loaded = load_task(builtin_tasks()[name], benchmarks)
    assert len(loaded.problems) == COUNTS[name]
    assert loaded.digest == builtin_tasks()[name].digest == problems_digest(loaded.ids)
    assert loaded.warnings == []
    assert (
        sum(not problem.answer for problem in loaded.problems)
        == builtin_tasks()[name].missing_golds
    )


@pytest.mark.parametrize(("name", "file"), VARIANTS)
def test_every_file_format_gives_the_same_problems(benchmarks: Path, name: str, file: str) -> None:
    plain = load_task(builtin_tasks()[name], benchmarks)
    variant = load_task(builtin_tasks()[name], benchmarks / name / file)
    assert variant.digest == plain.digest
    # The digest covers only the ids, so compare the texts as well.
    texts = [
        {(p.question, p.answer) for p in loaded_task.problems} for loaded_task in (plain, variant)
    ]
    assert texts[0] == texts[1]


def test_math_500_is_part_of_math(benchmarks: Path) -> None:
    math_ids = {problem.id for problem in load_task(builtin_tasks()["math"], benchmarks).problems}
    assert {
        problem.id for problem in load_task(builtin_tasks()["math500"], benchmarks).problems
    } <= math_ids


def test_incomplete_golds_are_replaced_after_the_digest_is_computed(benchmarks: Path) -> None:
    loaded = load_task(builtin_tasks()["math"], benchmarks)
    noted = [p for p in loaded.problems if "gold_note" in p.metadata]
    assert len(noted) == len(builtin_tasks()["math"].notes) == 12
    [list_problem] = [p for p in noted if p.answer == "5 - 10i, 11, -3 + 6i"]
    assert "separated by commas" in list_problem.question


#: Damaged rows of the annotation: a TAB in place of the "\\t" of \\tfrac.
DAMAGED = {"2913"}


def test_golds_of_math_equal_human_annotations(benchmarks: Path) -> None:
    """Several annotated values are either one list or alternatives."""
    file = benchmarks / "math" / "annotations" / "mario_eval_math_testset_annotation.json"
    problems = {
        question_key(p.question): p for p in load_task(builtin_tasks()["math"], benchmarks).problems
    }
    rows = json.loads(file.read_bytes())
    wrong = set()
    for row in rows:
        problem = problems[question_key(row["question"])]
        golds = [problem.answer, *problem.metadata.get("alternative_golds", ())]
        annotated = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
        if not all(any(is_equal(gold, answer) for gold in golds) for answer in annotated):
            wrong.add(str(row["index"]))
    assert len(rows) == 5000 and wrong == DAMAGED


def question_key(question: str) -> str:
    return "".join(question.split())


def is_equal(gold: str, answer: str) -> bool:
    return compare_answers(gold, answer).status == "correct"


def test_problems_on_one_base_problem_share_a_cluster(benchmarks: Path) -> None:
    for name, clusters in (("gsm_ic2", 60), ("gsm_icm", 40)):
        problems = load_task(builtin_tasks()[name], benchmarks).problems
        golds: dict[str, set[str]] = {}
        for problem in problems:
            golds.setdefault(problem.metadata["cluster"], set()).add(problem.answer)
        assert len(golds) == clusters
        assert all(len(cluster_golds) == 1 for cluster_golds in golds.values())


def test_gsm8k_golds_in_all_file_formats() -> None:
    assert (
        rows(
            "gsm8k",
            {"question": "q", "answer": "So 5 #### no.\n#### 1,000"},
            {"question": "q", "answer": "1,000"},
            {"instruction": "q", "answer": ["1,000"], "output": "The answer is 7"},
        )
        == [("q", "1,000")] * 3
    )


def test_the_gold_of_math_is_the_last_box() -> None:
    assert rows("math", {"problem": "p", "solution": r"\boxed{1}, so \boxed{\frac{1}{2}}."}) == [
        ("p", r"\frac{1}{2}")
    ]


def test_a_single_part_label_is_removed_from_ocw_questions() -> None:
    several = "Subproblem 0: a Final answer: 3\nSubproblem 1: b"
    questions = [{"problem": q, "answer": "1"} for q in ("Pre.\n\nSubproblem 0: a", several)]
    assert rows("ocw", *questions) == [("Pre.\n\na", "1"), (several, "1")]


def test_floats_of_svamp_and_addsub_become_plain_numbers() -> None:
    assert rows("svamp", {"Body": "b", "Question": "q", "Answer": 145.0}) == [("b q", "145")]
    assert rows(
        "addsub",
        {"sQuestion": "q ", "lSolutions": ["0.6666666666666666"]},
        {"input": "q", "target": 0.6666666667},
        {"sQuestion": "q", "lSolutions": ["14696.0"]},
    ) == [("q", "0.6666666667"), ("q", "0.6666666667"), ("q", "14696")]


def test_asdiv_rows_with_several_answers_are_dropped() -> None:
    row = {"body": "b", "question": "q", "answer": "9 (apples)"}
    assert rows("asdiv", row, row | {"answer": "5; 15"}) == [("b q", "9 (apples)")]


def test_the_original_xml_of_asdiv_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text(
        "<F><ProblemSet><Problem ID='1'><Body>b</Body><Question>q </Question>"
        "<Solution-Type>Sum</Solution-Type><Answer>9 (apples)</Answer></Problem></ProblemSet></F>"
    )
    [record] = builtin_tasks()["asdiv"].read(file)
    assert record.fields["solution_type"] == "Sum"
    assert [p.answer for p in read_problems(builtin_tasks()["asdiv"], [record], "x")] == [
        "9 (apples)"
    ]
    file.write_text("<F>")
    with pytest.raises(InputError, match="not the XML file of ASDiv"):
        list(builtin_tasks()["asdiv"].read(file))


def test_missing_golds_are_allowed_only_for_tasks_that_have_some() -> None:
    assert rows("gk2023", {"question": "q", "answer": ""}) == [("q", "")]
    with pytest.raises(InputError, match="here, row 1: the answer is empty"):
        rows("svamp", {"Body": "b", "Question": "q", "Answer": ""})
    with pytest.raises(InputError, match="here, row 1: the answer 'ten' is not a number"):
        rows("addsub", {"input": "q", "target": "ten"})


def test_golds_next_to_missing_ones_are_read_as_others(tmp_path: Path) -> None:
    golds = [0, 0.0, "0", "N/A", "We add 1 and 2.\n#### 3"]
    (tmp_path / "my.jsonl").write_text(
        "".join(json.dumps({"question": f"{n}?", "answer": g}) + "\n" for n, g in enumerate(golds))
    )
    description = tmp_path / "my.toml"
    description.write_text('data = "my.jsonl"\nmissing_golds = 1\n')
    loaded = load_task(read_task(description))
    assert [problem.answer for problem in loaded.problems] == ["0", "0", "0", "", "3"]
    assert not loaded.warnings
    description.write_text('data = "my.jsonl"\nmissing_golds = 2\n')
    [warning] = load_task(read_task(description)).warnings
    assert warning == "my: 1 problems have no gold answer, and `missing_golds` is 2."


def test_crlf_and_line_separators_do_not_change_the_rows(tmp_path: Path) -> None:
    lines = [{"question": "a\u2028b", "answer": str(i)} for i in range(3)]
    file = tmp_path / "gsm8k.jsonl"
    text = "\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    file.write_bytes(text.encode())
    task = replace(builtin_tasks()["gsm8k"], count=3)
    assert [p.question for p in load_task(task, tmp_path).problems] == ["a\u2028b"] * 3


def test_an_incomplete_benchmark_is_refused_and_another_digest_causes_a_warning(
    tmp_path: Path,
) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text('{"question": "q", "answer": "#### 5"}\n')
    with pytest.raises(InputError, match="1 problems, expected the 1319 of GSM8K"):
        load_task(builtin_tasks()["gsm8k"], file)
    [warning] = load_task(replace(builtin_tasks()["gsm8k"], count=1), file).warnings
    assert "questions or golds differ" in warning


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"contains no GSM8K: expected .*/gsm8k/test\.jsonl"):
        load_task(builtin_tasks()["gsm8k"], tmp_path)
    with pytest.raises(
        InputError, match=r"data = None: .* Give its file, or a directory that contains it"
    ):
        load_task(replace(builtin_tasks()["addsub"], fetch=None))
    with pytest.raises(InputError, match="row 1: fields a, expected question \\+ answer"):
        rows("gsm8k", {"a": 1})
    (tmp_path / "gsm8k").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "gsm8k" / name).write_text("{}")
    with pytest.raises(InputError, match="several files"):
        find_file(builtin_tasks()["gsm8k"], tmp_path)


def test_task_names_allow_other_spellings_and_suggest_the_nearest() -> None:
    assert get_task("GSM-IC2") is get_task("gsm_ic2") is builtin_tasks()["gsm_ic2"]
    assert get_task("MATH-500") is builtin_tasks()["math500"]
    with pytest.raises(InputError, match=r"task = 'gsm9k'.*Nearest: gsm8k"):
        get_task("gsm9k")
    with pytest.raises(InputError, match=r"suite = 'odd'.*Nearest: ood"):
        select_tasks("odd")
    assert [task.name for task in select_tasks("in-domain", ["ocw", "math"])] == [
        "gsm8k",
        "math",
        "ocw",
    ]
    assert len(select_tasks("all")) == 9
    assert len(select_tasks("all", ["GSM8K", "gsm8k"])) == 9
    with pytest.raises(InputError, match=r"no benchmark is named. Set `task` or `suite`"):
        select_tasks(None)


def test_a_note_on_no_problem_is_reported(tmp_path: Path) -> None:
    """Ids depend on the hint, too, so a later hint would leave golds uncorrected."""
    (tmp_path / "my.jsonl").write_text('{"question": "What is 1+1?", "answer": "3"}\n')
    description = tmp_path / "my.toml"
    description.write_text('data = "my.jsonl"\n')
    [problem_id] = load_task(read_task(description)).ids
    note = f'[[note]]\nid = "{problem_id}"\nreason = "a misprint"\ngold = "2"\n'
    description.write_text(f'data = "my.jsonl"\n{note}')
    loaded = load_task(read_task(description))
    assert loaded.problems[0].answer == "2" and not loaded.warnings
    description.write_text(f'data = "my.jsonl"\nhint = "Think."\n{note}')
    loaded = load_task(read_task(description))
    assert loaded.problems[0].answer == "3"
    assert loaded.warnings == [
        f"my: no problem has the id of these notes, which change no gold: {problem_id}. Ids "
        "include the hint and the gold of the source."
    ]


def test_two_benchmarks_with_one_name_are_refused(tmp_path: Path) -> None:
    """One of them would replace the other one without a word."""
    files = [tmp_path / folder / "test.jsonl" for folder in "ab"]
    with pytest.raises(InputError, match="two benchmarks are named 'test'") as error:
        select_tasks(None, [str(file) for file in files])
    assert error.value.field == "task"
    own_svamp = tmp_path / "svamp.jsonl"
    with pytest.raises(InputError, match="two benchmarks are named 'svamp'"):
        select_tasks("ood", [str(own_svamp)])
    assert len(select_tasks(None, [str(files[0])] * 2)) == 1
    description = tmp_path / "own.toml"
    description.write_text('data = "my.jsonl"\n')
    assert len(select_tasks(None, [str(description)] * 2)) == 1


#: A row of each Hub repository whose columns differ from the original file.
HUB_ROWS = {
    "gk2023": (
        {"question": "q", "answer": "$5$", "source": "s", "lang": "en", "sourcename": "", "id": 1},
        ("q", "$5$"),
    ),
    "ocw": ({"question": "Subproblem 0: q", "answer": "1.6"}, ("q", "1.6")),
    "asdiv": (
        {"body": "b", "question": "q", "answer": "9 (apples)", "formula": "4+5=9"}
        | {"solution_type": "Addition"},
        ("b q", "9 (apples)"),
    ),
    "svamp": (
        {"ID": "chal-1", "Body": "b.", "Question": "q", "Equation": "( 1.0 + 2.0 )"}
        | {"Answer": "3.0", "Type": "Addition", "question_concat": "b. q"},
        ("b. q", "3"),
    ),
    "math500": (
        {"problem": "p", "solution": "s", "answer": "3", "subject": "Algebra", "level": 2}
        | {"unique_id": "test/algebra/1.json"},
        ("p", "3"),
    ),
}


@pytest.mark.parametrize("name", HUB_ROWS)
def test_hub_columns_are_read(name: str) -> None:
    row, problem = HUB_ROWS[name]
    assert rows(name, row) == [problem]


def test_tasks_name_the_splits_of_the_hub() -> None:
    papers = (builtin_tasks()[name] for name in COUNTS)
    splits = {task.name: task.hub_split for task in papers if task.hub}
    other = {"gk2023": "train", "svamp": "train+test", "asdiv": "validation"}
    assert splits == dict.fromkeys(("gsm8k", "math", "math500", "ocw"), "test") | other


HUB_CLIENT = """
from dataclasses import replace
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks
loaded = load_task(replace(builtin_tasks()["svamp"], count=3))
print([(p.question, p.answer) for p in loaded.problems], loaded.ref.name, len(loaded.ref.revision))
"""


def test_a_task_is_loaded_from_the_hub(tmp_path: Path) -> None:
    source_rows = [{"Body": "b", "Question": f"q{i}", "Answer": f"{i}.0"} for i in range(3)]
    text = [
        "".join(json.dumps(row) + "\n" for row in part)
        for part in (source_rows[:2], source_rows[2:])
    ]
    files = {"train.jsonl": text[0].encode(), "test.jsonl": text[1].encode(), "README.md": b""}
    with running_hub() as hub:
        hub.add("dataset", "ChilleD/SVAMP", files)
        ran = run_client(HUB_CLIENT, client_env(hub.url, tmp_path))
    expected = [(f"b q{i}", f"{i}") for i in range(3)]
    assert ran.stdout.strip() == f"{expected} ChilleD/SVAMP 40", ran.stderr


def test_the_embedded_task_is_generated() -> None:
    loaded = load_task(builtin_tasks()["embedded"])
    assert (len(loaded.problems), loaded.digest) == (500, builtin_tasks()["embedded"].digest)
    assert not loaded.warnings and suites()["smoke"] == ("embedded",)
    levels = {
        builtin_tasks()["embedded"].problem_groups(problem.metadata)["level"]
        for problem in loaded.problems
    }
    assert levels == {"2", "3", "4", "5", "6"}


def test_groups_have_one_form_in_both_sources() -> None:
    math = builtin_tasks()["math"].problem_groups(
        {"type": "Algebra", "level": "Level 3", "solution": "…"}
    )
    assert math == builtin_tasks()["math500"].problem_groups({"subject": "Algebra", "level": 3})
    assert math == {"subject": "Algebra", "level": "3"}
    assert builtin_tasks()["gsm_ic2"].problem_groups({"cluster": "base", "n_steps": 2}) == {}


def test_a_custom_benchmark_can_be_a_file_of_rows(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "1 + 1?", "answer": 2}\n{"question": "2 + 2?", "answer": "4"}\n')
    loaded = load_task(get_task(str(file)))
    assert [(p.question, p.answer) for p in loaded.problems] == [("1 + 1?", "2"), ("2 + 2?", "4")]
    assert (loaded.task.name, loaded.task.count, loaded.warnings) == ("mine", 2, [])


@pytest.mark.parametrize(
    "metadata",
    [{"alternative_golds": "17"}, {"alternative_golds": [17]}, {"gold_tolerance": "9"}],
    ids=str,
)
def test_golds_that_grading_cannot_read_are_refused(
    tmp_path: Path, metadata: dict[str, object]
) -> None:
    rows = tmp_path / "mine.jsonl"
    rows.write_text(json.dumps({"question": "1 + 1?", "answer": "2"} | metadata) + "\n")
    with pytest.raises(InputError, match=f"{next(iter(metadata))}: expected a"):
        load_task(get_task(str(rows)))


def test_only_a_toml_file_names_the_field_of_clusters(tmp_path: Path) -> None:
    rows = tmp_path / "mine.jsonl"
    row = {
        "question": "1 + 1?",
        "answer": "2",
        "alternative_golds": ["17"],
        "gold_tolerance": 9,
        "cluster": 5,
    }
    rows.write_text(json.dumps(row) + "\n")
    [problem] = load_task(get_task(str(rows))).problems
    assert problem.metadata == {"alternative_golds": ["17"], "gold_tolerance": 9}
    task_file = tmp_path / "own.toml"
    task_file.write_text('data = "mine.jsonl"\ncluster = "cluster"\n')
    assert load_task(get_task(str(task_file))).problems[0].metadata["cluster"] == 5
    task_file.write_text('data = "mine.jsonl"\ncluster = "base"\n')
    with pytest.raises(
        InputError, match="row 1: no base, the field that problems with one base problem"
    ):
        load_task(get_task(str(task_file)))


CUSTOM_TASK = """
title = "My task"
data = "rows.jsonl"
hook = "own.py"
hint = "Answer with a number."
remove_text = [" Think!"]
tolerance = 0.1
groups.topic = ["topic"]
formats = [{ question = ["q"], answer = "a", gold = "number" }]
"""
HOOK = """
def row(fields):
    return None if fields["a"] is None else fields
"""


def test_a_custom_benchmark_can_be_a_toml_file_with_a_hook(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(CUSTOM_TASK)
    (tmp_path / "own.py").write_text(HOOK)
    rows = [{"q": "1 + 1? Think!", "a": "02.0", "topic": "sums"}, {"q": "?", "a": None}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load_task(get_task(str(tmp_path / "own.toml")))
    [problem] = loaded.problems
    assert (problem.question, problem.answer) == ("1 + 1?\nAnswer with a number.", "2")
    assert loaded.task.problem_groups(problem.metadata) == {"topic": "sums"}
    assert problem.gold_tolerance == 0.1


def test_errors_in_a_custom_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"q": "1+1?", "a": "2"}\n')
    with pytest.raises(
        InputError, match=r"row 1: neither question nor answer\. Name other columns with"
    ):
        load_task(get_task(f"{tmp_path}/mine.jsonl"))
    with pytest.raises(
        InputError, match=r"no such file or directory: .*/mime\.jsonl\. Nearest .*: mine\.jsonl"
    ):
        load_task(get_task(f"{tmp_path}/mime.jsonl"))
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(InputError, match=r"none\.jsonl: no problems found\. Expected the rows of"):
        load_task(get_task(f"{tmp_path}/none.jsonl"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'", r"no key 'titel'\. Nearest: title\. Compare"),
        ("metric = 'best'", "metric 'best': expected greedy, avg@K or maj@K"),
        ("name = '../x'", "expected letters"),
        ("formats = [{ question = ['q'], answer = 'a', gold = 'float' }]", "expected one of auto"),
        ("title =", "not a benchmark"),
    ],
)
def test_invalid_custom_benchmarks_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        get_task(str(tmp_path / "own.toml"))
