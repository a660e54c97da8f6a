"""Tests of damaged checkpoints: each gives one clear message, whatever the libraries raise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import safetensors.torch  # noqa: E402

from fsdpo_data.core.errors import InputError, UnavailableError  # noqa: E402
from fsdpo_data.engines.options import EngineOptions  # noqa: E402
from fsdpo_data.engines.samplers.transformers import TransformersSampler  # noqa: E402
from fsdpo_data.models import checkpoints  # noqa: E402
from fsdpo_data.models.checkpoints import load_checkpoint, resolve_dtype  # noqa: E402
from fsdpo_data.models.prompts import load_tokenizer  # noqa: E402
from fsdpo_data.models.resolve import CHECKPOINT, ResolvedWeights, resolve  # noqa: E402


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


def copy_with_tensors(folder: Path, names: Sequence[str], **config: Any) -> ResolvedWeights:
    """Copy the embedded model with further tensors and other values in its config."""
    shutil.copytree(CHECKPOINT, folder)
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file) | {name: torch.zeros(4) for name in names}
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    edit_file(lambda it: it.update(config))(folder / "config.json")
    return resolve(str(folder), template="problem")


@pytest.mark.parametrize(
    ("auto_class", "configure"),
    [
        ("AutoModelForCausalLM", None),
        ("AutoModel", None),
        ("AutoModelForTokenClassification", lambda config: None),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "model.layers.7.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.bias",
        "model.layers.0.self_attn.other_norm.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
    ],
)
def test_weights_that_the_model_does_not_read_are_refused(
    name: str, auto_class: str, configure: Callable[[Any], None] | None, tmp_path: Path
) -> None:
    weights = copy_with_tensors(tmp_path / "model", [name])
    with pytest.raises(InputError, match=rf"does not read 1 tensors .* including {name}\."):
        load_checkpoint(
            auto_class, weights, dtype="float32", expected="a model", configure=configure
        )


def test_tensors_outside_the_decoder_may_be_left_out(tmp_path: Path) -> None:
    names = [
        "score.0.weight",
        "v_head.summary.bias",
        "visual.blocks.0.weight",
        "model.visual.blocks.0.weight",
        "mtp.layers.0.weight",
        "model.layers.0.self_attn.bias",
        "model.layers.0.self_attn.masked_bias",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "model.layers.0.self_attn.k_proj.k_scale",
        "model.layers.0.self_attn.attn.k_scale",
        "model.layers.0.self_attn.k_bmm_quantizer._amax",
        "model.layers.0.self_attn.k_proj.weight.absmax",
    ]
    layers = json.loads((CHECKPOINT / "config.json").read_text())["num_hidden_layers"]
    names.append(f"model.layers.{layers}.eh_proj.weight")
    weights = copy_with_tensors(tmp_path / "model", names, num_nextn_predict_layers=1)
    _, model = load_checkpoint("AutoModel", weights, dtype="float32", expected="a model")
    assert len(model.layers) == layers


def test_weights_that_do_not_fit_the_quantization_give_a_message(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder)
    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    edit_file(lambda it: it.update(quantization_config=quantization))(folder / "config.json")
    weights = resolve(str(folder), template="problem")
    with pytest.raises(UnavailableError, match="that fit the quantization_config"):
        TransformersSampler(weights, EngineOptions(device="cpu"))


@pytest.mark.parametrize(
    ("dtype", "stored_dtype", "device", "has_bfloat16", "loaded_dtype"),
    [
        ("auto", "bfloat16", "cpu", False, "float32"),
        ("auto", "bfloat16", "cpu", True, "bfloat16"),
        ("auto", "bfloat16", "cuda", False, "bfloat16"),
        ("auto", "float16", "cpu", False, "float16"),
        ("auto", None, "cpu", False, "auto"),
        ("bfloat16", "bfloat16", "cpu", False, "bfloat16"),
    ],
)
def test_auto_is_the_dtype_of_the_checkpoint_that_the_processor_has(
    dtype: str,
    stored_dtype: str | None,
    device: str,
    has_bfloat16: bool,
    loaded_dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "cpu_has_bfloat16", lambda: has_bfloat16)
    config = SimpleNamespace(dtype=stored_dtype and getattr(torch, stored_dtype))
    assert resolve_dtype(dtype, config, device) == loaded_dtype


def test_a_quantized_checkpoint_keeps_its_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "cpu_has_bfloat16", lambda: False)
    config = SimpleNamespace(dtype=torch.bfloat16, quantization_config={"bits": 4})
    assert resolve_dtype("auto", config, "cpu") == "bfloat16"
