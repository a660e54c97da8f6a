"""Start models: rotary tables in float32, settings of the generation, and noise in training."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from preference_data import pair_row
from prm_data import write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_train import DpoConfig, SftConfig, train_dpo, train_sft  # noqa: E402
from fsdpo_train.trainer.models import (  # noqa: E402
    cast_parameters,
    context_length,
    restore_rotary_tables,
)


def tables(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: table for name, table in model.named_buffers() if "inv_freq" in name}


@pytest.fixture
def model(tmp_path: Path) -> torch.nn.Module:
    path = save_random_model(tmp_path / "model")
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype="float32")


def test_rounded_rotary_tables_are_computed_again(model: torch.nn.Module) -> None:
    expected = {name: table.clone() for name, table in tables(model).items()}
    model.to(torch.bfloat16)
    assert any((table != expected[name]).any() for name, table in tables(model).items())
    restore_rotary_tables(model)
    assert len(expected) == 2
    assert all(table.equal(expected[name]) for name, table in tables(model).items())


def test_the_parameters_are_cast_and_not_the_rotary_tables(model: torch.nn.Module) -> None:
    cast_parameters(model, torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert {table.dtype for table in tables(model).values()} == {torch.float32}


def test_adapters_start_at_the_reference_with_long_prompts(tmp_path: Path) -> None:
    """With rotary tables of another precision, distant tokens would have other probabilities."""
    pytest.importorskip("peft")
    model = save_random_model(tmp_path / "model")
    sides = ([f"Step 1: {first} + 2 = 5.\n", "So 5."] for first in (3, 4))
    chosen, rejected = ((steps, [0.5, 0.5]) for steps in sides)
    row = pair_row("12 apples, " * 16, chosen, rejected)
    report = train_dpo(
        DpoConfig(
            data=write_rows(tmp_path / "pairs.jsonl", [row]),
            model=str(model),
            out=tmp_path / "out",
            lora=2,
            dtype="bfloat16",
            max_steps=1,
            log_every=1,
        )
    )
    assert (report.metrics["rewards/margins"], report.metrics["kl"]) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "is_usable"),
    [({"temperature": 0.0, "top_p": 0.6}, True), ({"length_penalty": 2.0}, False)],
)
def test_settings_without_effect_are_removed_and_others_refused(
    tmp_path: Path, settings: dict[str, float], is_usable: bool
) -> None:
    """Transformers would refuse to save them, at the end of the training."""
    model = save_random_model(tmp_path / "model")
    file = model / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "do_sample": False, **settings}))
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": "2 + 2?\n", "completion": "It is 4."}])
    config = SftConfig(data=data, model=str(model), out=tmp_path / "out", max_steps=1)
    if is_usable:
        train_sft(config)
        saved = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
        assert not saved.do_sample and {saved.temperature, saved.top_p} == {None}
    else:
        with pytest.raises(InputError, match=r"Correct this file.*length_penalty"):
            train_sft(config)


@pytest.mark.parametrize(("max_length", "is_warned"), [(0, True), (32, False)])
def test_tables_that_depend_on_the_batch_are_warned_about(
    max_length: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = transformers.Phi3Config(
        max_position_embeddings=64,
        original_max_position_embeddings=32,
        hidden_size=32,
        num_attention_heads=4,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
        },
    )
    model = SimpleNamespace(config=config)
    assert (
        context_length(SftConfig(data="d", model="m", out="o", max_length=max_length), model) <= 64
    )
    assert ("depend on the longest row of a batch" in caplog.text) == is_warned
