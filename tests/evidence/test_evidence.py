"""`make evidence`: a small pool through all commands, and the stored results."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "evidence"))

import evidence  # noqa: E402
from fsdpo_bench.report.figure_files import DARK_STYLE  # noqa: E402
from tables import AGGREGATES, STRATEGIES, TITLES  # noqa: E402

CHAT = "system\nYou are Qwen.\nuser\n2+2?\nassistant\n"
RESULT = (ROOT / "benchmarks/measured/evidence.txt").read_text(encoding="utf-8")
FIGURES = ("step-rewards-n.svg", "step-rewards-models.svg")


def write_pool(folder: Path, models: list[str], question: str) -> None:
    """Write 12 problems x 4 samples with random scores; one row has the chat prompt."""
    rng = random.Random(0)
    candidates = []
    for problem in range(12):
        for index in range(4):
            answer = 4 if rng.random() < 0.6 else 5
            steps = [f"Add {index}.", f"The answer is {answer}."]
            candidates.append(
                {
                    "problem_id": f"p{problem}",
                    "candidate_index": index,
                    "question": f"{question} {problem}",
                    "gold": "4",
                    "response": "\n".join(steps),
                    "steps": [CHAT + steps[0], steps[1]] if problem == index == 0 else steps,
                }
            )
    write_rows(folder / "candidates.jsonl.gz", candidates)
    for model in models:
        scores = [
            {
                "problem_id": row["problem_id"],
                "candidate_index": row["candidate_index"],
                "step_scores": [rng.random(), rng.random()],
            }
            for row in candidates
        ]
        write_rows(folder / "scores" / f"{model}.jsonl.gz", scores)


def write_rows(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def figure_texts(file: Path) -> set[str]:
    """Return the texts of an SVG file."""
    texts = ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()).strip() for text in texts}


@pytest.mark.proof
def test_a_small_pool_runs_through_all_commands_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = tmp_path / "pools"
    write_pool(pools / "gsm8k", [*TITLES], "2+2, case")
    write_pool(pools / "math500", ["qwen_prm"], "1+3, case")
    golds = tmp_path / "golds" / "math500" / "test.jsonl"
    golds.parent.mkdir(parents=True)
    rows = [{"problem": f"1+3, case {problem}", "answer": "4"} for problem in range(12)]
    golds.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    words = ["evidence.py", "--pools", str(pools), "--golds", str(tmp_path / "golds")]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    evidence.main()
    first = capsys.readouterr()
    assert first.err.count("$ fsdpo-data import") == 8
    assert first.err.count("$ fsdpo-bench report") == 4
    assert "chat prompt in step 0: 2.1 % of the rows, none in 11 problems" in first.out
    evidence.main()
    second = capsys.readouterr()
    assert second.out == first.out and "$ fsdpo" not in second.err
    for name in FIGURES:
        assert (out / name).is_file()


def test_a_result_of_another_version_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results.json").write_text('{"version": 2, "tasks": 4}')
    commands = []

    def run_command(words: list[str]) -> str:
        commands.append(words)
        return '{"version": 3, "tasks": {"only": {"numbers": {}}}}'

    monkeypatch.setattr(evidence, "run_command", run_command)
    pool = evidence.EvidencePool("title", tmp_path, tmp_path, models=[], golds=None)
    for _ in range(2):
        assert pool.report("results").numbers == {}
    assert len(commands) == 1


@pytest.mark.proof
def test_best_of_32_of_the_real_pools(shared: Path, tmp_path: Path) -> None:
    """Another program computed the values, in percent, with verdicts of an earlier grader.

    The present grader reads more answers of samples and selections alike, so gains are compared.
    """
    pools = shared / "data/pools"
    if not pools.is_dir():
        pytest.skip("the pools are not here")
    expected = {
        "GSM8K": (91.3, {"min": 95.4, "prod": 95.4, "last": 94.0, "mean": 95.2}),
        "MATH-500": (74.7, {"min": 84.4, "prod": 84.8, "last": 81.6, "mean": 83.8}),
    }
    for benchmark in evidence.load_benchmarks(pools, shared / "data/benchmarks", tmp_path):
        benchmark.models[:] = ["qwen_prm"]
        result = benchmark.measure().result
        sample, accuracies = expected[benchmark.title]
        measured_sample = 100 * result.numbers["avg_at_k"]["32"]["value"]
        assert measured_sample == pytest.approx(sample, abs=1)
        for aggregate, accuracy in accuracies.items():
            best = result.accuracy("bon", "32", aggregate, "qwen_prm")
            gain = 100 * best["value"] - measured_sample
            assert gain == pytest.approx(accuracy - sample, abs=1)


def test_missing_pools_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        SystemExit, match=r"missing: .*gsm8k/candidates.jsonl.gz.* at commit 5117616"
    ):
        evidence.load_benchmarks(tmp_path, tmp_path, tmp_path / "out")


def test_the_stored_result_has_every_model_aggregate_and_comparison() -> None:
    assert RESULT.startswith("$ make evidence\n")
    for title in TITLES.values():
        for strategy in STRATEGIES.values():
            for aggregate in AGGREGATES:
                assert re.search(rf"^{re.escape(title)} +{strategy} +{aggregate} ", RESULT, re.M)
    assert "p by Holm over 40 comparisons" in RESULT


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_label_their_lines_and_have_a_dark_style(name: str) -> None:
    file = ROOT / "docs" / name
    assert file.read_text(encoding="utf-8").count(DARK_STYLE) == 1
    texts = figure_texts(file)
    if name == "step-rewards-n.svg":
        assert {"vote", "pass@N", *(f"best-of-N, {a}" for a in AGGREGATES)} <= texts
    else:
        assert {*AGGREGATES, *(f"{title}, GSM8K" for title in TITLES.values())} <= texts
