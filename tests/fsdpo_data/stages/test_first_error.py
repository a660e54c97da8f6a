"""The search for the first error: labels, the number of continued prefixes, and resumption."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import FixedSampler, TextSampler
from helpers import (
    continuation_settings,
    derive,
    problem_set,
    rollouts,
    sample_settings,
    small_build,
    stage_counts,
    stage_options,
    statistics_of,
)

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef, SourceRef
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_shard
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.continuations import ContinuationSampler, continuation_sampling
from fsdpo_data.stages.first_error import FirstErrorStage, find_first_error
from fsdpo_data.stages.label import LabelOptions, LabelStage

STEPWISE = Path(__file__).parents[4] / "shared/data/stepwise"
ANSWER = "The answer is: {}"


class Oracle(TextSampler):
    """A sampler that continues a prefix to the gold answer unless it has a wrong step.

    Args:
        mark: Text in every wrong step.
        dies_after: Calls answered before the engine dies.
        answers: Answers of right prefixes, one per continuation.
    """

    model = ModelRef("oracle", "0")

    def __init__(
        self, mark: str = "WRONG", dies_after: int | None = None, answers: Sequence[str] = ("42",)
    ) -> None:
        self.mark = mark
        self.answers = answers
        self.prompts: list[str] = []
        self.loads = 0
        self.remaining_calls = dies_after

    def load(self) -> Oracle:
        self.loads += 1
        return self

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if self.remaining_calls == 0:
            raise UnavailableError("the engine died")
        self.remaining_calls = None if self.remaining_calls is None else self.remaining_calls - 1
        self.prompts += prompts
        return [self._completions(prompt, spec.n) for prompt in prompts]

    def _completions(self, prompt: str, n: int) -> list[Completion]:
        answers = ["7"] if self.mark in prompt else self.answers
        texts = [ANSWER.format(answers[i % len(answers)]) for i in range(n)]
        return [Completion(text, "stop", 5, 0.25) for text in texts]


def make_stage(source: Path, oracle: Oracle, *, full: bool = False, batch: int = 2) -> Any:
    sampler = ContinuationSampler(
        continuation_settings(
            oracle.model, continuation_sampling(read_manifest(source), 2, seed=1)
        ),
        oracle.load,
        batch_size=batch,
    )
    return LabelStage(sampler, workers=1) if full else FirstErrorStage(sampler, workers=1)


def solution(n_steps: int, first_error: int | None, name: str = "") -> str:
    """Return a solution whose steps are wrong from ``first_error`` on."""
    lines = []
    for step in range(n_steps):
        is_wrong = first_error is not None and step >= first_error
        lines.append(f"Step {step + 1}: {name} {'WRONG' if is_wrong else 'fine'}.")
    lines[-1] += " " + ANSWER.format(42 if first_error is None else 7)
    return "\n".join(lines)


def build_texts(out: Path, texts: Sequence[str], problems: int = 1) -> None:
    source = problem_set(problems)
    template = get_template("problem")
    sampler = FixedSampler({template.render(p.question): texts for p in source.problems})
    small_build(out, source, sampling=sample_settings(n=len(texts)), make_sampler=lambda: sampler)


def labels(out: Path) -> list[Any]:
    return pl.read_parquet(out / "solutions/*.parquet")["labels"].to_list()


@pytest.mark.parametrize("n_steps", [*range(1, 40), 100, 1000])
def test_the_search_finds_every_step_with_few_prefixes(n_steps: int) -> None:
    for first_error in range(n_steps):
        probes: list[int] = []

        def is_right(length: int, first_error: int = first_error) -> bool:
            probes.append(length)  # noqa: B023 - called before the next iteration
            return length <= first_error

        assert find_first_error(n_steps, is_right) == (None, first_error)
        assert len(probes) <= math.ceil(math.log2(n_steps))


def test_labels_counts_and_saved_continuations(tmp_path: Path) -> None:
    texts = [solution(6, 4, "a"), solution(6, None, "b"), solution(2, 0, "c"), "I do not know", ""]
    build_texts(tmp_path / "run", texts)
    oracle = Oracle()
    manifest = derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", oracle))
    late, right, early, silent, empty = labels(tmp_path / "out")
    assert late == [True] * 4 + [False] * 2 and right == [True] * 6
    assert early == [False] * 2 and silent == [False] and empty == []
    late, right, early, silent, empty = rollouts(tmp_path / "out")
    good, bad, end = {"n": 2, "n_correct": 2}, {"n": 2, "n_correct": 0}, {"n": 1, "n_correct": 0}
    assert late == [None, None, good, good, bad, end]
    assert right == [None] * 5 + [{"n": 1, "n_correct": 1}]
    assert early == [bad, end] and silent == [end] and empty == []
    stats = stage_counts(manifest, "label")
    assert len(oracle.prompts) == len(set(oracle.prompts)) == stats["prefixes"] == 4
    assert stats["saved_continuations"] == 14
    assert (stats["searched_solutions"], stats["undecided_solutions"]) == (3, 0)
    # The search labels 4 steps of the first solution otherwise than its outcome does.
    statistics = statistics_of(tmp_path / "out")
    step_labels = statistics.step_labels
    assert (step_labels.steps, step_labels.disagreements) == (15, 4)
    assert stage_options(manifest, "label")["search"] == "first-error"
    assert statistics.solutions.labels == {"steps": 15, "positive": 10, "negative": 5}
    assert oracle.loads == 1, "all rounds share a sampler"
    card = (tmp_path / "out/README.md").read_text()
    assert "first error by binary search: 2 continuations of each probed step" in card
    assert "never recovers" in card


def test_a_common_prefix_is_continued_once(tmp_path: Path) -> None:
    wrong = solution(4, 2, "a")
    build_texts(tmp_path / "run", [wrong, wrong + " truly", solution(4, 3, "b")])
    oracle = Oracle()
    derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", oracle))
    assert len(oracle.prompts) == len(set(oracle.prompts)) == 4


@pytest.mark.parametrize("full", [False, True])
def test_problems_with_the_same_question_share_continuations_but_not_counts(
    tmp_path: Path, full: bool
) -> None:
    question = "What is 20 + 22?"
    problems = [Problem(question, gold, "test", "train") for gold in ("42", "7")]
    source = ProblemSet(problems, [SourceRef("test", "1", "train")])
    texts = [f"Step 1: {name}.\nStep 2: {ANSWER.format(0)}" for name in ("one", "two")]
    sampler = FixedSampler({get_template("problem").render(question): texts})
    small_build(
        tmp_path / "run", source, sampling=sample_settings(n=2), make_sampler=lambda: sampler
    )
    oracle = Oracle()  # every continuation answers 42
    derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", oracle, full=full))
    assert len(oracle.prompts) == 2
    solutions = pl.read_parquet(tmp_path / "out/solutions/*.parquet")
    golds = pl.read_parquet(tmp_path / "out/problems/*.parquet").select("problem_id", "answer")
    first_counts = (
        solutions.drop("answer")
        .join(golds, on="problem_id")
        .select("answer", n_correct=pl.col("rollouts").list.first().struct.field("n_correct"))
    )
    assert sorted(first_counts.iter_rows()) == [("42", 2), ("42", 2), ("7", 0), ("7", 0)]


def test_without_a_graded_continuation_there_are_no_labels(tmp_path: Path) -> None:
    build_texts(tmp_path / "run", [solution(4, 2)])
    oracle = Oracle(answers=["\\zork{3}"])
    manifest = derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", oracle))
    assert stage_counts(manifest, "label")["undecided_solutions"] == 1
    assert labels(tmp_path / "out") == rollouts(tmp_path / "out") == [None]
    assert len(oracle.prompts) == 1, "the search ends at a prefix without a result"


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3, 4])
def test_a_stopped_search_resumes_to_the_same_bytes(tmp_path: Path, dies_after: int) -> None:
    texts = [solution(9, error, f"s{error}") for error in (0, 3, 5, 8)]
    build_texts(tmp_path / "run", texts, problems=2)
    source = tmp_path / "run"
    expected = derive(source, tmp_path / "whole", make_stage(source, Oracle(), batch=5))
    out = tmp_path / "part"
    with pytest.raises(UnavailableError):
        derive(source, out, make_stage(source, Oracle(dies_after=dies_after), batch=5))
    log = out / "rollouts/completions.jsonl"
    recorded = len(log.read_text().splitlines()) if log.exists() else 0
    assert recorded >= 2 * dies_after
    again = Oracle()
    assert derive(source, out, make_stage(source, again, batch=5), resume=True) == expected
    assert len(again.prompts) == stage_counts(expected, "label")["prefixes"] - recorded
    for file in ("rollouts/completions.jsonl", "manifest.json"):
        assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_shards_search_disjoint_prompts(tmp_path: Path) -> None:
    texts = [solution(9, error, f"s{error}") for error in (0, 3, 5, 8)]
    build_texts(tmp_path / "run", texts, problems=3)
    source = tmp_path / "run"
    one_oracle = Oracle()
    derive(source, tmp_path / "whole", make_stage(source, one_oracle))
    prompts: list[str] = []
    for index in (1, 2):
        oracle = Oracle()
        stage = make_stage(source, oracle)
        shard = JobShard(index, 2)
        derive_shard(source, tmp_path / f"{index}", stage, shard, progress=LineProgress())
        prompts += oracle.prompts
    assert sorted(prompts) == sorted(one_oracle.prompts)


def test_other_labels_replace_those_of_a_search(tmp_path: Path) -> None:
    build_texts(tmp_path / "run", [solution(4, 2), solution(4, None)])
    source = tmp_path / "run"
    derive(source, tmp_path / "full", make_stage(source, Oracle(), full=True))
    derive(source, tmp_path / "searched", make_stage(source, Oracle()))
    again = tmp_path / "again"
    stage = make_stage(tmp_path / "searched", Oracle(), full=True)
    manifest = derive(tmp_path / "searched", again, stage)
    assert labels(again) == labels(source) and rollouts(again) == rollouts(tmp_path / "full")
    full, relabelled = (statistics_of(tmp_path / name).solutions for name in ("full", "again"))
    assert relabelled.labels == full.labels
    assert "saved_continuations" not in stage_counts(manifest, "label")


def test_a_dataset_without_wrong_solutions_is_refused(tmp_path: Path) -> None:
    build_texts(tmp_path / "run", [solution(4, None)])
    with pytest.raises(InputError, match="has no incorrect solution of two steps or more"):
        derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", Oracle()))


def test_a_search_needs_rollouts() -> None:
    with pytest.raises(InputError, match="a search needs `rollouts`"):
        LabelOptions(data="runs/a", out="runs/b", judge="qwq", search="first-error")


def test_the_validator_refuses_labels_that_no_search_gives(tmp_path: Path) -> None:
    from fsdpo_data.dataset.schema import scan_rows
    from fsdpo_data.dataset.validate import _find_row_violations

    build_texts(tmp_path / "run", [solution(4, 2)])
    derive(tmp_path / "run", tmp_path / "out", make_stage(tmp_path / "run", Oracle()))
    manifest = read_manifest(tmp_path / "out")
    rows = scan_rows("solutions", manifest.config_paths(tmp_path / "out", "solutions"))
    for values, message in (
        ([True, False, True, False], "have a right step after a wrong one"),
        ([True] * 4, "have labels of a search that contradict the outcome"),
        (None, "have labels of a search without rollouts"),
    ):
        changed = rows.with_columns(labels=pl.lit(pl.Series([values], dtype=pl.List(pl.Boolean))))
        assert message in "".join(_find_row_violations(changed, manifest))


def test_trainers_read_labels_of_the_search_and_refuse_fractions(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from fsdpo_train import PrmConfig
    from fsdpo_train.prm.data import open_solutions, read_labelled_rows

    build_texts(tmp_path / "run", [solution(2, 1), solution(4, None)])
    out = tmp_path / "out"
    derive(tmp_path / "run", out, make_stage(tmp_path / "run", Oracle(answers=["42", "7"])))

    def read(data: Path, kind: Any) -> list[Sequence[float]]:
        config = PrmConfig(data=data, model="tiny", out=tmp_path / "prm", labels=kind)
        return [row.labels for row in read_labelled_rows(open_solutions([data]), config, Counter())]

    assert rollouts(out)[0] == [{"n": 2, "n_correct": 1}, {"n": 1, "n_correct": 0}]
    assert read(out, "auto") == read(out, "first-error") == [[1, 0], [1, 1, 1, 1]]
    assert read(out, "outcome") == [[0, 0], [1, 1, 1, 1]]
    with pytest.raises(InputError, match=r"no fraction of correct continuations"):
        read(out, "rollouts")
    with pytest.raises(InputError, match="has no labels of a search"):
        read(tmp_path / "run", "first-error")


class AnnotatedRows(TextSampler):
    """Published solutions with the first error that people found, as a sampler and as an oracle.

    The oracle continues a prefix to the gold answer if people found no error in it. Its verdict on
    a finished solution is the outcome, so a solution with an error ends with a wrong answer.
    """

    model = ModelRef("people", "0")

    def __init__(self, rows: Sequence[tuple[str, Sequence[str], int | None]]) -> None:
        self.template = get_template("problem")
        self.steps: list[list[str]] = []
        self.first_errors = [first_error for _, _, first_error in rows]
        problems = []
        for number, (question, steps, first_error) in enumerate(rows):
            # Each row is a problem of its own: people may disagree about a common prefix.
            problems.append(Problem(f"[{number}] {question}", "918273", "people", "test"))
            answer = "\n\\boxed{918273}" if first_error is None else "\n\\boxed{7}"
            # The verdict follows the appended answer, and not a second box before it.
            steps = [step.replace("\\boxed", "") for step in steps]
            self.steps.append([*(f"{step}\n\n" for step in steps[:-1]), steps[-1] + answer])
        self.problems = ProblemSet(problems, [SourceRef("people", "1", "test")])
        self.probes: dict[int, list[int]] = {}

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        completions = []
        for prompt in prompts:
            number = int(prompt.partition("[")[2].partition("]")[0])
            start = self.template.render(self.problems.problems[number].question)
            steps = self.steps[number]
            if prompt == start:
                chars = tuple(map(len, steps))
                completions.append([Completion("".join(steps), "stop", 9, step_chars=chars)])
                continue
            lengths = [len(start + "".join(steps[:count])) for count in range(len(steps))]
            count = lengths.index(len(prompt))
            self.probes.setdefault(number, []).append(count)
            first_error = self.first_errors[number]
            answer = 918273 if first_error is None or count <= first_error else 7
            completions.append([Completion(f"\\boxed{{{answer}}}", "stop", 3)] * spec.n)
        return completions


def read_processbench(shared: Path) -> list[tuple[str, Sequence[str], int | None]]:
    rows = []
    for file in sorted((shared / "data/stepwise/processbench").glob("*.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            first_error = None if row["label"] == -1 else row["label"]
            rows.append((row["problem"], row["steps"], first_error))
    return rows


def read_teachers(shared: Path) -> list[tuple[str, Sequence[str], int | None]]:
    file = shared / "data/stepwise/verify_then_generate/dataset.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        (row["problem"], row["student_incorrect_solution"], row["incorrect_index"]) for row in rows
    ]


@pytest.mark.proof
@pytest.mark.parametrize("read_rows", [read_processbench, read_teachers])
def test_the_search_finds_the_step_that_people_found(
    shared: Path, tmp_path: Path, read_rows: Any
) -> None:
    rows = read_rows(shared)
    people = AnnotatedRows(rows)
    spec = sample_settings(n=1).model_copy(update={"segmenter": "recorded"})
    small_build(tmp_path / "run", people.problems, sampling=spec, make_sampler=lambda: people)
    sampling = continuation_sampling(read_manifest(tmp_path / "run"), 1, seed=1)
    sampler = ContinuationSampler(continuation_settings(people.model, sampling), lambda: people)
    manifest = derive(tmp_path / "run", tmp_path / "out", FirstErrorStage(sampler))
    searched_labels = pl.read_parquet(tmp_path / "out/solutions/*.parquet")["labels"].to_list()
    assert [len(row) for row in searched_labels] == [len(steps) for steps in people.steps]
    first_errors = [row.index(False) if False in row else None for row in searched_labels]
    assert first_errors == people.first_errors
    for number, steps in enumerate(people.steps):
        probes = people.probes.get(number, [])
        assert len(probes) <= math.ceil(math.log2(len(steps)))
        assert len(set(probes)) == len(probes)
    assert stage_counts(manifest, "label")["undecided_solutions"] == 0
