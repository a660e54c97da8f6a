"""Decontamination finds known overlaps of published datasets, and nothing in clean data."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from fakes import FixedSampler
from hashes import hashes
from helpers import small_build, stage_counts, stage_options, statistics_of
from paired_data import paired_dataset
from recorded_imports import import_label_rows

from fsdpo_data.cli.app import main
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, SchemaError, StoreError
from fsdpo_data.core.identity import SourceRef, file_sha256
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import validate
from fsdpo_data.models.prompts import get_template
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.problems.benchmark_questions import read_benchmark
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.problems.overlap import LocatedQuestion, find_overlapping_pairs
from fsdpo_data.stages.decontaminate import (
    DecontaminateOptions,
    DecontaminateStage,
    OverlapReport,
    find_overlaps,
    read_sealed_problems,
    run_decontaminate,
)
from fsdpo_data.stages.pair import PairStage

LONG = "Ann has twelve red apples and gives five of them to her brother Tom on Monday morning"


def overlapping_pairs(training: list[str], benchmark: list[str], **options: float) -> list[tuple]:
    old, new = (
        [LocatedQuestion("x", 1, text, "7") for text in texts] for texts in (training, benchmark)
    )
    overlaps = find_overlapping_pairs(old, new, **options)
    return [
        (row["training"], row["benchmark"], row["identical"], round(row["overlap"], 2))
        for row in overlaps.iter_rows(named=True)
    ]


def test_white_space_and_case_do_not_matter() -> None:
    assert overlapping_pairs(["What is  $1 +1$?"], ["what is $1+1$?", "What is $1-1$?"]) == [
        (0, 0, True, 1.0)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "小明有{}个苹果，他又买了{}个苹果，然后给了小红{}个。请问小明现在一共还剩下多少个苹果？",
        "太郎はりんごを{}個持っています。花子はみかんを{}個持っています。合わせて{}個より多いですか。",
        "У Маши было {} яблока, она купила ещё {} яблок и отдала {} брату. Сколько осталось?",
    ],
    ids=["Chinese", "Japanese", "Russian"],
)
def test_problems_with_other_numbers_overlap_in_other_scripts(text: str) -> None:
    """Chinese and Japanese have no spaces between words, so a sentence would be one word."""
    other = "一辆汽车每小时行驶60千米，从甲地到乙地用了3小时，返回时用了多少小时？"
    training = [text.format(3, 5, 2), other, LONG]
    assert overlapping_pairs(training, [text.format(40, 6, 12)]) == [(0, 0, False, 1.0)]


def test_a_lone_surrogate_is_compared_like_other_characters() -> None:
    assert overlapping_pairs(["half a \ud800"], ["half  a \ud800", "half a b"]) == [
        (0, 0, True, 1.0)
    ]


def test_a_text_inside_a_longer_one_overlaps_completely() -> None:
    longer = f"{LONG}. The weather is fine. How many apples are left to Ann in the evening?"
    assert overlapping_pairs([LONG], [longer]) == [(0, 0, False, 1.0)]
    assert overlapping_pairs([longer], [LONG]) == [(0, 0, False, 1.0)]


HIKE = (
    "Every morning Aya goes for a $9$-kilometer-long walk and stops at a coffee shop afterwards. "
    "When she walks at a constant speed of $s$ kilometers per hour, the walk takes her 4 hours, "
    "including $t$ minutes spent in the coffee shop. Find the number of minutes the walk takes her."
)
OTHER_HIKE = HIKE.replace("9", "15").replace(" 4 ", " five ").replace("Aya", "Lea")
FORMULA = (
    r"\[f(x) = \frac{x^3 - 7x^2 + 12x - 9}{\sqrt{x^2 + 4x + 11}} + \log_2 (x^2 - 3x + 5) "
    r"- \frac{\sin^2 x + \cos^2 3x}{x^4 + 2x^2 + 17} + \sqrt{x + \sqrt{x + 1}}\]"
)


def test_the_same_problem_with_other_numbers_and_names_overlaps() -> None:
    [(_, _, identical, overlap)] = overlapping_pairs([HIKE], [OTHER_HIKE])
    assert not identical and overlap > 0.8


def test_problems_with_a_common_formula_do_not_overlap() -> None:
    first = f"Let {FORMULA} for positive real numbers. Find the sum of all zeros of the function."
    second = (
        f"The curve {FORMULA} crosses the line through both points twice. How many units apart?"
    )
    assert overlapping_pairs([first], [second], min_overlap=0.3) == []
    assert overlapping_pairs([FORMULA], [f"Given {FORMULA} what is its domain?"]) == []


def test_common_phrases_count_little() -> None:
    phrase = "Express your answer as a common fraction in lowest terms."
    names = ["".join(pair) for pair in itertools.product("bcdfg", "klmnpr")]
    texts = [f"Tell me a{name} e{name} i{name} o{name} u{name} y{name}. {phrase}" for name in names]
    [*pairs] = overlapping_pairs(texts, texts)
    assert [pair[:3] for pair in pairs] == [(i, i, True) for i in range(30)]


def test_short_templates_do_not_overlap() -> None:
    assert overlapping_pairs(["What is 1 + 1?"], ["What is 2 + 5?"]) == []


def test_every_pair_is_found_that_a_comparison_of_all_texts_finds() -> None:
    """The search leaves out pairs without a common rare n-gram; no pair above the minimum is."""
    words = LONG.lower().split()
    rng = random.Random(0)
    texts = [
        " ".join(rng.choice(words) if rng.random() < 0.2 else word for word in words[start:])
        for start in (0, 0, 0, 1, 2, 0, 3, 0)
        for _ in range(5)
    ]
    for minimum in (0.3, 0.6, 0.8):
        low = overlapping_pairs(texts, texts, min_overlap=0.05)
        high = overlapping_pairs(texts, texts, min_overlap=minimum)
        # The test rounds to two digits.
        assert {pair for pair in low if pair[3] > minimum} <= set(high)
        assert all(pair[3] >= minimum for pair in high)
        assert set(high) <= set(low)


def test_word_runs_do_not_span_two_texts() -> None:
    words = LONG.split()
    halves = [" ".join(words[:7]), " ".join(words[7:14])]
    assert overlapping_pairs(halves, [LONG]) == []


def test_overlap_must_reach_the_threshold() -> None:
    words = LONG.split()
    other = " ".join([*words[:12], "x", "y", "z", "u", "v"])  # 9 of 14 runs of 4
    [(_, _, _, overlap)] = overlapping_pairs([LONG], [other], min_overlap=0.3)
    assert 0.3 < overlap < 9 / 14  # runs of one text are rarer, so they weigh more
    assert overlapping_pairs([LONG], [other], min_overlap=0.65) == []
    assert overlapping_pairs([LONG], [other], ngram=13, min_overlap=0.3) == []


def test_answers_are_compared_separately() -> None:
    training = [LocatedQuestion("x", 1, LONG, "7"), LocatedQuestion("x", 2, LONG, "")]
    overlaps = find_overlapping_pairs(
        training, [LocatedQuestion("y", 1, LONG, " 7 "), LocatedQuestion("y", 2, LONG, "")]
    )
    assert overlaps["identical"].to_list() == [True] * 4
    assert overlaps["same_answer"].to_list() == [True, False, False, False]


def test_answers_in_different_notations_are_equal() -> None:
    golds = [("9", "9 (apples)"), ("1/2", "0.5"), ("9", "8"), ("9 m", "9 km")]
    same_answers = [
        find_overlapping_pairs(
            [LocatedQuestion("x", 1, LONG, training_gold)],
            [LocatedQuestion("y", 1, LONG, benchmark_gold)],
        )["same_answer"].item()
        for training_gold, benchmark_gold in golds
    ]
    assert same_answers == [True, True, False, False]


def test_empty_inputs_have_no_overlap() -> None:
    assert (
        overlapping_pairs([], [])
        == overlapping_pairs([LONG], [])
        == overlapping_pairs([], [LONG])
        == []
    )


@pytest.fixture(scope="module")
def data() -> Path:
    path = Path(__file__).parents[4] / "shared/data"
    if not path.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    return path


def report_overlaps(data: Path, train: list[str], *benchmarks: str) -> OverlapReport:
    problems = load_problems([str(data / path) for path in train]).problems
    return find_overlaps(problems, [str(data / path) for path in benchmarks])


def exact_counts(report: OverlapReport) -> list[int]:
    return [counts.exact_questions for counts in report.counts().benchmarks.values()]


def test_gsm8k_and_math_train(data: Path) -> None:
    bench = ["benchmarks/math/test.jsonl", "benchmarks/math500/test.jsonl",
             "benchmarks/gsm8k/test.jsonl", "benchmarks/svamp/test.jsonl",
             "benchmarks/gsm_ic2/base/gsm8k_validation.jsonl",
             "benchmarks/gsm_ic2/test.jsonl", "benchmarks/gsm_icm/test.jsonl"]  # fmt: skip
    report = report_overlaps(data, ["train/gsm8k/train.jsonl", "train/math"], *bench)
    # Two questions of MATH differ in white space only, and GSM-IC begins from GSM8K train.
    assert exact_counts(report) == [2, 0, 0, 0, 1000, 0, 0]
    math, *_, base, two_steps, more_steps = report.counts().benchmarks.values()
    assert math.same_answer >= 2
    assert base.same_answer == 1000
    assert two_steps.problems + more_steps.problems >= 90  # of 100 base problems
    assert two_steps.matched_questions + more_steps.matched_questions > 1800  # of 2,000 questions
    parabola = [row for row in report.to_json_values()["pairs"] if row["identical"]][-2:]
    assert any("parabola with equation" in row["question"] for row in parabola)


def test_processbench_contains_test_questions(data: Path) -> None:
    for name, benchmark in (("gsm8k", "gsm8k"), ("math", "math")):
        file = data / f"stepwise/processbench/{name}.json"
        texts = read_benchmark(str(file)).questions
        problems = [Problem(question.question, "?", "processbench", "train") for question in texts]
        report = find_overlaps(problems, [str(data / f"benchmarks/{benchmark}/test.jsonl")])
        assert report.clean_problems == []
        exact = {row["problem_id"] for row in report.to_json_values()["pairs"] if row["identical"]}
        assert len(exact) > 0.95 * len({problem.id for problem in problems})


def test_prm800k_contains_math_test_questions(data: Path, tmp_path: Path) -> None:
    rows = tmp_path / "train.jsonl"
    import_label_rows(data / "stepwise/openr/samples_prm800k.jsonl", "prm800k", rows)
    problems = load_problems([str(rows)]).problems
    tests = [str(data / f"benchmarks/{name}/test.jsonl") for name in ("math", "math500")]
    report = find_overlaps(problems, tests)
    assert len(problems) == 5 and len(report.clean_problems) == 1  # a sixth has no answer
    math, math500 = report.counts().benchmarks.values()
    assert math.exact_questions == math.same_answer == math500.exact_questions == 4


def test_the_command_writes_clean_rows_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": LONG, "answer": "7"}, {"question": "1 + 1?", "answer": "2"}]
    train, bench = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench.write_text(json.dumps({"question": f"{LONG} !", "answer": "#### 7"}) + "\n")
    report, clean = tmp_path / "report.json", tmp_path / "clean.jsonl"
    arguments = (train, "--against", bench, "--report", report, "--write-clean", clean)
    assert command(monkeypatch, *arguments) == 0
    assert "1 of 2 problems are contaminated, 1 are clean" in capsys.readouterr().out
    assert [problem.question for problem in load_problems([str(clean)]).problems] == ["1 + 1?"]
    [counts] = json.loads(report.read_text())["benchmarks"]
    assert (counts["name"], counts["problems"]) == (tmp_path.name, 1)
    assert counts["revision"] == f"sha256:{file_sha256(bench)}"
    (pair,) = json.loads(report.read_text())["pairs"]
    assert pair["overlap"] == 1.0 and pair["same_answer"] and pair["row"] == 1


def test_a_gold_of_zero_is_compared(tmp_path: Path) -> None:
    bench = tmp_path / "bench.jsonl"
    bench.write_text(json.dumps({"question": LONG, "answer": 0}) + "\n")
    report = find_overlaps([Problem(LONG, "0", "train", "train")], [str(bench)])
    assert report.counts().benchmarks["bench"].same_answer == 1


def test_unused_rows_are_reported_and_inputs_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, bench = tmp_path / "data/train.jsonl", tmp_path / "k=4/bench.jsonl"
    train.parent.mkdir()
    bench.parent.mkdir()
    rows = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 1?", "answer": "2"}, {}]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench.write_text(json.dumps({"question": LONG, "answer": "7"}) + "\n")
    old_bytes = train.read_bytes()
    for source, flag, file in (
        (train, "--write-clean", train),
        (train.parent, "--write-clean", train),
        (train, "--report", bench),
    ):
        for benchmark in (f"b={bench}", bench):
            assert command(monkeypatch, source, "--against", benchmark, flag, file) == 1
            assert f"{flag} {file}: the file is also an input" in capsys.readouterr().err
    assert train.read_bytes() == old_bytes
    assert (
        command(monkeypatch, train, "--against", bench, "--write-clean", tmp_path / "new.jsonl")
        == 0
    )
    errors = capsys.readouterr().err
    assert "warning: 2 rows are not used; first, duplicate: " in errors


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run ``fsdpo-data decontaminate``; return its exit code."""
    command_line = ["fsdpo-data", "decontaminate", *map(str, arguments)]
    monkeypatch.setattr("sys.argv", command_line)
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_result_is_in_the_manifest_and_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, out = paired_dataset(tmp_path), tmp_path / "checked"
    (tmp_path / "near").mkdir()
    near, far = tmp_path / "near/test.jsonl", tmp_path / "far.jsonl"
    benchmark_row = json.dumps(
        {"question": "What is 20+22, asked for the 1th TIME?", "answer": "43"}
    )
    near.write_text(benchmark_row + "\n")
    far.write_text(json.dumps({"question": LONG}) + "\n")
    arguments = [dataset, "--against", near, "--against", f"far=away={far}"]
    assert command(monkeypatch, *arguments) == 1  # no such file
    arguments[-1] = f"far away={far}"
    assert command(monkeypatch, dataset, *arguments, "--out", out) == 1  # which of the two?
    assert command(monkeypatch, *arguments, "--out", out) == 0

    manifest = validate(out).to_dict()
    contamination = stage_counts(manifest, "decontaminate")
    # The problems differ in one number.
    assert (contamination["problems"], contamination["contaminated"]) == (3, 3)
    options = stage_options(manifest, "decontaminate")
    assert (options["ngram"], options["method"]) == (4, "template@2")
    assert [benchmark["name"] for benchmark in options["benchmarks"]] == ["near", "far away"]
    assert options["benchmarks"][0]["revision"] == f"sha256:{file_sha256(near)}"
    counts = ("questions", "matched_questions", "exact_questions", "same_answer", "problems")
    by_name = contamination["benchmarks"]
    assert [by_name["near"][name] for name in counts] == [1, 1, 1, 0, 3]
    assert [by_name["far away"][name] for name in counts] == [1, 0, 0, 0, 0]
    assert manifest["digest"] == manifest["parent"] == validate(dataset).digest
    assert (out / "pairs").exists()

    card = (out / "README.md").read_text()
    assert "| in benchmarks | 3 of 3 problems overlap with near, far away |" in card
    assert "3 of 3 problems overlap with a benchmark in the table" in card
    assert "have an overlap of at least 0.6" in card
    assert re.search(r"^\| near \(sha256:\w+\) \| 1 \| 1 \| 1 \| 0 \| 3 \|$", card, re.M)
    assert "not been compared with benchmarks" in (dataset / "README.md").read_text()
    assert str(tmp_path) not in card


