"""Measurement of reward models, compared with definitions, published scores and known truth."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_tokenizers
from bench_runs import (
    TEMPLATE,
    make_problem,
    make_solution,
    make_solutions,
    measure_paths,
    write_dataset,
)
from fakes import BatchScorer, FixedSampler, TableScorer, score_all
from fsdpo_bench.cli.app import app
from fsdpo_bench.cli.printing import print_prm
from fsdpo_bench.prm.dataset_report import (
    SolvedProblem,
    best_of_n_curves,
    dataset_report,
    load_measurable,
    load_scored,
    ranking_aucs,
    step_separation,
    true_labels,
)
from fsdpo_bench.prm.measure_prm import PrmMeasurements, PrmOptions, measure_prm
from fsdpo_bench.prm.processbench import (
    FirstErrorExample,
    LabelledRewards,
    count_first_errors,
    f1_interval,
    measure_at_threshold,
    measure_first_errors,
    read_first_error_rows,
    score_examples,
)
from helpers import build_job, reward_model, seal_json
from paired_data import paired_dataset
from recorded_imports import import_labels
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.identity import ModelRef, SourceRef, file_sha256
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.core.statistics import mean_difference
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import CritiqueScorer, critique_prompt
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS, PublishedPrm
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.trained_template import write_trained_template
from fsdpo_data.problems.benchmark_rows import BENCHMARKS_KEY, BenchmarkRow
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import first_wrong_step, write_solution
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.sample import build
from fsdpo_data.stages.score import ScoreStage
from fsdpo_data.steps.first_error import best_threshold, find_first_below
from fsdpo_data.steps.rewards import AGGREGATES


def test_f1_is_the_harmonic_mean_of_both_accuracies() -> None:
    rewards = [[0.9, 0.1], [0.9, 0.1], [0.2, 0.9], [0.9, 0.9], None]
    labels = [1, 0, 0, -1, -1]
    counts = count_first_errors(rewards, labels, 0.5)
    assert (counts.detected, counts.with_error, counts.passed, counts.without_error) == (2, 3, 1, 2)
    assert counts.f1 == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert count_first_errors(rewards, labels, 0.0).f1 == 0


@pytest.mark.parametrize("label", [1, -1])
def test_f1_needs_solutions_with_an_error_and_without_one(label: int) -> None:
    examples = [FirstErrorExample(str(number), "?", ("a", "b"), label) for number in range(4)]
    rewards = [[0.9, 0.1 if label == 1 else 0.8]] * 4
    scores = measure_at_threshold(examples, rewards, 0.5, "threshold 0.5")
    assert scores.detected + scores.passed == 4 and scores.f1 is scores.f1_ci95 is None
    assert scores.rows()[0] == ("F1 of finding the first error", "–")


def test_the_best_threshold_equals_an_exhaustive_search() -> None:
    rng = random.Random(0)
    labels = [rng.choice([-1, 0, 1, 2]) for _ in range(60)]
    rewards = [[rng.gauss(0.3 if i == label else 0.6, 0.2) for i in range(3)] for label in labels]
    chosen = best_threshold(rewards, labels)
    all_rewards = [reward for row in rewards for reward in row]
    best = max(count_first_errors(rewards, labels, threshold).f1 for threshold in all_rewards)
    assert count_first_errors(rewards, labels, chosen).f1 == pytest.approx(best)


def random_solutions(seed: int, count: int) -> LabelledRewards:
    """Return solutions of three steps whose wrong step has a lower reward on average."""
    rng = random.Random(seed)
    labels = [rng.choice([-1, 0, 1, 2]) for _ in range(count)]
    rewards = [[rng.gauss(0.3 if i == label else 0.6, 0.2) for i in range(3)] for label in labels]
    return LabelledRewards([*rewards[1:], None], labels)


def plain_f1_draws(
    test: LabelledRewards, tuning: LabelledRewards | None, thresholds: list[float]
) -> list[float]:
    """Resample the rows of each class one by one, and choose the threshold again."""
    rng = random.Random(1)

    def resample(solutions: LabelledRewards) -> LabelledRewards:
        rows = list(zip(*solutions, strict=True))
        classes = [[row for row in rows if (row[1] < 0) == is_right] for is_right in (True, False)]
        sampled_rows = [row for members in classes for row in rng.choices(members, k=len(members))]
        return LabelledRewards(*zip(*sampled_rows, strict=True))

    draws = []
    for _ in range(300):
        test_draw = resample(test)
        tuning_draw = test_draw if tuning is test else resample(tuning) if tuning else test_draw
        threshold = max(thresholds, key=lambda t: count_first_errors(*tuning_draw, t).f1)
        draws.append(count_first_errors(*test_draw, threshold).f1)
    return draws


@pytest.mark.parametrize("protocol", ["fixed", "other rows", "same rows"])
def test_the_interval_of_f1_chooses_the_threshold_in_every_draw(protocol: str) -> None:
    test = random_solutions(0, 60)
    tuning = {"fixed": None, "other rows": random_solutions(1, 20), "same rows": test}[protocol]
    thresholds = [0.45] if protocol == "fixed" else [0.2, 0.3, 0.4, 0.5, 0.6]
    interval = f1_interval(test, thresholds, tuning)
    expected = np.quantile(plain_f1_draws(test, tuning, thresholds), [0.025, 0.975])
    assert interval == pytest.approx(expected, abs=0.04)
    assert interval == f1_interval(test, thresholds, tuning)
    one_class = LabelledRewards([[0.9]], [-1])
    assert f1_interval(one_class, thresholds, tuning) is None


def test_published_scores_find_first_errors_better_than_shuffled_scores(shared: Path) -> None:
    """ReasonEval published the rewards of Math-Shepherd on MR-MATH."""
    folder = shared / "data/stepwise/reasoneval"
    rows = []
    rewards = []
    scores = (folder / "scores/mr-math_invalid_errors__math-shepherd_mistral-7b.jsonl").read_text()
    texts = (folder / "mr-math_invalid_errors.jsonl").read_text()
    for line, scored in zip(texts.splitlines(), scores.splitlines(), strict=True):
        row = json.loads(line)
        values = json.loads(scored)["scores"]
        steps = row["model_output_step_format"]
        steps = json.loads(steps) if isinstance(steps, str) else steps
        error = row["model_output_solution_first_error_step"]
        if len(steps) == len(values):
            label = -1 if error == "N/A" else int(error) - 1
            rows.append(
                FirstErrorExample(str(row["id"]), row["question"], tuple(map(str, steps)), label)
            )
            rewards.append(values)
    assert len(rows) > 90
    real = measure_first_errors(rows, rewards).f1
    rng = random.Random(0)
    pool = [reward for row_rewards in rewards for reward in row_rewards]
    luck = [
        measure_first_errors(
            rows, [[rng.choice(pool) for _ in row_rewards] for row_rewards in rewards]
        ).f1
        for _ in range(20)
    ]
    assert real > max(luck) and 0.2 < real < 0.8


@pytest.mark.parametrize("name", ["gsm8k", "math", "olympiadbench_every10th"])
def test_original_processbench_files_can_be_read(shared: Path, name: str) -> None:
    rows = read_first_error_rows(shared / f"data/stepwise/processbench/{name}.json")
    assert len(rows) in (400, 1000, 100)
    assert {row.first_error == -1 for row in rows} == {True, False}
    perfect = [
        [0.0 if i == row.first_error else 1.0 for i in range(len(row.steps))] for row in rows
    ]
    counts = measure_first_errors(rows, perfect)
    assert counts.f1 == 1 and counts.tuned_on == round(0.2 * len(rows))
    assert counts.with_error + counts.without_error + counts.tuned_on == len(rows)


def test_steps_are_scored_as_they_were_written() -> None:
    seen: list[ScorerInput] = []

    class RecordingScorer(BatchScorer):
        model = ModelRef("spy", "0")

        def compute_rewards(self, items: Any) -> list[list[float] | None]:
            seen.extend(items)
            return [[0.5] * len(item.steps) for item in items]

    rows = [FirstErrorExample("1", "1 + 1?", ("One.", "Two."), -1)]
    assert score_examples(rows, RecordingScorer(), get_template("problem")) == [[0.5, 0.5]]
    assert seen == [ScorerInput("Problem: 1 + 1?\nSolution:\n", ["One.\n\n", "Two."], "1 + 1?")]


def math_shepherd_row(example: FirstErrorExample) -> dict[str, str]:
    """Return a solution as Math-Shepherd writes it, with a sign for each step."""
    steps = [f"Step {number}: {step} " for number, step in enumerate(example.steps, start=1)]
    n_right = len(steps) if example.first_error == -1 else example.first_error
    signs = ["+" if index < n_right else "-" for index in range(len(steps))]
    text = f"{example.question} "
    return {
        "input": text + "\n".join(f"{step}ки" for step in steps),
        "label": text + "\n".join(map("".join, zip(steps, signs, strict=True))),
    }


@pytest.mark.parametrize("tokenizer_name", ["qwen2", "llama3", "mistral"])
def test_converted_step_labels_have_the_tokens_of_processbench(
    shared: Path, tmp_path: Path, tokenizer_name: str
) -> None:
    """A model that learns from them reads rewards at the tokens at which it is measured."""
    pytest.importorskip("torch")
    from fsdpo_data.engines.step_tokens import StepTokenizer

    published = read_first_error_rows(shared / "data/stepwise/processbench/gsm8k.json")
    # An import drops spaces at the end of a step. Math-Shepherd's first marker starts the solution.
    examples = [
        example
        for example in published
        if "Step 1:" not in example.steps[0] and all(step == step.strip() for step in example.steps)
    ]
    assert len(examples) > 0.9 * len(published)
    source = tmp_path / "shepherd.jsonl"
    source.write_text("".join(json.dumps(math_shepherd_row(row)) + "\n" for row in examples))
    words = f"import {source} --from math-shepherd --step-separator blank-line --first-error-only"
    result = CliRunner().invoke(data_app, [*words.split(), "--out", str(tmp_path / "rows.jsonl")])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    scored_inputs: list[ScorerInput] = []

    class RecordingScorer(BatchScorer):
        model = ModelRef("spy", "0")

        def compute_rewards(self, items: Any) -> list[list[float] | None]:
            scored_inputs.extend(items)
            return [None for _ in items]

    score_examples(examples, RecordingScorer(), get_template("problem"))
    encoder = StepTokenizer(real_tokenizers.load(shared / "tokenizers" / tokenizer_name))
    n_cut = 0
    for row, item, example in zip(rows, scored_inputs, examples, strict=True):
        assert row["prompt"] == item.prompt
        trained = encoder.encode(Prompt(row["prompt"]), row["completions"], add_eos=False)
        scored = encoder.encode(Prompt(item.prompt), item.steps, add_eos=False)
        n_steps = len(trained.score_positions)
        assert trained.score_positions == scored.score_positions[:n_steps]
        assert trained.input_ids.tolist() == scored.input_ids[: len(trained.input_ids)].tolist()
        n_right = n_steps - (example.first_error != -1)
        assert row["labels"] == [True] * n_right + [False] * (n_steps - n_right)
        assert n_steps == len(example.steps) if example.first_error == -1 else n_right + 1
        n_cut += n_steps < len(example.steps)
    assert n_cut > 100


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem": "p", "steps": ["a"], "label": 1}, "label 1 of 1 steps"),
        ({"problem": "p", "steps": [], "label": -1}, "the row has no list of steps"),
        ({"problem": "p", "steps": {"0": "a"}, "label": 0}, "the row has no list of steps"),
        ({"problem": "p", "steps": ["a"], "label": 0.0}, "label 0.0 of 1 steps"),
        (
            {"problem": "p", "steps": ["a"], "label": "-1"},
            "label '-1' of 1 steps, expected a whole",
        ),
        ({"problem": "p", "steps": ["a", " "], "label": 0}, "the problem or a step is blank"),
        ({"problem": "p", "steps": ["\ud800"], "label": 0}, "the text contains half a surrogate"),
        ({"problem": "p", "steps": ["a"]}, "the row does not have .*'label' is missing"),
        ({"problem": "p", "steps": ["a", 5], "label": 0}, "expected a text, found 5"),
    ],
)
def test_rows_in_another_format_are_named(tmp_path: Path, row: Any, message: str) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    with pytest.raises(InputError, match=f"row 1: {message}"):
        read_first_error_rows(tmp_path / "rows.json")


def test_ids_with_half_a_surrogate_pair_are_hashed(tmp_path: Path) -> None:
    row = {"id": "\ud800", "problem": "p", "steps": ["a"]}
    rows = [row | {"label": label} for label in (0, -1)] * 2
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    examples = read_first_error_rows(tmp_path / "rows.json")
    assert measure_first_errors(examples, [[0.4], [0.6]] * 2, 0.5).f1 == 1


def solution(name: str, rewards: list[float], right: bool, wrong: int | None) -> SolvedProblem:
    """Return a scored solution; ``wrong`` is -1 without step labels."""
    labels = [1.0 if wrong is None or index < wrong else 0.0 for index in range(len(rewards))]
    problem = make_problem(0)
    row = make_solution(
        problem,
        0,
        "correct" if right else "incorrect",
        completions=["s"] * len(rewards),
        step_rewards=rewards,
        imported_labels=None if wrong == -1 else labels,
    )
    return SolvedProblem(problem, replace(row, problem_id=name))


def test_step_truth_compares_rewards_before_and_after_the_error() -> None:
    solutions = [
        solution("a", [0.9, 0.1], False, 1),
        solution("a", [0.8, 0.4, 0.2], False, 1),
        solution("b", [0.2, 0.1], False, 0),
        solution("b", [0.9, 0.9], True, None),
        solution("c", [0.7, 0.6], False, 1),
    ]
    truth = step_separation(solutions)
    assert truth is not None and truth.problems == 2 and truth.solutions == 3
    assert truth.margin == pytest.approx(((0.8 + 0.5) / 2 + 0.1) / 2)
    assert truth.auc == 1  # every right step has a higher reward than every wrong one
    assert step_separation([solution("a", [0.5], True, -1)]) is None


def test_a_step_after_an_error_is_right_if_its_label_says_so() -> None:
    """PRMBench labels every step, and redundant steps are in the middle of right ones."""
    entry = solution("a", [0.7, 0.1, 0.8], False, 1)
    labelled = replace(entry.solution, imported_labels=[1.0, 0.0, 1.0])
    separation = step_separation([replace(entry, solution=labelled)])
    assert separation is not None and separation.auc == 1
    assert separation.margin == pytest.approx(0.7 - 0.45)  # before the error, and from it on


def test_reports_of_perfect_and_inverted_scorers(tmp_path: Path) -> None:
    """A scorer that knows the truth has AUC 1, and its inverse has AUC 0."""
    problems = make_problems("test", 8)
    template = get_template("problem")
    rng = random.Random(0)
    texts = {}
    table = {}
    for problem in problems:
        solutions = [write_solution(problem, rng, rate) for rate in (0.0, 0.0, 0.6, 0.9)]
        texts[template.render(problem.question)] = ["".join(steps) for steps in solutions]
        for steps in solutions:
            wrong = first_wrong_step(problem, steps)
            end = len(steps) if wrong is None else wrong
            table["".join(steps)] = [0.9 if i < end else 0.1 for i in range(len(steps))]
    source = ProblemSet(problems, [SourceRef("embedded", "1", "test")])
    progress = LineProgress()
    job = build_job(source, lambda: FixedSampler(texts))
    build(job, tmp_path / "run", progress=progress)
    for name, rewards in (
        ("truth", table),
        ("inverted", {text: [1 - reward for reward in values] for text, values in table.items()}),
    ):
        scorer = TableScorer(rewards)
        stage = ScoreStage(reward_model(scorer.model, lambda scorer=scorer: scorer))
        derive_dataset(tmp_path / "run", tmp_path / name, [stage], progress=progress)
    report = dataset_report(load_scored(tmp_path / "truth"))
    assert report["steps"]["auc"] == 1 and report["steps"]["margin"] == pytest.approx(0.8)
    assert report["ranking_auc"]["mean"]["value"] > 0.95
    assert report["best_of"]["mean"][4] == 1 and report["best_of"]["pass"][4] == 1
    inverted_report = dataset_report(load_scored(tmp_path / "inverted"))
    assert inverted_report["steps"]["auc"] == 0
    assert inverted_report["steps"]["margin"] == pytest.approx(-0.8)
    assert inverted_report["best_of"]["mean"][4] < inverted_report["best_of"]["mean"][1] < 1
    output = CliRunner().invoke(app, ["prm", str(tmp_path / "truth")]).output
    assert "ranking AUC, mean" in output and "reward before minus after the error" in output
    result = CliRunner().invoke(app, ["prm", str(tmp_path / "truth"), "--json"])
    assert json.loads(result.output)["dataset"]["problems"] == 8
    with pytest.raises(InputError, match="has no step rewards"):
        load_scored(tmp_path / "run")
    for file in (tmp_path / "inverted/solutions").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        load_scored(tmp_path / "inverted")


def test_imported_step_labels_measure_the_separation_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PRM800K has labels of steps and no outcomes, so there is no ranking and no best-of-N."""
    texts = ("Add the tens.", "Add the ones.", "It is 43.")
    rows = [
        {
            "question": {"problem": f"{number} + 22?", "ground_truth_answer": "42"},
            "label": {
                "steps": [
                    {
                        "completions": [{"text": text, "rating": rating, "flagged": False}],
                        "human_completion": None,
                        "chosen_completion": 0,
                    }
                    for text, rating in zip(texts, (1, 0, -1), strict=True)
                ],
                "finish_reason": "solution",
            },
        }
        for number in range(4)
    ]
    source = tmp_path / "prm800k.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_labels(source, "prm800k", tmp_path / "imported")
    with pytest.raises(InputError, match=r"has no step rewards\. Score it"):
        load_scored(tmp_path / "imported")
    [entry, *_] = load_measurable(tmp_path / "imported")
    assert true_labels(entry) == [True, True, False] and entry.solution.outcome == "ungraded"
    scorer = TableScorer({entry.solution.text: [0.9, 0.8, 0.1]})
    stage = ScoreStage(reward_model(scorer.model, lambda: scorer))
    derive_dataset(tmp_path / "imported", tmp_path / "scored", [stage], progress=LineProgress())
    report = measure_prm(PrmOptions(data=tmp_path / "scored"), LineProgress()).dataset
    assert report is not None and report["solutions"] == 4
    assert report["steps"]["auc"] == 1 and report["steps"]["margin"] == pytest.approx(0.75)
    assert not report["ranking_auc"] and not report["best_of"]
    output = CliRunner().invoke(app, ["prm", str(tmp_path / "scored")]).output
    assert "reward before minus after the error" in output and "best-of-N" not in output
    with pytest.raises(InputError, match="no graded solutions, so best-of-N is unknown"):
        measure_prm(PrmOptions(data=tmp_path / "scored", k=[2]), LineProgress())
    monkeypatch.setattr("fsdpo_bench.prm.measure_prm._load_model", lambda *_: pytest.fail("loaded"))
    options = PrmOptions(data=tmp_path / "imported", likelihood="tiny", k=[2])
    with pytest.raises(InputError, match="no graded solutions, so best-of-N is unknown"):
        measure_prm(options, LineProgress())


