"""Tests of ``results.json``: counts, denominators, clusters, suites and reward statistics."""

from __future__ import annotations

from typing import Any

import pytest
from bench_runs import config, make_records, make_results
from fsdpo_bench.report.render import render_markdown
from fsdpo_bench.tasks.table import suites

from fsdpo_data.core.statistics import mean_rate


def summary(tasks: dict[str, int], **options: Any) -> dict[str, Any]:
    return make_results(make_records(tasks, **options), config(tasks)).to_json()


def rounded_interval(successes: int, n: int) -> list[float]:
    interval = mean_rate([1] * successes + [0] * (n - successes)).ci95
    assert interval is not None
    return [*interval.round_bounds(6)]


def test_counts_are_computed_from_the_records() -> None:
    records = make_records({"gsm8k": 40})
    task_results = make_results(records, config({"gsm8k": 40})).to_json()["tasks"]["gsm8k"]
    greedy = task_results["decoders"]["greedy"]
    right = sum(record["decoded"]["greedy"]["correct"] for record in records)
    assert (greedy["correct"], greedy["n"], greedy["clusters"]) == (right, 40, None)
    assert greedy["ci95"] == rounded_interval(right, 40)
    assert sum(greedy["outcomes"].values()) == 40
    assert greedy["cost"] == {"tokens": 1200, "prm_calls": 0, "seconds": 12.0}
    assert (task_results["problems"], task_results["task_problems"]) == (40, 43)


def test_unparsed_golds_are_not_in_the_denominator_but_timeouts_are() -> None:
    records = make_records({"gsm8k": 20}, chance=1.0)
    for status, correct, index in (("gold_unparsed", None, 0), ("timed_out", False, 1)):
        for answer in (*records[index]["samples"], *records[index]["decoded"].values()):
            answer.update(status=status, correct=correct)
    task_results = make_results(records, config({"gsm8k": 20})).to_json()["tasks"]["gsm8k"]
    greedy = task_results["decoders"]["greedy"]
    assert (greedy["correct"], greedy["n"]) == (18, 19)
    assert greedy["outcomes"] == {"correct": 18, "gold_unparsed": 1, "timed_out": 1}
    assert task_results["avg_at_k"]["4"]["n"] == 19


def test_undecided_answers_count_as_wrong_and_as_correct_in_the_upper_bound() -> None:
    records = make_records({"gsm8k": 20}, chance=1.0)
    for answer in (*records[0]["samples"], *records[0]["decoded"].values()):
        answer.update(status="undecided", correct=False)
    results = make_results(records, config({"gsm8k": 20})).to_json()["tasks"]["gsm8k"]
    greedy = results["decoders"]["greedy"]
    assert (greedy["correct"], greedy["n"]) == (19, 20)
    bound = greedy["upper_bound"]
    assert (bound["correct"], bound["n"], bound["ci95"]) == (20, 20, rounded_interval(20, 20))
    assert "upper_bound" not in summary({"svamp": 5})["tasks"]["svamp"]["decoders"]["greedy"]


def test_gsm_ic_is_clustered_by_base_problem() -> None:
    records = make_records({"gsm_ic2": 70})
    greedy = make_results(records, config({"gsm_ic2": 70})).to_json()["tasks"]["gsm_ic2"][
        "decoders"
    ]["greedy"]
    values = [int(record["decoded"]["greedy"]["correct"]) for record in records]
    clusters = [record["metadata"]["cluster"] for record in records]
    assert greedy["clusters"] == 7
    assert greedy["ci95"] == pytest.approx(mean_rate(values, clusters).ci95, abs=1e-6)


def test_a_tolerant_benchmark_has_tolerant_and_strict_counts() -> None:
    greedy = summary({"ocw": 30}, chance=1.0)["tasks"]["ocw"]["decoders"]["greedy"]
    assert greedy["correct"] == 30
    assert greedy["strict"]["correct"] == 20
    assert "strict" not in summary({"svamp": 5})["tasks"]["svamp"]["decoders"]["greedy"]


def test_math_has_results_by_subject_and_level() -> None:
    task_results = summary({"math": 50})["tasks"]["math"]
    groups = task_results["groups"]
    assert set(groups) == {"subject", "level"}
    for parts in groups.values():
        total = sum(part["greedy"]["correct"] for part in parts.values())
        assert total == task_results["decoders"]["greedy"]["correct"]
        assert sum(part["greedy"]["n"] for part in parts.values()) == 50