def test_an_interrupted_run_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, out, bench = paired_dataset(tmp_path), tmp_path / "checked", tmp_path / "bench.jsonl"
    bench.write_text(json.dumps({"question": LONG}) + "\n")
    arguments = [dataset, "--against", bench, "--out", out]
    assert command(monkeypatch, *arguments) == 0
    manifest = (out / "manifest.json").read_bytes()
    (out / "manifest.json").unlink()
    assert command(monkeypatch, *arguments) == 1
    assert command(monkeypatch, *arguments, "--resume") == 0
    assert (out / "manifest.json").read_bytes() == manifest


def test_clean_problems_of_a_dataset_keep_their_metadata(tmp_path: Path) -> None:
    """Grading reads further gold answers and the tolerance there."""
    metadata = {"alternative_golds": ["43"], "gold_tolerance": 0.1, "level": 3}
    problem = Problem("What is 20 + 22?", "42", "test", "train", metadata)
    small_build(
        tmp_path / "run",
        ProblemSet([problem], [SourceRef("test", "1", "train")]),
        make_sampler=lambda: FixedSampler(
            {get_template("problem").render(problem.question): ["It is 42."] * 4}
        ),
    )
    (tmp_path / "bench.jsonl").write_text(json.dumps({"question": LONG}) + "\n")
    for options in ({}, {"out": tmp_path / "checked"}):
        clean = tmp_path / "clean.jsonl"
        run_decontaminate(
            DecontaminateOptions(
                problems=[str(tmp_path / "run")],
                against=[str(tmp_path / "bench.jsonl")],
                write_clean=clean,
                **options,
            ),
            LineProgress(),
        )
        assert load_problems([str(clean)]).problems == [problem]


