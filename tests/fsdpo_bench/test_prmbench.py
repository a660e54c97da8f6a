"""PRMBench: our numbers against a transcription of the benchmark's own scoring code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from bench_runs import written
from fsdpo_bench.cli.app import app
from fsdpo_bench.prm.prmbench import (
    ALTERATIONS,
    ORIGINAL,
    measure_step_errors,
    read_altered_solutions,
)
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

SAMPLE = "data/newer/stepwise/prmbench.jsonl"
THRESHOLD = 0.4


def theirs(rows: list[dict[str, Any]], scores: dict[str, list[float]]) -> dict[str, Any]:
    """Score as ``evaluate_function`` of ``mr_eval/tasks/prmtest_classified`` does.

    ``scores`` has the rewards by ``classification_idx``; the unaltered are ``correct_idx``.
    """
    meta: dict[str, tuple[str, list[int]]] = {}
    for row in rows:
        if row["classification"] == "redundency":
            meta.setdefault(f"correct_{row['idx']}", ("correct", []))
        kind = row["classification"]
        meta.setdefault(f"{kind}_{row['idx']}", (kind, row["error_steps"]))
    matrix: dict[str, dict[str, int]] = {}
    firsts: dict[str, list[int]] = {}
    apart: dict[str, list[float]] = {}
    correct_acc: dict[str, float] = {}
    for name, (kind, errors) in sorted(meta.items(), key=lambda each: each[1][0] != "correct"):
        if name not in scores:
            continue  # what the model could not read has no validity
        labels = [score > THRESHOLD for score in scores[name]]
        wrong = [step - 1 for step in errors]
        acc = sum(labels) / len(labels)
        if kind == "correct":
            correct_acc[name] = acc
        elif correct_acc.get("correct_" + name[len(kind) + 1 :]):
            difference = abs(acc - correct_acc["correct_" + name[len(kind) + 1 :]])
            for each in (kind, "all"):
                apart.setdefault(each, []).append(difference)
        for each in (kind,) if kind == "correct" else (kind, "all"):
            counts = matrix.setdefault(each, dict.fromkeys(("TP", "FP", "TN", "FN"), 0))
            for place, label in enumerate(labels):
                if wrong and place == min(wrong):
                    firsts.setdefault(each, []).append(int(not label))
                cell = ("FP" if label else "TN") if place in wrong else ("TP" if label else "FN")
                counts[cell] += 1
    return {
        kind: {
            "f1": f1(counts["TP"], counts["FP"], counts["FN"]),
            "negative_f1": f1(counts["TN"], counts["FN"], counts["FP"]),
            "first_error_acc": mean(firsts.get(kind, [])),
            "similarity": mean(apart.get(kind, [])),
        }
        for kind, counts in matrix.items()
    }


def f1(hits: int, false: int, missed: int) -> float:
    precision = hits / (hits + false) if hits + false else -1
    recall = hits / (hits + missed) if hits + missed else -1
    return 2 * precision * recall / (precision + recall) if precision + recall else -1


def mean(values: list[Any]) -> float:
    return sum(values) / len(values) if values else -1


def same(ours: float | None, theirs: float) -> bool:
    """Where they have -1, or the 0 that a product with -1 leaves, we have none or 0."""
    return (ours or 0.0) == pytest.approx(max(theirs, 0.0))


@pytest.mark.parametrize("seed", range(5))
def test_every_number_is_the_benchmarks_own(shared: Path, seed: int) -> None:
    rows = [json.loads(line) for line in (shared / SAMPLE).read_text().splitlines()]
    altered = read_altered_solutions([shared / SAMPLE])
    assert len(altered) == 45 + 5 and {each.alteration for each in altered} == {
        *ALTERATIONS,
        ORIGINAL,
    }
    rng = random.Random(seed)
    rewards = [
        [rng.random() for _ in each.steps] if rng.random() < 0.9 else None for each in altered
    ]
    names = [f"{'correct' if e.alteration == ORIGINAL else e.alteration}_{e.key}" for e in altered]
    scores = {name: given for name, given in zip(names, rewards, strict=True) if given}
    expected = theirs(rows, scores)
    found = measure_step_errors(altered, rewards, THRESHOLD)
    for kind, told in expected.items():
        ours = found.ways[ORIGINAL if kind == "correct" else kind]
        assert same(ours.f1, told["f1"]) and same(ours.negative_f1, told["negative_f1"]), kind
        caught, of = ours.first_caught
        share = caught / of if of else None
        assert same(share, told["first_error_acc"]) and same(
            ours.mean_gap_to_original, told["similarity"]
        ), kind
        # Theirs takes the -1 of an F1 of nothing caught into the mean, where it is a 0.
        parts = [told["f1"], max(told["negative_f1"], 0)] if ours.caught[1] else [told["f1"]]
        both = sum(parts) / len(parts)
        assert same(ours.score, both), kind
    soundness = [name for name, way in ALTERATIONS.items() if way.dimension == "soundness"]
    scores_of = [found.ways[name].score or 0.0 for name in soundness]
    assert found.dimensions["soundness"] == pytest.approx(sum(scores_of) / 4)
    assert found.ways["all"].unscored + found.ways["all"].solutions == 45


def test_a_perfect_judge_and_one_that_calls_all_right(shared: Path) -> None:
    rows = read_altered_solutions([shared / SAMPLE])
    perfect = [
        [float(place not in row.wrong_steps) for place in range(len(row.steps))] for row in rows
    ]
    found = measure_step_errors(rows, perfect)
    assert {each.score for each in found.ways.values()} == {1}
    blind = measure_step_errors(rows, [[1.0] * len(row.steps) for row in rows]).ways["all"]
    # Their code has -1 here, for a precision without denominator and a recall of 0.
    assert blind.negative_f1 == 0 and blind.caught[0] == 0 and len(set(blind.passed)) == 1


def test_rows_of_the_same_process_count_once(shared: Path) -> None:
    assert len(read_altered_solutions([shared / SAMPLE] * 2)) == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classification": "typo"}, "row 1: KeyError.'typo'"),
        ({"modified_process": []}, "row 1: .*no question or no steps"),
        ({"error_steps": None}, "row 1: TypeError"),
    ],
)
def test_rows_of_another_form_are_named(
    shared: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    row = json.loads((shared / SAMPLE).read_text().splitlines()[0])
    with pytest.raises(InputError, match=message):
        read_altered_solutions([written(tmp_path / "rows.jsonl", [row | change])])


def test_a_model_is_measured_from_the_command_line(tmp_path: Path, shared: Path) -> None:
    pytest.importorskip("transformers")
    from random_model import save_random_model, save_random_prm

    model = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy", context=2048))
    line = ["prm", "--prm", str(model), "--template", "problem", "--engine", "transformers"]
    line += ["--device", "cpu", "--prmbench", str(shared / SAMPLE)]
    shown = CliRunner().invoke(app, line, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "prerequisite sensitivity (PS)" in shown.output and "sensitivity" in shown.output
    told = json.loads(CliRunner().invoke(app, [*line, "--json", "--threshold", "0.6"]).stdout)
    assert told["prmbench"]["threshold"] == 0.6
    overall = told["prmbench"]["ways"]["all"]
    assert overall["solutions"] + overall["unscored"] == 45 and overall["unscored"] < 10
    assert "prmbench` needs a model" in str(
        CliRunner().invoke(app, ["prm", "--prmbench", "x.json"]).exception
    ).replace("--prmbench", "`prmbench`")
