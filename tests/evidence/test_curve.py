"""The recipe of the curve at toy size, its choices, and its recorded numbers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench_runs import make_problem, make_solutions, measure_paths, write_dataset, written
from evidence_problems import write_problems
from fsdpo_bench.prm.dataset_report import dataset_report, load_scored
from fsdpo_bench.recipes.load import load_recipes

from fsdpo_data.core.entities import Solution
from fsdpo_data.core.errors import InputError
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.embedded import CHECKPOINT

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "benchmarks/evidence"
RECIPE = EVIDENCE / "curve.toml"
RESULTS = ROOT / "benchmarks/measured/real/curve"
PROCESSBENCH_ROWS = EVIDENCE / "real/smoke-processbench.json"
sys.path.insert(0, str(EVIDENCE))
import curve_results  # noqa: E402
import curve_tables  # noqa: E402
import recordings  # noqa: E402
from curve_results import CHOICES, best_choice, best_rate, record_curve  # noqa: E402
from real_results import read_problem_samples, read_rows  # noqa: E402

# Choices


def test_the_first_of_equally_accurate_pairs_is_chosen() -> None:
    names = [choice.name for choice in CHOICES]
    assert names[:5] == [
        *("best by mean", "best by min", "best by prod", "best by last"),
        "weighted vote by mean",
    ]
    assert best_choice(dict.fromkeys(names, 7)).name == "best by mean"
    n_correct = dict.fromkeys(names, 7) | {"weighted vote by min": 8, "best by last": 8}
    assert best_choice(n_correct).name == "best by last"


def test_the_lowest_of_equally_accurate_learning_rates_is_chosen() -> None:
    assert best_rate({"2e-6": 9, "5e-7": 9, "1e-6": 8}) == "5e-7"
    assert best_rate({"5e-7": 8, "1e-6": 9, "2e-6": 9}) == "1e-6"


# Numbers


def scored_solutions(number: int, rewards: Sequence[Sequence[float]]) -> list[Solution]:
    """Return an incorrect, a correct and an incorrect solution of a problem with step rewards."""
    return make_solutions(make_problem(number), "ici", step_rewards=[[*steps] for steps in rewards])


def write_scored(folder: Path, rewards: Sequence[Sequence[float]]) -> None:
    """Write the samples of four problems with the same rewards."""
    solutions = [solution for number in range(4) for solution in scored_solutions(number, rewards)]
    write_dataset(folder, [*map(make_problem, range(4))], solutions, prm="made")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run whose reward model is right by the last step on the training problems only."""
    folder = tmp_path / "run"
    by_last = ([0.9, 0.2], [0.1, 0.8], [0.9, 0.1])
    by_min = ([0.2, 0.9], [0.5, 0.5], [0.3, 0.6])
    for name in ("samples-12", "training", "test"):
        write_scored(folder / name, by_last)
    write_scored(folder / "training-12", by_last)
    write_scored(folder / "test-12", by_min)
    return folder


def test_only_the_pair_that_is_chosen_on_training_problems_is_measured(run: Path) -> None:
    results = run / "results"
    for _ in range(2):  # the second time replaces the rows of the first
        record_curve(run, results, processbench_file=PROCESSBENCH_ROWS, policy_samples=2)
    rows = read_rows(results / "curve.csv")
    assert len(rows) == 4 * (2 + len(CHOICES) + 2)
    training = {row[2]: row[4] for row in rows if row[:2] == ["12", "training"]}
    test = {row[2]: row[4] for row in rows if row[:2] == ["12", "test"]}
    assert training["best by last"] == "1" and training["best by mean"] == "0"
    assert test == {"best by last": "0", "ranking AUC": "1"}
    table = curve_tables.render_curve(results, 3)
    assert "| – | vote of 3 | 0.0 | 0.0 [" in table
    assert "| 12 | best of 3 by `last` | 100.0 | 0.0 [" in table and "1.000 [" in table
    assert "| 0 : 0 (1.000) |" in table