def test_the_intervals_of_steps_are_over_base_problems() -> None:
    solutions = [
        solution(name, [0.5 + 0.1 * index, 0.4 - 0.05 * index], False, 1)
        for index, name in enumerate("abcd")
    ]

    def in_benchmark(entry: SolvedProblem) -> SolvedProblem:
        base = "first" if entry.solution.problem_id < "c" else None
        metadata = {BENCHMARKS_KEY: [BenchmarkRow("a", 0, cluster=base).to_json()]}
        return replace(entry, problem=replace(entry.problem, metadata=metadata))

    independent = step_separation(solutions)
    clustered = step_separation([in_benchmark(entry) for entry in solutions])
    assert independent is not None and clustered is not None
    margins = [0.1, 0.25, 0.4, 0.55]
    assert independent.ci95 == pytest.approx(mean_difference(margins).ci95)
    expected = mean_difference(margins, ["first", "first", "c", "d"]).ci95
    assert clustered.ci95 == pytest.approx(expected)
    assert clustered.margin == independent.margin and clustered.problems == 4


def test_rankings_and_curves_by_every_aggregate() -> None:
    solutions = [
        solution("a", [0.9, 0.2], True, -1),
        solution("a", [0.4, 0.4], False, -1),
    ]
    aucs = ranking_aucs(solutions)
    assert aucs.keys() == AGGREGATES.keys()
    for aggregate, auc in {"mean": 1, "min": 0, "prod": 1, "last": 0}.items():
        assert aucs[aggregate].value == auc
    curves = best_of_n_curves(solutions).curves
    assert curves["mean"] == {1: 0.5, 2: 1} and curves["min"] == {1: 0.5, 2: 0}


