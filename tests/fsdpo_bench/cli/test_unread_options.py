"""Options that no chosen decoder, and no engine of the run, reads are refused."""

from __future__ import annotations

from typing import Any

import pytest
from fsdpo_bench.benchmark_run import prepare_run
from fsdpo_bench.cli.options import ReportOptions
from fsdpo_bench.run_options import RunOptions, run_decoders

from fsdpo_data.core.command_line import command_parameters, make_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.load import load_sampler
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.stages.pair import StepPairOptions
from fsdpo_data.stages.pipeline import BuildOptions

OTHER_VALUES: dict[str, Any] = {
    "k": (8,),
    "aggregate": "mean",
    "b1": 3,
    "b2": (4,),
    "first_keep": "b2",
    "max_steps": 7,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
@pytest.mark.parametrize("decoder", run_decoders(), ids=lambda decoder: decoder.name)
def test_each_decoder_takes_exactly_the_options_that_it_reads(decoder: Any, name: str) -> None:
    prm = "prm" if decoder.needs_rewards else None
    values = {"decoder": (decoder.name,), "prm": prm, name: OTHER_VALUES[name]}
    options = make_options(RunOptions, values)
    if name in (*decoder.parameters, *decoder.options):
        assert {setup.decoder.name for setup in options.setups()} == {decoder.name}
        return
    with pytest.raises(InputError) as refused:
        options.setups()
    field = ".".join(command_parameters(RunOptions)[name].path)
    assert f"RunOptions.{field} = " in str(refused.value)
    assert f"the decoder {decoder.name} does not read this option" in str(refused.value)
    readers = [
        entry.name for entry in run_decoders() if name in (*entry.parameters, *entry.options)
    ]
    assert readers and str(refused.value).endswith(f"reads it: {', '.join(readers)}.")


def test_one_decoder_that_reads_an_option_suffices() -> None:
    for setups in (
        RunOptions(decoder=("greedy,sc",), k=(8,)).setups(),
        RunOptions(k=(8,)).setups(["avg@2"]),
    ):
        assert [setup.name for setup in setups] == ["greedy", "sc@8"]
    with pytest.raises(InputError, match="the decoders greedy, sc do not read this option"):
        RunOptions(decoder=("greedy,sc",), beam=BeamSpec(b1=3)).setups()


@pytest.mark.parametrize(
    ("engine", "values", "readers"),
    [
        ("transformers", {"engine_arg": ("max_model_len=9",)}, "auto, ray, vllm"),
        ("transformers", {"server": ServerOptions(api="chat")}, "openai, replay"),
        ("vllm", {"server": ServerOptions(concurrency=2)}, "openai"),
        ("auto", {"server": ServerOptions(timeout=9.0)}, "openai"),
    ],
)
def test_an_engine_refuses_the_options_of_others(
    engine: str, values: dict[str, Any], readers: str
) -> None:
    with pytest.raises(InputError) as refused:
        SamplerOptions(engine=engine, **values)
    assert f"the engine {engine} does not read this option" in str(refused.value)
    assert str(refused.value).endswith(f"reads it: {readers}.")


REPLAY = {"engine": "replay", "replay": "responses.jsonl"}
SERVED = {"engine": "openai", "server": ServerOptions(base_url="http://localhost:8000/v1")}


@pytest.mark.parametrize("options_class", [BuildOptions, RunOptions, StepPairOptions])
@pytest.mark.parametrize("setting", [{"device": "cpu"}, {"dtype": "float32"}])
@pytest.mark.parametrize("engine", [REPLAY, SERVED], ids=["replay", "openai"])
def test_a_server_and_a_recording_have_no_device_and_no_dtype(
    options_class: Any, engine: dict[str, Any], setting: dict[str, str]
) -> None:
    """A reward model next to them reads both options."""
    sampler = SamplerOptions(**engine, **setting)
    name = engine["engine"]
    with pytest.raises(InputError, match=f"the engine {name} does not read this option") as refused:
        options_class(engine=sampler)
    assert str(refused.value).endswith("reads it: auto, ray, vllm, transformers.")
    options_class(engine=SamplerOptions(engine="transformers", **setting))
    if options_class is not StepPairOptions:
        assert options_class(engine=sampler, prm="org/prm").engine == sampler
    with pytest.raises(InputError, match="does not read this option"):
        load_sampler("tiny", sampler)


@pytest.mark.parametrize("options_class", [BuildOptions, RunOptions])
def test_a_prm_format_needs_a_prm(options_class: Any) -> None:
    with pytest.raises(InputError, match=r"prm_format = 'pqm': only a reward model has a PRM"):
        options_class(prm_format="pqm")


@pytest.mark.parametrize("options_class", [BuildOptions, RunOptions])
def test_recorded_samples_have_no_seed(options_class: Any) -> None:
    """The other settings describe the recording, so they are read."""
    replay = SamplerOptions(engine="replay", replay="responses.jsonl")
    options_class(engine=replay, sampling=SamplingSpec(n=1, temperature=0.5, top_p=0.9))
    with pytest.raises(InputError, match="seed = 3: the engine replay does not read this option"):
        options_class(engine=replay, sampling=SamplingSpec(n=1, seed=3))


@pytest.mark.parametrize("values", [{"problems": "p.jsonl"}, {"k": (4,)}, {"out": "page"}], ids=str)
def test_a_list_of_disagreements_reads_no_option_of_the_measurement(values: dict[str, Any]) -> None:
    [name] = values
    with pytest.raises(InputError, match=f"{name} = .*with `disagreements`, nothing reads"):
        ReportOptions(data=("run",), disagreements=True, **values)
    assert getattr(ReportOptions(data=("run",), **values), name)


def test_only_a_printed_list_of_disagreements_has_a_length() -> None:
    with pytest.raises(InputError, match="show = 3: only `disagreements` reads this option"):
        ReportOptions(data=("run",), show=3)
    with pytest.raises(InputError, match="show = 3: with `as_json`, nothing reads this option"):
        ReportOptions(data=("run",), show=3, disagreements=True, as_json=True)


def test_beam_search_needs_an_engine_that_continues_texts() -> None:
    server = ServerOptions(base_url="http://127.0.0.1:9/v1", api="chat")
    options = RunOptions(
        model="m",
        prm="tiny",
        task=("embedded",),
        decoder=("sbs",),
        engine=SamplerOptions(engine="openai", server=server),
    )
    with pytest.raises(InputError, match="the engine openai cannot continue a text"):
        prepare_run(options)
