"""Tests of damaged checkpoints: each gives one clear message, whatever the libraries raise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.samplers.transformers import TransformersSampler
from fsdpo_data.models.checkpoints import load_checkpoint
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.resolve import CHECKPOINT, resolve


def cut(file: Path) -> None:
    """Remove the last bytes of a file, as a full disk does."""
    file.write_bytes(file.read_bytes()[:-10])


def edit_file(change: Callable[[Any], object]) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        fields = json.loads(file.read_text())
        change(fields)
        file.write_text(json.dumps(fields))

    return write


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", cut),
        ("tokenizer.json", cut),
        ("tokenizer.json", edit_file(lambda it: it["model"].update(vocab={"a": "b"}))),
        ("tokenizer.json", edit_file(lambda it: it["model"].update(merges=[["no", "token"]]))),
        ("tokenizer_config.json", edit_file(lambda it: it.update(bos_token={"a": 1}))),
        ("tokenizer_config.json", edit_file(lambda it: it.update(model_max_length=["long"]))),
        ("config.json", edit_file(lambda it: it.update(hidden_size="wide"))),
    ],
)
def test_a_damaged_checkpoint_gives_a_message(
    file: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder)
    damage(folder / file)
    weights = resolve(str(folder), template="problem")
    with pytest.raises(UnavailableError, match=r"cannot be loaded: .+ Expected a model"):
        load_checkpoint("AutoModelForCausalLM", weights, dtype="auto", expected="a model")
    if file.startswith("tokenizer"):
        with pytest.raises(InputError, match="has no tokenizer that can be loaded"):
            load_tokenizer(str(folder))


def test_weights_that_do_not_fit_the_quantization_give_a_message(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder)
    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    edit_file(lambda it: it.update(quantization_config=quantization))(folder / "config.json")
    weights = resolve(str(folder), template="problem")
    with pytest.raises(UnavailableError, match="that fit the quantization_config"):
        TransformersSampler(weights, EngineOptions(device="cpu"))