@pytest.mark.parametrize("cluster", [None, "base"])
def test_the_numbers_of_a_dataset_are_those_of_its_report(
    tmp_path: Path, cluster: str | None
) -> None:
    """Undecided answers and timeouts are wrong, and samples without rewards are chosen last."""
    problems = [
        make_problem(number, [BenchmarkRow("a", number, cluster=cluster if number < 2 else None)])
        for number in range(4)
    ]
    outcomes = ["cuic", "tcic", "iccn", "gggg"]
    rewards = [[0.2], [0.9], None, [0.6]]
    rows = [
        replace(row, completions=[row.text], step_rewards=rewards[(number + index) % 4])
        for number, (problem, letters) in enumerate(zip(problems, outcomes, strict=True))
        for index, row in enumerate(make_solutions(problem, letters))
    ]
    # An empty solution is chosen last, too.
    rows = [replace(row, completions=[]) if row.step_rewards is None else row for row in rows]
    root = write_dataset(tmp_path / "d", problems, rows, prm="prm")
    ours = dataset_report(load_scored(root))
    results = measure_paths(root, sizes=[1, 2, 4])
    [task] = results.tasks.values()
    assert (ours["best_of_problems"], ours["best_of_left_out"], ours["solutions"]) == (3, 0, 9)
    for name in AGGREGATES:
        curve = {size: task.decoders[f"bon@{size}:{name}"].accuracy.value for size in (1, 2, 4)}
        assert ours["best_of"][name] == pytest.approx(curve)
        assert ours["ranking_auc"][name] == asdict(results.rewards["prm"].ranking_auc[name])
    passes = {size: task.numbers["pass_at_k"][str(size)].value for size in (1, 2, 4)}
    assert ours["best_of"]["pass"] == pytest.approx(passes)


