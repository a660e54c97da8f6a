"""Imported step labels are a sealed dataset, which all commands read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from fakes import BatchScorer
from helpers import (
    derive,
    quarantine_counts,
    read_sample_settings,
    reward_model,
    reward_statistics_of,
    small_build,
    stage_options,
    statistics_of,
)
from made_runs import written
from paired_data import paired_dataset
from recorded_imports import import_label_rows, import_labels, lines

from fsdpo_data import api
from fsdpo_data.core.errors import InputError, RunMismatchError, SchemaError
from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.dataset.schema import arrow_schema, write_parquet
from fsdpo_data.dataset.stage_records import ProblemsRecord
from fsdpo_data.dataset.validate import check_invariants, validate
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.exchange.export import export
from fsdpo_data.exchange.formats import get_step_label_format
from fsdpo_data.models.prompts import TEMPLATES, Template
from fsdpo_data.publish.push import RemoteState, plan_push
from fsdpo_data.stages import sample
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.import_labels import ImportRecord
from fsdpo_data.stages.score import ScoreStage

PRM800K = "prm800k"


def prm800k_row(problem: str, *ratings: int) -> dict[str, Any]:
    """Return a row whose steps are all chosen."""
    steps = [
        {
            "completions": [
                {"text": f"{problem} step {index}", "rating": rating, "flagged": False}
            ],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for index, rating in enumerate(ratings)
    ]
    question = {"problem": problem, "ground_truth_answer": "42"}
    return {"question": question, "label": {"steps": steps, "finish_reason": "solution"}}


def write_prm800k(file: Path) -> Path:
    """Write rows in which the solutions of a problem are apart; one row is unreadable."""
    rows: list[Any] = [
        prm800k_row("What is 20 + 22?", 1, 0, -1),
        prm800k_row("What is 6 · 7?", 1),
        {"question": 7},
        prm800k_row("What is 20 + 22?", 1, 1),
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def training_rows(data: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Return prompt, steps and labels of the rows that ``fsdpo-train prm`` reads."""
    pytest.importorskip("torch")
    from fsdpo_train.config import PrmConfig
    from fsdpo_train.prm.data import open_solutions, read_labelled_rows

    config = PrmConfig(data=data, out=data.parent / "prm", **options)
    rows = read_labelled_rows(open_solutions([data]), config, Counter())
    return sorted((row.prompt, *row.steps, *row.labels) for row in rows)


def solutions(dataset: Path) -> list[dict[str, Any]]:
    return api.open_dataset(dataset).solutions().collect().to_dicts()


@pytest.mark.parametrize("name", ["trl-stepwise", "math-shepherd", "prm800k", "processbench"])
def test_training_reads_the_same_labels_from_the_dataset_as_from_rows(
    tmp_path: Path, name: str
) -> None:
    file = export(paired_dataset(tmp_path), name, tmp_path / "export").file
    import_label_rows(file, name, tmp_path / "rows.jsonl")
    manifest, result = import_labels(file, name, tmp_path / "sealed")
    assert validate(tmp_path / "sealed") == manifest
    assert (
        manifest.get("problems", ProblemsRecord).options.sources[0].revision
        == f"sha256:{file_sha256(file)}"
    )
    record = manifest.get("import", ImportRecord)
    assert record.options.format == name
    right, wrong = statistics_of(tmp_path / "sealed").imported_steps
    assert (right, wrong) == (result.steps[True], result.steps[False]) and right and wrong
    rows = training_rows(tmp_path / "sealed")
    assert rows and rows == training_rows(tmp_path / "rows.jsonl")


QUESTIONS = ["What is 2+2?", "What is 3+3?\nGive {a} number.", "One line.\n\nTwo lines?"]


def write_prompts(file: Path, prompts: Iterable[str]) -> Path:
    """Write rows of TRL with the prompts."""
    rows = [{"prompt": prompt, "completions": ["a"], "labels": [True]} for prompt in prompts]
    return written(file, rows)


