"""The recipe smollm2-mwp: its split by clusters, its shuffled rewards, and its tables."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from paired_data import paired_dataset

from fsdpo_data.core.entities import Problem
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.embedded.generator import make_problems

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """Import a script from the folder of the recipes."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/recipes/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


words = script("word_problems")
results = script("mwp_results")


@pytest.mark.parametrize(
    ("formula", "answer", "solution"),
    [
        ("48/2=24", "24 (clips)", "48 / 2 = 24\nThe answer is \\boxed{24}."),
        (
            "( ( 74.0 - 35.0 ) / 3.0 )",
            "13",
            "74 - 35 = 39\n39 / 3 = 13\nThe answer is \\boxed{13}.",
        ),
        ("1000*8=8000", "8,000", "1000 * 8 = 8000\nThe answer is \\boxed{8000}."),
        ("1/4=0.25", "0.25", "1 / 4 = 0.25\nThe answer is \\boxed{0.25}."),
        ("3/8=0.375", "0.375", ""),
        ("2-5=-3", "3", ""),
        ("1/0=1", "1", ""),
        ("7=7", "7", ""),
        ("2**3=8", "8", ""),
        ("1+1+1+1+1=5", "5", ""),
        ("17/10=1 r7; 1+1=2", "2", ""),
        ("6*7=42", "43", ""),
        ("(6*7=42", "42", ""),
        ("6*7=42", "Yes", ""),
        ("", "42", ""),
    ],
)
def test_sft_solutions_are_the_calculations_of_formulas(
    formula: str, answer: str, solution: str
) -> None:
    assert words.format_solution(Problem("", answer, "", "", {"formula": formula})) == solution
    assert words.format_solution(Problem("", answer, "", "", {"Equation": formula})) == solution


def test_sft_rows_are_problems_with_a_formula() -> None:
    formulas = [{"formula": f"{n}+1={n + 1}"} if n % 2 else {} for n in range(20)]
    problems = [Problem(f"q{n}", str(n + 1), "", "", row) for n, row in enumerate(formulas)]
    rows, train_problems = words.draw_sft_rows(problems, 8, random.Random(0))
    questions = {row["prompt"].split()[1] for row in rows}
    assert len(questions) == 8 and questions <= {f"q{n}" for n in range(1, 20, 2)}
    assert [problem.question for problem in train_problems] == [
        problem.question for problem in problems if problem.question not in questions
    ]


def test_random_calculations_are_correct() -> None:
    for row in words.practice_rows(100, random.Random(0)):
        lines = row["completion"].splitlines()
        assert len(lines) == words.PRACTICE_LINES
        for line in lines:
            expression, _, value = line.partition(" = ")
            assert eval(expression) == int(value) >= 0


CAKES = (
    "Mary is baking a cake. The recipe calls for 7 cups of flour. She already put in 2 cups.",
    "Jo is baking a cake. The recipe calls for 81 cups of flour. She already put in 3 cups.",
)
CHAIN = f"{CAKES[1]} A pack of dvds costs 7 dollars and there is a discount of 3 dollars."
DVDS = "A pack of dvds costs 76 dollars and there is a discount of 25 dollars on each pack."
BALLS = "Ellen has six more balls than Marin. How many balls does Ellen have?"


def test_variations_and_chains_of_variations_are_one_cluster() -> None:
    questions = [words.mask_numbers(text) for text in (CAKES[0], BALLS, CAKES[1], DVDS)]
    assert words.cluster_problems(questions) == [[0, 2], [1], [3]]
    assert words.cluster_problems([*questions, words.mask_numbers(CHAIN)]) == [[0, 2, 3, 4], [1]]


