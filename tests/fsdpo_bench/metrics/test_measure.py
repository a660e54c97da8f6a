"""Numbers of datasets, compared with brute force over subsets and with numbers made by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from bench_runs import (
    load_pool,
    make_entry,
    make_problem,
    make_solution,
    make_solutions,
    measure_paths,
    write_dataset,
    write_run,
)
from fsdpo_bench.decoders.decoders import DECODERS, Candidates, Decoder
from fsdpo_bench.metrics.compare import ComparisonOptions, compare_pools
from fsdpo_bench.metrics.decoder_choices import SubsetSpec
from fsdpo_bench.metrics.full_solutions import read_problem_solutions
from fsdpo_bench.metrics.measure import MeasureSpec
from fsdpo_bench.metrics.pools import load_pools, part_name
from fsdpo_bench.metrics.reranking import fold_numbers, select_by_fold
from fsdpo_bench.metrics.result_records import Results, TaskResults
from fsdpo_bench.metrics.reward_statistics import reward_quality
from fsdpo_bench.prm.dataset_report import dataset_report, load_scored
from fsdpo_bench.report.choice_tables import choice_tables
from fsdpo_bench.report.render import render_markdown
from fsdpo_bench.report.reports import make_reports
from fsdpo_bench.run_folder import RunRecord, write_run_record
from fsdpo_bench.tasks.table import suites

from fsdpo_data.core.entities import Problem, Solution
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.statistics import holm, mean_difference, mean_rate, wilson_interval
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord
from fsdpo_data.dataset.stage_registry import STAGES
from fsdpo_data.engines.scorers.prm_formats import PrmFormatRef
from fsdpo_data.problems.benchmark_rows import BenchmarkRow
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

SAMPLES = 5
ALL_SUBSETS = SubsetSpec(max_subsets=100)


def only_task(results: Results) -> TaskResults:
    [task] = results.tasks.values()
    return task


def random_pool(root: Path, prm: str = "prm", seed: int = 0) -> tuple[Path, list[list[Solution]]]:
    """Write 12 problems with random outcomes, few answers and few rewards; some are missing."""
    answers = random.Random(1)
    scores = random.Random(seed)
    problems = [make_problem(number) for number in range(12)]
    groups = []
    for problem in problems:
        rows = []
        for index in range(SAMPLES):
            answer = answers.choice([problem.answer, "7", "8", None])
            outcome = {None: "no_answer", problem.answer: "correct"}.get(answer, "incorrect")
            outcome = "undecided" if answer == "8" and index == 1 else outcome
            rewards = scores.choice([[0.25, 0.5], [0.5, 0.5], [0.75, 0.25], None])
            rows.append(make_solution(problem, index, outcome, answer=answer, step_rewards=rewards))
        groups.append(rows)
    return write_dataset(root, problems, [row for rows in groups for row in rows], prm=prm), groups


def vote_by_hand(solutions: Sequence[Solution], weights: Sequence[float]) -> int | None:
    """Return the first sample of the answer with the largest weight; exact sums decide ties."""
    totals: dict[str, Fraction] = {}
    for solution, weight in zip(solutions, weights, strict=True):
        if solution.answer is not None:
            totals[solution.answer] = totals.get(solution.answer, Fraction(0)) + Fraction(weight)
    if not totals:
        return None
    return next(
        index
        for index, solution in enumerate(solutions)
        if solution.answer is not None and totals[solution.answer] == max(totals.values())
    )


def scores_of(solutions: Sequence[Solution], name: str) -> list[float | None]:
    return [s.step_rewards and aggregate(s.step_rewards, name) for s in solutions]


def best_by_hand(solutions: Sequence[Solution], name: str) -> int:
    scores = [-1.0 if score is None else score for score in scores_of(solutions, name)]
    return scores.index(max(scores))


def subset_mean(
    group: Sequence[Solution],
    size: int,
    choose: Callable[[Sequence[Solution]], int | None],
    outcomes: Sequence[str] = ("correct",),
) -> float:
    """Return how often the choice from a subset has one of the outcomes, over all subsets."""
    subsets = list(itertools.combinations(group, size))
    chosen = [(subset, choose(subset)) for subset in subsets]
    return fmean(i is not None and subset[i].outcome in outcomes for subset, i in chosen)


@pytest.mark.parametrize("name", ["sc", "weighted", "bon"])
def test_an_accuracy_is_the_mean_over_all_subsets(tmp_path: Path, name: str) -> None:
    root, groups = random_pool(tmp_path / "data")
    task = only_task(measure_paths(root, subsets=ALL_SUBSETS, sizes=range(1, SAMPLES + 1)))
    for size, agg in itertools.product(range(1, SAMPLES + 1), AGGREGATES):

        def choose(solutions: Sequence[Solution], agg: str = agg) -> int | None:
            if name == "bon":
                return best_by_hand(solutions, agg)
            weights = [score or 0.0 for score in scores_of(solutions, agg)]
            return vote_by_hand(solutions, weights if name == "weighted" else [1.0] * len(weights))

        result = task.decoders[f"sc@{size}" if name == "sc" else f"{name}@{size}:{agg}"]
        expected = fmean(subset_mean(group, size, choose) for group in groups)
        assert result.accuracy.value == pytest.approx(expected)
        bound = fmean(subset_mean(g, size, choose, ("correct", "undecided")) for g in groups)
        upper_bound = result.upper_bound or result.accuracy
        assert upper_bound.value == pytest.approx(bound)
        assert sum(result.outcomes.values()) == pytest.approx(12)


def test_random_subsets_are_paired_and_all_samples_give_the_choice(tmp_path: Path) -> None:
    root, groups = random_pool(tmp_path / "data")
    few = only_task(measure_paths(root, subsets=SubsetSpec(max_subsets=5)))
    exact = only_task(measure_paths(root, subsets=ALL_SUBSETS))
    assert few.decoders["sc@2"].accuracy != exact.decoders["sc@2"].accuracy
    assert few.decoders["sc@5"] == exact.decoders["sc@5"]
    right = sum(
        i is not None and group[i].outcome == "correct"
        for group in groups
        if (i := vote_by_hand(group, [1.0] * SAMPLES)) is not None
    )
    assert few.decoders["sc@5"].accuracy.total == pytest.approx(right)


def test_a_decoder_of_a_plugin_chooses_from_every_subset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose_last_correct_looking(candidates: Candidates) -> int | None:
        texts = [solution.text for solution in candidates.solutions]
        marked = [index for index, text in enumerate(texts) if "answer is 7" in text]
        return marked[-1] if marked else None

    monkeypatch.setattr(DECODERS, "data", dict(DECODERS.items()))
    DECODERS.register(
        Decoder(
            name="sevens",
            title="the last 7 of K samples",
            description="the last 7",
            suffix="@{k}",
            choose=choose_last_correct_looking,
        )
    )
    root, groups = random_pool(tmp_path / "data")
    task = only_task(measure_paths(root, subsets=ALL_SUBSETS, sizes=[3]))

    def choose(solutions: Sequence[Solution]) -> int | None:
        sevens = [index for index, row in enumerate(solutions) if "answer is 7" in row.text]
        return sevens[-1] if sevens else None

    wrong = sum(subset_mean(group, 3, choose, ("incorrect",)) for group in groups)
    assert wrong > 0
    assert task.decoders["sevens@3"].outcomes["incorrect"] == pytest.approx(wrong, abs=1e-6)


def test_the_interval_of_certain_choices_is_wilsons_at_every_n(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(10)]
    rows = [
        row
        for number, problem in enumerate(problems)
        for row in make_solutions(
            problem, ("i" if number < 2 else "c") * 4, step_rewards=[[0.5, 0.9]] * 4
        )
    ]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows, prm="prm")))
    accuracies = [result.accuracy for result in task.decoders.values()]
    assert len(accuracies) > 20 and all(entry == accuracies[0] for entry in accuracies)
    assert accuracies[0].ci95 == wilson_interval([1] * 8 + [0] * 2)


# Verdicts


def test_undecided_and_timed_out_answers_are_wrong_with_an_upper_bound(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(5)]
    outcomes = ["cc", "uu", "tt", "gg", "in"]
    rows = [row for p, o in zip(problems, outcomes, strict=True) for row in make_solutions(p, o)]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows)))
    first = task.decoders["first"]
    assert (first.accuracy.total, first.accuracy.n, first.accuracy.value) == (1, 4, 0.25)
    assert first.outcomes == {
        **dict.fromkeys(("correct", "gold_unparsed", "incorrect", "timed_out", "undecided"), 1)
    }
    assert first.upper_bound is not None and first.upper_bound.total == 3
    assert first.accuracy.ci95 == pytest.approx(wilson_interval([1, 0, 0, 0]))
    counts = [*first.outcomes.values(), first.cost.tokens]
    assert all(isinstance(count, int) for count in counts)
    assert task.numbers["avg_at_k"]["2"].value == 0.25
    assert task.numbers["pass_at_k"]["2"].n == 4
    assert task.decoders["sc@2"].outcomes["gold_unparsed"] == 1


def test_problems_without_readable_golds_have_no_differences(tmp_path: Path) -> None:
    problem = make_problem(1)
    rows = make_solutions(problem, "gg", step_rewards=[[0.5, 0.2], [0.4, 0.9]])
    root = write_dataset(tmp_path / "d", [problem], rows, prm="prm")
    task = only_task(measure_paths(root))
    assert task.decoders["bon@2:mean"].accuracy.value is None
    assert task.ahead_of_vote == task.ahead_of_min == task.selected == {}


def test_a_vote_without_answers_counts_as_no_answer(tmp_path: Path) -> None:
    problem = make_problem(1)
    rows = make_solutions(problem, "nn")
    task = only_task(measure_paths(write_dataset(tmp_path / "d", [problem], rows)))
    assert task.decoders["sc@2"].outcomes == {"no_answer": 1}
    assert task.decoders["sc@2"].accuracy.value == 0


def test_accuracy_without_tolerance_and_without_the_judge(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(4)]
    strict = [True, False, True, False]
    verdicts_by = ["math@6/boxed/number"] * 2 + ["judge/m@1/boxed"] * 2
    outcomes = "cccu"
    rows = [
        make_solutions(problem, outcome, exactly_correct=[is_exact], verdict_by=[verdict_by])[0]
        for problem, outcome, is_exact, verdict_by in zip(
            problems, outcomes, strict, verdicts_by, strict=True
        )
    ]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows)))
    [result] = task.decoders.values()
    assert list(task.decoders) == ["greedy"]
    assert result.accuracy.total == 3
    assert result.exactly_correct is not None and result.exactly_correct.total == 2
    assert result.without_judge is not None and result.without_judge.total == 2
    assert result.upper_bound_without_judge is not None
    assert result.upper_bound_without_judge.total == 4


def test_only_a_benchmark_with_a_tolerance_has_an_accuracy_without_it(tmp_path: Path) -> None:
    tasks = measure_paths(write_run(tmp_path / "run", {"ocw": 5, "gsm_ic2": 9})).tasks
    has_strict = {
        name: {result.exactly_correct is not None for result in task.decoders.values()}
        for name, task in tasks.items()
    }
    assert has_strict == {"ocw": {True}, "gsm_ic2": {False}}


# Numbers


def test_samples_give_avg_pass_and_maj_at_k(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(3)]
    rows = [
        row
        for problem, outcomes in zip(problems, ("cccc", "ciii", "iiii"), strict=True)
        for row in make_solutions(problem, outcomes)
    ]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows)))
    numbers = task.numbers
    assert numbers["avg_at_k"]["4"].value == pytest.approx(5 / 12)
    passes = {k: numbers["pass_at_k"][k].value for k in ("1", "2", "4")}
    assert passes == pytest.approx({"1": 5 / 12, "2": 1.5 / 3, "4": 2 / 3})
    assert numbers["maj_at_k"]["4"] == task.decoders["sc@4"].accuracy
    assert numbers["maj_at_k"]["4"].total == 1
    assert (task.samples, task.mixed_problems) == (4, 1)


def test_cost_is_of_k_samples_or_of_a_search(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"gsm8k": 5, "svamp": 7})
    results = measure_paths(run)
    table = load_pool(run)
    tokens = sum(b.parts["samples"].tokens_PM.sum() for b in table.benchmarks.values())
    search = sum(b.parts["sbs@2,1"].tokens_PM.sum() for b in table.benchmarks.values())
    assert results.cost["sc@4"].tokens == tokens and results.cost["sc@2"].tokens == tokens / 2
    assert results.cost["sc@4"].prm_calls == 0 and results.cost["bon@4:min"].prm_calls == 48
    assert results.cost["sbs@2,1"].tokens == search and search > 12 * 60
    assert results.cost["sbs@2,1"].prm_calls == 48
    assert results.run.datasets["samples"].cost.seconds == 1.5
    problem = make_problem(1)
    rows = make_solutions(problem, "cc", n_tokens=[None, 3])
    unknown = measure_paths(write_dataset(tmp_path / "d", [problem], rows))
    assert unknown.cost["sc@2"].tokens is unknown.cost["first"].tokens is None


def test_a_problem_with_several_places_costs_once(tmp_path: Path) -> None:
    """Its samples exist once, so a decoder of all samples costs as much as the dataset."""
    problems = [
        make_problem(0, [BenchmarkRow("a", 0), BenchmarkRow("a", 2), BenchmarkRow("b", 1)]),
        make_problem(1, [BenchmarkRow("a", 1)]),
        make_problem(2, [BenchmarkRow("b", 0)]),
    ]
    rows = [
        row
        for number, problem in enumerate(problems)
        for row in make_solutions(
            problem, "ci", n_tokens=[10**number] * 2, step_rewards=[[0.5, 0.9]] * 2
        )
    ]
    results = measure_paths(write_dataset(tmp_path / "d", problems, rows, prm="prm"))
    by_task = {name: task.decoders["bon@2:min"].cost for name, task in results.tasks.items()}
    assert {name: (c.tokens, c.prm_calls) for name, c in by_task.items()} == {
        "a": (22, 4),
        "b": (202, 4),
    }
    total = results.cost["bon@2:min"]
    assert (total.tokens, total.prm_calls) == (222, 6)
    assert results.cost["first"].tokens == 111


def test_any_beam_search_is_a_part_with_the_name_of_its_decoder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"gsm8k": 5})
    manifest = read_manifest(run / "sbs@2,1")
    sampled = manifest.get(SAMPLE_STAGE, SampleRecord)
    assert sampled.options.search is not None
    search = sampled.options.search.model_copy(update={"sampler": "narrow"})
    options = sampled.options.model_copy(update={"search": search})
    manifest.put(sampled.model_copy(update={"options": options}))
    assert manifest.get(SAMPLE_STAGE, SampleRecord).options.search == search
    assert part_name(manifest) == "sbs@2,1"


# Places in benchmarks


def test_a_problem_counts_at_each_of_its_places(tmp_path: Path) -> None:
    """Two benchmarks share a problem, and one lists it twice with other groups."""
    twice = [
        BenchmarkRow("a", 0, {"level": "1"}),
        BenchmarkRow("a", 2, {"level": "2"}),
        BenchmarkRow("b", 0),
    ]
    problems = [make_problem(0, twice), make_problem(1, [BenchmarkRow("a", 1, {"level": "2"})])]
    rows = [*make_solutions(problems[0], "c"), *make_solutions(problems[1], "i")]
    tasks = measure_paths(write_dataset(tmp_path / "d", problems, rows)).tasks
    assert {name: task.problems for name, task in tasks.items()} == {"a": 3, "b": 1}
    assert tasks["a"].decoders["greedy"].accuracy.value == pytest.approx(2 / 3)
    levels = tasks["a"].groups["level"]
    assert {label: part["greedy"].value for label, part in levels.items()} == {"1": 1, "2": 0.5}
    assert tasks["b"].groups == {}


def dependent_problems() -> tuple[list[Problem], list[str]]:
    """Return problems of which two share a base and one occurs twice, and all their clusters."""
    benchmark_rows = [
        [BenchmarkRow("a", 0, cluster="base")],
        [BenchmarkRow("a", 1, cluster="base")],
        [BenchmarkRow("a", 2), BenchmarkRow("a", 5)],
        [BenchmarkRow("a", 3)],
        [BenchmarkRow("a", 4)],
    ]
    problems = [make_problem(number, entries) for number, entries in enumerate(benchmark_rows)]
    return problems, ["base", "base", "twice", "3", "4", "twice"]


def test_problems_on_one_base_and_places_of_one_problem_are_one_unit(tmp_path: Path) -> None:
    problems, clusters = dependent_problems()
    rows = [make_solutions(p, o)[0] for p, o in zip(problems, "cciic", strict=True)]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows)))
    accuracy = task.decoders["greedy"].accuracy
    assert accuracy == mean_rate([1, 1, 0, 0, 1, 0], clusters) and accuracy.clusters == 4
    # Without a base or a second place, each problem is a unit.
    single = only_task(measure_paths(write_dataset(tmp_path / "s", problems[3:], rows[3:])))
    assert single.decoders["greedy"].accuracy == mean_rate([0, 1])


def test_a_run_counts_the_problems_that_all_parts_have(tmp_path: Path) -> None:
    problems = [make_problem(n, [BenchmarkRow("math", n)]) for n in range(4)]
    run = tmp_path / "run"
    samples = [row for problem in problems[:3] for row in make_solutions(problem, "cc")]
    write_dataset(run / "samples", problems, samples)
    greedy = [make_solutions(problem, "c")[0] for problem in problems[1:]]
    write_dataset(run / "greedy", problems, greedy)
    record = RunRecord(
        decoders=["greedy", "sc@2"],
        parts=["greedy", "samples"],
        benchmarks={"math": make_entry("math", 4)},
    )
    write_run_record(run, record)
    task = only_task(measure_paths(run))
    assert (task.problems, task.failed, task.task_problems) == (2, 2, 7)
    assert list(task.decoders) == ["greedy", "sc@2"]


def test_problems_of_another_split_are_not_a_part_of_the_benchmark(tmp_path: Path) -> None:
    """Training problems and the benchmark have one source, such as the embedded problems."""
    train = [make_problem(n, source="embedded") for n in range(2)]
    test = [make_problem(n, [BenchmarkRow("embedded", n)], source="embedded") for n in range(2)]
    for problems, task_problems in ((train, None), (test, 500)):
        rows = [row for problem in problems for row in make_solutions(problem, "ci")]
        root = write_dataset(tmp_path / str(task_problems), problems, rows)
        task = only_task(measure_paths(root))
        assert (task.title, task.problems) == ("Embedded problems", 2)
        assert task.task_problems == task_problems


def test_problems_with_fewer_samples_are_left_out(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(3)]
    outcomes = ("cci", "iiic", "c")
    rows = [row for p, o in zip(problems, outcomes, strict=True) for row in make_solutions(p, o)]
    rows += make_solutions(make_problem(9), "iii")
    task = only_task(
        measure_paths(write_dataset(tmp_path / "d", [*problems, make_problem(9)], rows))
    )
    assert (task.problems, task.samples, task.left_out) == (3, 3, 1)
    assert task.numbers["avg_at_k"]["3"].value == pytest.approx(2 / 9)


def test_each_problem_has_its_own_samples_if_another_part_leaves_out_the_usual_number(
    tmp_path: Path,
) -> None:
    """Two samples are most frequent, but the other part leaves out two of these three problems."""
    problems = [make_problem(n, [BenchmarkRow("math", n)]) for n in range(5)]
    by_id = sorted(problems, key=lambda problem: problem.id)
    parts = {"samples": ("ii", "ii", "ii", "ccc", "ccc"), "greedy": ("c", "c", "cc", "cc", "cc")}
    run = tmp_path / "run"
    for part, outcomes in parts.items():
        rows = [r for p, o in zip(by_id, outcomes, strict=True) for r in make_solutions(p, o)]
        write_dataset(run / part, problems, rows)
    benchmarks = {"math": make_entry("math", 5)}
    write_run_record(run, RunRecord(decoders=["sc@2"], parts=[*parts], benchmarks=benchmarks))
    task = only_task(measure_paths(run))
    assert (task.problems, task.left_out, task.samples) == (3, 2, 2)
    assert task.numbers["avg_at_k"]["2"].value == pytest.approx(2 / 3)


def test_groups_spread_drops_and_suites(tmp_path: Path) -> None:
    base = [make_problem(n, [BenchmarkRow("base", n)]) for n in range(2)]
    derived = [
        make_problem(
            10 + n,
            [BenchmarkRow("derived", n, {"kind": "xy"[n // 2]}, base[n % 2].question)],
        )
        for n in range(4)
    ]
    outcomes = ("c", "c", "c", "i", "i", "i")
    rows = [
        make_solutions(problem, outcome)[0]
        for problem, outcome in zip([*base, *derived], outcomes, strict=True)
    ]
    run = tmp_path / "run"
    write_dataset(run / "greedy", [*base, *derived], rows)
    entries = {
        "base": make_entry("base", 2),
        "derived": make_entry("derived", 4, base_task="base", spread_group="kind"),
    }
    write_run_record(run, RunRecord(decoders=["greedy"], parts=["greedy"], benchmarks=entries))
    results = measure_paths(run)
    task = results.tasks["derived"]
    drops = {
        kind: by_decoder["greedy"].value for kind, by_decoder in task.accuracy_drops["kind"].items()
    }
    assert drops == {"x": 0.5, "y": 1.0}
    assert not any(d["greedy"].clusters for d in task.accuracy_drops["kind"].values())
    spread = task.group_spread["greedy"]
    assert (spread.parts, spread.mean, spread.lowest, spread.highest) == (2, 0.25, 0, 0.5)
    assert task.decoders["greedy"].accuracy.clusters == 2
    mean = results.suites["this run"].accuracies["greedy"]
    assert mean.value == pytest.approx((1 + 0.25) / 2)
    suite = measure_paths(write_run(tmp_path / "suite", dict.fromkeys(suites()["in-domain"], 3)))
    assert list(suite.suites) == ["in-domain"]


def test_a_mean_over_two_benchmarks_with_the_same_problems_has_the_interval_of_one(
    tmp_path: Path,
) -> None:
    problems = [make_problem(n, [BenchmarkRow(name, n) for name in "ab"]) for n in range(9)]
    outcomes = "ccccciiii"
    pairs = zip(problems, outcomes, strict=True)
    rows = [row for problem, letter in pairs for row in make_solutions(problem, letter + "c")]
    root = write_dataset(tmp_path / "d", problems, rows)
    results = measure_paths(root)
    mean = results.suites["this run"].accuracies["first"]
    assert mean.ci95 == pytest.approx(results.tasks["a"].accuracies["first"].ci95)
    pool = load_pool(root)
    compared = compare_pools(pool, pool, ComparisonOptions(decoder_a="first", decoder_b="sc@2"))
    [difference] = [entry.difference for entry in compared.means]
    assert difference.ci95 == pytest.approx(compared.differences[0].difference.ci95)


def test_the_drops_of_problems_on_one_base_are_one_unit(tmp_path: Path) -> None:
    base = [make_problem(n, [BenchmarkRow("base", n)]) for n in range(3)]
    derived = [
        make_problem(10 + n, [BenchmarkRow("derived", n, {"kind": "x"}, base[n // 2].question)])
        for n in range(6)
    ]
    rows = [
        make_solutions(problem, outcome)[0]
        for problem, outcome in zip([*base, *derived], "cccciiicc", strict=True)
    ]
    run = tmp_path / "run"
    write_dataset(run / "greedy", [*base, *derived], rows)
    entries = {"base": make_entry("base", 3), "derived": make_entry("derived", 6, base_task="base")}
    write_run_record(run, RunRecord(decoders=["greedy"], parts=["greedy"], benchmarks=entries))
    drop = measure_paths(run).tasks["derived"].accuracy_drops["kind"]["x"]["greedy"]
    assert drop == mean_difference([0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2])


def test_a_decoder_that_is_not_installed_is_no_silent_loss(tmp_path: Path) -> None:
    problem = make_problem(0, [BenchmarkRow("a", 0)])
    run = tmp_path / "run"
    write_dataset(run / "greedy", [problem], make_solutions(problem, "c"))
    entries = {"a": make_entry("a", 1)}
    write_run_record(
        run, RunRecord(decoders=["greedy", "mine@4"], parts=["greedy"], benchmarks=entries)
    )
    with pytest.raises(InputError, match="results of the decoder mine@4, which is not installed"):
        measure_paths(run)


# Reward models


def test_reward_statistics_count_a_problem_at_each_of_its_places_and_its_pairs_once(
    tmp_path: Path,
) -> None:
    benchmark_rows = [
        [BenchmarkRow("a", 0), BenchmarkRow("a", 2), BenchmarkRow("b", 0)],
        [BenchmarkRow("a", 1)],
    ]
    problems = [make_problem(number, entries) for number, entries in enumerate(benchmark_rows)]
    # The rewards rank the solutions of the first problem right, and those of the second one wrong.
    step_rewards = [[[0.9, 0.9], [0.1, 0.1]], [[0.2, 0.2], [0.6, 0.6]]]
    rows = [
        row
        for problem, rewards in zip(problems, step_rewards, strict=True)
        for row in make_solutions(problem, "ci", step_rewards=rewards)
    ]
    results = measure_paths(write_dataset(tmp_path / "d", problems, rows, prm="prm"), gammas=[1])
    rewards = results.rewards["prm"]
    assert (rewards.solutions, rewards.correct) == (8, 4)
    assert sum(reward_bin.correct.n for reward_bin in rewards.calibration.bins) == 16
    ranking = rewards.ranking_auc["mean"]
    assert (ranking.value, ranking.n, ranking.clusters) == (0.75, 4, 2)
    assert rewards.pairs is not None and (rewards.pairs.pairs, rewards.pairs.problems) == (2, 2)
    heading = "8 solutions, 4 correct; a problem counts at each of its places in the benchmarks."
    assert heading in render_markdown(results)


@pytest.fixture
def pools(tmp_path: Path) -> list[Path]:
    """Two models: one prefers the correct samples, the other one prefers the incorrect ones."""
    problems = [make_problem(number) for number in range(8)]
    rewards = {
        "good": [[0.2, 0.1], [0.7, 0.9], [0.9, 0.8]],
        "bad": [[0.9, 1.0], [0.2, 0.1], [0.1, 0.2]],
    }
    roots = []
    for name, step_rewards in rewards.items():
        rows = [
            row
            for problem in problems
            for row in make_solutions(problem, "icc", step_rewards=step_rewards)
        ]
        roots.append(write_dataset(tmp_path / name, problems, rows, prm=name))
    return roots


def test_two_reward_models_on_the_same_samples(pools: list[Path]) -> None:
    results = measure_paths(*pools, gammas=[2])
    task = only_task(results)
    for name in AGGREGATES:
        assert task.decoders[f"bon@3:{name} by good"].accuracy.value == 1
        assert task.decoders[f"bon@3:{name} by bad"].accuracy.value == 0
        assert task.ahead_of_vote[f"bon@3:{name} by bad"].value == -1
        assert results.rewards["good"].ranking_auc[name].value == 1
    assert task.decoders["weighted@3:mean by bad"].accuracy.value == 0
    assert task.decoders["sc@3"].accuracy.value == 1
    # Of two samples with different answers, the vote takes the first, which is wrong.
    difference = task.ahead_of_vote["bon@2:min by good"]
    expected = mean_difference([2 / 3] * 8)
    assert difference.value == pytest.approx(2 / 3) and difference.p == pytest.approx(expected.p)
    assert {name.partition(":")[2] for name in task.ahead_of_min} == {
        f"{aggregate} by {model}"
        for aggregate in AGGREGATES
        if aggregate != "min"
        for model in ("good", "bad")
    }
    cells = [task.selected[model][size] for model in ("good", "bad") for size in ("2", "3")]
    assert [c.p_holm for c in cells] == holm([c.ahead_of_vote.p for c in cells])
    pairs = results.rewards["good"].pairs
    assert pairs is not None and (pairs.pairs, pairs.problems) == (8, 8)  # equal texts count once
    rejected = pairs.weights["2"]["rejected"]
    # The weights of two steps are sigmoids of γ times the difference of their rewards.
    weight = 1 / (1 + math.exp(-2 * 0.1))
    assert rejected is not None and rejected.from_uniform == pytest.approx(weight - 0.5, abs=1e-6)
    assert rejected.max_over_uniform == pytest.approx(2 * weight, abs=1e-6)
    assert set(results.run.reward_models) == {"good", "bad"}


def test_the_comparisons_of_a_report_do_not_depend_on_the_names_of_decoders(
    pools: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = only_task(measure_paths(pools[0]))
    names = {"sc": "majority", "bon": "best", "greedy": "likeliest"}
    renamed = {
        names.get(name, name): replace(decoder, name=names.get(name, name))
        for name, decoder in DECODERS.items()
    }
    monkeypatch.setattr(DECODERS, "data", renamed)
    renamed_task = only_task(measure_paths(pools[0]))
    assert task.ahead_of_vote and task.ahead_of_min
    for field in ("ahead_of_vote", "ahead_of_min"):
        expected = {
            key.replace("bon", "best"): value for key, value in getattr(task, field).items()
        }
        assert getattr(renamed_task, field) == expected
    problem = make_problem(0)
    root = write_dataset(pools[0].parent / "single", [problem], make_solutions(problem, "c"))
    assert part_name(read_manifest(root)) == "likeliest"


@pytest.mark.parametrize(
    ("last_step_only", "aggregate", "margins"),
    [(False, "mean", [0.75 - 0.5, 0.4 - 0.5]), (True, "last", [0.5 - 0.1, 0.6 - 0.1])],
)
def test_the_pairs_of_a_report_are_those_of_the_pair_command(
    tmp_path: Path, last_step_only: bool, aggregate: str, margins: list[float]
) -> None:
    rows = make_solutions(
        make_problem(0),
        "cci",
        step_rewards=[[1.0, 0.5], [0.2, 0.6], [0.9, 0.1]],
        completions=[[f"Step {index}.\n", "It is 10."] for index in range(3)],
    )
    score = {"last_step_only": last_step_only}
    root = write_dataset(tmp_path / "d", [make_problem(0)], rows, prm="prm", score=score)
    results = measure_paths(root, gammas=[2])
    pairs = results.rewards["prm"].pairs
    assert pairs is not None
    options = PairOptions(data=root, out=tmp_path / "pairs")
    [stage] = STAGES["pair"].stages(options, NO_PROGRESS).values()
    assert (pairs.top, pairs.aggregate) == (stage.pair_spec.top, stage.pair_spec.aggregate)
    assert (pairs.pairs, pairs.aggregate) == (2, aggregate)
    assert pairs.margin == pytest.approx(fmean(margins))
    [table] = [table for table in choice_tables(results) if table.title.startswith("pairs")]
    assert table.rows[0][:3] == ["prm", aggregate, "4"]


def test_other_datasets_are_pools_of_their_own(pools: list[Path], tmp_path: Path) -> None:
    other = write_dataset(
        tmp_path / "c", [make_problem(0)], make_solutions(make_problem(0), "cc", salt=[1, 1])
    )
    assert [pool.name for pool in load_pools([*pools, other])] == ["good", "c"]
    problems = [make_problem(number) for number in range(8)]
    regraded = [
        row for problem in problems for row in make_solutions(problem, "iuc", answer=["7"] * 3)
    ]
    other_verdicts = write_dataset(tmp_path / "e", problems, regraded)
    with pytest.raises(InputError, match="other verdicts"):
        load_pools([pools[0], other_verdicts])


def write_run_with_parts(run: Path, parts: dict[str, str], decoders: list[str]) -> Path:
    """Write a run of one problem with the outcomes of each part; equal outcomes are equal parts."""
    problem = make_problem(0, [BenchmarkRow("math", 0)])
    for part, outcomes in parts.items():
        rows = make_solutions(problem, outcomes, salt=[part + outcomes] * len(outcomes))
        write_dataset(run / part, [problem], rows)
    entries = {"math": make_entry("math", 1)}
    write_run_record(run, RunRecord(decoders=decoders, parts=[*parts], benchmarks=entries))
    return run


def test_decoders_of_a_second_run_with_the_same_samples_are_named(tmp_path: Path) -> None:
    votes = write_run_with_parts(tmp_path / "votes", {"samples": "cci"}, ["sc@3"])
    greedy_run = write_run_with_parts(
        tmp_path / "greedy", {"samples": "cci", "greedy": "c"}, ["greedy", "sc@2", "sc@3"]
    )
    other = write_run_with_parts(tmp_path / "other", {"samples": "cci", "greedy": "i"}, ["greedy"])

    def warnings(*runs: Path) -> list[str]:
        messages: list[str] = []
        make_reports(runs, MeasureSpec(), warn=messages.append)
        return messages

    [message] = warnings(votes, greedy_run)
    assert message.startswith(f"{greedy_run} has the samples of votes")
    assert "results of greedy, sc@2 are left out" in message
    assert not warnings(greedy_run, votes)
    [message] = warnings(greedy_run, other)
    assert "results of greedy are left out" in message
    copy = write_run_with_parts(tmp_path / "copy", {"samples": "cci", "greedy": "c"}, ["greedy"])
    assert not warnings(greedy_run, copy)


def test_the_intervals_of_rewards_are_over_base_problems(tmp_path: Path) -> None:
    problems, clusters = dependent_problems()
    rows = [
        row
        for number, problem in enumerate(problems)
        for row in make_solutions(
            problem, "ci", step_rewards=[[0.62], [0.68 if number in (0, 1) else 0.61]]
        )
    ]
    rows = [replace(row, completions=[row.text]) for row in rows]
    root = write_dataset(tmp_path / "d", problems, rows, prm="prm")
    rewards = measure_paths(root).rewards["prm"]
    assert rewards.ranking_auc["min"] == mean_rate([0, 0, 1, 1, 1, 1], clusters)
    [entry] = rewards.calibration.bins
    assert entry.correct == mean_rate([1, 0] * 6, [name for name in clusters for _ in "ci"])


def test_only_probabilities_weigh_votes(tmp_path: Path) -> None:
    problem = make_problem(1)
    rows = make_solutions(problem, "ci", step_rewards=[[-3.0, 7.0]] * 2)
    root = write_dataset(tmp_path / "d", [problem], rows, prm="prm", is_probability=False)
    results = measure_paths(root)
    assert not any(name.startswith("weighted") for name in only_task(results).decoders)
    assert results.rewards["prm"].quality is None
    assert results.rewards["prm"].ranking_auc["min"].value == 0.5


def test_a_second_reward_model_of_a_run_weighs_votes_only_by_probabilities(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {"svamp": 3}, decoders=["sc@2", "weighted@2:min", "bon@2:min"]
    )
    manifest = read_manifest(run / "samples")
    problems = read_problems(manifest.config_paths(run / "samples", "problems")).values()
    rows = [
        replace(row, step_rewards=[-3.0, 7.0])
        for solutions in read_problem_solutions(run / "samples", [p.id for p in problems]).values()
        for row in solutions
    ]
    other = write_dataset(tmp_path / "o", [*problems], rows, prm="log-ratio", is_probability=False)
    names = [*only_task(measure_paths(run, other)).decoders]
    assert names == ["sc@2", "weighted@2:min by prm", "bon@2:min by prm", "bon@2:min by log-ratio"]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({"prm_format": None}, "min"),
        ({"prm_format": None, "last_step_only": True}, "last"),
        ({"prm_format": PrmFormatRef(name="skywork", digest="e", meaning="probability")}, "mean"),
        ({"prm_format": PrmFormatRef(name="of-a-user", digest="e", meaning="probability")}, "min"),
    ],
)
def test_the_reward_model_decides_the_default_aggregate(
    score: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    problem = make_problem(1)
    rows = make_solutions(problem, "ci", step_rewards=[[0.07, 0.97], [0.97, 0.45]])
    root = write_dataset(tmp_path / "d", [problem], rows, prm="prm", score=score)
    results = measure_paths(root)
    rewards = results.rewards["prm"]
    assert rewards.default_aggregate == rewards.distribution.aggregate == expected
    bins = {"min": (0, 4), "last": (9, 4), "mean": (5, 7)}[expected]
    distribution = (rewards.distribution.correct, rewards.distribution.wrong)
    assert tuple(counts.index(1) for counts in distribution) == bins
    [quality] = [table for table in choice_tables(results) if "ranking AUC" in table.title]
    labels = [row[1] for row in quality.rows]
    assert [label for label in labels if "default" in label] == [f"{expected} (default)"]


def test_options_limit_sizes_aggregates_and_problems(pools: list[Path]) -> None:
    task = only_task(measure_paths(pools[0], sizes=[2], aggregates=["min"]))
    assert list(task.decoders) == ["first", "sc@2", "weighted@2:min", "bon@2:min"]
    with pytest.raises(InputError, match="the problems have 3 samples each"):
        measure_paths(pools[0], sizes=[4])
    [pool] = load_pools(pools[:1], frozenset({"whatis1+10?"}))
    [benchmark] = pool.benchmarks.values()
    assert len(benchmark.main.problems) == 1 and benchmark.failed == 0
    with pytest.raises(InputError, match="has no solution to measure"):
        load_pools(pools[:1], frozenset({"?"}))


def test_a_changed_dataset_is_refused(pools: list[Path]) -> None:
    file = pools[0] / "solutions/0.parquet"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(SchemaError, match="was changed since it was sealed"):
        load_pools(pools[:1])


def test_rewards_are_compared_with_outcomes(tmp_path: Path) -> None:
    results = measure_paths(write_run(tmp_path / "run", {"gsm8k": 60}))
    rewards = results.rewards["prm"]
    assert rewards.solutions == 240
    bins = rewards.calibration.bins
    assert sum(entry.correct.n for entry in bins) == 480
    assert (bins[0].correct.value or 0) < 0.3 < 0.7 < (bins[-1].correct.value or 0)
    for entry in bins:
        assert entry.low <= entry.reward <= entry.high
        assert entry.correct.ci95 is not None and entry.correct.value is not None
        assert entry.correct.ci95.low <= entry.correct.value <= entry.correct.ci95.high
    assert sum(rewards.distribution.correct) == rewards.correct
    assert sum(rewards.distribution.wrong) == 240 - rewards.correct
    ranking = rewards.ranking_auc["mean"].value
    assert ranking is not None and ranking > 0.85
    first, second, third = rewards.by_step.correct[:3]
    assert first is not None and first.steps == rewards.correct and second is not None
    assert third is None


def test_the_selection_never_sees_the_half_that_it_is_measured_on() -> None:
    """Each strategy is perfect on one half only, so the selection for the other half is wrong."""
    folds = np.array([0, 0, 0, 1, 1, 1])
    values = {"bon:min": (folds == 0).astype(float), "bon:mean": (folds == 1).astype(float)}
    selected, names = select_by_fold(values, folds)
    assert names == ["bon:mean", "bon:min"] and not selected.any()


def test_base_problems_of_two_benchmarks_with_one_number_are_two_units(tmp_path: Path) -> None:
    problems = [
        make_problem(10 * index + number, [BenchmarkRow(name, number, cluster=str(number // 2))])
        for index, name in enumerate("ab")
        for number in range(4)
    ]
    rows = [
        row
        for problem in problems
        for row in make_solutions(problem, "ci", step_rewards=[[0.2, 0.3]] * 2)
    ]
    root = write_dataset(tmp_path / "d", problems, rows, prm="prm")
    assert measure_paths(root).rewards["prm"].ranking_auc["min"].clusters == 4
    assert dataset_report(load_scored(root))["ranking_auc"]["min"]["clusters"] == 4


def test_problems_on_one_base_are_in_one_half() -> None:
    """Otherwise the selection would see the base problems that it is measured on."""
    clusters = [f"base {number % 6}" for number in range(30)]
    fold_P = fold_numbers(clusters)
    halves = {cluster: set(fold_P[np.array(clusters) == cluster]) for cluster in clusters}
    assert all(len(half) == 1 for half in halves.values())
    assert sorted(half for [half] in halves.values()) == [0, 0, 0, 1, 1, 1]


def test_problems_on_a_single_base_select_no_strategy(tmp_path: Path) -> None:
    problems = [make_problem(n, [BenchmarkRow("a", n, cluster="base")]) for n in range(4)]
    rows = [
        row
        for problem in problems
        for row in make_solutions(problem, "ic", step_rewards=[[0.2, 0.1], [0.7, 0.9]])
    ]
    task = only_task(measure_paths(write_dataset(tmp_path / "d", problems, rows, prm="prm")))
    assert task.ahead_of_vote and not task.selected


def test_the_quality_of_rewards() -> None:
    quality = reward_quality(np.array([0.95, 0.95, 0.05]), [True, False, False])
    assert quality.expected_error == pytest.approx((0.05 + 2 * 0.45) / 3)
    assert quality.brier == pytest.approx((0.05**2 + 0.95**2 + 0.05**2) / 3)
    assert quality.constant_brier == pytest.approx(2 / 9)
