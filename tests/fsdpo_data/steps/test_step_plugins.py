"""A segmenter, an aggregate and a prompt template of a plug-in are used like built-in ones."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import read_sample_settings
from paired_data import paired_dataset
from warm import DATA_MODULES, WarmInterpreter

from fsdpo_data.core import plugins
from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.pair_record import PairRecord
from fsdpo_data.dataset.validate import validate
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.steps.rewards import AGGREGATES, Aggregate, aggregate, aggregate_expr
from fsdpo_data.steps.segment import (
    SEGMENTERS,
    Segmenter,
    segmenter_name,
    split_steps,
    step_ending,
    step_stops,
)

ROOT = Path(__file__).parents[3]
PLUGIN = r'''
import re

from fsdpo_data.models.prompts import TEMPLATES, Template
from fsdpo_data.steps.rewards import AGGREGATES, Aggregate
from fsdpo_data.steps.segment import SEGMENTERS, Segmenter


def split_at_sentences(text):
    """Split after each full stop with a space or line end."""
    return re.split(r"(?<=\.\s)(?=\S)", text) if text.strip() else []


SEGMENTERS.register(Segmenter("sentence@2", "after each sentence", split_at_sentences))
AGGREGATES.register(Aggregate("max", max))
TEMPLATES.register(Template("terse@1", "Q: {question}\nA:"))
'''


#: Runs a program with the plug-in of a file, or with none; returns its output.
Run = Callable[..., str]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[WarmInterpreter]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    interpreter = WarmInterpreter(environment, DATA_MODULES)
    yield interpreter
    interpreter.stop()


@pytest.fixture
def run(interpreter: WarmInterpreter, tmp_path: Path) -> Run:
    def run(plugin: Path | None, *arguments: object) -> str:
        environment = {**os.environ, plugins.PLUGINS_VARIABLE: str(plugin or "")}
        return interpreter.run("-m", *arguments, folder=tmp_path, env=environment)

    return run


@pytest.fixture
def plugin_file(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.py"
    file.write_text(PLUGIN)
    return file


@pytest.fixture
def own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register entries that later tests do not see."""
    for registry in (SEGMENTERS, AGGREGATES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_a_build_and_pairs_use_a_plugin(run: Run, plugin_file: Path, tmp_path: Path) -> None:
    built = tmp_path / "built"
    line = ("--limit", 3, "--samples", 2, "--segmenter", "sentence", "--workers", 2)
    line += ("--template", "terse")
    run(plugin_file, "fsdpo_data", "build", *line, "--out", built)
    assert read_sample_settings(read_manifest(built)).segmenter == "sentence@2"
    solutions = pl.read_parquet(built / "solutions/*.parquet")["completions"].to_list()
    assert solutions == [re.split(r"(?<=\.\s)(?=\S)", "".join(steps)) for steps in solutions]
    assert max(map(len, solutions)) > 2
    assert read_sample_settings(read_manifest(built)).template.name == "terse@1"
    prompts = pl.read_parquet(built / "solutions/*.parquet")["prompt"]
    assert all(prompt.startswith("Q: ") and prompt.endswith("\nA:") for prompt in prompts)
    # The plug-in is absent now.
    assert read_sample_settings(validate(built)).segmenter == "sentence@2"
    for command in ("validate", "inspect"):
        run(None, "fsdpo_data", command, built)
    run(None, "fsdpo_data", "export", built, "--to", "trl-stepwise", "--out", tmp_path / "rows")

    scored = paired_dataset(tmp_path / "paired")
    paired = tmp_path / "best"
    line = ("--aggregate", "max", "--top", 1, "--out", paired)
    run(plugin_file, "fsdpo_data", "pair", scored, *line)
    manifest = read_manifest(paired)
    record = manifest.get("pair", PairRecord)
    assert isinstance(record.options, PairSpec) and record.options.aggregate == "max"
    pairs = pl.read_parquet(paired / "pairs/*.parquet")
    margins = [
        max(row["chosen_rewards"]) - max(row["rejected_rewards"]) for row in pairs.to_dicts()
    ]
    assert record.counts.margin is not None
    assert record.counts.margin["mean"] == pytest.approx(sum(margins) / len(margins), abs=1e-4)
    assert validate(paired) == manifest
    for command in ("validate", "inspect"):
        run(None, "fsdpo_data", command, paired)
    run(None, "fsdpo_data", "view", paired, "--out", tmp_path / "page.html")


def test_the_help_describes_the_segmenter_of_a_plugin(run: Run, plugin_file: Path) -> None:
    help_text = run(plugin_file, "fsdpo_data", "build", "--help")
    assert "sentence" in help_text and "after each" in help_text


def test_wrong_segmenters_are_refused_by_name(own_entries: None) -> None:
    with pytest.raises(InputError, match=r"segmenter = 'plain': .* name with a version"):
        Segmenter("plain", "no version", lambda text: [text])
    SEGMENTERS.register(Segmenter("strip@1", "loses spaces", lambda text: [text.strip()]))
    SEGMENTERS.register(Segmenter("blank@1", "blank steps", lambda text: [text, " "]))
    for name in ("strip@1", "blank@1"):
        with pytest.raises(InputError, match=rf"segmenter = '{name}': the steps must join"):
            split_steps("a ", 0, name)


def test_the_latest_version_has_the_short_name(own_entries: None) -> None:
    for version in (1, 10, 9):
        SEGMENTERS.register(Segmenter(f"mine@{version}", "in my way", lambda text: [text]))
    assert segmenter_name("mine") == "mine@10" and segmenter_name("mine@9") == "mine@9"


def test_a_segmenter_needs_no_stop_strings(own_entries: None) -> None:
    SEGMENTERS.register(Segmenter("mine@1", "in my way", lambda text: [text]))
    assert step_stops("mine@1", "anything") == ()
    assert step_ending(". ") == ". " and step_ending("\nStep ") == "\n"


def test_the_column_form_of_an_aggregate_is_derived(own_entries: None) -> None:
    AGGREGATES.register(Aggregate("spread", lambda rewards: max(rewards) - min(rewards)))
    rewards: list[Any] = [[0.25, 0.75, 0.5], [1.0], None, []]
    frame = pl.DataFrame({"rewards": rewards}, schema={"rewards": pl.List(pl.Float32)})
    column = frame.lazy().select(aggregate_expr("rewards", "spread")).collect(engine="streaming")
    assert column.to_series().to_list() == [0.5, 0.0, None, None]
    assert aggregate([0.25, 0.75], "spread") == 0.5
    with pytest.raises(InputError, match=r"aggregate = 'a:b': expected letters"):
        Aggregate("a:b", max)
