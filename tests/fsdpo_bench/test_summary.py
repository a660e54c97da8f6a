"""``results.json``: counts, denominators, clusters, suites and what rewards are worth."""

from __future__ import annotations

from typing import Any

import pytest
from bench_runs import config, make_records
from fsdpo_bench.report.render import render_markdown
from fsdpo_bench.results.intervals import proportion
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.tasks.table import suites

from fsdpo_data.core.statistics import wilson_interval


def summary(tasks: dict[str, int], **options: Any) -> dict[str, Any]:
    return summarise(make_records(tasks, **options), config(tasks))


def test_counts_are_those_of_the_records() -> None:
    records = make_records({"gsm8k": 40})
    found = summarise(records, config({"gsm8k": 40}))["tasks"]["gsm8k"]
    greedy = found["decoders"]["greedy"]
    right = sum(each["decoded"]["greedy"]["correct"] for each in records)
    assert (greedy["correct"], greedy["n"], greedy["clusters"]) == (right, 40, None)
    assert greedy["ci95"] == wilson_interval(right, 40)
    assert sum(greedy["outcomes"].values()) == 40
    assert greedy["cost"] == {"tokens": 1200, "prm_calls": 0, "seconds": 12.0}
    assert (found["problems"], found["task_problems"]) == (40, 43)


def test_an_unreadable_gold_leaves_the_denominator_and_a_timeout_does_not() -> None:
    records = make_records({"gsm8k": 20}, chance=1.0)
    for status, correct, each in (("gold_unparsed", None, 0), ("timed_out", False, 1)):
        for answer in (*records[each]["samples"], *records[each]["decoded"].values()):
            answer.update(status=status, correct=correct)
    found = summarise(records, config({"gsm8k": 20}))["tasks"]["gsm8k"]
    greedy = found["decoders"]["greedy"]
    assert (greedy["correct"], greedy["n"]) == (18, 19)
    assert greedy["outcomes"] == {"correct": 18, "gold_unparsed": 1, "timed_out": 1}
    assert found["avg_at_k"]["4"]["n"] == 19


def test_gsm_ic_is_clustered_by_base_problem() -> None:
    records = make_records({"gsm_ic2": 70})
    greedy = summarise(records, config({"gsm_ic2": 70}))["tasks"]["gsm_ic2"]["decoders"]["greedy"]
    values = [int(each["decoded"]["greedy"]["correct"]) for each in records]
    clusters = [each["metadata"]["cluster"] for each in records]
    assert greedy["clusters"] == 7
    assert greedy["ci95"] == pytest.approx(proportion(values, clusters).ci95)


def test_a_tolerant_benchmark_gives_both_numbers() -> None:
    greedy = summary({"ocw": 30}, chance=1.0)["tasks"]["ocw"]["decoders"]["greedy"]
    assert greedy["correct"] == 30
    assert greedy["strict"]["correct"] == 20
    assert "strict" not in summary({"svamp": 5})["tasks"]["svamp"]["decoders"]["greedy"]


def test_math_is_broken_down_by_subject_and_level() -> None:
    found = summary({"math": 50})["tasks"]["math"]
    groups = found["groups"]
    assert set(groups) == {"subject", "level"}
    for parts in groups.values():
        total = sum(part["greedy"]["correct"] for part in parts.values())
        assert total == found["decoders"]["greedy"]["correct"]
        assert sum(part["greedy"]["n"] for part in parts.values()) == 50


