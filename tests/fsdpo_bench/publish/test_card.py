"""The card of a benchmark run passes the Hub's checks and equals the results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from bench_runs import make_entry, measure_paths, report_run, write_run
from fsdpo_bench.cli.app import app
from fsdpo_bench.metrics.measure import MeasureSpec
from fsdpo_cards import benchmark_card
from hub_server import TOKEN, client_env, run_client, running_hub
from huggingface_hub import ModelCard
from jinja2 import UndefinedError

TASKS = {"math": 20, "ocw": 12, "gsm_ic2": 14}


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Any]:
    return measure_paths(write_run(tmp_path / "measured", TASKS)).to_json()


def test_the_hubs_own_checks_pass(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASKS)
    report_run(run)
    code = (
        "import pathlib\n"
        "from huggingface_hub import ModelCard\n"
        f"card = ModelCard(pathlib.Path({str(run)!r}, 'README.md').read_text())\n"
        "card.validate()\n"
        "print(len(card.data.eval_results))\n"
    )
    with running_hub() as hub:
        ran = run_client(code, client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN))
        assert hub.requests == ["POST /api/validate-yaml"]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "15"  # five decoders on three benchmarks
    assert str(tmp_path) not in (run / "README.md").read_text()


def test_the_card_metadata_equal_the_results(results: dict[str, Any]) -> None:
    run_results = results
    eval_results = ModelCard(benchmark_card(run_results)).data.eval_results
    shares = {
        (task["title"], name): share
        for task in run_results["tasks"].values()
        for name, share in task["decoders"].items()
    }
    for entry in eval_results:
        share = shares.pop((entry.dataset_name, entry.metric_args["decoder"]))
        assert entry.metric_value == pytest.approx(100 * share["accuracy"]["value"], abs=0.005)
        assert entry.metric_args["n"] == share["accuracy"]["n"]
        assert entry.dataset_revision == "c" * 40
    assert not shares


def test_the_card_names_every_limitation(results: dict[str, Any]) -> None:
    card = benchmark_card(results)
    assert "- MATH was measured on 20 of its 23 problems." in card
    assert "- OCW accepts numbers within 1 % of the gold answer." in card
    greedy = results["tasks"]["math"]["decoders"]["greedy"]
    accuracy = 100 * greedy["accuracy"]["value"]
    correct = int(greedy["outcomes"]["correct"])
    row = rf"^\| MATH \| greedy \| {accuracy:.1f} %  \[.*\] \| {correct} \| 20 \|$"
    assert re.search(row, card, re.M)
    assert card.count("\n| mean of ") == 5


def test_an_undefined_field_is_an_error(results: dict[str, Any]) -> None:
    run_results = results
    del run_results["run"]["grade"]["grader"]
    with pytest.raises(UndefinedError, match="grader"):
        benchmark_card(run_results)


def read_options(words: list[str]) -> dict[str, Any]:
    """Return the values of the options of ``run``."""
    run_command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    values: dict[str, Any] = run_command.make_context("run", words).params
    return values


def test_the_command_of_the_card_has_the_problems_the_search_and_the_judge(tmp_path: Path) -> None:
    """Without them, the command measures something else."""
    entries = {"ocw": make_entry("ocw", 12, count=12)}
    run = write_run(
        tmp_path / "run", {"math": 20, "ocw": 12}, entries=entries, segmenter="newline@1"
    )
    results = measure_paths(run).to_json()
    results["run"]["grade"]["answer_judge"] = {
        "model": {"name": "org/judge", "revision": "c" * 40},
        "format": {"name": "chat"},
    }
    lines = benchmark_card(results).replace(" \\\n ", "")
    values = read_options(shlex.split(lines.partition("fsdpo-bench run")[2].partition("```")[0]))
    assert (values["limit"], values["segmenter"]) == ("20", "newline@1")
    assert (values["b1"], values["b2"], values["aggregate"]) == ("2", ["1"], "min")
    assert values["judge"].startswith("org/judge")
    assert "add its `--limit-seed`" in " ".join(lines.split())
    entries = {"math": make_entry("math", 5, count=5)}
    results = measure_paths(write_run(tmp_path / "all", {"math": 5}, entries=entries)).to_json()
    assert "--limit" not in benchmark_card(results)


def test_the_command_of_the_card_has_the_decoders_of_the_run(tmp_path: Path) -> None:
    """A report can have other ones: a run with fewer samples measures something else."""
    run = write_run(tmp_path / "run", {"math": 20}, decoders=["greedy", "sc@4", "bon@4:min"])
    results = report_run(run, spec=MeasureSpec(sizes=[1, 2]))
    assert "sc@2" in results.run.decoders and "sc@4" not in results.run.decoders
    lines = (run / "README.md").read_text().replace(" \\\n ", "")
    assert " --decoder greedy,sc,bon --k 4 --aggregate min " in lines


def test_the_card_prints_a_command_from_the_settings(results: dict[str, Any]) -> None:
    run_results = results
    run_results["run"]["decoders"] = ["greedy", "sc@4", "bon@4:mean", "sbs@5,1"]
    lines = benchmark_card(run_results).replace(" \\\n ", "")
    assert (
        f"\nfsdpo-bench run --task {next(iter(run_results['run']['benchmarks']))} --task " in lines
    )
    assert " --decoder greedy,sc,bon,sbs --k 4 --aggregate mean --b1 2 --b2 1 " in lines
    words = shlex.split(lines.partition("fsdpo-bench run")[2].partition("```")[0])
    assert read_options(words)["limit"] == "20"
    run_results["run"]["sample"]["sampling"]["seed"] = "unknown"
    assert "```bash" not in benchmark_card(run_results)
