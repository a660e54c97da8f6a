"""Decoders: result names, and a decoder that a plug-in adds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.cli.app import app
from fsdpo_bench.decoders.decoders import DECODERS, Decoder, parse_result_name
from fsdpo_bench.run_folder import read_run_record
from fsdpo_bench.run_options import RunOptions, run_decoders
from made_runs import make, solutions
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.plugins import load_plugin
from fsdpo_data.engines.beam_search import BeamSpec

SHORTEST = """
from fsdpo_bench.decoders.decoders import DECODERS, Decoder


def choose_shortest(candidates):
    lengths = [len(solution.text) for solution in candidates.solutions]
    return lengths.index(min(lengths))


DECODERS.register(
    Decoder(
        name="shortest",
        title="the shortest of K samples",
        description="the shortest of K samples",
        suffix="@{k}",
        choose=choose_shortest,
        colour=3,
    )
)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_plugins: None) -> Iterator[Path]:
    """Load a plug-in with the decoder ``shortest``, for one test."""
    monkeypatch.setattr(DECODERS, "data", dict(DECODERS.items()))
    file = tmp_path / "shortest_plugin.py"
    file.write_text(SHORTEST)
    load_plugin(str(file))
    yield file
    del sys.modules["shortest_plugin"]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_result_names_are_parsed_as_they_are_written() -> None:
    decoders = ["greedy", "first", "sc", "weighted", "bon", "sbs"]
    options = RunOptions(
        decoder=(",".join(decoders),),
        k=(16, 1),
        aggregate="prod",
        beam=BeamSpec(b1=15),
        b2=(1, 3),
        prm="prm",
    )
    setups = options.setups()
    names = ["greedy", "first", "sc@1", "sc@16", "weighted@1:prod", "weighted@16:prod"]
    names += ["bon@1:prod", "bon@16:prod", "sbs@15,1", "sbs@15,3"]
    assert [setup.name for setup in setups] == names
    assert [parse_result_name(name) for name in names] == setups
    # K = 1 is a parameter of sc@1, and not of greedy.
    assert [setup.name for setup in setups if setup.decoder.has_k] == names[2:-2]
    assert [DECODERS[name].form for name in decoders] == [
        *("greedy", "first", "sc@K", "weighted@K:AGGREGATE", "bon@K:AGGREGATE", "sbs@B1,B2")
    ]


def test_the_decoders_of_a_run_keep_the_order_of_the_registry_without_repetition() -> None:
    options = RunOptions(decoder=("bon,greedy", "greedy"), k=(15, 5, 5), prm="prm")
    setups = options.setups()
    assert [setup.name for setup in setups] == ["greedy", "bon@5:min", "bon@15:min"]
    assert [setup.part for setup in setups] == ["greedy", "samples", "samples"]


def test_a_metric_names_the_decoders_and_the_samples() -> None:
    names = [setup.name for setup in RunOptions().setups(["greedy", "avg@8"])]
    assert names == ["greedy", "sc@8"]
    assert [setup.name for setup in RunOptions(decoder=("maj",)).setups()] == ["sc@5"]
    with pytest.raises(InputError, match="expected names from"):
        RunOptions(decoder=("",)).setups()


def test_a_run_refuses_a_decoder_that_needs_likelihoods() -> None:
    with pytest.raises(InputError, match="decoder = 'likely': a run has no likelihoods"):
        RunOptions(decoder=("greedy,likely",)).setups()
    with pytest.raises(InputError, match=r"^(?!.*likely \()"):
        RunOptions(decoder=("unknown",)).setups()


def test_the_help_describes_every_decoder_that_a_run_can_have() -> None:
    text = " ".join(invoke("run", "--help").output.replace("│", " ").split())
    for decoder in run_decoders():
        assert decoder.description and f"{decoder.name}: {decoder.description}." in text
    assert "likely:" not in text


def test_a_result_name_can_state_the_reward_model_of_a_choice_by_rewards() -> None:
    setup = parse_result_name("bon@8:min by org/a prm")
    assert setup is not None and (setup.k, setup.aggregate, setup.model) == (8, "min", "org/a prm")
    assert setup.name == "bon@8:min by org/a prm"


def test_names_of_aggregates_may_contain_dots_and_hyphens() -> None:
    setup = parse_result_name("bon@16:top-2.mean")
    assert setup is not None and (setup.k, setup.aggregate) == (16, "top-2.mean")
    assert setup.name == "bon@16:top-2.mean"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sc",
        "sc@",
        "sc@0",
        "sc@-1",
        "sc@5:min",
        "bon@5",
        "sbs@5",
        "greedy@1",
        "first@2",
        "sc@5 by prm",
    ],
)
def test_other_names_are_not_results_of_a_known_decoder(name: str) -> None:
    assert parse_result_name(name) is None


@pytest.mark.parametrize("suffix", ["@{n}", "{k}"])
def test_contradictory_decoders_are_refused(suffix: str) -> None:
    with pytest.raises(ValueError, match="decoder 'x'"):
        Decoder(name="x", title="", description="", choose=lambda _: 0, suffix=suffix)


def test_a_decoder_of_a_plugin_gets_the_shared_samples(plugin: Path, tmp_path: Path) -> None:
    out = make(tmp_path / "run", decoder="greedy,shortest", k=(2, 3))
    record = read_run_record(out)
    assert record.decoders == ["greedy", "shortest@2", "shortest@3"]
    assert record.parts == ["greedy", "samples"]
    assert {len(rows) for rows in solutions(out, "samples").values()} == {3}
