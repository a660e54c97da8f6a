"""Grading a dataset again: verdicts, labels and counts change, and everything else stays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from fakes import TableScorer, TextSampler
from helpers import (
    RIGHT,
    TEXTS,
    WRONG,
    fixed_sampler,
    problem_set,
    reward_model,
    reward_statistics_of,
    sample_settings,
    small_build,
    stage_counts,
    stage_options,
    statistics_of,
    verdict_counts,
)

from fsdpo_data.answers import Grader, GradingRequest, Verdict
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, RunMismatchError, SchemaError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import AnyRecord
from fsdpo_data.dataset.schema import SCHEMA_VERSION, arrow_schema
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.dataset.stage_records import GradeRecord
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.outputs import grade_outputs, read_outputs
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.score import ScoreStage
from fsdpo_data.stages.verdicts import grading_request, mark_truncated_thinking

#: Columns that grading decides.
VERDICTS = ["answer", "outcome", "verdict_by", "labels", "exactly_correct"]


class OldGrader:
    """A grader of an older release that never returns the outcome ``correct``."""

    version = "math@0"

    def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
        return [
            Verdict("incorrect" if request.response else "no_answer", "?", "old")
            for request in requests
        ]


def old_grader(version: str | None = None) -> Grader:
    return OldGrader()


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build a dataset of seven problems, graded by the old grader."""
    with monkeypatch.context() as patch:
        patch.setattr("fsdpo_data.stages.write_solutions.get_grader", old_grader)
        patch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 8)
        small_build(tmp_path / "old", problem_set(7), grader="math@0", workers=1)
    return tmp_path / "old"


def grade(source: Path, out: Path, **options: Any) -> dict[str, Any]:
    stage = GradeStage(get_grader().version, workers=options.pop("workers", 1))
    return derive_dataset(source, out, [stage], progress=LineProgress(), **options).to_dict()


def rows(root: Path) -> pl.DataFrame:
    return pl.read_parquet(root / "solutions" / "*.parquet")


