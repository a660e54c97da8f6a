"""The card of a benchmark run passes the Hub's checks, equals the results and can be repeated."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from bench_runs import config, make_records, make_results, write_run
from fsdpo_bench.cli.app import app
from fsdpo_bench.report.render import write_report
from fsdpo_cards import benchmark_card
from hub_server import TOKEN, client_env, run_client, running_hub
from huggingface_hub import ModelCard
from jinja2 import UndefinedError
from typer.testing import CliRunner

TASKS = {"math": 20, "ocw": 12, "gsm_ic2": 14}


def results() -> dict[str, Any]:
    return make_results(make_records(TASKS), config(TASKS)).to_json()


def test_the_hubs_own_checks_pass(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    write_report(run)
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


def test_the_card_metadata_equal_the_results() -> None:
    run_results = results()
    eval_results = ModelCard(benchmark_card(run_results)).data.eval_results
    shares = {
        (task["title"], name): share
        for task in run_results["tasks"].values()
        for name, share in task["decoders"].items()
    }
    for entry in eval_results:
        share = shares.pop((entry.dataset_name, entry.metric_args["decoder"]))
        assert entry.metric_value == pytest.approx(100 * share["accuracy"], abs=0.005)
        assert entry.metric_args["n"] == share["n"]
        assert entry.dataset_revision == "c" * 40
    assert not shares


def test_the_card_names_every_limitation() -> None:
    card = benchmark_card(results())
    assert "- MATH was measured on 20 of its 23 problems." in card
    assert "- OCW accepts numbers within 1 % of the gold answer." in card
    assert re.search(r"^\| MATH \| greedy \| 45\.0 %  \[25\.8, 65\.8\] \| 9 \| 20 \|$", card, re.M)
    assert card.count("\n| mean of ") == 5


def test_an_undefined_field_is_an_error() -> None:
    run_results = results()
    del run_results["run"]["grader"]
    with pytest.raises(UndefinedError, match="grader"):
        benchmark_card(run_results)


def test_the_card_prints_the_stored_commands() -> None:
    run_results = results()
    assert "```bash" not in benchmark_card(run_results)
    run_results["run"]["commands"] = [
        "fsdpo-bench run --model tiny --task math --limit 20",
        "fsdpo-bench grade run@0123456789abcdef0123 --k 2",
    ]
    lines = benchmark_card(run_results).replace(" \\\n ", "")
    assert "\nfsdpo-bench run --model tiny --task math --limit 20 --out runs/run\n" in lines
    assert "\nfsdpo-bench grade runs/run --k 2 --out runs/grade\n" in lines


@pytest.mark.proof
def test_the_command_of_the_card_reproduces_the_accuracies(tmp_path: Path) -> None:
    first = tmp_path / "first"
    again = tmp_path / "again"
    run_arguments = [
        "run",
        "--suite",
        "smoke",
        "--model",
        "tiny",
        "--limit",
        "6",
        "--decoder",
        "greedy,sc",
    ]
    ran = CliRunner().invoke(
        app, [*run_arguments, "--k", "2", "--max-tokens", "96", "--out", str(first)]
    )
    assert ran.exit_code == 0, ran.output
    command = (first / "README.md").read_text().partition("fsdpo-bench ")[2].partition("```")[0]
    arguments = shlex.split(command.replace("\\\n", " "))
    arguments[arguments.index("runs/run")] = str(again)
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    configs = [json.loads((run / "config.json").read_text()) for run in (first, again)]
    assert configs[0] == configs[1]
    assert accuracies(first) == accuracies(again)


def accuracies(run: Path) -> dict[tuple[str, str], tuple[float, int]]:
    """Return (correct, total) by benchmark and decoder."""
    return {
        (task, decoder): (decoder_results["correct"], decoder_results["n"])
        for task, task_results in json.loads((run / "results.json").read_text())["tasks"].items()
        for decoder, decoder_results in task_results["decoders"].items()
    }