def test_derived_datasets_keep_the_result(tmp_path: Path) -> None:
    dataset, checked, paired = paired_dataset(tmp_path), tmp_path / "checked", tmp_path / "again"
    bench = tmp_path / "bench.jsonl"
    bench.write_text(json.dumps({"question": LONG}) + "\n")
    report = find_overlaps(read_sealed_problems(dataset), [str(bench)])
    derive_dataset(dataset, checked, [DecontaminateStage(report)], progress=LineProgress())
    derive_dataset(checked, paired, [PairStage(PairSpec(top=1))], progress=LineProgress())
    counts = stage_counts(validate(paired).to_dict(), "decontaminate")
    assert counts == stage_counts(validate(checked).to_dict(), "decontaminate")
    assert counts["contaminated"] == 0


def test_a_second_comparison_keeps_the_first_one(tmp_path: Path) -> None:
    """Manifest, summary and card state both; a benchmark that is compared again is stated once."""
    near, far = str(tmp_path / "near.jsonl"), str(tmp_path / "far.jsonl")
    question = "What is 20+22, asked for the 1th TIME?"
    Path(near).write_text(json.dumps({"question": question}) + "\n")
    Path(far).write_text(json.dumps({"question": LONG}) + "\n")

    def compare(source: Path, name: str, *against: str) -> list[str]:
        report = find_overlaps(read_sealed_problems(source), against)
        out = tmp_path / name
        derive_dataset(source, out, [DecontaminateStage(report)], progress=LineProgress())
        validate(out)
        rows = summary_rows(statistics_of(out))
        return [text for name, text in rows if name == "in benchmarks"]

    dataset = paired_dataset(tmp_path)
    in_near = "3 of 3 problems overlap with near"
    in_far = "0 of 3 problems overlap with far"
    assert compare(dataset, "first", near) == [in_near]
    assert compare(tmp_path / "first", "second", far) == [in_near, in_far]
    assert compare(tmp_path / "second", "third", far) == [in_near, in_far]
    assert compare(tmp_path / "third", "fourth", near, far) == [f"{in_near}, far"]
    card = (tmp_path / "second/README.md").read_text()
    assert card.index("| near (sha256:") < card.index("| far (sha256:")
    assert card.count("problems overlap with a benchmark in the table") == 2