def test_a_problem_with_few_solutions_does_not_shorten_the_best_of_n_curves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The problem with a single solution is left out at every N, also at N = 1."""
    solutions = [solution("short", [0.1], False, -1)]
    for problem in "abc":
        solutions += [solution(problem, [0.9], True, -1)]
        solutions += [solution(problem, [0.4], False, -1) for _ in range(7)]
    report = dataset_report(solutions)
    assert report["best_of"]["mean"] == {
        1: pytest.approx(1 / 8),
        2: pytest.approx(1 / 4),
        4: pytest.approx(1 / 2),
        8: 1,
    }
    assert (report["best_of_problems"], report["best_of_left_out"]) == (3, 1)
    print_prm(PrmMeasurements(dataset=report))
    output = " ".join(capsys.readouterr().out.split())
    message = "3 problems at every N; 1 of 4 problems are left out, because they have fewer than 8"
    assert message in output
    assert best_of_n_curves(solutions, [1]).left_out == 0
    with pytest.raises(InputError, match="no problem has 9 graded solutions; the most is 8"):
        best_of_n_curves(solutions, [9])


def test_a_model_is_measured_from_the_command_line(tmp_path: Path, shared: Path) -> None:
    pytest.importorskip("transformers")
    from random_model import save_random_model, save_random_prm

    policy = save_random_model(tmp_path / "policy", context=2048)
    model = save_random_prm(tmp_path / "prm", policy)
    rows = json.loads((shared / "data/stepwise/processbench/gsm8k.json").read_text())[170:230]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    arguments = ["prm", "--prm", model, "--template", "problem", "--engine", "transformers"]
    files = [tmp_path / "rows.json", tmp_path / "other/rows.json"]  # two files with the same name
    files[1].parent.mkdir()
    files[1].write_text(json.dumps(rows))
    arguments += ["--device", "cpu", "--processbench", files[0], "--processbench", files[1]]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert "F1 of finding the first error" in result.output and "on 12 other rows" in result.output
    assert all(str(file) in result.output.splitlines() for file in files)
    assert "score: 60 to do" in result.stderr


class RewardInText(BatchScorer):
    """A scorer that reads the reward of each step from its text."""

    model = ModelRef("fake", "0")

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        return [[float(step) for step in item.steps] for item in items]


def write_first_errors(file: Path, wrong: str, count: int = 20) -> Path:
    """Write rows whose right steps have the reward 0.9; half of them have a wrong second step."""
    rows = [
        {
            "id": f"{file.stem}-{index}",
            "problem": "q",
            "steps": ["0.9", wrong if index % 2 else "0.9"],
            "label": 1 if index % 2 else -1,
        }
        for index in range(count)
    ]
    file.write_text(json.dumps(rows))
    return file


@pytest.mark.parametrize(
    ("protocol", "f1", "threshold", "words"),
    [
        ({}, (1, 1), (0.9, 0.9), "threshold chosen on 4 other rows of the file"),
        ({"threshold": 0.5}, (0, 1), (0.5, 0.5), "threshold 0.5 on all rows"),
        ({"threshold": 0.0}, (0, 0), (0.0, 0.0), "threshold 0 on all rows"),
        ({"tune_on": "gsm8k.json"}, (1, 1), (0.9, 0.9), "threshold chosen on gsm8k.json"),
        ({"tune_on": "math.json"}, (1, 1), (0.9, 0.9), "threshold chosen on math.json"),
    ],
)
def test_a_score_names_its_protocol(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    protocol: dict[str, Any],
    f1: tuple[float, float],
    threshold: tuple[float, float],
    words: str,
) -> None:
    files = [
        write_first_errors(tmp_path / "gsm8k.json", "0.6"),
        write_first_errors(tmp_path / "math.json", "0.2"),
    ]
    if "tune_on" in protocol:
        protocol = {"tune_on": tmp_path / protocol["tune_on"]}
    monkeypatch.setattr("fsdpo_bench.prm.measure_prm._load_model", lambda *_: RewardInText())
    options = PrmOptions(likelihood="fake", template="problem", processbench=files, **protocol)
    scores = measure_prm(options, LineProgress()).processbench
    assert tuple(score.f1 for score in scores.values()) == f1
    assert tuple(score.threshold for score in scores.values()) == threshold
    n_counted = {score.with_error + score.without_error for score in scores.values()}
    assert n_counted == ({20} if protocol else {16})
    protocols = {name: score.protocol for name, score in scores.items()}
    tuning_file = protocol["tune_on"].name if "tune_on" in protocol else None
    for name, text in protocols.items():
        assert (
            (words in text)
            if name != tuning_file
            else text.startswith("threshold chosen on the same")
        )
    assert ("protocol", protocols["math.json"]) in scores["math.json"].rows()


def test_a_threshold_of_another_file_is_applied_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the paper, the rows of GSM8K choose the threshold for all files."""
    tuning = write_first_errors(tmp_path / "gsm8k.json", "0.2")
    rows = json.loads(tuning.read_text())
    rows[0]["steps"] = [
        "0.3",
        "0.9",
    ]  # a right solution with a low reward: 0.3 is the best threshold
    tuning.write_text(json.dumps(rows))
    other = write_first_errors(tmp_path / "math.json", "0.6")
    monkeypatch.setattr("fsdpo_bench.prm.measure_prm._load_model", lambda *_: RewardInText())
    options = PrmOptions(
        likelihood="fake", template="problem", processbench=[other], tune_on=tuning
    )
    [scores] = measure_prm(options, LineProgress()).processbench.values()
    assert (scores.threshold, scores.f1, scores.tuned_on) == (0.3, 0, 20)
    assert scores.protocol == "threshold chosen on gsm8k.json; all rows count"


