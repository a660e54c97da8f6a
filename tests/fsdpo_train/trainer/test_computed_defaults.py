"""Options that the user does not state follow the start model and the machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import run
from fsdpo_bench.recipes.load import load_recipes
from parsed_options import parse_options
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

pytest.importorskip("torch")
import torch

from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_train import DpoConfig, PrmConfig, SftConfig, train_prm
from fsdpo_train.cli.app import app, main
from fsdpo_train.config import TrainConfig
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.trainer import computed_defaults
from fsdpo_train.trainer.computed_defaults import with_computed_defaults

NAMES = ("lr", "adam_beta2", "batch_size", "grad_accum")
#: The values of ``NAMES`` and of β for the embedded model, by stage.
TINY = {
    SftConfig: (5e-4, 0.98, 32, 1),
    PrmConfig: (1.5e-3, 0.98, 32, 1),
    DpoConfig: (1e-4, 0.999, 4, 1),
}
#: The defaults for other models. Those of PRMs and preference training are the paper's.
OTHERS = {
    SftConfig: (1e-5, 0.999, 16, 1),
    PrmConfig: (5e-7, 0.999, 8, 32),
    DpoConfig: (5e-7, 0.999, 4, 1),
}


def values(config: TrainConfig) -> tuple[Any, ...]:
    """Return the values of ``NAMES`` after the defaults of the start model."""
    resolved = with_computed_defaults(config)
    return tuple(getattr(resolved, name) for name in NAMES)


@pytest.mark.parametrize("config_class", TINY)
@pytest.mark.parametrize("model", ["tiny", str(CHECKPOINT)])
def test_tiny_has_its_own_options(config_class: type[TrainConfig], model: str) -> None:
    assert values(config_class(data="d", out="o", model=model)) == TINY[config_class]


@pytest.mark.parametrize("config_class", OTHERS)
def test_other_models_have_the_defaults(config_class: type[TrainConfig], tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model")
    assert values(config_class(data="d", out="o", model=str(model))) == OTHERS[config_class]


def test_random_weights_have_the_defaults() -> None:
    config = SftConfig(data="d", out="o", from_config=CHECKPOINT / "config.json")
    assert values(config) == OTHERS[SftConfig]


def test_stated_options_stay_even_if_they_equal_the_default() -> None:
    config = PrmConfig(data="d", out="o", model="tiny", lr=5e-7, batch_size=8)
    assert values(config) == (5e-7, 0.98, 8, 1)


@pytest.mark.parametrize("config_class", OTHERS)
def test_adapters_have_ten_times_the_learning_rate(
    config_class: type[TrainConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = str(save_random_model(tmp_path / "model"))
    config = config_class(data="d", out="o", model=model, lora=4)
    rate = 1e-4 if config_class is SftConfig else 5e-6
    assert with_computed_defaults(config).lr == rate
    assert f"LoRA: `lr={rate:g}`, 10 times the rate of full weights" in caplog.text
    assert with_computed_defaults(config.replace(lr=3e-7)).lr == 3e-7


def test_beta_of_tiny() -> None:
    config = DpoConfig(data="d", out="o", model="tiny")
    assert with_computed_defaults(config).beta == 1
    assert with_computed_defaults(config.replace(beta=0.1)).beta == 0.1


def test_a_loss_that_does_not_read_beta_keeps_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = dataclasses.replace(PREFERENCE_LOSSES["ipo"], options=())
    monkeypatch.setattr(DpoConfig, "preference_loss", property(lambda _: loss))
    assert with_computed_defaults(DpoConfig(data="d", out="o", model="tiny")).beta == 0.05


def test_the_options_are_printed_recorded_and_kept_by_models_trained_from_tiny(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    out = tmp_path / "prm"
    line = ["prm", str(data), "--model", "tiny", "--out", str(out), "--max-steps", "1"]
    code, _, err = run(capsys, *line, "--held-out", "0", "--grad-accum", "2", main=main)
    assert code == 0
    assert "tiny: --lr 0.0015, --adam-beta2 0.98, --batch-size 32, --dtype float32\n" in err
    recorded = json.loads((out / "prm.json").read_text())
    assert tuple(recorded[name] for name in NAMES) == (1.5e-3, 0.98, 32, 2)
    assert recorded["dtype"] == "float32"
    command = " ".join((out / "README.md").read_text().replace("\\\n", " ").split())
    assert "--lr 0.0015 --adam-beta2 0.98" in command and "--grad-accum 2" in command
    assert values(DpoConfig(data="d", out="o", model=str(out))) == TINY[DpoConfig]


def test_the_card_states_a_learning_rate_that_equals_the_default(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    train_prm(
        PrmConfig(data=data, model="tiny", out=tmp_path / "out", max_steps=1, held_out=0, lr=5e-7)
    )
    assert "--lr 5e-07" in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("has_gpu", "has_bfloat16", "dtype"),
    [(True, True, "bfloat16"), (True, False, "float32"), (False, True, "float32")],
)
def test_the_precision_follows_the_gpu(
    has_gpu: bool, has_bfloat16: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    config = PrmConfig(data="d", out="o", model=str(save_random_model(tmp_path / "model")))
    assert with_computed_defaults(config).dtype == dtype
    assert with_computed_defaults(config.replace(dtype="float32")).dtype == "float32"
    assert with_computed_defaults(config.replace(model="tiny")).dtype == "float32"


@pytest.mark.parametrize(
    ("has_bfloat16", "weights", "dtype"),
    [
        (True, "bfloat16", "bfloat16"),
        (True, "float32", "float32"),
        (False, "bfloat16", "float32"),
    ],
)
def test_the_precision_on_a_cpu_follows_its_instructions_and_the_weights(
    has_bfloat16: bool,
    weights: str,
    dtype: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(computed_defaults, "cpu_has_bfloat16", lambda: has_bfloat16)
    model = save_random_model(tmp_path / "model")
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": weights}))
    config = PrmConfig(data="d", out="o", model=str(model))
    assert with_computed_defaults(config).dtype == dtype


#: Options of the trainings in recipes for the embedded model, which the recipes do not state.
RECIPE_VALUES = {
    ("demo", "sft"): dict(lr=5e-4, adam_beta2=0.98, batch_size=32, grad_accum=1, epochs=1),
    ("demo", "prm"): dict(lr=1.5e-3, adam_beta2=0.98, batch_size=32, grad_accum=1, epochs=5),
    ("demo", "train"): dict(lr=2e-5, beta=0.1, adam_beta2=0.999, batch_size=4, grad_accum=1),
    ("embedded", "prm"): dict(lr=1.5e-3, adam_beta2=0.98, batch_size=32, grad_accum=1, epochs=3),
    ("embedded", "train"): dict(lr=1e-4, beta=1, adam_beta2=0.999, batch_size=4, grad_accum=1),
}


@pytest.mark.parametrize(("recipe_name", "stage_name"), RECIPE_VALUES)
def test_trainings_of_recipes_have_the_values_of_their_measurements(
    recipe_name: str, stage_name: str
) -> None:
    (recipe,) = load_recipes(recipe_name)
    (stage,) = recipe.select_stages([stage_name])
    command = typer.main.get_command(app).commands[stage.argv[1]]  # type: ignore[attr-defined]
    config = parse_options(command, stage.argv[2:])
    assert isinstance(config, TrainConfig)
    # Checkpoints of the recipe have the sizes of the embedded model.
    resolved = with_computed_defaults(config.replace(model="tiny"))
    expected = RECIPE_VALUES[recipe_name, stage_name]
    assert {name: getattr(resolved, name) for name in expected} == expected