def test_wins_and_losses_are_counted_over_problems() -> None:
    base = dict(zip("abcdefgh", (0, 0, 0, 1, 1, 0, 1, 0), strict=True))
    values = dict(zip("abcdefgh", (1, 1, 1, 0, 1, 0, 1, 0), strict=True))
    assert curve_tables.format_wins(values, base) == "3 : 1 (0.625)"


def test_the_ranking_of_two_models_is_compared_on_common_problems() -> None:
    areas_above = {"a": 0.5, "b": 0.5, "c": 0.0}
    text = curve_tables.format_auc_gain({"b": 0.75, "a": 0.625}, areas_above)
    assert text.startswith("+0.188 [")


def test_choices_and_ranking_are_those_of_the_commands(run: Path) -> None:
    """The numbers of each pair equal the numbers of `fsdpo-bench report` and `fsdpo-bench prm`."""
    decoders = {"best": "bon", "weighted vote": "weighted"}
    results = measure_paths(run / "test-12", aggregates=["mean", "min", "prod", "last"])
    [task] = results.tasks.values()
    samples = [*read_problem_samples(run / "test-12")]
    for choice in CHOICES:
        result = task.decoders[f"{decoders[choice.decoder]}@3:{choice.aggregate}"]
        assert result.accuracy.value == sum(map(choice.is_correct, samples)) / len(samples)
    ranking = dataset_report(load_scored(run / "test-12"))["ranking_auc"]["min"]
    assert ranking["value"] == samples[0].ranking_auc("min")


def test_each_learning_rate_has_a_row_and_the_best_one_is_printed(tmp_path: Path) -> None:
    header = "policy,seed,problem_id,greedy,correct,samples,vote,tokens,cut_off"
    counts = {
        "rates.csv": {"start": [1], "dpo-lr5e-7": [1], "dpo-lr1e-6": [2], "dpo-lr2e-6": [2]},
        "policies.csv": {"start": [1], "dpo-lr1e-6": [2, 3], "full-step-lr1e-6": [3, 3, 3]},
    }
    for name, by_policy in counts.items():
        rows = [
            f"{policy},{seed},p{problem},,{n_correct + problem % 2},4,0,400,1"
            for policy, seeds in by_policy.items()
            for seed, n_correct in enumerate(seeds)
            for problem in range(6)
        ]
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
    text = curve_tables.render_curve(tmp_path, 8)
    assert "The learning rate with the highest avg@k, of 5e-7, 1e-6, 2e-6: 1e-6" in text
    assert "| the model before training | 6 training | 1 | 37.5 [" in text
    assert "| DPO, rate 2e-6 | 6 training | 1 | 62.5 [" in text
    [row] = [line for line in text.splitlines() if "| Full-Step-DPO, γ 0.5, rate 1e-6 |" in line]
    cells = row.strip("| ").split(" | ")
    assert cells[1:3] == ["6 test", "3"] and cells[3].startswith("87.5 [")
    assert cells[4].startswith("+50.0 [") and cells[4].endswith(
        "(seed 0, 1, 2: +50.0, +50.0, +50.0)"
    )
    assert cells[5].startswith("+12.5 [") and cells[5].endswith("(seed 0, 1: +25.0, +0.0)")
    assert cells[6:] == ["100", "25.0"]


# Recordings


