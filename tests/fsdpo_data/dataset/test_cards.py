"""Tests of dataset cards: complete, correct, and valid according to the Hub's checks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets import Features
from fsdpo_cards.bars import draw_bars, histogram, label_tenths
from fsdpo_cards.commands import rebuild_commands, train_command
from fsdpo_cards.render import combined_licence
from helpers import small_build
from hub_server import TOKEN, client_env, run_client, running_hub
from jinja2 import UndefinedError
from paired_data import SOLUTIONS, paired_dataset

from fsdpo_data import __version__
from fsdpo_data.cli.printing import print_problem
from fsdpo_data.core.command_line import stored_command
from fsdpo_data.dataset.card import dataset_card, dataset_info, distributions
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import CONFIGS, arrow_schema


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("cards"))


def manifest_of(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_text())


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
    configs = {
        entry["config_name"]: entry for entry in dataset_info(dataset, read_manifest(dataset))
    }
    assert set(configs) == set(CONFIGS)
    for config in CONFIGS:
        assert (
            configs[config]["features"]
            == Features.from_arrow_schema(arrow_schema(config))._to_yaml_list()
        )
        assert configs[config]["splits"][0]["num_examples"] == manifest_of(dataset)["rows"][config]
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
    manifest = manifest_of(dataset)
    histograms = distributions(dataset, read_manifest(dataset))
    charts = {title: draw_bars(counts) for title, counts in histograms.items()}
    totals = {
        title: sum(int(line.split()[-1]) for line in plot.splitlines())
        for title, plot in charts.items()
    }
    solutions, steps = manifest["rows"]["solutions"], manifest["labels"]["steps"]
    assert totals == {
        "Solutions by outcome": solutions,
        "Steps by label": steps,
        "Solutions by number of steps": solutions,
        "Solutions by number of tokens": solutions,
        "Step rewards in correct solutions": steps / 2,
        "Step rewards in other solutions": steps / 2,
        "Pairs by margin (mean reward of chosen minus rejected)": manifest["rows"]["pairs"],
    }
    negative = manifest["pairs"]["margin"]["negative"]
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


@pytest.mark.parametrize("field", ["made_by", "parent", "statistics"])
def test_an_undefined_field_is_an_error(dataset: Path, field: str) -> None:
    manifest = read_manifest(dataset)
    delattr(manifest, field)
    with pytest.raises((UndefinedError, AttributeError), match=field):
        dataset_card(dataset, manifest)


def test_commands_get_output_directories() -> None:
    commands = [
        "fsdpo-data build --model org/model@abc --samples 8",
        "fsdpo-data label dataset@0123abc --rollouts 8",
        "fsdpo-data label dataset@4567def --judge 'my judge' --consensus",
    ]
    lines = [line.replace(" \\\n ", "") for line in rebuild_commands(commands)]
    assert lines == [
        "fsdpo-data build --model org/model@abc --samples 8 --out runs/build",
        "fsdpo-data label runs/build --rollouts 8 --out runs/label",
        "fsdpo-data label runs/label --judge 'my judge' --consensus --out runs/label-2",
    ]


def test_the_release_of_a_command_is_a_comment_before_it() -> None:
    """Command lines leave out default values, which another release may change."""
    commands = [
        "fsdpo-data build --limit 2  # fsdpo 0.1.0",
        "fsdpo-data score dataset@0123abc --prm 'a  # fsdpo 9'  # fsdpo 0.1.0",
        "fsdpo-data pair dataset@4567def  # fsdpo 0.2.0",
        "fsdpo-data pair dataset@4567def --prm 'a  # fsdpo 9'",
    ]
    assert [line.replace(" \\\n ", "") for line in rebuild_commands(commands)] == [
        "# fsdpo 0.1.0\nfsdpo-data build --limit 2 --out runs/build",
        "fsdpo-data score runs/build --prm 'a  # fsdpo 9' --out runs/score",
        "# fsdpo 0.2.0\nfsdpo-data pair runs/score --out runs/pair",
        "fsdpo-data pair runs/pair --prm 'a  # fsdpo 9' --out runs/pair-2",
    ]
    assert stored_command(["fsdpo-data", "build", "a # b"]) == (
        f"fsdpo-data build 'a # b'  # fsdpo {__version__}"
    )


def test_training_data_may_have_the_name_of_the_stage_and_the_model() -> None:
    source = SimpleNamespace(name="dpo", commands=["fsdpo-data pair dataset@0"])
    run = SimpleNamespace(
        stage="dpo", sources=[source], command="fsdpo-train dpo dpo --model dpo", processes=(1, 1)
    )
    line = train_command(run, ["fsdpo-data pair runs/score --out runs/pair"])
    assert line.replace(" \\\n ", "") == ("fsdpo-train dpo runs/pair --model dpo --out runs/dpo")


def test_a_dataset_of_unknown_commands_has_no_section_for_them(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    assert manifest.commands is None
    assert "To create the dataset again" not in dataset_card(dataset, manifest)
    manifest.commands = ["fsdpo-data build --limit 2"]
    card = dataset_card(dataset, manifest)
    assert "To create the dataset again" in card and "  --out runs/build\n```" in card


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
    manifest.spec.model.name = "a<script>alert(1)</script>|`b`"
    manifest.spec.sources[0].name = "<img src=x>`<b>"
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
        "solution_id": "0",
        "completions": [f"Step 1{order}[bold]"],
        "labels": None,
        "step_rewards": None,
    }
    texts = dict.fromkeys(("source", "question", "answer"), order)
    print_problem({"problem_id": "0", "solutions": [solution], "pairs": [], **texts}, 1, 0.5)
    output = capsys.readouterr().out
    assert not {char for char in output if not char.isprintable()} - {"\n"}
    assert "[bold]" in output