def test_protocols_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    file = write_first_errors(tmp_path / "gsm8k.json", "0.2")
    one_class = write_first_errors(tmp_path / "one.json", "0.2", count=1)
    common = {"likelihood": "fake", "template": "problem", "processbench": [file]}
    by_judge = {"likelihood": None, "prm": "fake", "majority": True}
    for changes, message in (
        ({"tune_on": file, "threshold": 0.5}, "tune_on = .*with `threshold`, nothing reads"),
        (by_judge | {"threshold": 0.5}, "threshold = 0.5: with `majority`"),
        (by_judge | {"tune_on": file}, "tune_on = .*with `majority`"),
        ({"tune_fraction": 0.5, "tune_on": file}, "tune_fraction = 0.5: with `tune_on`"),
        ({"majority": True}, "majority = .*the model of `likelihood` does not read this option"),
        ({"votes": 8}, "votes = 8: the model of `likelihood` does not read this option"),
        ({"tune_on": one_class}, "need solutions with and without an error"),
        (
            {"tune_on": file, "processbench": [], "data": tmp_path, "template": None},
            "tune_on = .*only `processbench` reads this option",
        ),
    ):
        with pytest.raises(InputError, match=message):
            measure_prm(PrmOptions(**{**common, **changes}), LineProgress())


