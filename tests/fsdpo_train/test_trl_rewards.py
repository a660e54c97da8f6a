"""The trainer of the page about RL: step advantages on the ids of TRL, and the gradient by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import blocks

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("default")]
pytest.importorskip("trl", reason="needs TRL (the extra dev)")

PAGE = Path(__file__).parents[2] / "docs/howto/rl.md"


class CharacterScorer:
    """A scorer whose rewards in [0, 1) depend on the characters of the step."""

    model = None

    def score(self, items: Any) -> list[list[float]]:
        return [[sum(map(ord, step)) % 7 / 7 for step in item.steps] for item in items]


def test_step_advantages_reach_the_gradient(tmp_path: Path) -> None:
    import torch
    from datasets import Dataset
    from random_model import save_random_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from fsdpo_data import rewards

    (code,) = (block.body for block in blocks(PAGE.read_text()) if "StepGRPO" in block.body)
    names: dict[str, Any] = {}
    exec(code, names)
    captured: list[dict[str, Any]] = []
    gradients: list[Any] = []

    class RecordingTrainer(names["StepGRPOTrainer"]):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, **kwargs: Any) -> Any:
            captured.append(inputs)
            return super().compute_loss(model, inputs, **kwargs)

        def training_step(self, model: Any, *arguments: Any) -> Any:
            loss = super().training_step(model, *arguments)
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
            return loss

    path = save_random_model(tmp_path / "policy")
    model = AutoModelForCausalLM.from_pretrained(path)
    model.generation_config.top_k = None  # the fixture generates greedily
    model.generation_config.repetition_penalty = 1.0
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    trainer = RecordingTrainer(
        model=model,
        reward_funcs=rewards.outcome(),
        process=rewards.process(CharacterScorer(), segmenter="newline"),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=4,
            num_generations=4, max_completion_length=24, use_cpu=True, bf16=False,
            report_to="none", save_strategy="no", loss_type="grpo", disable_tqdm=True,
            max_grad_norm=0.0, learning_rate=0.0,
        ),
        train_dataset=Dataset.from_list([{"prompt": "2+2?", "answer": "4"}] * 4),
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()

    (inputs,) = captured
    token_advantages = inputs["advantages"]
    ids, mask = inputs["completion_ids"], inputs["completion_mask"]
    assert token_advantages.shape == ids.shape and token_advantages.any()
    assert not token_advantages[mask == 0].any()
    # By hand: the mean over completions of the mean over tokens of −A·log π.
    reference = AutoModelForCausalLM.from_pretrained(path)
    full = torch.cat([inputs["prompt_ids"], ids], 1)
    attention = torch.cat([inputs["prompt_mask"], mask], 1)
    logits = reference(input_ids=full, attention_mask=attention).logits
    logits = logits[:, -ids.shape[1] - 1 : -1] / trainer.temperature
    logp = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    loss = ((-token_advantages * logp * mask).sum(-1) / mask.sum(-1)).mean()
    loss.backward()
    assert max(float(gradient.abs().max()) for gradient in gradients[0]) > 1e-2
    for gradient, parameter in zip(gradients[0], reference.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, rtol=1e-3, atol=1e-5)
