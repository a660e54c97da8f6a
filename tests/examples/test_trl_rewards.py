"""The trainer for TRL on the page: step advantages on TRL's ids, and a gradient by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from fakes import BatchScorer
from pages import blocks

pytestmark = pytest.mark.filterwarnings("default")
pytest.importorskip("trl", reason="needs TRL (the extra dev)")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/rl.md"
GROUP = 4  #: Completions per prompt.
STEP_WEIGHT = 0.5


def step_reward(step: str) -> float:
    """Return a reward in [0, 1) that depends on the characters of the step."""
    return sum(map(ord, step)) % 7 / 7


class CharacterScorer(BatchScorer):
    """A scorer with :func:`step_reward`."""

    model = None

    def compute_rewards(self, items: Any) -> list[list[float]]:
        return [[step_reward(step) for step in item.steps] for item in items]


def rank_reward(completions: list[str], **_: Any) -> list[float]:
    """Return a reward that differs within a group."""
    return [float(len(completion) % 3) for completion in completions]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the inputs and the gradients of one optimizer step on two prompts."""
    from datasets import Dataset
    from random_model import save_random_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from fsdpo_data import rewards

    folder = tmp_path_factory.mktemp("step-grpo")
    page: dict[str, Any] = {}
    (block,) = (block for block in blocks(PAGE.read_text()) if "class StepGRPO" in block.body)
    sys.path.insert(0, str(ROOT / "examples/rl"))  # the file that the page copies
    exec(block.body, page)
    captured: list[dict[str, Any]] = []
    gradients: list[Any] = []

    class RecordingTrainer(page["StepGRPOTrainer"]):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, **kwargs: Any) -> Any:
            captured.append(inputs)
            return super().compute_loss(model, inputs, **kwargs)

        def training_step(self, model: Any, *arguments: Any) -> Any:
            loss = super().training_step(model, *arguments)
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
            return loss

    path = save_random_model(folder / "policy")
    model = AutoModelForCausalLM.from_pretrained(path)
    model.generation_config.top_k = None  # the fixture generates greedily
    model.generation_config.repetition_penalty = 1.0
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    (newline_id,) = tokenizer("\n")["input_ids"]
    trainer = RecordingTrainer(
        model=model,
        reward_funcs=rank_reward,
        process=rewards.process(CharacterScorer(), segmenter="newline"),
        step_weight=STEP_WEIGHT,
        args=GRPOConfig(
            output_dir=str(folder / "out"), max_steps=1, per_device_train_batch_size=2 * GROUP,
            num_generations=GROUP, max_completion_length=24, use_cpu=True, bf16=False,
            report_to="none", save_strategy="no", loss_type="grpo", disable_tqdm=True,
            max_grad_norm=0.0, learning_rate=0.0, shuffle_dataset=False,
            # Random text has few line breaks, and a completion should have several steps.
            generation_kwargs={"sequence_bias": [[[newline_id], 6.0]]},
        ),
        train_dataset=Dataset.from_list([{"prompt": "2+2?"}, {"prompt": "3+3?"}]),
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    (inputs,) = captured
    reference = AutoModelForCausalLM.from_pretrained(path)
    return {
        "inputs": inputs,
        "gradients": gradients[0],
        "reference": reference,
        "tokenizer": tokenizer,
        "temperature": trainer.temperature,
    }


def token_bytes(tokenizer: Any) -> Callable[[int], bytes]:
    """Return the bytes of each token of a byte-level tokenizer, computed from its vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    characters |= {chr(256 + index): byte for index, byte in enumerate(unprintable)}

    def bytes_of(token_id: int) -> bytes:
        if token_id in tokenizer.all_special_ids:
            return b""
        return bytes(characters[c] for c in tokenizer.convert_ids_to_tokens(token_id))

    return bytes_of


def split_lines(tokens: list[bytes]) -> tuple[list[str], list[int]]:
    """Return the lines with visible text, and the index of the line in which each token starts.

    Blank lines belong to the line before them, and at the start to the first line.
    """
    *complete_pieces, last_piece = b"".join(tokens).split(b"\n")
    lines: list[bytes] = []
    blank_start = b""
    for piece in [*(piece + b"\n" for piece in complete_pieces), last_piece]:
        if piece.decode(errors="replace").strip():
            lines.append(blank_start + piece)
            blank_start = b""
        elif lines:
            lines[-1] += piece
        else:
            blank_start += piece
    ends = list(accumulate(map(len, lines)))
    starts = accumulate(map(len, tokens[:-1]), initial=0)
    line_of_token = [sum(end <= start for end in ends) for start in starts]
    texts = [line.decode(errors="replace") for line in lines]
    return texts, [min(line, len(lines) - 1) for line in line_of_token]


def standardize(rewards: list[float]) -> list[float]:
    """Return the advantages of GRPO of one group."""
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
    return [(reward - mean) / (math.sqrt(variance) + 1e-4) for reward in rewards]


def min_form_by_hand(rewards: list[list[float]], n_tokens: list[list[int]]) -> list[list[float]]:
    """Return the step advantages of one group, with one sum per symbol of the formula."""
    weighted = []
    for row in rewards:
        exponents = [math.exp(-(2 * reward - 1) / 0.1) for reward in row]
        weighted.append(
            [(2 * r - 1) * e / sum(exponents) for r, e in zip(row, exponents, strict=True)]
        )
    result = []
    for index, row in enumerate(weighted):
        other_indices = [j for j in range(len(weighted)) if j != index]
        baseline = sum(sum(weighted[j]) for j in other_indices) / sum(
            sum(n_tokens[j]) for j in other_indices
        )
        centered = [r - n * baseline for r, n in zip(row, n_tokens[index], strict=True)]
        result.append([sum(centered[k:]) for k in range(len(centered))])
    return result


def test_advantages_by_hand_from_the_ids_of_trl(run: dict[str, Any]) -> None:
    """The advantages are GRPO's plus PURE's, on the tokens that the policy generated."""
    inputs, tokenizer = run["inputs"], run["tokenizer"]
    bytes_of = token_bytes(tokenizer)
    rows = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)
    ]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in rows]
    encoded_texts = [tokenizer(text)["input_ids"] for text in texts]
    assert any(  # otherwise ids of the text would pass, too
        ids[: len(encoded)] != encoded for ids, encoded in zip(rows, encoded_texts, strict=True)
    )
    lines = [split_lines([bytes_of(token_id) for token_id in ids]) for ids in rows]
    assert max(len(steps) for steps, _ in lines) > 2

    # The trainer shuffles the completions of its batch, so the group is that of the prompt.
    prompts = inputs["prompt_ids"].tolist()
    groups = [[i for i, other in enumerate(prompts) if other == prompt] for prompt in prompts]
    assert all(len(group) == GROUP for group in groups)
    for index, group in enumerate(groups):
        outcome = standardize(rank_reward([texts[i] for i in group]))
        rewards = [[step_reward(step) for step in lines[i][0]] for i in group]
        n_tokens = [[lines[i][1].count(k) for k in range(len(lines[i][0]))] for i in group]
        position = group.index(index)
        steps = min_form_by_hand(rewards, n_tokens)[position]
        expected = [outcome[position] + STEP_WEIGHT * steps[line] for line in lines[index][1]]
        row = inputs["advantages"][index]
        assert row[: len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
        assert not row[len(expected) :].any()


def test_a_gradient_by_hand(run: dict[str, Any]) -> None:
    """The gradient is that of the mean over completions of the mean over tokens of −A·log π."""
    import torch

    inputs, reference = run["inputs"], run["reference"]
    advantages, ids, mask = (inputs[k] for k in ("advantages", "completion_ids", "completion_mask"))
    assert advantages.shape == ids.shape
    assert (advantages.std(-1) > 0).any()  # not one number per completion
    full_ids = torch.cat([inputs["prompt_ids"], ids], 1)
    attention = torch.cat([inputs["prompt_mask"], mask], 1)
    logits = reference(input_ids=full_ids, attention_mask=attention).logits
    logits = logits[:, -ids.shape[1] - 1 : -1] / run["temperature"]
    logp = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    loss = ((-advantages * logp * mask).sum(-1) / mask.sum(-1)).mean()
    loss.backward()
    assert max(float(gradient.abs().max()) for gradient in run["gradients"]) > 1e-2
    for gradient, parameter in zip(run["gradients"], reference.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, rtol=1e-3, atol=1e-5)