def test_accuracy_drops_compare_each_group_with_its_own_seed_questions() -> None:
    seeds = make_records({"gsm8k": 20}, chance=1.0)
    perturbed = make_records({"gsm_plus": 40}, chance=1.0)
    for index, record in enumerate(perturbed):
        kind = ("digits", "noise")[index // 20]
        record["metadata"] = {"perturbation": kind, "cluster": seeds[index % 20]["question"]}
        if kind == "noise" and index % 20 < 5:
            record["decoded"]["greedy"]["correct"] = False
    seeds[0]["decoded"]["greedy"]["correct"] = False
    described = config({"gsm8k": 20, "gsm_plus": 40})
    described["tasks"]["gsm_plus"]["base_task"] = "gsm8k"
    task_results = make_results([*seeds, *perturbed], described).to_json()["tasks"]
    parts = task_results["gsm_plus"]["accuracy_drops"]["perturbation"]
    # One seed question is wrong, so "digits" gains 1 of 20; "noise" loses 4 of its 5 wrong ones.
    assert [parts[kind]["greedy"]["drop"] for kind in ("digits", "noise")] == [-0.05, 0.2]
    low, high = parts["noise"]["greedy"]["ci95"]
    assert parts["noise"]["greedy"]["n"] == 20 and low < 0.2 < high
    assert task_results["gsm8k"]["accuracy_drops"] == {}
    page = render_markdown(make_results([*seeds, *perturbed], described))
    assert (
        "accuracy drop from the original questions, by perturbation" in page
        and "| noise | 20 | 20.0 [" in page
    )


def test_the_spread_is_computed_over_instances() -> None:
    records = make_records({"gsm_symbolic": 30}, chance=1.0)
    for index, record in enumerate(records):
        record["metadata"] = {"instance": str(index // 10)}
        record["decoded"]["greedy"]["correct"] = index not in (0, 1, 10)
    described = config({"gsm_symbolic": 30})
    described["tasks"]["gsm_symbolic"]["spread_group"] = "instance"
    results = make_results(records, described)
    spread = results.to_json()["tasks"]["gsm_symbolic"]["group_spread"]["greedy"]
    assert spread == {"parts": 3, "mean": 0.9, "deviation": 0.1, "lowest": 0.8, "highest": 1.0}
    assert "| greedy | 90.0 | 10.0 | 80.0 | 100.0 |" in render_markdown(results)


def test_samples_give_avg_pass_and_maj_at_k() -> None:
    records = make_records({"gsm8k": 30})
    task_results = make_results(records, config({"gsm8k": 30})).to_json()["tasks"]["gsm8k"]
    right = [sum(sample["correct"] for sample in record["samples"]) for record in records]
    average = sum(right) / 120
    assert task_results["avg_at_k"]["4"]["accuracy"] == pytest.approx(average, abs=1e-6)
    assert task_results["pass_at_k"]["1"] == task_results["avg_at_k"]["4"]
    assert list(task_results["pass_at_k"]) == ["1", "2", "4"]
    solved = sum(count > 0 for count in right)
    assert task_results["pass_at_k"]["4"]["correct"] == solved
    assert task_results["pass_at_k"]["4"]["ci95"] == rounded_interval(solved, 30)
    assert set(task_results["maj_at_k"]) == {"2", "4"}
    assert task_results["maj_at_k"]["4"]["correct"] == task_results["decoders"]["sc@4"]["correct"]


def test_suites_are_averaged_if_all_tasks_are_present() -> None:
    results = summary({name: 8 for name in suites()["in-domain"]})
    assert list(results["suites"]) == ["in-domain"]
    average = results["suites"]["in-domain"]["decoders"]["greedy"]["accuracy"]
    parts = [results["tasks"][name]["decoders"]["greedy"]["accuracy"] for name in ("gsm8k", "math")]
    assert average == pytest.approx(sum(parts) / 2)
    assert list(summary({"gsm8k": 4, "ocw": 4})["suites"]) == ["this run"]
    assert summary({"gsm8k": 4})["suites"] == summary({"embedded": 4})["suites"] == {}


def test_cost_is_summed_over_benchmarks() -> None:
    assert summary({"gsm8k": 5, "svamp": 7})["cost"]["sc@4"] == {
        "tokens": 12 * 120,
        "prm_calls": 48,
        "seconds": 14.4,
    }


def test_rewards_are_compared_with_outcomes() -> None:
    rewards = summary({"gsm8k": 200})["rewards"]
    assert rewards["solutions"] == 800
    bins = rewards["calibration"]["bins"]
    assert sum(bin["steps"] for bin in bins) == 1600
    assert bins[0]["correct"] < 0.3 < 0.7 < bins[-1]["correct"]
    for bin in bins:
        assert bin["from"] <= bin["reward"] <= bin["to"]
        assert bin["ci95"][0] <= bin["correct"] <= bin["ci95"][1]
    distribution = rewards["distribution"]
    assert sum(distribution["correct"]) == rewards["correct"]
    assert sum(distribution["wrong"]) == 800 - rewards["correct"]
    assert rewards["ranking_auc"]["mean"]["value"] > 0.85
    first, second, third = rewards["by_step"]["correct"][:3]
    assert first["steps"] == second["steps"] == rewards["correct"]
    assert third is None


def test_a_run_without_rewards_has_no_reward_section() -> None:
    records = make_records({"gsm8k": 3})
    for record in records:
        for sample in record["samples"]:
            sample["rewards"] = None
    assert make_results(records, config({"gsm8k": 3})).to_json()["rewards"] is None
