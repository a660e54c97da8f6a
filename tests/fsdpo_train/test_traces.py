"""Solutions that think for long go the whole way: imported, scored, paired and trained on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from random_model import save_random_model, save_random_prm

torch = pytest.importorskip("torch")

import fsdpo_data as fd  # noqa: E402
from fsdpo_data.core.progress import NO_PROGRESS  # noqa: E402
from fsdpo_data.engines.step_tokens import StepTokenizer  # noqa: E402
from fsdpo_data.models.prompts import load_tokenizer  # noqa: E402
from fsdpo_data.models.thinking import find_thinking  # noqa: E402
from fsdpo_data.stages.import_outputs import ImportOutputsOptions, run_import  # noqa: E402
from fsdpo_data.steps.segment import split_steps  # noqa: E402
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig  # noqa: E402
from fsdpo_train.preference.data import prepare_pairs  # noqa: E402
from fsdpo_train.preference.groups import PromptGroup, collate_groups  # noqa: E402
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs  # noqa: E402
from fsdpo_train.preference.train import train_dpo  # noqa: E402
from fsdpo_train.prm.train import train_prm  # noqa: E402
from fsdpo_train.sft.train import train_sft  # noqa: E402

#: A chat template that takes the thinking out of what was said, as those of DeepSeek-R1 do.
STRIPS = (
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)


def trace(size: int, answer: int, way: int) -> str:
    """Return thinking of about ``size`` bytes behind an open mark, and an answer."""
    said = f"{way}: 让我们再算一遍, once more: $$\n20 + 22\n\n= 42.\n$$\n\n"
    thought = "".join(f"{k}. {said}" for k in range(size // len(said.encode())))
    return f"{thought}\n</think>\n\nSo it is \\boxed{{{answer}}}."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = tmp_path_factory.mktemp("models") / "policy"
    save_random_model(path, context=65_536, **small, **heads)
    (path / "chat_template.jinja").write_text(STRIPS)
    return path


@pytest.mark.parametrize("tokens", [6_000, pytest.param(32_000, marks=pytest.mark.proof)])
def test_long_traces_go_the_whole_way(tokens: int, policy: Path, tmp_path: Path) -> None:
    answers = (42, 42, 43, 43)
    sizes = (tokens * 6 // 5 + 500 * way for way in range(4))  # so that rows are padded
    texts = [trace(next(sizes), answer, way) for way, answer in enumerate(answers)]
    row = {"question": "20 + 22?", "prompt": "20 + 22?<think>\n", "answer": "42"}
    file = tmp_path / "outputs.jsonl"
    rows = [{**row, "question": f"{i}: 20 + 22?", "responses": texts} for i in range(2)]
    rows = [{**each, "prompt": f"{each['question']}<think>\n"} for each in rows]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    how = ImportOutputsOptions(file=file, out=tmp_path / "built", segmenter="both", workers=1)
    built = fd.open_dataset(run_import(how, NO_PROGRESS)[0])
    assert built.manifest.outcomes == {"correct": 4, "incorrect": 4}
    prm = save_random_prm(tmp_path / "prm", policy)
    scored = built.score(out=tmp_path / "scored", prm=str(prm), device="cpu")
    rewards = scored.solutions().select("completions", "step_rewards").collect()
    assert rewards["step_rewards"].null_count() == 0
    assert rewards["step_rewards"].list.len().equals(rewards["completions"].list.len())
    pairs = scored.pair(out=tmp_path / "pairs", top=1)
    assert pairs.manifest.rows.pairs == 2

    # What is trained on is the prompt and what was sampled, to the token: no template is asked.
    tokenizer = load_tokenizer(str(policy))
    prompts = group_by_prompt(open_pairs(pairs.path).rows(), "full-step")
    data = prepare_pairs(prompts, tokenizer, 65_536, {"model": "m"})
    assert data.counts["long_solutions"] == 0 and data.max_sequence_length > tokens
    read = {tokenizer.decode(each.input_ids) for group in data.groups for each in group.solutions}
    asked = {f"{i}: 20 + 22?<think>\n{text}<|endoftext|>" for i in range(2) for text in texts}
    assert len(read) == 4 and read <= asked

    common: dict[str, Any] = {"batch_size": 1, "max_steps": 1, "lr": 1e-4, "model": str(policy)}
    dpo = train_dpo(DpoConfig(data=pairs.path, out=tmp_path / "dpo", **common))
    assert dpo.counts["long_solutions"] == 0 and dpo.loss == pytest.approx(0.693, abs=0.01)
    train_prm(PrmConfig(data=scored.path, out=tmp_path / "prm-2", **common))
    one = {"prompt": f"0: {row['prompt']}", "completion": texts[0]}
    (tmp_path / "sft.jsonl").write_text(json.dumps(one))
    sft = train_sft(SftConfig(data=tmp_path / "sft.jsonl", out=tmp_path / "sft", **common))
    assert sft.tokens > tokens


def seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_four_times_the_tokens_are_four_times_the_work(policy: Path) -> None:
    """Finding the thinking, cutting, encoding and batching; attention is the model's own."""
    encoder = StepTokenizer(load_tokenizer(str(policy)))

    def prepared(size: int) -> int:
        text = trace(size, 42, 0)
        steps = split_steps(text, find_thinking("<think>", text).end, "both@1")
        encoded = encoder.encode("20 + 22?<think>\n", steps, add_eos=True)
        group = PromptGroup([encoded, encoded], [[0.5] * len(steps)] * 2, [(0, 1)])
        batch = collate_groups([group], share_prompt=False, pad_id=0, eos_id=0)
        values = [*batch.values(), *batch["model_inputs"].values()]
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        return sum(each.numel() for each in tensors)

    small, large = 40_000, 160_000
    assert prepared(large) < 4.5 * prepared(small)
    once, more = (
        min(seconds(partial(prepared, size)) for _ in range(3)) for size in (small, large)
    )
    assert more < 8 * once + 0.1
