"""The agreement of two labellers: kappa, intervals, first errors, and a threshold by problem."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import run
from helpers import RIGHT, TEXTS, derive, fixed_sampler, problem_set, small_build
from recorded_imports import import_labels

import fsdpo_data as fd
from fsdpo_data.agreement.kappa import cohen_kappa, kappa_interval, measure_agreement
from fsdpo_data.agreement.labels import LabellerName
from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import AnyRecord
from fsdpo_data.dataset.stage import Stage


def sklearn_kappa(first: list[bool], second: list[bool]) -> float:
    """Compute kappa as ``sklearn.metrics.cohen_kappa_score`` does (scikit-learn 1.7)."""
    confusion = np.zeros((2, 2))
    np.add.at(confusion, (np.array(first, int), np.array(second, int)), 1)
    sum0, sum1 = confusion.sum(axis=0), confusion.sum(axis=1)
    expected = np.outer(sum0, sum1) / sum0.sum()
    weights = np.ones((2, 2))
    weights.flat[::3] = 0
    return float(1 - (weights * confusion).sum() / (weights * expected).sum())


def test_kappa_is_that_of_scikit_learn_on_made_up_labels() -> None:
    rng = random.Random(0)
    for _ in range(200):
        n, rate, noise = rng.randrange(2, 300), rng.random(), rng.random()
        first = [rng.random() < rate for _ in range(n)]
        second = [not label if rng.random() < noise else label for label in first]
        kappa = cohen_kappa(first, second)
        if kappa is not None:
            assert kappa == pytest.approx(sklearn_kappa(first, second), abs=1e-12)


@pytest.mark.parametrize("name", ["gsm8k", "math", "olympiadbench_every10th"])
def test_kappa_is_that_of_scikit_learn_on_people_and_outcomes(shared: Path, name: str) -> None:
    file = shared / f"data/stepwise/processbench/{name}.json"
    people: list[bool] = []
    outcomes: list[bool] = []
    for row in json.loads(file.read_text(encoding="utf-8")):
        n_steps = len(row["steps"])
        first_error = n_steps if row["label"] == -1 else row["label"]
        people += [step < first_error for step in range(n_steps)]
        outcomes += [row["final_answer_correct"]] * n_steps
    kappa = cohen_kappa(people, outcomes)
    assert kappa is not None and 0.2 < kappa < 0.9
    assert abs(kappa - sklearn_kappa(people, outcomes)) < 1e-12


def test_kappa_without_two_labels_is_undefined() -> None:
    assert cohen_kappa([True] * 5, [True] * 5) is None
    agreement = measure_agreement([1, 2, 3], [True] * 3, [True] * 3)
    assert agreement is not None and agreement.kappa is None and agreement.reference_right == 1
    assert measure_agreement([], [], []) is None


def test_the_interval_covers_kappa_of_the_population() -> None:
    rng = np.random.default_rng(0)

    def draw(n_problems: int) -> tuple[list[int], list[bool], list[bool]]:
        problems, first, second = [], [], []
        for problem in range(n_problems):
            rate, noise = rng.beta(2, 1), rng.beta(1, 4)
            labels = rng.random(6) < rate
            problems += [problem] * 6
            first += labels.tolist()
            second += (labels ^ (rng.random(6) < noise)).tolist()
        return problems, first, second

    truth = cohen_kappa(*draw(40_000)[1:])
    assert truth is not None
    intervals = [kappa_interval(*draw(60)) for _ in range(200)]
    covered = sum(low <= truth <= high for low, high in filter(None, intervals))
    assert 182 <= covered <= 199


def test_repeated_steps_do_not_narrow_the_interval() -> None:
    rng = random.Random(1)
    problems = list(range(80))
    first = [rng.random() < 0.6 for _ in problems]
    second = [label if rng.random() < 0.8 else not label for label in first]
    single = kappa_interval(problems, first, second)
    copied = kappa_interval(problems * 9, first * 9, second * 9)
    assert single is not None and copied == pytest.approx(single, abs=0.02)


def test_labels_that_all_agree_have_no_interval_of_kappa() -> None:
    """Resampled problems all agree, too. The agreement has an interval."""
    labels = [True, False] * 10
    agreement = measure_agreement(list(range(20)), labels, labels)
    assert agreement is not None and agreement.kappa == 1 and agreement.kappa_ci95 is None
    assert agreement.agreement_ci95[0] < 0.9 and agreement.agreement_ci95[1] == 1
    assert kappa_interval([1, 1], [True, False], [False, False]) is None


def test_the_name_of_a_labeller(tmp_path: Path) -> None:
    assert LabellerName.parse("runs/a:rewards") == (Path("runs/a"), "rewards")
    assert LabellerName.parse("runs/a") == (Path("runs/a"), None)
    assert LabellerName.parse("runs/a:b") == (Path("runs/a:b"), None)


class RewardStage(Stage):
    """A stage that writes given step rewards, problem by problem."""

    name = "test-rewards"
    writes = ()

    def options(self) -> dict[str, Any]:
        return {}

    def check(self, *_: Any) -> None:
        return None

    def run(self, draft: Any) -> AnyRecord:
        from fsdpo_data.dataset.schema import replace_column

        def add(table: Any) -> Any:
            rewards = []
            for row in table.to_pylist():
                is_right = row["outcome"] == "correct"
                level = 0.35 if is_right else 0.2
                rewards.append([0.35, level][: len(row["completions"])])
            return replace_column(table, "step_rewards", rewards)

        draft.rewrite_config("solutions", "test", add)
        return self.make_record()


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("agree")
    small_build(folder / "base", problem_set(12))
    derive(folder / "base", folder / "scored", RewardStage())
    return str(folder / "base"), str(folder / "scored")


def test_first_errors_and_base_rates(datasets: tuple[str, str]) -> None:
    base, scored = datasets
    report = fd.agree(base, f"{scored}:rewards", threshold=0.3)
    # Per problem: a right and a wrong solution of two steps, and a silent one of one step.
    assert report.solutions == 36 and report.total.steps.steps == 60
    assert report.total.steps.reference_right == 0.4
    assert report.total.steps.labeller_right == pytest.approx(0.8)
    assert report.total.steps.agreement == pytest.approx(0.6)
    errors = report.total.first_errors
    assert errors is not None and errors.with_error and errors.without_error
    assert (errors.with_error.value, errors.with_error.n) == (0, 24)
    assert (errors.without_error.value, errors.without_error.n, errors.f1) == (1, 12, 0)
    assert list(report.by_source) == ["test"] and list(report.by_position) == ["1", "2"]
    assert report.before_last is not None  # step 1 of each solution with two steps
    assert (report.before_last.steps.steps, report.before_last.steps.agreement) == (24, 0.5)
    second = report.by_position["2"].steps
    assert second.agreement == 1 and second.kappa == 1 and second.kappa_ci95 is None


def test_a_reward_that_equals_the_threshold_is_right(datasets: tuple[str, str]) -> None:
    """A reward of 0.35 is stored in 32 bits, as 0.349999994."""
    base, scored = datasets
    report = fd.agree(base, f"{scored}:rewards", threshold=0.35)
    assert report.total.steps.labeller_right == pytest.approx(0.8)
    report = fd.agree(f"{scored}:rewards", base, reference_threshold=0.35)
    assert report.total.steps.reference_right == pytest.approx(0.8)


def test_a_threshold_is_chosen_on_other_problems(datasets: tuple[str, str]) -> None:
    base, scored = datasets
    report = fd.agree(base, f"{scored}:rewards", calibrate="kappa")
    assert report.threshold == pytest.approx(0.35)
    assert report.solutions < 36 and "other problems" in report.threshold_source
    other = fd.agree(base, f"{scored}:rewards", calibrate="kappa", seed=1)
    assert other.solutions + report.solutions != 36 or other.solutions != report.solutions
    with pytest.raises(InputError, match=r"threshold = 0\.5: with `calibrate`"):
        fd.agree(base, scored, calibrate="f1", threshold=0.5)


class LogRatioStage(RewardStage):
    """Step rewards of a reward model that gives log-ratios."""

    name = "score"
    writes = ("step_rewards",)

    def options(self) -> dict[str, Any]:
        prm_format = {"name": "implicit", "digest": "0", "meaning": "log-ratio of two policies"}
        engine = {"name": "none", "dtype": "float32"}
        prm = {"name": "implicit", "revision": "0"}
        return {"prm": prm, "engine": engine, "prm_format": prm_format}

    def run(self, draft: Any) -> AnyRecord:
        super().run(draft)
        return self.make_record()


def test_rewards_that_are_not_probabilities_have_no_usual_threshold(
    datasets: tuple[str, str], tmp_path: Path
) -> None:
    base, _ = datasets
    derive(Path(base), tmp_path / "scored", LogRatioStage())
    scored = f"{tmp_path / 'scored'}:rewards"
    for labellers in ((base, scored), (scored, base)):
        with pytest.raises(InputError, match="Each is a log-ratio of two policies"):
            fd.agree(*labellers)
    assert fd.agree(base, scored, threshold=0.3).threshold == 0.3
    assert fd.agree(scored, base, reference_threshold=0.3).reference_threshold == 0.3
    assert fd.agree(base, scored, calibrate="kappa").threshold == pytest.approx(0.35)


def test_the_command_prints_base_rates_with_every_kappa(
    datasets: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    base, scored = datasets
    code, out, err = run(capsys, "agree", base, f"{scored}:rewards", "--threshold", "0.3")
    assert code == 0, err
    rows = [line for line in out.splitlines() if line.startswith(("all", "before", "step "))]
    assert len(rows) == 4 and all("%, " in row for row in rows)
    code, out, err = run(capsys, "agree", base, f"{scored}:rewards", "--json")
    values = json.loads(out)
    parts = [values["total"], *values["by_source"].values(), *values["by_position"].values()]
    names = {"kappa", "kappa_ci95", "reference_right", "labeller_right"}
    assert all(names <= part["steps"].keys() for part in parts)


def test_missing_labels_are_an_error(datasets: tuple[str, str]) -> None:
    base, _ = datasets
    with pytest.raises(InputError, match="the dataset has no rollouts labels"):
        fd.agree(base, f"{base}:rollouts")
    with pytest.raises(InputError, match="the dataset has no first-error labels"):
        fd.agree(f"{base}:first-error", base)
    assert math.isclose(fd.agree(base, base).total.steps.agreement, 1)
    assert pl.read_parquet(f"{base}/solutions/*.parquet").height == 48


def test_equal_ids_of_other_texts_are_not_compared(
    datasets: tuple[str, str], tmp_path: Path
) -> None:
    """Another engine gives other texts to the same model, settings and seed, and so to an id."""
    base, _ = datasets
    source = problem_set(12)
    texts = (*TEXTS[:1], RIGHT.replace("So it", "It"), *TEXTS[2:])
    small_build(tmp_path / "again", source, make_sampler=lambda: fixed_sampler(source, texts))
    ids = [
        fd.open_dataset(path).solutions().collect()["solution_id"].to_list()
        for path in (base, tmp_path / "again")
    ]
    assert ids[0] == ids[1]
    report = fd.agree(base, str(tmp_path / "again"))
    assert (report.solutions, report.other_steps) == (24, 12)
    assert report.total.steps.agreement == 1


def test_datasets_with_other_ids_are_matched_by_their_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"prompt": f"{n}+{n}?", "completions": ["a", f"b{n}"], "labels": [True, n % 3 > 0]}
        for n in range(12)
    ]
    # Two equal solutions with different labels match in their order.
    twins = [{**rows[1], "labels": [True, True]}, {**rows[1], "labels": [False, False]}]
    other_rows = [{**row, "prompt": f"{row['prompt']} "} for row in (*rows[2:][::-1], *twins)]
    other_rows.append({"prompt": "1+2?", "completions": ["c"], "labels": [True]})
    for name, lines in (("first", [*rows, twins[1]]), ("second", other_rows)):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        import_labels(source, "trl-stepwise", tmp_path / name)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    code, _, err = run(capsys, "agree", first, second)
    assert code == 1 and "label no common solution" in err and "use --match text" in err
    report = fd.agree(first, second, match="text")
    assert (report.solutions, report.only_reference, report.only_labeller) == (12, 1, 1)
    assert report.total.steps.agreement == 1

    third = tmp_path / "third.jsonl"
    third.write_text(json.dumps({**rows[0], "completions": ["a b0", "c"], "labels": [True, True]}))
    import_labels(third, "trl-stepwise", tmp_path / "third")
    with pytest.raises(InputError, match="The texts of all questions or steps differ"):
        fd.agree(first, str(tmp_path / "third"), match="text")