def test_benchmark_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for file in ("test.jsonl", "math/test.jsonl", "math/easy=1.jsonl"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(json.dumps({"question": LONG}) + "\n")
    names = (f"{tmp_path}/test.jsonl", f"{tmp_path}/math", f"{tmp_path}/math/test.jsonl",
             f"{tmp_path}/math/easy=1.jsonl", f"mine={tmp_path}/test.jsonl")  # fmt: skip
    benchmark_names = [read_benchmark(name).name for name in names]
    assert benchmark_names == ["test", "math", "math", "easy=1", "mine"]
    with pytest.raises(InputError, match="against = 'math': two benchmarks have that name"):
        find_overlaps([], names[1:3])


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"Body": "Two and", "Question": "five?", "Answer": 7.0}, "7"),
        ({"body": "Two and", "question": "five?", "answer": "7 (apples)"}, "7 (apples)"),
        ({"sQuestion": "Two and five?", "lSolutions": [7.0]}, "7"),
        ({"problem": "Two and five?", "gold_answer": 7}, "7"),
        ({"question": {"problem": "Two and five?", "ground_truth_answer": "7"}}, "7"),
        ({"question": "Two and five?", "ground_truth_answer": "7"}, "7"),
        ({"input": "Two and five?", "target": "7", "answer": "8"}, "7"),
        ({"question": "Two and five?", "answer": "2 + 5 = 7\n#### 7"}, "7"),
        ({"problem": "Two and five?", "solution": r"So \boxed{7}."}, "7"),
        ({"question": "Two and five?", "gold_answer": "7"}, "7"),
        ({"question": "Two and five?", "target": "7"}, "7"),
        ({"problem": "Two and five?", "answer": "", "solution": r"So \boxed{7}."}, "7"),
        ({"question": "Two and five?", "answer": ["7", "8"]}, ""),
        ({"question": "Two and five?"}, ""),
    ],
)
def test_questions_and_golds_of_benchmark_files(
    tmp_path: Path, row: dict[str, Any], gold: str
) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps(row) + "\n")
    [question] = read_benchmark(str(file)).questions
    assert (question.question, question.answer) == ("Two and five?", gold)


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text('{"text": "x"}\n')
    with pytest.raises(InputError, match="no row has a question"):
        find_overlaps([], [str(file)])
    with pytest.raises(InputError, match="no such file or directory: ~nobody-of-that-name/x"):
        read_benchmark("~nobody-of-that-name/x.jsonl")
    with pytest.raises(SchemaError, match="holds no dataset"):
        read_sealed_problems(tmp_path)
    for options in ({"ngram": 1}, {"overlap": 0.0}, {"overlap": 1.5}):
        with pytest.raises(InputError, match="expected 2 or more"):
            find_overlaps([], [], **options)