@pytest.mark.parametrize("name", [name for name in TEMPLATES if not TEMPLATES[name].needs_chat])
def test_the_question_of_a_prompt_with_a_known_template_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Reward models with prompts of their own read the question."""
    prompts = [TEMPLATES[name].render(question) for question in QUESTIONS]
    file = write_prompts(tmp_path / "rows.jsonl", prompts)
    manifest, _ = import_labels(file, "trl-stepwise", tmp_path / "out")
    problems = api.open_dataset(tmp_path / "out").problems().collect()
    assert problems["question"].to_list() == QUESTIONS
    assert [row["prompt"] for row in solutions(tmp_path / "out")] == prompts
    assert read_sample_settings(manifest).template == TEMPLATES[name].ref
    assert not caplog.text


def test_a_dataset_comes_back_from_trl_rows_with_its_problems(tmp_path: Path) -> None:
    first = paired_dataset(tmp_path)
    file = export(first, "trl-stepwise", tmp_path / "export").file
    import_labels(file, "trl-stepwise", tmp_path / "second")
    questions = [
        set(api.open_dataset(dataset).problems().collect()["question"])
        for dataset in (first, tmp_path / "second")
    ]
    assert questions[0] == questions[1]


@pytest.mark.parametrize("form", ["<user>\n{question}\n<model>\n", "Q: {question} A:"])
def test_prompts_of_an_unknown_template_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    prompts = [form.replace("{question}", question) for question in QUESTIONS]
    file = write_prompts(tmp_path / "rows.jsonl", prompts)
    import_labels(file, "trl-stepwise", tmp_path / "out")
    [warning] = caplog.messages
    assert "3 prompts have no known template" in warning
    caplog.clear()
    template = tmp_path / "mine.txt"
    template.write_text(form)
    manifest, _ = import_labels(
        file, "trl-stepwise", tmp_path / "known", template=str(template), resume=False
    )
    problems = api.open_dataset(tmp_path / "known").problems().collect()
    assert problems["question"].to_list() == QUESTIONS
    assert read_sample_settings(manifest).template.text == form
    assert not caplog.text


@pytest.mark.parametrize("prompts", [QUESTIONS, ["What is 2+2?"] * 2, ["Q: What is 2+2?\nA:"]])
def test_prompts_that_show_no_template_are_questions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prompts: list[str]
) -> None:
    file = write_prompts(tmp_path / "rows.jsonl", prompts)
    import_labels(file, "trl-stepwise", tmp_path / "out")
    problems = api.open_dataset(tmp_path / "out").problems().collect()
    assert problems["question"].to_list() == list(dict.fromkeys(prompts))
    assert not caplog.text


def test_a_prompt_with_examples_is_not_one_question(tmp_path: Path) -> None:
    template = TEMPLATES["problem@1"]
    prompt = f"{template.render('1+1?')}2\n\n{template.render('2+2?')}"
    assert template.find_question(template.render("2+2?")) == "2+2?"
    assert template.find_question(prompt) is None


def test_names_in_braces_of_an_example_are_a_part_of_its_template() -> None:
    text = "Q: Half?\nA: \\boxed{\\frac{1}{2}} {answer}\n\nQ: {question}\nA:"
    template = Template("mine", text)
    question = "Is {answer}\n{1}?"
    assert template.find_question(template.render(question)) == question
    assert template.find_question(text.replace("{answer}", "0.5")) is None


def test_a_question_with_two_prompts_is_imported_with_one_of_them(tmp_path: Path) -> None:
    """A dataset has one prompt per problem, and steps were labelled after their own prompt."""
    prompts = [TEMPLATES[name].render("2+2?") for name in ("problem@1", "alpaca@1", "problem@1")]
    file = write_prompts(tmp_path / "rows.jsonl", prompts)
    import_labels(file, "trl-stepwise", tmp_path / "out")
    assert [row["prompt"] for row in solutions(tmp_path / "out")] == prompts[:1] * 2
    [unusable] = lines(tmp_path / "out/quarantine.jsonl")
    assert unusable["reason"] == "the problem has another prompt in an earlier row"


def test_the_solutions_of_a_problem_are_together_with_labels_and_ratings(tmp_path: Path) -> None:
    source = write_prm800k(tmp_path / "source.jsonl")
    manifest, _ = import_labels(source, PRM800K, tmp_path / "out")
    assert manifest.rows.problems == 2 and manifest.rows.solutions == 3
    assert quarantine_counts(manifest).keys() == {"the row does not have the format prm800k"}
    assert len((tmp_path / "out/quarantine.jsonl").read_text().splitlines()) == 1
    first, second, third = solutions(tmp_path / "out")
    assert first["problem_id"] == second["problem_id"] != third["problem_id"]
    assert [row["sample_index"] for row in (first, second, third)] == [0, 1, 0]
    assert first["imported_labels"] == [1, 1, 0] and first["imported_ratings"] == [1, 0, -1]
    assert first["outcome"] == "ungraded" and first["labels"] is None
    assert "".join(first["completions"]).endswith("step 1\nWhat is 20 + 22? step 2")


@pytest.mark.parametrize(("limit", "file_rows"), [(1, [2, 1]), (2, [2, 1]), (3, [3])])
def test_a_problem_is_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, file_rows: list[int]
) -> None:
    """The actual number of solutions counts, not the maximum per problem."""
    source = write_prm800k(tmp_path / "source.jsonl")
    monkeypatch.setattr(sample, "SHARD_SOLUTIONS", limit)
    manifest, _ = import_labels(source, PRM800K, tmp_path / "out")
    assert [entry.rows for entry in manifest.config_files("solutions")] == file_rows


def test_soft_labels_stay_numbers_but_are_exported_as_right_or_wrong(tmp_path: Path) -> None:
    row = {"prompt": "Q:", "completions": ["a\n", "b"], "labels": [0.7, 0.1]}
    file = tmp_path / "source.jsonl"
    file.write_text(json.dumps(row))
    import_labels(file, "trl-stepwise", tmp_path / "out")
    [solution] = solutions(tmp_path / "out")
    assert solution["imported_labels"] == [0.7, 0.1] and solution["imported_ratings"] is None
    assert solution["prompt"] == "Q:"
    exported = export(tmp_path / "out", "trl-stepwise", tmp_path / "trl").file.read_text()
    assert json.loads(exported) == row | {"labels": [True, False]}, "TRL reads fractions as 0"
    exported = export(tmp_path / "out", "prm800k", tmp_path / "prm").file.read_text()
    steps = json.loads(exported)["label"]["steps"]
    assert [step["completions"][0]["rating"] for step in steps] == [1, -1]


class Constant(BatchScorer):
    """Scorer that gives every step the reward 0.5."""

    model = ModelRef("m", "0")

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        return [[0.5 for _ in item.steps] for item in items]


def test_commands_work_on_imported_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_prm800k(tmp_path / "source.jsonl")
    out = str(tmp_path / "out")
    code, printed, _ = run(capsys, "import", str(source), "--from", "prm800k", "--out", out)
    assert code == 0 and f"next: fsdpo-train prm {out} --model MODEL" in printed
    assert "prm800k: 5 right and 1 wrong steps, from 4 rows" in printed
    assert "accuracy" not in printed
    rows = str(tmp_path / "rows.jsonl")
    line = ["import", str(source), "--from", "prm800k", "--out", rows, "--resume"]
    code, _, err = run(capsys, *line)
    assert code == 1 and "rows in one file are imported at once" in err
    assert run(capsys, "validate", out)[0] == 0
    printed = run(capsys, "inspect", out)[1]
    assert " -   3  What is 20 + 22? step 2" in printed and "imported_ratings [1, 0, -1]" in printed
    page = tmp_path / "page.html"
    assert run(capsys, "view", out, "--out", str(page))[0] == 0
    assert '"labels":[true,true,false]' in page.read_text().replace(", ", ",").replace(": ", ":")
    card = (tmp_path / "out/README.md").read_text()
    assert "# Step labels of source.jsonl (prm800k)" in card and "wrote the solutions" not in card
    assert "list: float64" in card and "Steps by imported label" in card
    scored = derive(tmp_path / "out", tmp_path / "scored", make_score_stage())
    assert reward_statistics_of(tmp_path / "scored").scored == 3
    assert stage_options(scored, "import")["format"] == "prm800k"
    assert solutions(tmp_path / "scored")[0]["imported_labels"] == [1, 1, 0]
    plan = plan_push(Path(out), "org/name", branch="main", remote=RemoteState())
    assert {content.path.partition("/")[0] for content in plan.uploads} >= {
        "solutions",
        "README.md",
    }
    with pytest.raises(InputError, match=r"has imported step labels.* cannot be graded"):
        derive(tmp_path / "out", tmp_path / "graded", GradeStage("math@2"))


def make_score_stage() -> ScoreStage:
    return ScoreStage(reward_model(ModelRef("m", "0"), Constant, "m"))


def test_an_interrupted_import_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_prm800k(tmp_path / "source.jsonl")
    import_labels(source, PRM800K, tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(sample, "seal_dataset", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            import_labels(source, PRM800K, tmp_path / "out")
    with pytest.raises(RunMismatchError, match="already holds this run"):
        import_labels(source, PRM800K, tmp_path / "out")
    for _ in range(2):  # a finished import is only read
        import_labels(source, PRM800K, tmp_path / "out", resume=True)
    contents = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.*")}
        for folder in (tmp_path / "whole", tmp_path / "out")
    ]
    assert contents[0] == contents[1]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]


@pytest.mark.parametrize(
    ("column", "value", "violation"),
    [
        ("imported_labels", [1.0], "have a different number of imported labels than of steps"),
        ("imported_labels", [1.0, 0.0, 1.5], "have an imported label that is not a number in"),
        (
            "imported_labels",
            [1.0, 0.0, float("nan")],
            "have an imported label that is not a number",
        ),
        ("imported_ratings", [1, 1, 2], "have a rating that is not -1, 0 or 1"),
        ("imported_ratings", [1], "have a different number of ratings than of steps"),
        ("outcome", "no_answer", "have imported labels and an outcome that is not ungraded"),
    ],
)
def test_damaged_labels_are_found(tmp_path: Path, column: str, value: Any, violation: str) -> None:
    source = write_prm800k(tmp_path / "source.jsonl")
    manifest, _ = import_labels(source, PRM800K, tmp_path / "out")
    [file] = manifest.config_paths(tmp_path / "out", "solutions")
    rows = pl.read_parquet(file).to_dicts()
    rows[0][column] = value
    table = pl.DataFrame(rows, schema=pl.read_parquet_schema(file)).to_arrow()
    write_parquet(table.cast(arrow_schema("solutions")), file)
    with pytest.raises(SchemaError, match=violation):
        check_invariants(tmp_path / "out", manifest)


def test_other_datasets_have_no_imported_labels(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    assert {row["imported_labels"] for row in solutions(tmp_path / "run")} == {None}
    assert training_rows(tmp_path / "run")
    with pytest.raises(InputError, match="none of 9 solutions has labels of the kind imported"):
        training_rows(tmp_path / "run", labels="imported")


SHEPHERD_ROW = {
    "input": "2+2? Step 1: 2+2=5 ки\nStep 2: So 5. ки\nStep 3: The answer is: 5 ки",
    "label": "2+2? Step 1: 2+2=5 +\nStep 2: So 5. -\nStep 3: The answer is: 5 -",
}


@pytest.mark.parametrize(
    ("words", "steps", "dropped"),
    [
        ([], ["Step 1: 2+2=5\n", "Step 2: So 5.\n", "Step 3: The answer is: 5"], ""),
        (
            ["--first-error-only"],
            ["Step 1: 2+2=5\n", "Step 2: So 5.\n"],
            "the steps after the first wrong step, ",
        ),
        (
            ["--step-separator", "blank-line"],
            ["2+2=5\n\n", "So 5.\n\n", "The answer is: 5"],
            "step markers, ",
        ),
        (
            ["--step-separator", "newline", "--first-error-only"],
            ["2+2=5\n", "So 5.\n"],
            "the steps after the first wrong step, step markers, ",
        ),
    ],
)
def test_options_convert_the_steps(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    steps: list[str],
    dropped: str,
) -> None:
    file = tmp_path / "shepherd.jsonl"
    file.write_text(json.dumps(SHEPHERD_ROW) + "\n")
    command = ("import", str(file), "--from", "math-shepherd")
    code, text, error = run(capsys, *command, *words, "--out", str(tmp_path / "out"))
    assert code == 0, error
    dataset = api.open_dataset(tmp_path / "out").validate()
    [row] = dataset.solutions().collect().to_dicts()
    assert row["completions"] == steps
    assert row["imported_labels"] == [1.0, 0.0, 0.0][: len(steps)]
    assert f"dropped: {dropped}the name of the task" in text
    recording = read_sample_settings(dataset.manifest).engine.recording
    assert recording is not None and re.fullmatch("sha256:[0-9a-f]{64}", recording)
    # The text differs from that of another import, and so do the ids and the options.
    run(capsys, *command, "--out", str(tmp_path / "plain"))
    plain = api.open_dataset(tmp_path / "plain")
    [plain_row] = plain.solutions().collect().to_dicts()
    assert (row["solution_id"] == plain_row["solution_id"]) == (not words)
    code, _, error = run(capsys, *command, *words, "--out", str(tmp_path / "plain"), "--resume")
    assert (code == 0) == (not words)


def test_a_separator_keeps_a_step_that_is_only_a_marker(tmp_path: Path) -> None:
    text = "2+2? Step 1: ки\nStep 2: The answer is: 4 ки"
    row = {"input": text, "label": text.replace("ки", "+"), "task": "GSM8K"}
    entry = get_step_label_format("math-shepherd")
    content = entry.step_labels.with_options("newline", first_error_only=False)
    [solution] = replace(entry, step_labels=content).read_responses(SourceRow(1, row))
    assert solution.steps == ("Step 1:\n", "The answer is: 4")


@pytest.mark.parametrize(
    ("name", "separator", "dropped"),
    [
        ("trl-stepwise", None, "nothing"),
        (
            "trl-stepwise",
            "newline",
            "step markers, the white space around steps, even in the middle of a sentence",
        ),
        (
            "math-aps",
            "newline",
            "step markers, the white space around steps, even in the middle of a sentence, "
            "the value of the question itself; prefixes are repeated for each leaf of the tree",
        ),
        ("openr", "newline", "step markers, the white space around steps"),
    ],
)
def test_the_dropped_data_of_a_separator(name: str, separator: str | None, dropped: str) -> None:
    content = get_step_label_format(name).step_labels
    options = content.with_options(separator, first_error_only=False)
    assert options.settings.drops == dropped


@pytest.mark.parametrize("option", [["--first-error-only"], ["--step-separator", "newline"]])
def test_responses_have_no_labelled_steps_to_convert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"question": "2+2?", "answer": "4", "response": "4"}) + "\n")
    command = ("import", str(file), "--from", "outputs", "--out", str(tmp_path / "out"))
    code, _, error = run(capsys, *command, *option)
    assert code and "the format outputs does not read this option" in error and option[0] in error


def test_a_cut_keeps_the_ratings_of_the_steps_that_stay(tmp_path: Path) -> None:
    steps = [{"completions": [{"text": str(rating), "rating": rating}], "human_completion": None,
              "chosen_completion": 0} for rating in (1, -1, 0)]  # fmt: skip
    row = {"question": {"problem": "q"}, "label": {"steps": steps, "finish_reason": "solution"}}
    entry = get_step_label_format(PRM800K)
    content = entry.step_labels.with_options(None, first_error_only=True)
    [solution] = replace(entry, step_labels=content).read_responses(SourceRow(1, row))
    assert solution.steps == ("1\n", "-1\n")
    completion = solution.completion
    assert (completion.imported_labels, completion.imported_ratings) == ((True, False), (1, -1))


def test_a_directory_of_files_is_one_source(tmp_path: Path) -> None:
    for name in ("a", "b"):
        row = {"prompt": name, "completions": ["x"], "labels": [True]}
        (tmp_path / "rows").mkdir(exist_ok=True)
        (tmp_path / f"rows/{name}.jsonl").write_text(json.dumps(row) + "\n[1]\n")
    manifest, result = import_labels(tmp_path / "rows", "trl-stepwise", tmp_path / "out")
    assert (result.n_rows, result.n_solutions, manifest.rows.problems) == (4, 2, 2)
    quarantined = lines(tmp_path / "out/quarantine.jsonl")
    assert [Path(row["source"]).name for row in quarantined] == ["a.jsonl", "b.jsonl"]


def test_prm800k_comes_back_from_an_export_with_its_ratings(tmp_path: Path, shared: Path) -> None:
    file = shared / "data/stepwise/openr/samples_prm800k.jsonl"
    import_labels(file, PRM800K, tmp_path / "first")
    exported = export(tmp_path / "first", PRM800K, tmp_path / "export").file
    import_labels(exported, PRM800K, tmp_path / "second")
    columns = ["problem_id", "completions", "imported_labels", "imported_ratings"]
    first, second = (
        [[row[column] for column in columns] for row in solutions(tmp_path / name)]
        for name in ("first", "second")
    )
    assert first == second
    assert {rating for *_, ratings in first for rating in ratings} == {-1, 0, 1}
    reasons = Counter(row["label"]["finish_reason"] for row in lines(exported))
    assert set(reasons) == {"found_error", "give_up", "solution"}


def test_verdicts_of_processbench_are_kept_with_the_answers(tmp_path: Path, shared: Path) -> None:
    """A solution that ends at its first wrong step has no answer, so its verdict is dropped."""
    file = shared / "data/stepwise/processbench/math.json"
    rows = json.loads(file.read_text())
    import_labels(file, "processbench", tmp_path / "out")
    verdicts = Counter(
        row["final_answer_correct"] if row["label"] in (-1, len(row["steps"]) - 1) else None
        for row in rows
    )
    assert min(verdicts[value] for value in (True, False, None)) > 10
    assert Counter(row["imported_correct"] for row in solutions(tmp_path / "out")) == verdicts


def test_a_row_of_processbench_may_have_no_verdict(tmp_path: Path) -> None:
    row = {"problem": "2+2?", "steps": ["a", "b"], "label": 1}
    rows = [row, *(row | {"final_answer_correct": value} for value in (True, False, None))]
    import_labels(written(tmp_path / "in.jsonl", rows), "processbench", tmp_path / "out")
    recorded = [row["imported_correct"] for row in solutions(tmp_path / "out")]
    assert recorded == [None, True, False, None]


def test_a_solution_that_goes_on_is_not_finished(tmp_path: Path) -> None:
    """Its last step is in the middle of the original, so no trainer may put an end after it."""
    row = {"problem": "2+2?", "steps": ["a", "b", "c"]}
    rows = [row | {"label": label} for label in (-1, 1, 2)]
    import_labels(written(tmp_path / "in.jsonl", rows), "processbench", tmp_path / "out")
    finish_reasons = {
        "".join(row["completions"]): row["finish_reason"] for row in solutions(tmp_path / "out")
    }
    assert finish_reasons == {"a\n\nb\n\nc": "stop", "a\n\nb\n\n": "length"}


def test_an_answer_that_nothing_graded_is_exported_with_the_verdict_of_its_file(
    tmp_path: Path,
) -> None:
    row = {"problem": "2+2?", "steps": ["a", "b"], "label": 1}
    rows = [row, *(row | {"final_answer_correct": value} for value in (True, False))]
    import_labels(written(tmp_path / "in.jsonl", rows), "processbench", tmp_path / "in")
    exported = export(tmp_path / "in", "processbench", tmp_path / "out").file.read_text()
    assert [row["final_answer_correct"] for row in json.loads(exported)] == [None, True, False]


def test_other_steps_of_a_file_have_other_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"q": "2+2?", "a": ["4."], "b": ["5."], "labels": [True]}) + "\n")
    ids = set()
    for name in ("a", "b"):
        options = ["--question-field", "q", "--steps-field", name, "--label-field", "labels"]
        words = ("import", str(file), "--from", "fields", *options, "--out", str(tmp_path / name))
        assert run(capsys, *words)[0] == 0
        ids |= {row["solution_id"] for row in solutions(tmp_path / name)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("steps", "is_warned"),
    [(["Step 1: 9 eggs.", "Step 2: 18."], True), (["9 eggs.\n", "18."], False), (["9."], False)],
)
def test_steps_without_white_space_between_them_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: list[str], is_warned: bool
) -> None:
    """The rows are like those of ``trl-lib/math_shepherd``, whose steps are stripped."""
    row = {"prompt": "How many?", "completions": steps, "labels": [True] * len(steps)}
    (tmp_path / "trl.jsonl").write_text(json.dumps(row) + "\n")
    import_labels(tmp_path / "trl.jsonl", "trl-stepwise", tmp_path / "out")
    import_label_rows(tmp_path / "trl.jsonl", "trl-stepwise", tmp_path / "rows.jsonl")
    warnings = [record for record in caplog.messages if "without white space" in record]
    assert len(warnings) == 2 * is_warned


def test_a_directory_gives_the_split_at_the_end_of_its_file_names(tmp_path: Path) -> None:
    """The files of openai/prm800k are in one directory."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("phase1_train", "phase1_test", "phase2_train", "phase2_test"):
        (folder / f"{name}.jsonl").write_text(json.dumps(prm800k_row(f"{name}?", 1)) + "\n")
    import_labels(folder, PRM800K, tmp_path / "out")
    questions = api.open_dataset(tmp_path / "out").problems().collect()["question"]
    assert set(questions) == {"phase1_train?", "phase2_train?"}