def test_the_majority_of_critiques_decides_as_in_the_script_of_processbench() -> None:
    """The share of critiques at a threshold may name a step that few critiques name."""
    votes = [0, 0, 2, 2, 2, -1, -1, -1]
    form = PRM_FORMATS["processbench"].replace(template="problem", votes=8)
    item = ScorerInput("", ["a", "b", "c"], "q")
    prompt = critique_prompt(form, get_template("problem"), item)
    sampler = FixedSampler({prompt: [f"So \\boxed{{{vote}}}." for vote in votes]})
    judge = PublishedPrm(ModelRef("judge", "0"), "", prm_format=form)
    assert score_all(CritiqueScorer(judge, sampler), [item]) == [[0.75, 0.75, 0.375]]
    majority = replace(judge, prm_format=form.replace(counting="majority"))
    # The vote for step 2 and the vote for no error are equally frequent; the first one wins.
    assert score_all(CritiqueScorer(majority, sampler), [item]) == [[1, 1, 0]]
    sampler = FixedSampler({prompt: [f"So \\boxed{{{vote}}}." for vote in [0, 1, 1, -1, -1, -1]]})
    share = score_all(CritiqueScorer(judge, sampler), [item])
    [decided] = score_all(CritiqueScorer(majority, sampler), [item])
    assert find_first_below(share[0] or [], 0.6) == 1 and find_first_below(decided or [], 0.5) == -1


