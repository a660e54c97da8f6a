"""Compare the PRMBench report with a transcription of the benchmark's scoring code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.cli.app import app
from fsdpo_bench.prm.prmbench import (
    ALTERATIONS,
    ORIGINAL,
    measure_step_errors,
    read_altered_solutions,
)
from made_runs import written
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

SAMPLE = "data/newer/stepwise/prmbench.jsonl"
THRESHOLD = 0.4


def reference_scores(rows: list[dict[str, Any]], scores: dict[str, list[float]]) -> dict[str, Any]:
    """Compute scores as ``evaluate_function`` of ``mr_eval/tasks/prmtest_classified`` does.

    ``scores`` has the rewards by ``classification_idx``; original solutions are ``correct_idx``.
    """
    meta: dict[str, tuple[str, list[int]]] = {}
    for row in rows:
        if row["classification"] == "redundency":
            meta.setdefault(f"correct_{row['idx']}", ("correct", []))
        kind = row["classification"]
        meta.setdefault(f"{kind}_{row['idx']}", (kind, row["error_steps"]))
    matrix: dict[str, dict[str, int]] = {}
    firsts: dict[str, list[int]] = {}
    differences: dict[str, list[float]] = {}
    correct_acc: dict[str, float] = {}
    for name, (kind, errors) in sorted(meta.items(), key=lambda entry: entry[1][0] != "correct"):
        if name not in scores:
            continue  # solutions that the model could not score
        labels = [score > THRESHOLD for score in scores[name]]
        wrong = [step - 1 for step in errors]
        acc = sum(labels) / len(labels)
        if kind == "correct":
            correct_acc[name] = acc
        elif correct_acc.get("correct_" + name[len(kind) + 1 :]):
            difference = abs(acc - correct_acc["correct_" + name[len(kind) + 1 :]])
            for group in (kind, "all"):
                differences.setdefault(group, []).append(difference)
        for group in (kind,) if kind == "correct" else (kind, "all"):
            counts = matrix.setdefault(group, dict.fromkeys(("TP", "FP", "TN", "FN"), 0))
            for index, label in enumerate(labels):
                if wrong and index == min(wrong):
                    firsts.setdefault(group, []).append(int(not label))
                cell = ("FP" if label else "TN") if index in wrong else ("TP" if label else "FN")
                counts[cell] += 1
    return {
        kind: {
            "f1": f1(counts["TP"], counts["FP"], counts["FN"]),
            "negative_f1": f1(counts["TN"], counts["FN"], counts["FP"]),
            "first_error_acc": mean(firsts.get(kind, [])),
            "similarity": mean(differences.get(kind, [])),
        }
        for kind, counts in matrix.items()
    }


def f1(hits: int, false: int, missed: int) -> float:
    precision = hits / (hits + false) if hits + false else -1
    recall = hits / (hits + missed) if hits + missed else -1
    return 2 * precision * recall / (precision + recall) if precision + recall else -1


def mean(values: list[Any]) -> float:
    return sum(values) / len(values) if values else -1


def is_equal(ours: float | None, expected: float) -> bool:
    """Compare two numbers; their -1 (or 0) for an undefined value is ``None`` or 0 here."""
    return (ours or 0.0) == pytest.approx(max(expected, 0.0))


@pytest.mark.parametrize("seed", range(5))
def test_all_numbers_equal_the_scoring_code_of_prmbench(shared: Path, seed: int) -> None:
    rows = [json.loads(line) for line in (shared / SAMPLE).read_text().splitlines()]
    altered = read_altered_solutions([shared / SAMPLE])
    assert len(altered) == 45 + 5 and {row.alteration for row in altered} == {
        *ALTERATIONS,
        ORIGINAL,
    }
    rng = random.Random(seed)
    rewards = [[rng.random() for _ in row.steps] if rng.random() < 0.9 else None for row in altered]
    names = [f"{'correct' if e.alteration == ORIGINAL else e.alteration}_{e.key}" for e in altered]
    scores = {
        name: row_rewards for name, row_rewards in zip(names, rewards, strict=True) if row_rewards
    }
    expected = reference_scores(rows, scores)
    report = measure_step_errors(altered, rewards, THRESHOLD)
    for kind, expected_values in expected.items():
        ours = report.alterations[ORIGINAL if kind == "correct" else kind]
        assert is_equal(ours.f1, expected_values["f1"]) and is_equal(
            ours.negative_f1, expected_values["negative_f1"]
        ), kind
        caught, total = ours.first_caught
        share = caught / total if total else None
        assert is_equal(share, expected_values["first_error_acc"]) and is_equal(
            ours.mean_gap_to_original, expected_values["similarity"]
        ), kind
        # Their mean includes -1 for the F1 of no detected error, where ours includes 0.
        parts = (
            [expected_values["f1"], max(expected_values["negative_f1"], 0)]
            if ours.caught[1]
            else [expected_values["f1"]]
        )
        expected_score = sum(parts) / len(parts)
        assert is_equal(ours.score, expected_score), kind
    soundness = [
        name for name, alteration in ALTERATIONS.items() if alteration.dimension == "soundness"
    ]
    scores_of = [report.alterations[name].score or 0.0 for name in soundness]
    assert report.dimensions["soundness"] == pytest.approx(sum(scores_of) / 4)
    assert report.alterations["all"].unscored + report.alterations["all"].solutions == 45


def test_a_perfect_scorer_and_one_that_accepts_all_steps(shared: Path) -> None:
    rows = read_altered_solutions([shared / SAMPLE])
    perfect = [
        [float(index not in row.wrong_steps) for index in range(len(row.steps))] for row in rows
    ]
    report = measure_step_errors(rows, perfect)
    assert {stats.score for stats in report.alterations.values()} == {1}
    blind = measure_step_errors(rows, [[1.0] * len(row.steps) for row in rows]).alterations["all"]
    # Their code returns -1 for an undefined precision and a recall of 0.
    assert blind.negative_f1 == 0 and blind.caught[0] == 0 and len(set(blind.passed)) == 1


def test_repeated_rows_count_once(shared: Path) -> None:
    assert len(read_altered_solutions([shared / SAMPLE] * 2)) == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classification": "typo"}, "row 1: the classification 'typo' is unknown; known are "),
        ({"modified_process": []}, "row 1: .*no question or no steps"),
        ({"error_steps": [float("inf")]}, "row 1: cannot convert float infinity"),
        ({"error_steps": None}, "row 1: expected a list or an object, found null"),
    ],
)
def test_rows_in_another_format_are_named(
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
    result = CliRunner().invoke(app, line, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "prerequisite sensitivity (PS)" in result.output and "sensitivity" in result.output
    json_report = json.loads(
        CliRunner().invoke(app, [*line, "--json", "--threshold", "0.6"]).stdout
    )
    assert json_report["prmbench"]["threshold"] == 0.6
    overall = json_report["prmbench"]["alterations"]["all"]
    assert overall["solutions"] + overall["unscored"] == 45 and overall["unscored"] < 10
    assert "prmbench` needs a model" in str(
        CliRunner().invoke(app, ["prm", "--prmbench", "x.json"]).exception
    ).replace("--prmbench", "`prmbench`")
