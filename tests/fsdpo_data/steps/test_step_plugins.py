"""A segmenter, an aggregate and a prompt template of a plug-in are used like built-in ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run as run_here
from helpers import pair_statistics_of, read_sample_settings
from paired_data import paired_dataset

from fsdpo_data.core import plugins
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage_records import PairRecord
from fsdpo_data.dataset.validate import validate
from fsdpo_data.models.prompts import TEMPLATES
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

#: The registries that the plug-in extends.
REGISTRIES: tuple[Registry, ...] = (SEGMENTERS, AGGREGATES, TEMPLATES)
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


@pytest.fixture
def run(
    own_entries: None,
    empty_plugins: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Run]:
    """Run programs in this process, which find the plug-in in their environment."""
    builtin_entries = [dict(registry.data) for registry in REGISTRIES]

    def run(plugin: Path | None, *words: object) -> str:
        for registry, entries in zip(REGISTRIES, builtin_entries, strict=True):
            registry.data = dict(entries)
        sys.modules.pop("sentences", None)
        monkeypatch.setenv(plugins.PLUGINS_VARIABLE, str(plugin or ""))
        code, out, err = run_here(capsys, *map(str, words))
        assert code == 0, err
        return out

    yield run
    sys.modules.pop("sentences", None)


@pytest.fixture
def plugin_file(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.py"
    file.write_text(PLUGIN)
    return file


@pytest.fixture
def own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register entries that later tests do not see."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "data", dict(registry.data))


def test_a_build_and_pairs_use_a_plugin(run: Run, plugin_file: Path, tmp_path: Path) -> None:
    built = tmp_path / "built"
    line = ("--limit", 3, "--samples", 2, "--segmenter", "sentence", "--workers", 2)
    line += ("--template", "terse")
    run(plugin_file, "build", *line, "--out", built)
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
        run(None, command, built)
    run(None, "export", built, "--to", "trl-stepwise", "--out", tmp_path / "rows")

    scored = paired_dataset(tmp_path / "paired")
    paired = tmp_path / "best"
    line = ("--aggregate", "max", "--top", 1, "--out", paired)
    run(plugin_file, "pair", scored, *line)
    manifest = read_manifest(paired)
    record = manifest.get("pair", PairRecord)
    assert isinstance(record.options, PairSpec) and record.options.aggregate == "max"
    pairs = pl.read_parquet(paired / "pairs/*.parquet")
    margins = [
        max(row["chosen_rewards"]) - max(row["rejected_rewards"]) for row in pairs.to_dicts()
    ]
    margin = pair_statistics_of(paired).margin
    assert margin is not None
    assert margin["mean"] == pytest.approx(sum(margins) / len(margins), abs=1e-4)
    assert validate(paired) == manifest
    for command in ("validate", "inspect"):
        run(None, command, paired)
    # Without the plug-in, nothing computes its margins.
    statistics = pair_statistics_of(paired)
    assert statistics.pairs == len(margins) and statistics.margin is None
    run(None, "view", paired, "--out", tmp_path / "page.html")


def test_the_help_describes_the_segmenter_of_a_plugin(run: Run, plugin_file: Path) -> None:
    help_text = run(plugin_file, "build", "--help")
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
