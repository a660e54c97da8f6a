"""Tests of the parameters of command lines."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from fsdpo_bench.cli.app import app as bench_app
from fsdpo_bench.run_options import RunOptions
from parsed_options import parse_options

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.command_line import command_parameters, make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Options
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.stages.pair import PairOptions, StepPairOptions
from fsdpo_data.stages.pipeline import BuildOptions


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("build", BuildOptions()),
        (
            "build --samples 4 --temperature 0.5 --problems rows --problems=-c --grade-thinking",
            BuildOptions(
                sampling=SamplingSpec(n=4, temperature=0.5),
                problems=("rows", "-c"),
                grade_thinking=True,
            ),
        ),
        (
            "pair DATA --out o --no-require-outcome --top 2 --min-margin=-0.5",
            PairOptions(data="DATA", out="o", require_outcome=False, top=2, min_margin=-0.5),
        ),
        (
            "pair DATA --out o --style step-dpo --threshold 0.3 --model m",
            PairOptions(
                data="DATA",
                out="o",
                style="step-dpo",
                step_dpo=StepPairOptions(threshold=0.3, model="m"),
            ),
        ),
        (
            "run --model tiny --decoder sc --decoder sbs --prm p --k 5 --b2 1 --first-keep b2",
            RunOptions(
                model="tiny", decoder=("sc", "sbs"), prm="p", k=(5,), beam=BeamSpec(first_keep="b2")
            ),
        ),
    ],
)
def test_a_command_line_gives_the_options_of_python(line: str, options: Options) -> None:
    name, *words = line.split()
    app = bench_app if name == "run" else data_app
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert parse_options(command, words) == options


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