def hashes(root: Path) -> dict[str, str]:
    return {
        file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def test_only_verdicts_and_labels_change(built: Path, tmp_path: Path) -> None:
    old_hashes = hashes(built)
    grade(built, tmp_path / "new")
    assert hashes(built) == old_hashes
    assert rows(tmp_path / "new").drop(VERDICTS).equals(rows(built).drop(VERDICTS))
    small_build(tmp_path / "fresh", problem_set(7))
    expected_verdicts = rows(tmp_path / "fresh").select(VERDICTS)
    assert rows(tmp_path / "new").select(VERDICTS).equals(expected_verdicts)
    outcomes = statistics_of(tmp_path / "fresh").solutions.outcomes
    assert outcomes == {"correct": 7, "incorrect": 14, "no_answer": 7}


def test_builds_and_regrading_use_the_golds_and_the_tolerance_of_the_metadata(
    tmp_path: Path,
) -> None:
    plain, other, tolerant = problem_set(3, answer="40").problems
    problems = [
        plain,
        replace(other, metadata={"alternative_golds": ["17", "42"]}),
        replace(tolerant, metadata={"gold_tolerance": 0.1}),
    ]
    source = replace(problem_set(3), problems=problems)
    texts = (r"\boxed{42}", r"\boxed{40}", r"\boxed{50}")
    small_build(
        tmp_path / "new",
        source,
        sampling=sample_settings(n=3),
        make_sampler=lambda: fixed_sampler(source, texts),
    )
    grade(tmp_path / "new", tmp_path / "regraded")
    for root in (tmp_path / "new", tmp_path / "regraded"):
        verdicts = (
            rows(root).group_by("problem_id", maintain_order=True).agg("outcome", "exactly_correct")
        )
        assert verdicts.drop("problem_id").rows() == [
            (["incorrect", "correct", "incorrect"], [None, None, None]),
            (["correct", "correct", "incorrect"], [None, None, None]),
            (["correct", "correct", "incorrect"], [False, True, False]),
        ]


def test_statistics_are_those_of_a_build_and_the_manifest_has_its_parent(
    built: Path, tmp_path: Path
) -> None:
    manifest = grade(built, tmp_path / "new")
    fresh = small_build(tmp_path / "fresh", problem_set(7))
    assert {**manifest["cost"], "seconds": 0} == {**fresh["cost"], "seconds": 0}
    regraded, expected = (statistics_of(tmp_path / name) for name in ("new", "fresh"))
    assert regraded.manifest.rows == expected.manifest.rows
    assert regraded.solutions == expected.solutions
    assert regraded.distinct_solutions == expected.distinct_solutions
    assert verdict_counts(built) == {"math@0/old": 28}
    assert verdict_counts(tmp_path / "new") == verdict_counts(tmp_path / "fresh")
    parent = json.loads((built / "manifest.json").read_text())
    assert manifest["parent"] == parent["digest"] != manifest["digest"]
    assert stage_options(parent, "grade")["grader"] == "math@0"
    assert stage_options(manifest, "grade")["grader"] == stage_options(manifest, "grade")["grader"]
    assert stage_options(manifest, "grade")["grader"] == get_grader().version
    assert validate(tmp_path / "new").to_dict() == manifest


def test_changes_are_counted_by_old_and_new_outcome(built: Path, tmp_path: Path) -> None:
    manifest = grade(built, tmp_path / "new")
    assert stage_counts(manifest, "grade") == {
        "previous_grader": "math@0",
        "changed": 7,
        "outcomes": [
            ["incorrect", "correct", 7],
            ["incorrect", "incorrect", 14],
            ["no_answer", "no_answer", 7],
        ],
    }
    again = grade(tmp_path / "new", tmp_path / "again")
    assert "changed" not in stage_counts(again, "grade")
    assert again["parent"] == manifest["digest"]
    assert rows(tmp_path / "again").equals(rows(tmp_path / "new"))


def test_many_workers_write_the_same_bytes(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.grading.pool.MIN_REQUESTS_FOR_POOL", 0)
    grade(built, tmp_path / "one", workers=1)
    grade(built, tmp_path / "two", workers=2)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


def test_a_resumed_grading_equals_an_uninterrupted_one(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(built, tmp_path / "whole")
    calls = []

    def stop(*arguments: Any, **counters: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments, **counters)

    import fsdpo_data.stages.grade

    original = fsdpo_data.stages.grade.regrade_table
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fsdpo_data.stages.grade.regrade_table", stop)
        grade(built, tmp_path / "new")
    assert not (tmp_path / "new" / "manifest.json").exists()
    with pytest.raises(RunMismatchError, match="`resume=True`"):
        grade(built, tmp_path / "new")
    grade(built, tmp_path / "new", resume=True)
    assert hashes(tmp_path / "new") == hashes(tmp_path / "whole")


class ColumnStage(Stage):
    """A stage that fills a column with one value per step."""

    name = "fill"

    def __init__(self, column: str, value: Any) -> None:
        self.column, self.value = column, value

    def options(self) -> dict[str, Any]:
        return {"column": self.column}

    def check(self, source: Path, manifest: dict[str, Any]) -> None:
        pass

    def run(self, draft: Any) -> AnyRecord:
        draft.rewrite_config("solutions", "fill", self._fill_column)
        return self.make_record()

    def _fill_column(self, table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        for row in rows:
            row[self.column] = [self.value] * len(row["completions"])
        return pa.Table.from_pylist(rows, schema=arrow_schema("solutions"))


def test_rewards_stay_and_pairs_go(built: Path, tmp_path: Path) -> None:
    from fsdpo_data.pairs.best_worst import PairSpec
    from fsdpo_data.stages.pair import PairStage

    grade(built, tmp_path / "graded")
    stages = [ColumnStage("step_rewards", 0.5), PairStage(PairSpec(top=1))]
    paired = derive_dataset(
        tmp_path / "graded", tmp_path / "paired", stages, progress=LineProgress()
    )
    assert paired.rows.pairs == 7
    manifest = grade(tmp_path / "paired", tmp_path / "again")
    assert statistics_of(tmp_path / "again").manifest.rows.pairs == 0
    assert "pair" not in [entry["name"] for entry in manifest["stages"]]
    assert not (tmp_path / "again" / "pairs").exists()
    assert rows(tmp_path / "again")["step_rewards"].to_list()[0] == [0.5, 0.5]
    validate(tmp_path / "again")


def test_statistics_of_rewards_follow_the_new_verdicts(built: Path, tmp_path: Path) -> None:
    scorer = TableScorer({RIGHT: [0.75, 0.875], WRONG: [0.5, 0.125], TEXTS[2]: [0.25], "": []})
    stage = ScoreStage(reward_model(scorer.model, lambda: scorer))
    scored = derive_dataset(built, tmp_path / "scored", [stage], progress=LineProgress())
    assert scored.is_written("step_rewards")
    ungraded = reward_statistics_of(tmp_path / "scored")
    assert ungraded.ranking_auc["mean"].value is None  # nothing is correct
    grade(tmp_path / "scored", tmp_path / "graded")
    derive_dataset(tmp_path / "graded", tmp_path / "again", [stage], progress=LineProgress())
    validate(tmp_path / "graded")
    regraded = reward_statistics_of(tmp_path / "graded")
    assert regraded.ranking_auc["mean"].value is not None
    assert regraded == reward_statistics_of(tmp_path / "again")


def test_monte_carlo_labels_are_refused(built: Path, tmp_path: Path) -> None:
    stage = ColumnStage("rollouts", {"n": 2, "n_correct": 1})
    derive_dataset(built, tmp_path / "rolled", [stage], progress=LineProgress())
    with pytest.raises(InputError, match=r"Monte-Carlo labels, which math@0 graded"):
        grade(tmp_path / "rolled", tmp_path / "new")


def test_solutions_are_graded_by_the_gold_of_their_problem(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(2, answer="43"))
    grade(tmp_path / "run", tmp_path / "new")
    assert statistics_of(tmp_path / "new").solutions.outcomes["correct"] == 2
    texts = ["".join(steps) for steps in rows(tmp_path / "new")["completions"]]
    assert texts == [*TEXTS, *TEXTS]
    assert (
        pq.read_metadata(tmp_path / "new/solutions/train-00000-of-00001.parquet").metadata[
            b"fsdpo_schema_version"
        ]
        == SCHEMA_VERSION.encode()
    )


def test_a_grader_is_found_by_its_full_name() -> None:
    strict = get_grader().version
    assert get_grader(strict).version == strict
    assert get_grader(f"{strict}+tolerance=0.01").version == f"{strict}+tolerance=0.01"
    for wrong in ("math@0", f"{strict}+tolerance=x", f"{strict}+tolerance=", "x"):
        with pytest.raises(SchemaError, match="is not in this release"):
            get_grader(wrong)


def test_the_command_prints_old_against_new(
    capsys: pytest.CaptureFixture[str], built: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "grade", str(built), "--out", str(tmp_path / "new"))
    assert code == 0
    assert "7 outcomes changed from math@0 (rows)" in " ".join(out.split())
    table = [line.split() for line in out.splitlines()]
    assert ["incorrect", "7", "14", "0"] in table
    assert out.rstrip().endswith(f"next: fsdpo-data inspect {tmp_path / 'new'}")
    again = ("grade", str(tmp_path / "new"), "--out", str(tmp_path / "again"))
    code, out, _ = run(capsys, *again)
    assert code == 0 and "(rows)" not in out
    assert f"no outcome changed: {get_grader().version} gives the same verdicts" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--out", "new"], "no such file or directory: nowhere"),
        (["old", "--out", "old"], "datasets are never changed"),
        (["old", "--out", "new", "--grader", "math@7"], "grader 'math@7' is not in this release"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    built: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(built.parent)
    code, _, err = run(capsys, "grade", *arguments)
    assert code == 1 and message in err


def test_the_error_for_an_unsealed_run_explains_how_to_finish_it(
    capsys: pytest.CaptureFixture[str], built: Path, tmp_path: Path
) -> None:
    (built / "manifest.json").unlink()
    code, _, err = run(capsys, "grade", str(built), "--out", str(tmp_path / "new"))
    assert code == 1 and "stopped is finished by" in err and "--resume" in err


#: Responses to one problem with the answer 42: thinking followed by an answer, thinking without an
#: answer, unclosed thinking with a boxed value, repetitive unclosed thinking, and no thinking.
RESPONSES = (
    "<think>\n20 + 22 is 43.\n\nNo, wait.\n</think>\n\nThe answer is \\boxed{42}.",
    "<think>\n20 + 22 is \\boxed{42}.\n</think>\n",
    "<think>\n20 + 22 is \\boxed{42}. But wait, is it",
    "<think>\n20 + 22 is 42, 20 + 22 is 42",
    "The answer is \\boxed{42}.",
)
FILE = "solutions/train-00000-of-00001.parquet"


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code, out, err = run(capsys, *map(str, arguments))
    assert code == 0, err
    return out


def test_only_the_text_after_the_thinking_is_graded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, spec = problem_set(1), sample_settings(len(RESPONSES))
    sampler = fixed_sampler(source, RESPONSES)
    manifest = small_build(tmp_path / "a", source, sampling=spec, make_sampler=lambda: sampler)
    rows = pl.read_parquet(tmp_path / "a" / FILE)
    no = "no_answer"
    assert rows["outcome"].to_list() == ["correct", no, no, no, "correct"]
    assert rows["thinking_closed"].to_list() == [True, True, False, False, None]
    assert rows["labels"].to_list() == [[True] * 2, [False], [False], [False], [True]]
    version = get_grader().version
    assert verdict_counts(tmp_path / "a") == {
        f"{version}/boxed/number": 2,
        f"{version}/none": 1,
        f"{version}/unclosed-thinking": 2,
    }
    assert statistics_of(tmp_path / "a").solutions.thinking == {"closed": 2, "unclosed": 2}
    assert "grade_thinking" not in stage_options(manifest, "grade")
    # With --grade-thinking, an answer that is marked inside the thinking counts.
    output = command(capsys, "grade", tmp_path / "a", "--grade-thinking", "--out", tmp_path / "b")
    assert "2 closed, 2 never ended" in output
    rows = pl.read_parquet(tmp_path / "b" / FILE)
    assert rows["outcome"].to_list() == ["correct", "correct", "correct", no, "correct"]
    manifest = validate(tmp_path / "b").to_dict()
    assert verdict_counts(tmp_path / "b") == {
        f"{version}/boxed/number": 4,
        f"{version}/cut-off": 1,
    }
    assert stage_options(manifest, "grade")["grade_thinking"]
    assert statistics_of(tmp_path / "b").solutions.thinking["unclosed"] == 2
    # Without the option, the first verdicts come back.
    command(capsys, "grade", tmp_path / "b", "--out", tmp_path / "c")
    assert not validate(tmp_path / "c").get("grade", GradeRecord).options.grade_thinking
    assert (tmp_path / "c" / FILE).read_bytes() == (tmp_path / "a" / FILE).read_bytes()
    # A build has the option too.
    small_build(
        tmp_path / "d",
        source,
        sampling=spec,
        grade_thinking=True,
        make_sampler=lambda: sampler,
    )
    assert (tmp_path / "d" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


def test_thinking_opened_by_the_prompt_and_never_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the prompt shows that the response begins with thinking."""
    row = {
        "question": "20 + 22?",
        "prompt": "<|user|>20 + 22?<|assistant|><think>\n",
        "answer": "42",
        "responses": ["20 + 22 is\n\n42", "It is 42.\n</think>\n\n42"],
    }
    file = tmp_path / "told.jsonl"
    file.write_text(json.dumps(row))
    command(capsys, "import", file, "--from", "outputs", "--out", tmp_path / "a")
    rows = pl.read_parquet(tmp_path / "a" / FILE)
    assert rows["outcome"].to_list() == ["no_answer", "correct"]
    assert rows["thinking_closed"].to_list() == [False, True]
    steps = rows["completions"].to_list()
    assert steps == [["20 + 22 is\n\n42"], ["It is 42.\n</think>\n\n", "42"]]
    options = ("--grade-thinking", "--segmenter", "both", "--out", tmp_path / "b")
    command(capsys, "import", file, "--from", "outputs", *options)
    manifest = validate(tmp_path / "b").to_dict()
    assert (
        stage_options(manifest, "grade")["grade_thinking"]
        and stage_options(manifest, "sample")["segmenter"] == "both@2"
    )


def test_thinking_that_a_hidden_prompt_opens_and_the_limit_cuts_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sample without any tag was thinking, because other samples of the run close a thought."""
    cut = "It is \\boxed{42}, or else"
    responses = [cut, "So 42.\n</thought>\n\n\\boxed{42}", "\\boxed{42}"]
    reasons = ["length", "stop", "stop"]
    row = {"question": "20 + 22?", "answer": "42", "responses": responses}
    file = tmp_path / "hidden.jsonl"
    file.write_text(json.dumps({**row, "finish_reasons": reasons}))
    command(capsys, "import", file, "--from", "outputs", "--out", tmp_path / "a")
    rows = pl.read_parquet(tmp_path / "a" / FILE)
    assert rows["outcome"].to_list() == ["no_answer", "correct", "correct"]
    assert rows["thinking_closed"].to_list() == [False, True, None]
    command(capsys, "grade", tmp_path / "a", "--out", tmp_path / "b")
    assert (tmp_path / "b" / FILE).read_bytes() == (tmp_path / "a" / FILE).read_bytes()
    # The verdict is kept without the other samples, and graded files have the same one.
    options = ("--filter", "outcome = 'no_answer'", "--out", tmp_path / "c")
    command(capsys, "select", tmp_path / "a", *options)
    command(capsys, "grade", tmp_path / "c", "--out", tmp_path / "d")
    assert pl.read_parquet(tmp_path / "d" / FILE)["outcome"].to_list() == ["no_answer"]
    graded = grade_outputs(read_outputs(file), workers=1)
    assert [response.verdict.status for response in graded] == rows["outcome"].to_list()
    # Where no sample closes a thought, the box is an answer.
    file.write_text(json.dumps({**row, "responses": [cut], "finish_reasons": ["length"]}))
    [response] = grade_outputs(read_outputs(file), workers=1)
    assert response.verdict.status == "correct"


def test_thinking_reported_separately_by_a_server(tmp_path: Path) -> None:
    class ReasoningSampler(TextSampler):
        model = ModelRef("served", "0")

        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            completions = [
                Completion("\\boxed{42}", "stop", 9, reasoning="Hm."),
                Completion("", "length", 9, reasoning="Hm, hm, hm"),
            ]
            return [completions for _ in prompts]

    small_build(tmp_path / "a", sampling=sample_settings(2), make_sampler=ReasoningSampler)
    rows = pl.read_parquet(tmp_path / "a" / FILE)
    assert rows["thinking_closed"].to_list() == [True, False] * 3
    assert statistics_of(tmp_path / "a").solutions.thinking == {"closed": 3, "unclosed": 3}
    verdicts = verdict_counts(tmp_path / "a")
    assert verdicts[f"{get_grader().version}/unclosed-thinking"] == 3
    grade(tmp_path / "a", tmp_path / "b")
    assert verdict_counts(tmp_path / "b") == verdicts
    validate(tmp_path / "b")
    summary = dict(summary_rows(statistics_of(tmp_path / "b")))["thinking"]
    assert summary == "3 closed, 3 never ended"


def test_a_stray_end_marker_makes_no_thinking_of_truncated_neighbours() -> None:
    """Half of the finished responses or more must close a thought that the prompt opens."""
    problem = Problem("2+2?", "4", "embedded", "train")
    truncated = grading_request(problem, r"So \boxed{4} and", finish_reason="length")
    closed = grading_request(problem, "hm</think> 4")
    plain = grading_request(problem, "The answer is 4.")
    for neighbours, is_thinking in (([closed], True), ([closed, plain, plain], False)):
        marked = mark_truncated_thinking([truncated, *neighbours])[0]
        assert (marked.thinking.closed is False) == is_thinking
