"""Options that no chosen decoder, and no engine of the run, reads are refused."""

from __future__ import annotations

from typing import Any

import pytest
from fsdpo_bench.decode.decoders import DECODERS
from fsdpo_bench.runs.options import RunOptions

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.stages.pipeline import BuildOptions

OTHER_VALUES: dict[str, Any] = {
    "k": (8,),
    "aggregate": "mean",
    "b1": 3,
    "b2": (4,),
    "first_keep": "b2",
    "beam_aggregate": "min",
    "max_steps": 7,
    "step_tokens": 9,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
@pytest.mark.parametrize("decoder", DECODERS.values(), ids=lambda decoder: decoder.name)
def test_each_decoder_takes_exactly_the_options_that_it_reads(decoder: Any, name: str) -> None:
    options = RunOptions(decoder=(decoder.name,), **{name: OTHER_VALUES[name]})
    if name in (*decoder.parameters, *decoder.options):
        assert options.plan().decoders == (decoder.name,)
        return
    with pytest.raises(InputError) as refused:
        options.plan()
    assert f"RunOptions.{name} = " in str(refused.value)
    assert f"the decoder {decoder.name} does not read this option" in str(refused.value)
    readers = [
        entry.name for entry in DECODERS.values() if name in (*entry.parameters, *entry.options)
    ]
    assert readers and str(refused.value).endswith(f"reads it: {', '.join(readers)}.")


def test_one_decoder_that_reads_an_option_suffices() -> None:
    assert RunOptions(decoder=("greedy,sc",), k=(8,)).plan().ks == (8,)
    assert RunOptions(k=(8,)).plan(["avg@2"]).ks == (8,)
    with pytest.raises(InputError, match="the decoders greedy, sc do not read this option"):
        RunOptions(decoder=("greedy,sc",), b1=3).plan()


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


@pytest.mark.parametrize("options_class", [BuildOptions, RunOptions])
def test_recorded_samples_have_no_seed(options_class: Any) -> None:
    """The other settings describe the recording, so they are read."""
    replay = SamplerOptions(engine="replay", replay="responses.jsonl")
    options_class(engine=replay, sampling=SamplingSpec(n=1, temperature=0.5, top_p=0.9))
    with pytest.raises(InputError, match="seed = 3: the engine replay does not read this option"):
        options_class(engine=replay, sampling=SamplingSpec(n=1, seed=3))