def test_no_cluster_is_in_the_test_set_and_in_the_training_set() -> None:
    sets = ("svamp", "asdiv", "mawps")
    set_problems = [
        words.SetProblem(name, Problem(f"question {cluster} {index}", "1", name, "test"))
        for name in sets
        for cluster in range(20)
        for index in range(2)
    ]
    clusters = [
        [index for index, item in enumerate(set_problems) if item.problem.question.split()[1] == n]
        for n in map(str, range(20))
    ]
    split = words.split_clusters(set_problems, clusters, 5, seed=0)
    test_clusters = [problem.question.split()[1] for name in sets for problem in split.test[name]]
    train_clusters = {problem.question.split()[1] for problem in split.train}
    assert len(set(test_clusters)) == len(test_clusters) == 15
    assert train_clusters == set(map(str, range(20))) - set(test_clusters)
    assert len(split.train) == 5 * 2  # a copy of a question in another set counts once
    again = words.split_clusters(set_problems, clusters, 5, seed=0)
    assert again == split != words.split_clusters(set_problems, clusters, 5, seed=1)
    with pytest.raises(ValueError, match="mawps has 0 clusters: expected 10"):
        words.split_clusters(set_problems, clusters, 10, seed=0)


def test_the_public_sets_split_without_overlap(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    for name in ("svamp", "asdiv", "addsub"):
        (bench / name).symlink_to(shared / "data/benchmarks" / name)
    (bench / "mawps").symlink_to(shared / "data/newer/benchmarks/mawps")
    words.main(tmp_path, bench, test=100, rows=10, practice=5)
    printed = capsys.readouterr().out.splitlines()
    assert "training problems that overlap with a test problem: 0" in printed
    counts = {row.split()[0]: row.split()[1:] for row in printed[2:7]}
    assert counts["addsub"][0] == counts["addsub"][4] == "395"  # MAWPS contains AddSub
    assert counts["singleeq"][0] == counts["singleeq"][4] == "508"  # and SingleEq
    rows = {file.stem: pl.read_ndjson(file) for file in tmp_path.glob("*.jsonl")}
    assert {name: len(rows[name]) for name in ("svamp", "asdiv", "mawps", "rows")} == {
        "svamp": 100,
        "asdiv": 100,
        "mawps": 100,
        "rows": 15,
    }


def test_shuffled_rewards_stay_within_their_solution(tmp_path: Path) -> None:
    chosen = {"chosen_steps": list("abcdef"), "chosen_rewards": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}
    pairs = [
        {"prompt": "p", **chosen, "rejected_steps": ["x", name], "rejected_rewards": [0.7, 0.8]}
        for name in "yz"
    ]
    results.write_shuffled_pairs(json.loads(json.dumps(pairs)), tmp_path / "a.jsonl", 0)
    shuffled = pl.read_ndjson(tmp_path / "a.jsonl").to_dicts()
    assert shuffled[0]["chosen_rewards"] == shuffled[1]["chosen_rewards"]
    assert shuffled[0]["chosen_rewards"] != chosen["chosen_rewards"]
    for pair, shuffled_pair in zip(pairs, shuffled, strict=True):
        for key, value in pair.items():
            assert shuffled_pair[key] == value or sorted(shuffled_pair[key]) == value
    results.write_shuffled_pairs(json.loads(json.dumps(pairs)), tmp_path / "b.jsonl", 1)
    assert (tmp_path / "a.jsonl").read_text() != (tmp_path / "b.jsonl").read_text()


def test_a_report_compares_arms_problem_by_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {
        "solutions": 80,
        "accuracy": 0.5,
        "mixed_problems": 8,
        "ranking_auc": 0.7,
        "ranking_auc_ci95": [0.6, 0.8],
        "pairs": 20,
        "steps_per_solution": 2.5,
    }
    low = {"samples": 4, "correct": {"svamp": [0, 2] * 50, "mawps": [2, 2] * 50}}
    high = {"samples": 4, "correct": {"svamp": [2, 2] * 50, "mawps": [2, 2] * 50}}
    seeds = {
        "0": {"minutes": 60, "data": data, "arms": {"sft": low, "dpo": high}},
        "1": {"minutes": 60, "data": data, "arms": {"sft": low}},
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps(seeds))
    results.report(file)
    printed = capsys.readouterr().out
    # The variance of a sample within problems is (0 + 3 x 1/3) / 4 = 1/4.
    assert "standard error of a paired difference 2.50 points, detectable difference 7.0" in printed
    assert "| DPO | 1 | 50.0 [" in printed and "| SFT | 2 | 25.0 [" in printed
    [comparison] = [line for line in printed.splitlines() if line.startswith("| DPO | SFT |")]
    assert comparison.startswith("| DPO | SFT | +12.5 [") and "mawps +0.0 [" in comparison
    assert results.compare([seeds["0"]], "dpo", "sft", ["svamp"]).value == pytest.approx(0.25)


@pytest.mark.skipif(not results.RESULTS_FILE.exists(), reason="no seed is measured yet")
def test_the_printed_tables_are_those_of_the_results_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results.report(results.RESULTS_FILE)
    _, _, printed = results.RESULTS_FILE.with_suffix(".txt").read_text().partition("\n")
    assert capsys.readouterr().out == printed
    page = (ROOT / "docs/study.md").read_text(encoding="utf-8")
    accuracies, comparisons, lengths = (table.splitlines() for table in printed.split("\n\n")[1:])
    assert all(line in page for line in accuracies)
    assert all("|".join(line.split("|")[:8]) + "|\n" in page for line in comparisons)
    assert all(line in page for line in lengths if line.startswith("|"))


def test_the_interval_over_seeds_is_that_of_student() -> None:
    assert results.format_seed_interval([0.01, 0.02, 0.03]) == "[-0.5, +4.5]"
    assert results.format_seed_interval([0.01]) == "–"


def test_weights_of_last_steps_are_those_of_the_loss(tmp_path: Path) -> None:
    pairs = paired_dataset(tmp_path / "pairs")
    [file] = (pairs / "pairs").iterdir()
    rows = pl.read_parquet(file)
    weights = results.last_step_weights(rows)
    for side, sign in (("chosen", 1), ("rejected", -1)):
        scaled = []
        for rewards in rows[f"{side}_rewards"].to_list():
            powers = [math.exp(sign * 8 * reward) for reward in rewards]
            scaled.append(len(powers) * powers[-1] / sum(powers))
        assert weights[side] == pytest.approx(sum(scaled) / len(scaled), rel=1e-5)


@pytest.mark.proof
def test_a_seed_runs_with_the_embedded_model_and_is_then_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "runs/smollm2-mwp"
    shutil.copytree(CHECKPOINT, folder / "real/model")
    (folder / "real/rows.jsonl").touch()
    (folder / "data").mkdir()
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    problems = make_problems("train", 44, 0)
    parts = {"train": problems[:32], "svamp": problems[32:36]}
    parts |= {"asdiv": problems[36:40], "mawps": problems[40:]}
    for name, part in parts.items():
        pl.DataFrame([problem.to_row() for problem in part]).write_ndjson(
            folder / f"data/{name}.jsonl"
        )
    prompt = get_template("problem").render(problems[0].question)
    row = {"prompt": prompt, "completion": "The answer is \\boxed{1}."}
    (folder / "data/rows.jsonl").write_text(json.dumps(row) + "\n")
    command = [sys.executable, str(ROOT / "benchmarks/recipes/mwp_results.py"), "run"]
    command += ["--seeds", "3", "--set", "max_tokens=256", "--file", "results.json"]
    for expected in ("sft, dpo, full-step, shuffled, dpo-k in results.json", "seed 3: done"):
        process = subprocess.run(
            command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True
        )
        assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
        assert expected in process.stdout
    arms = json.loads((tmp_path / "results.json").read_text())["3"]["arms"]
    assert {len(counts) for arm in arms.values() for counts in arm["correct"].values()} == {4}