def test_a_generative_judge_is_measured_by_its_critiques(shared: Path) -> None:
    """A perfect judge has F1 1, and unreadable critiques count as unscored."""
    rows = read_first_error_rows(shared / "data/stepwise/processbench/gsm8k.json")[150:250]
    form = PRM_FORMATS["processbench"].replace(template="problem")
    row_by_prompt = {
        critique_prompt(
            form, get_template("problem"), ScorerInput("", row.steps, row.question)
        ): row
        for row in rows
    }
    critiques = {text: [f"So \\boxed{{{row.first_error}}}."] for text, row in row_by_prompt.items()}
    judge = PublishedPrm(ModelRef("judge", "0"), "", prm_format=form)
    rewards = score_examples(rows, CritiqueScorer(judge, FixedSampler(critiques)), None)
    counts = measure_first_errors(rows, rewards)
    assert counts.f1 == 1 and counts.unscored == 0 and counts.with_error > 20 < counts.without_error
    unreadable = CritiqueScorer(judge, FixedSampler({key: ["Well."] for key in critiques}))
    missed = measure_first_errors(rows, score_examples(rows, unreadable, None))
    assert missed.f1 == 0 and missed.unscored == missed.with_error + missed.without_error


def test_the_likelihood_of_a_policy_is_measured_like_a_reward_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    problems = make_problems("test", 12)
    template = get_template("problem")
    rng = random.Random(0)
    texts = {
        template.render(problem.question): [
            "".join(write_solution(problem, rng, rate)) for rate in (0.0, 0.0, 0.4, 0.9)
        ]
        for problem in problems
    }
    source = ProblemSet(problems, [SourceRef("embedded", "1", "test")])
    run = tmp_path / "run"
    job = build_job(source, lambda: FixedSampler(texts))
    build(job, run, progress=LineProgress())
    arguments = ["prm", "--likelihood", "tiny", str(run), "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)["dataset"]
    assert report["ranking_auc"]["prod"]["value"] > 0.85 and report["steps"]["margin"] > 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to measure"),
        (["d", "--prm", "p", "--likelihood", "l"], "exclude each other"),
        (["--processbench", "x.json"], "needs a model that detects the errors"),
        (["--processbench", "x.json", "--prm", "nowhere"], "--prm nowhere"),
        (["nowhere"], "no such file or directory"),
    ],
)
def test_invalid_options_are_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["prm", *arguments])
    assert message in str(result.exception)