def test_a_drop_is_from_the_very_seeds_of_each_part() -> None:
    seeds = make_records({"gsm8k": 20}, chance=1.0)
    perturbed = make_records({"gsm_plus": 40}, chance=1.0)
    for place, each in enumerate(perturbed):
        kind = ("digits", "noise")[place // 20]
        each["metadata"] = {"perturbation": kind, "cluster": seeds[place % 20]["question"]}
        if kind == "noise" and place % 20 < 5:
            each["decoded"]["greedy"]["correct"] = False
    seeds[0]["decoded"]["greedy"]["correct"] = False
    described = config({"gsm8k": 20, "gsm_plus": 40})
    described["tasks"]["gsm_plus"]["base_task"] = "gsm8k"
    found = summarise([*seeds, *perturbed], described)["tasks"]
    parts = found["gsm_plus"]["accuracy_drops"]["perturbation"]
    # One seed is wrong: better by one of 20 on digits; four of the five wrong ones are a loss.
    assert [parts[kind]["greedy"]["drop"] for kind in ("digits", "noise")] == [-0.05, 0.2]
    low, high = parts["noise"]["greedy"]["ci95"]
    assert parts["noise"]["greedy"]["n"] == 20 and low < 0.2 < high
    assert found["gsm8k"]["accuracy_drops"] == {}
    page = render_markdown(summarise([*seeds, *perturbed], described))
    assert (
        "accuracy drop from the original questions, by perturbation" in page
        and "| noise | 20 | 20.0 [" in page
    )


def test_the_spread_is_over_whole_instances() -> None:
    records = make_records({"gsm_symbolic": 30}, chance=1.0)
    for place, each in enumerate(records):
        each["metadata"] = {"instance": str(place // 10)}
        each["decoded"]["greedy"]["correct"] = place not in (0, 1, 10)
    described = config({"gsm_symbolic": 30})
    described["tasks"]["gsm_symbolic"]["spread_group"] = "instance"
    results = summarise(records, described)
    spread = results["tasks"]["gsm_symbolic"]["group_spread"]["greedy"]
    assert spread == {"parts": 3, "mean": 0.9, "deviation": 0.1, "lowest": 0.8, "highest": 1.0}
    assert "| greedy | 90.0 | 10.0 | 80.0 | 100.0 |" in render_markdown(results)


def test_samples_give_avg_pass_and_maj() -> None:
    records = make_records({"gsm8k": 30})
    found = summarise(records, config({"gsm8k": 30}))["tasks"]["gsm8k"]
    right = [sum(each["correct"] for each in record["samples"]) for record in records]
    average = sum(right) / 120
    assert found["avg_at_k"]["4"]["accuracy"] == pytest.approx(average, abs=1e-6)
    assert found["pass_at_k"]["1"]["accuracy"] == pytest.approx(average, abs=1e-6)
    assert list(found["pass_at_k"]) == ["1", "2", "4"]
    solved = sum(count > 0 for count in right)
    assert found["pass_at_k"]["4"]["correct"] == solved
    assert found["pass_at_k"]["4"]["ci95"] == wilson_interval(solved, 30)
    assert set(found["maj_at_k"]) == {"2", "4"}
    assert found["maj_at_k"]["4"]["correct"] == found["decoders"]["sc@4"]["correct"]


def test_suites_are_averaged_where_they_are_whole() -> None:
    whole = summary({name: 8 for name in suites()["in-domain"]})
    assert list(whole["suites"]) == ["in-domain"]
    average = whole["suites"]["in-domain"]["decoders"]["greedy"]["accuracy"]
    parts = [whole["tasks"][name]["decoders"]["greedy"]["accuracy"] for name in ("gsm8k", "math")]
    assert average == pytest.approx(sum(parts) / 2)
    assert list(summary({"gsm8k": 4, "ocw": 4})["suites"]) == ["this run"]
    assert summary({"gsm8k": 4})["suites"] == summary({"embedded": 4})["suites"] == {}


def test_cost_is_summed_over_benchmarks() -> None:
    assert summary({"gsm8k": 5, "svamp": 7})["cost"]["sc@4"] == {
        "tokens": 12 * 120,
        "prm_calls": 48,
        "seconds": 14.4,
    }


def test_rewards_are_held_against_outcomes() -> None:
    rewards = summary({"gsm8k": 200})["rewards"]
    assert rewards["solutions"] == 800
    bins = rewards["calibration"]["bins"]
    assert sum(each["steps"] for each in bins) == 1600
    assert bins[0]["correct"] < 0.3 < 0.7 < bins[-1]["correct"]
    for each in bins:
        assert each["from"] <= each["reward"] <= each["to"]
        assert each["ci95"][0] <= each["correct"] <= each["ci95"][1]
    shown = rewards["distribution"]
    assert sum(shown["correct"]) == rewards["correct"]
    assert sum(shown["wrong"]) == 800 - rewards["correct"]
    assert rewards["ranking_auc"]["mean"]["value"] > 0.85
    first, second, third = rewards["by_step"]["correct"][:3]
    assert first["steps"] == second["steps"] == rewards["correct"]
    assert third is None


def test_a_run_without_rewards_says_so() -> None:
    records = make_records({"gsm8k": 3})
    for record in records:
        for sample in record["samples"]:
            sample["rewards"] = None
    assert summarise(records, config({"gsm8k": 3}))["rewards"] is None
