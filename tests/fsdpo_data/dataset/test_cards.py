"""Tests of dataset cards: complete, correct, and valid according to the Hub's checks."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml
from datasets import Features
from fsdpo_cards.bars import draw_bars, histogram, label_tenths
from fsdpo_cards.render import combined_licence
from helpers import (
    change_samples,
    fixed_sampler,
    pair_statistics_of,
    read_sample_settings,
    small_build,
    statistics_of,
)
from hub_server import TOKEN, client_env, run_client, running_hub
from paired_data import SOLUTIONS, paired_dataset

import fsdpo_data as fd
from fsdpo_data.cli.app import app
from fsdpo_data.cli.printing import print_problem
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import ModelRef, SourceRef
from fsdpo_data.dataset.card import dataset_card, dataset_info, distributions
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import CONFIGS, arrow_schema
from fsdpo_data.dataset.stage_records import ProblemsRecord
from fsdpo_data.problems.load import load_problems


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("cards"))


def front_matter(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_hubs_own_checks_pass(dataset: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "from huggingface_hub import DatasetCard\n"
        f"card = DatasetCard(pathlib.Path({str(dataset / 'README.md')!r}).read_text())\n"
        "card.validate()\n"
        "print([each['config_name'] for each in card.data.to_dict()['configs']])\n"
    )
    with running_hub() as hub:
        ran = run_client(code, client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN))
        assert hub.requests == ["POST /api/validate-yaml"]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "['pairs', 'problems', 'solutions']"


def test_the_card_lists_the_columns_for_the_viewer(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    configs = {entry["config_name"]: entry for entry in dataset_info(dataset, manifest)}
    assert set(configs) == set(CONFIGS)
    for config in CONFIGS:
        assert (
            configs[config]["features"]
            == Features.from_arrow_schema(arrow_schema(config))._to_yaml_list()
        )
        n_rows = manifest.rows._asdict()[config]
        assert configs[config]["splits"][0]["num_examples"] == n_rows > 0
    assert front_matter((dataset / "README.md").read_text())["dataset_info"] == list(
        configs.values()
    )


def test_examples_are_real_rows(dataset: Path) -> None:
    card = (dataset / "README.md").read_text()
    rows = [json.loads(block) for block in re.findall(r"````json\n(.*?)\n````", card, re.S)]
    assert [list(row) for row in rows] == [
        arrow_schema(config).names for config in ("pairs", "problems", "solutions")
    ]
    assert {rows[0]["chosen"], rows[0]["rejected"]} <= set(SOLUTIONS)
    assert "".join(rows[2]["completions"]) in SOLUTIONS


def test_distributions_count_every_row_once(dataset: Path) -> None:
    statistics = statistics_of(dataset)
    histograms = distributions(statistics)
    charts = {title: draw_bars(counts) for title, counts in histograms.items()}
    totals = {
        title: sum(int(line.split()[-1]) for line in plot.splitlines())
        for title, plot in charts.items()
    }
    rows, steps = statistics.manifest.rows, statistics.solutions.labels["steps"]
    assert totals == {
        "Solutions by outcome": rows.solutions,
        "Steps by label": steps,
        "Solutions by number of steps": rows.solutions,
        "Solutions by number of tokens": rows.solutions,
        "Step rewards in correct solutions": steps / 2,
        "Step rewards in other solutions": steps / 2,
        "Pairs by margin (mean reward of chosen minus rejected)": rows.pairs,
    }
    margin = pair_statistics_of(dataset).margin
    negative = margin["negative"] if margin else None
    assert (
        f"In {negative} pairs the correct solution has the lower reward"
        in (dataset / "README.md").read_text()
    )


def test_no_path_of_this_machine_is_shown(dataset: Path) -> None:
    card = (dataset / "README.md").read_text()
    assert str(Path.home()) + "/" not in card
    assert str(dataset.parent) not in card


def test_a_dataset_without_pairs_says_nothing_of_them(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    card = (tmp_path / "run/README.md").read_text()
    configs = front_matter(card)["configs"]
    assert [config["config_name"] for config in configs] == ["solutions", "problems"]
    assert [config.get("default", False) for config in configs] == [True, False]
    assert "chosen" not in card and "Step rewards" not in card


@pytest.mark.parametrize("field", ["made_by", "parent", "cost"])
def test_an_undefined_field_is_an_error(dataset: Path, field: str) -> None:
    manifest = read_manifest(dataset)
    delattr(manifest, field)
    with pytest.raises((SchemaError, AttributeError), match=field):
        dataset_card(dataset, manifest)


def test_the_card_prints_a_command_from_the_options(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    change_samples(manifest, model=ModelRef("fixed", "0" * 40))
    command = dataset_card(dataset, manifest).partition("fsdpo-data build")[2].partition("```")[0]
    assert f"--model {read_sample_settings(manifest).model.name}@{'0' * 40} \\\n" in command
    assert f"--samples {read_sample_settings(manifest).sampling.n} \\\n" in command
    assert command.endswith("  --out runs/data\n")
    words = shlex.split(command.replace("\\\n", ""))
    typer.main.get_command(app).commands["build"].make_context("build", words)  # type: ignore[attr-defined]
    change_samples(manifest, unknown_fields=("seed",))
    assert "fsdpo-data build" not in dataset_card(dataset, manifest)


@pytest.mark.parametrize("source", ["embedded", "file"])
def test_the_command_of_the_card_samples_the_same_problems(source: str, tmp_path: Path) -> None:
    """With any limit and seed, and also after a selection of problems."""
    file = tmp_path / "problems.jsonl"
    rows = [{"question": f"What is 40 + {i}?", "answer": str(40 + i)} for i in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = load_problems([str(file) if source == "file" else source], limit=3, seed=5)
    small_build(tmp_path / "run", problems, make_sampler=lambda: fixed_sampler(problems))
    selected = fd.open_dataset(tmp_path / "run").select(out=tmp_path / "one", sample=1)
    assert selected.manifest.rows.problems < 3
    for dataset in (tmp_path / "run", tmp_path / "one"):
        card = (dataset / "README.md").read_text()
        command = card.partition("fsdpo-data build")[2].partition("```")[0].replace("\\\n", "")
        words = shlex.split(command)
        options = dict(zip(words[::2], words[1::2], strict=True))
        again = load_problems(
            [str(tmp_path / options["--problems"]) if source == "file" else source],
            limit=int(options["--limit"]),
            seed=int(options["--limit-seed"]),
        )
        assert again.problems == problems.problems


def test_licences_of_several_sources() -> None:
    assert (
        combined_licence([{"name": "openai/gsm8k:main"}, {"name": "EleutherAI/hendrycks_math"}])
        == "mit"
    )
    assert combined_licence([{"name": "embedded"}, {"name": "mine.jsonl"}]) == [
        "apache-2.0",
        "unknown",
    ]


def test_bars_and_histograms() -> None:
    assert draw_bars([("a", 4), ("bb", 1), ("c", 0)], width=8) == (
        " a  ████████  4\nbb  ██        1\n c            0"
    )
    assert histogram([(3, 2), (5, 1)]) == [("3", 2), ("4", 0), ("5", 1)]
    assert histogram([(0, 1), (29, 2)], bins=3) == [("0–9", 1), ("10–19", 0), ("20–29", 2)]
    assert label_tenths([(-1, 2), (1, 3)]) == [("-0.1–0.0", 2), ("0.0–0.1", 0), ("0.1–0.2", 3)]
    assert label_tenths([]) == []
    assert draw_bars([]) == "" and histogram([]) == []


def test_names_of_models_and_sources_are_no_markup(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    change_samples(manifest, model=ModelRef("a<script>alert(1)</script>|`b`", "0"))
    problems = manifest.get("problems", ProblemsRecord)
    problems.options.sources = [SourceRef("<img src=x>`<b>", "0", "train")]
    manifest.put(problems)
    card = dataset_card(dataset, manifest).partition("\n---\n")[2]
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", card, flags=re.S)
    assert "<script" not in prose and "<img" not in prose and "<b>" not in prose


def test_a_terminal_takes_no_orders_from_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    order = "\x1b]0;mine\x07\x1b]52;c;aGk=\x07\x1b[2J\x9b2J\r"
    solution = {
        "sample_index": 0,
        "outcome": "correct",
        "answer": order,
        "finish_reason": "stop",
        "n_tokens": 1,
        "solution_id": order,
        "completions": [f"Step 1{order}[bold]"],
        "labels": None,
        "step_rewards": None,
    }
    pair = {
        f"{side}_{name}": value
        for side in ("chosen", "rejected")
        for name, value in (("id", order), ("steps", [order]), ("rewards", [0.5]))
    }
    texts = dict.fromkeys(("problem_id", "source", "question", "answer"), order)
    print_problem({"solutions": [solution], "pairs": [pair], **texts}, 1, 0.5, "outcome")
    output = capsys.readouterr().out
    assert not {char for char in output if not char.isprintable()} - {"\n"}
    assert "[bold]" in output