def test_a_file_changed_since_the_seal_is_refused(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    (file,) = (dataset / "problems").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        read_sealed_problems(dataset)


def test_questions_in_several_files_are_counted_by_question(tmp_path: Path) -> None:
    """The original MATH has one file per problem, so row numbers repeat."""
    folder = tmp_path / "many"
    folder.mkdir()
    questions = [f"{LONG} Number {index}." for index in range(3)]
    for index, question in enumerate(questions):
        row = {"problem": question, "solution": rf"So \boxed{{{index}}}."}
        (folder / f"{index}.json").write_text(json.dumps(row))
    problems = [
        Problem(question, str(index), "mine", "train") for index, question in enumerate(questions)
    ]
    report = find_overlaps(problems, [f"many={folder}"], overlap=1.0)
    [counts] = report.counts().benchmarks.values()
    assert counts.questions == counts.exact_questions == counts.same_answer == 3
    assert counts.matched_questions == counts.problems == 3
    identical_files = {row["file"] for row in report.to_json_values()["pairs"] if row["identical"]}
    assert identical_files == {"0.json", "1.json", "2.json"}


def test_report_and_clean_rows_are_different_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = tmp_path / "train.jsonl"
    train.write_text(json.dumps({"question": LONG, "answer": "7"}) + "\n")
    bench = tmp_path / "test.jsonl"
    bench.write_text(json.dumps({"question": LONG, "answer": "7"}) + "\n")
    out = tmp_path / "out.json"
    assert command(monkeypatch, train, "--against", bench, "--report", out, "--write-clean", out)
    assert "--report" in capsys.readouterr().err and not out.exists()


def test_after_a_full_disk_the_resumed_run_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the first write, then at the second one, and so on to the last one."""
    dataset = paired_dataset(tmp_path)
    bench = tmp_path / "bench.jsonl"
    bench.write_text(json.dumps({"question": LONG, "answer": "7"}) + "\n")

    def decontaminate(out: Path, *, resume: bool = False) -> None:
        options = DecontaminateOptions(
            problems=[str(dataset)],
            against=[str(bench)],
            out=out,
            report=f"{out}.json",
            resume=resume,
        )
        run_decontaminate(options, LineProgress())

    decontaminate(tmp_path / "whole")
    fsync = os.fsync
    writes_left = 0

    def fill_disk(descriptor: int) -> None:
        nonlocal writes_left
        if writes_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        writes_left -= 1
        fsync(descriptor)

    n_faults = 0
    while True:
        out = tmp_path / f"out{n_faults}"
        writes_left = n_faults
        with monkeypatch.context() as patches:
            patches.setattr("os.fsync", fill_disk)
            try:
                decontaminate(out)
                break
            except StoreError as error:
                assert "the disk is full; free some space" in str(error)
        n_faults += 1
        assert not list(tmp_path.rglob("*.tmp"))
        decontaminate(out, resume=True)
        assert hashes(out) == hashes(tmp_path / "whole")
    assert n_faults > 6
