"""Models whose text model is one of several parts, such as Gemma 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from random_model import save_random_model

transformers = pytest.importorskip("transformers")

from fsdpo_data.engines.prefix_sharing.probe import (  # noqa: E402
    attention_window,
    supports_prefix_sharing,
)
from fsdpo_train.cli.app import main  # noqa: E402


@pytest.fixture(scope="module")
def composite_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random model whose window is in the configuration of its text model."""
    path = save_random_model(tmp_path_factory.mktemp("gemma3"))
    text = transformers.Gemma3TextConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=12,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=256,
    )
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    config.mm_tokens_per_image = 4
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(path)
    return path


def test_the_window_of_a_composite_configuration_counts(composite_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(composite_path)
    assert model.config.model_type == "gemma3"
    assert attention_window(model.config) == 12
    assert not supports_prefix_sharing(model, max_row_tokens=20)


@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_a_model_with_a_composite_configuration_is_trained(
    composite_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    prompt = "What is 20 + 22? Explain your answer."
    row: dict[str, Any] = {"prompt": prompt, "completion": "20 + 22 = 42"}
    if stage == "dpo":
        sides = {"chosen": "20 + 22 = 42", "rejected": "20 + 22 = 43"}
        row = {"prompt": prompt}
        for side, text in sides.items():
            row |= {side: text, f"{side}_steps": [text], f"{side}_rewards": [0.5]}
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(row) + "\n")
    command = [stage, str(data), "--model", str(composite_path), "--out", str(tmp_path / "out")]
    code, _, stderr = run(capsys, *command, "--max-steps", "1", main=main)
    assert code == 0, stderr
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["text_config"]["use_cache"] is True