def test_recorded_parts_become_a_replay_and_its_problems(tmp_path: Path) -> None:
    template = get_template("problem")
    questions = [f"What is {number} + 1?" for number in range(5)]
    file = written(
        tmp_path / "problems.jsonl",
        [{"question": text, "answer": f"#### {number}"} for number, text in enumerate(questions)],
    )

    def record(name: str, numbers: Sequence[int], *, is_complete: bool = True) -> Path:
        part = tmp_path / "parts" / name
        part.mkdir(parents=True)
        prompts = [template.render(questions[number]) for number in numbers]
        written(part / "completions.jsonl", [{"prompt": p, "completions": []} for p in prompts])
        (part / "config.json").write_text("{}")
        if is_complete:
            (part / "shard.json").write_text("{}")
        return part

    record("samples-1", [2, 0])
    record("samples-2", [4, 3])
    record("samples-3", [1], is_complete=False)
    recorded = tmp_path / "recorded"
    files = recordings.record_parts(tmp_path / "parts", recorded)
    assert [file.name for file in files] == ["samples-1.jsonl.gz", "samples-2.jsonl.gz"]
    assert recordings.record_parts(tmp_path / "parts", recorded) == []

    out = tmp_path / "joined"
    damaged = tmp_path / "damaged.jsonl.gz"
    content = gzip.decompress(files[1].read_bytes())
    damaged.write_bytes(gzip.compress(b'{"prompt": "What\n' + content))
    with pytest.raises(InputError, match=r"damaged\.jsonl\.gz, line 1"):
        recordings.join_parts([damaged], file, out, template=template, other_recordings=[])
    n_excluded = recordings.join_parts(
        files, file, out, template=template, other_recordings=[files[0]]
    )
    assert n_excluded == 2
    recordings.join_parts(files, file, out, template=template, other_recordings=[])
    problems = [json.loads(line) for line in (out / "problems.jsonl").read_text().splitlines()]
    assert [row["question"] for row in problems] == [questions[index] for index in (0, 2, 3, 4)]
    assert [json.loads(row["metadata"])["position"] for row in problems] == [1, 2, 3, 4]
    assert len((out / "completions.jsonl").read_text().splitlines()) == 4


# The recipe and its results


def test_groups_of_stages_and_unrecorded_parts_can_be_left_out() -> None:
    def names(*settings: str) -> set[str]:
        [recipe] = load_recipes(str(RECIPE), ["cpu"], settings)
        return {stage.name for stage in recipe.stages}

    base = names("groups=samples")
    assert names("groups=samples", "unrecorded=sample") - base == {
        f"samples-{part}" for part in range(1, 7)
    }
    assert names("rewards=score") - names() == {"rewards", "record-rewards"}
    groups = [names(f"groups={name}") for name in ("curve", "rates", "policies")]
    assert set.union(*groups) == names("groups=all") and groups[0] == names()
    assert set.intersection(*groups) == names("groups=samples")
    assert groups[1] & groups[2] - names("groups=samples") == {"scored", "pairs"}


@pytest.mark.proof
def test_every_stage_of_the_curve_runs_at_toy_size(tmp_path: Path) -> None:
    write_problems(tmp_path / "problems")
    values = {
        "dtype": "--dtype float32",
        "part_dtype": "--dtype float32",
        "template": "problem",
        "max_tokens": "128",
        "model": str(CHECKPOINT),
        "folder": str(tmp_path / "run"),
        "train_file": str(tmp_path / "problems/train.jsonl"),
        "test_file": str(tmp_path / "problems/test.jsonl"),
        "processbench_file": str(tmp_path / "problems/processbench.json"),
        "last_row": "12",
        "training_problems": "6",
        "test_problems": "6",
    }
    settings = [word for item in values.items() for word in ("--set", "=".join(item))]
    command = [sys.executable, "-m", "fsdpo_bench", "recipe", str(RECIPE), "--row", "smoke"]
    process = subprocess.run([*command, *settings], capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    [recipe] = load_recipes(str(RECIPE), ["smoke"])
    assert all(f"{stage.name}: done" in process.stdout for stage in recipe.stages)
    _, _, tables = process.stdout.partition("| solutions with an outcome | choice |")
    assert "on 6 test problems (%)" in tables and "| 12 |" in tables and "| 48 |" in tables
    assert "The learning rate with the highest avg@k, of " in tables
    assert "| Full-Step-DPO, γ 4, rate 1e-6 | 6 test | 1 |" in tables


@pytest.mark.skipif(not (RESULTS / "curve.csv").exists(), reason="has not run")
def test_the_recorded_choices_follow_the_rule_and_the_page_has_their_tables() -> None:
    values = curve_tables.read_curve(RESULTS)
    for solutions in {key for key, _ in values} - {curve_results.NO_SOLUTIONS}:
        training = values[solutions, "training"]
        chosen = best_choice({name: sum(by_id.values()) for name, by_id in training.items()})
        assert values[solutions, "test"].keys() == {chosen.name, "ranking AUC"}
    page = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    tables = curve_tables.render_curve(RESULTS, 8).split("\n\n")
    assert all(table.strip() in page for table in tables if table.startswith("|"))