def test_a_trained_prm_has_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from random_model import save_random_prm

    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    write_trained_template(prm, get_template("alpaca@1").ref)
    prompts = []

    class PromptScorer(RewardInText):
        def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
            prompts.extend(item.prompt for item in items)
            return super().compute_rewards(items)

    monkeypatch.setattr("fsdpo_bench.prm.measure_prm._load_model", lambda *_: PromptScorer())
    file = write_first_errors(tmp_path / "rows.json", "0.2")
    for options in ({"prm": str(prm)}, {"likelihood": str(prm)}):
        [scores] = measure_prm(
            PrmOptions(processbench=[file], **options), LineProgress()
        ).processbench.values()
        assert set(prompts) == {get_template("alpaca").render("q")}
        assert scores.f1 == 1 and scores.f1_ci95 is None  # all resampled rows are right
        assert scores.rows()[0][1] == "100.0 %"
        prompts.clear()
    write_trained_template(prm, None)
    with pytest.raises(InputError, match="was trained with prompts of no known template"):
        measure_prm(PrmOptions(prm=str(prm), processbench=[file]), LineProgress())


def test_prompts_of_another_template_than_the_prms_give_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in ``score``, because both read the prompts of the solutions."""
    from random_model import save_random_prm

    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    problem = make_problem(0)
    rows = make_solutions(problem, "ci", completions=[["0.9"], ["0.2"]])
    root = write_dataset(tmp_path / "d", [problem], rows)
    monkeypatch.setattr("fsdpo_bench.prm.measure_prm._load_model", lambda *_: RewardInText())
    for trained_template, n_warnings in ((TEMPLATE, 0), (get_template("problem").ref, 1)):
        write_trained_template(prm, trained_template)
        measure_prm(PrmOptions(data=root, prm=str(prm)), LineProgress())
        warnings = [text for text in caplog.messages if "its rewards may be wrong" in text]
        assert len(warnings) == n_warnings


def test_a_prm_of_others_needs_a_template(tmp_path: Path) -> None:
    from random_model import save_random_prm

    prm = save_random_prm(tmp_path / "prm", CHECKPOINT)
    result = CliRunner().invoke(app, ["prm", "--processbench", "x.json", "--prm", str(prm)])
    assert "needs --template" in str(result.exception)


def test_rewards_of_another_type_in_a_sealed_dataset_are_named(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    [file] = (dataset / "solutions").iterdir()
    table = pq.read_table(file)
    index = table.schema.get_field_index("step_rewards")
    texts = pa.array(["high"] * table.num_rows)
    pq.write_table(table.set_column(index, "step_rewards", texts), file)
    manifest = json.loads((dataset / "manifest.json").read_text())
    for entry in manifest["files"]:
        entry["sha256"] = file_sha256(dataset / entry["path"])
    (dataset / "manifest.json").write_text(seal_json(manifest))
    result = CliRunner().invoke(app, ["prm", str(dataset)])
    assert isinstance(result.exception, SchemaError)
    assert "step_rewards is string" in str(result.exception)
