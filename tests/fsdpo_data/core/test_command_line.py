"""Tests of the command lines that options print."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.run_options import RunOptions
from parsed_options import values_on_line

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.command_line import command_line, command_parameters, make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Options
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.stages.label import LabelOptions
from fsdpo_data.stages.pair import PairOptions
from fsdpo_data.stages.pipeline import BuildOptions
from fsdpo_data.stages.score import ScoreOptions

SERVER = {"engine": "openai", "base_url": "http://HOST:PORT/v1"}


def parse(words: list[str]) -> dict[str, Any]:
    """Parse a command line as typer does; return the values that are on it, by parameter."""
    app = {"fsdpo-data": data_app, "fsdpo-bench": bench_app}[words[0]]
    command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    return values_on_line(command, words[2:])


@pytest.mark.parametrize(
    ("options_class", "program", "command", "values"),
    [
        (BuildOptions, "fsdpo-data", "build", {}),
        (BuildOptions, "fsdpo-data", "build", {"samples": 4, "temperature": 0.5, "seed": 3}),
        (BuildOptions, "fsdpo-data", "build", {"problems": ["a b", "-c"], "grade_thinking": True}),
        (BuildOptions, "fsdpo-data", "build", {"prm": "o/p@c", "top": 2, "prm_format": "pqm"}),
        (BuildOptions, "fsdpo-data", "build", {"api": "chat", "model": "m", **SERVER}),
        (
            BuildOptions,
            "fsdpo-data",
            "build",
            {"engine": "replay", "replay": "FILE", "temperature": 0.8, "model_name": "GPT 9"},
        ),
        (
            LabelOptions,
            "fsdpo-data",
            "label",
            {"data": "DATASET", "rollouts": 4, "temperature": 1.0},
        ),
        (LabelOptions, "fsdpo-data", "label", {"data": "DATASET", "judge": "j", "votes": 3}),
        (ScoreOptions, "fsdpo-data", "score", {"data": "DATASET", "policy": "p", "reference": "r"}),
        (
            PairOptions,
            "fsdpo-data",
            "pair",
            {"data": "DATASET", "require_outcome": False, "top": 2},
        ),
        (PairOptions, "fsdpo-data", "pair", {"data": "DATASET", "min_margin": -0.5}),
        (
            PairOptions,
            "fsdpo-data",
            "pair",
            {
                "data": "DATASET",
                "style": "step-dpo",
                "threshold": 0.3,
                "max_tokens": 99,
                "model": "m",
            },
        ),
        (
            RunOptions,
            "fsdpo-bench",
            "run",
            {"model": "tiny", "decoder": ["sc", "sbs"], "k": [5, 15], "b2": [1, 3], "top_p": 0.9},
        ),
    ],
)
def test_a_command_line_gives_equal_options(
    options_class: type[Options], program: str, command: str, values: dict[str, Any]
) -> None:
    if "data" in command_parameters(options_class) and program == "fsdpo-data":
        values = {"out": "o", **values}
    options = make_options(options_class, values)
    words = command_line(options, program, command)
    assert words[:2] == [program, command] and "o" not in words
    required = {name: value for name, value in values.items() if name == "out"}
    added = [word for name in required for word in ("--out", str(values[name]))]
    assert make_options(options_class, parse([*words, *added])) == options
    # Options of the machine change nothing.
    on_machine: dict[str, Any] = {"out": "elsewhere", "resume": True, "workers": 2}
    if "engine" not in values:
        on_machine["device"] = "cpu"
    if values.get("engine") == "openai":
        on_machine["timeout"] = 9.0
    parameters = command_parameters(options_class)
    host_values = {name: value for name, value in on_machine.items() if name in parameters}
    if options_class is PairOptions:
        host_values = {"out": "elsewhere", "resume": True}
    assert (
        command_line(make_options(options_class, {**values, **host_values}), program, command)
        == words
    )


def test_only_stated_settings_of_a_recording_are_known() -> None:
    temperature = SamplingSpec().temperature
    values = {"engine": "replay", "replay": "FILE", "temperature": temperature}
    options = make_options(BuildOptions, values)
    assert options.unknown_fields == ("seed", "top_p", "max_tokens")
    assert make_options(BuildOptions, {"temperature": temperature}) == BuildOptions()
    in_python = BuildOptions(
        engine=SamplerOptions(engine="replay", replay="FILE"),
        sampling=SamplingSpec(temperature=temperature),
    )
    assert in_python == options and in_python.unknown_fields == options.unknown_fields


def test_help_shows_the_defaults_of_specs() -> None:
    parameters = command_parameters(BuildOptions)
    assert parameters["samples"].default == SamplingSpec().n
    assert parameters["temperature"].default == SamplingSpec().temperature


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"continuations": 4},
            "PairOptions.step_dpo.continuations = 4: the style full does not read",
        ),
        ({"model": "m"}, "PairOptions.step_dpo.model = 'm': the style full does not read"),
        ({"style": "step-dpo", "top": 2}, "PairOptions.top = 2: the style step-dpo does not read"),
    ],
)
def test_options_of_another_style_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        make_options(PairOptions, {"data": "DATASET", "out": "o", **values})
    assert message in str(error.value)
