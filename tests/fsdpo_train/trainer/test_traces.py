"""Long thinking traces can be imported, scored, paired and trained on."""

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
from fsdpo_data.answers.thinking import find_thinking  # noqa: E402
from fsdpo_data.core.progress import NO_PROGRESS  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.step_tokens import StepTokenizer  # noqa: E402
from fsdpo_data.exchange.import_options import ImportOutputsOptions  # noqa: E402
from fsdpo_data.exchange.importing import run_import  # noqa: E402
from fsdpo_data.models.prompts import load_tokenizer  # noqa: E402
from fsdpo_data.steps.segment import split_steps  # noqa: E402
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig  # noqa: E402
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES  # noqa: E402
from fsdpo_train.preference.data import (  # noqa: E402
    collate_groups,
    group_inputs,
    tokenize_groups,
)
from fsdpo_train.preference.pairs import (  # noqa: E402
    PairedSolution,
    PromptGroup,
    group_by_prompt,
    open_pairs,
)
from fsdpo_train.preference.train import train_dpo  # noqa: E402
from fsdpo_train.prm.train import train_prm  # noqa: E402
from fsdpo_train.sft.train import train_sft  # noqa: E402

#: A chat template that removes thinking from the messages, as the templates of DeepSeek-R1 do.
THINKING_REMOVED_TEMPLATE = (
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)


def trace(size: int, answer: int, index: int) -> str:
    """Return thinking of about ``size`` bytes that follows an opened tag, and an answer."""
    line = f"{index}: 让我们再算一遍, once more: $$\n20 + 22\n\n= 42.\n$$\n\n"
    thinking = "".join(f"{k}. {line}" for k in range(size // len(line.encode())))
    return f"{thinking}\n</think>\n\nSo it is \\boxed{{{answer}}}."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = tmp_path_factory.mktemp("models") / "policy"
    save_random_model(path, context=65_536, **small, **heads)
    (path / "chat_template.jinja").write_text(THINKING_REMOVED_TEMPLATE)
    return path


@pytest.mark.parametrize("tokens", [6_000, pytest.param(32_000, marks=pytest.mark.proof)])
def test_long_traces_pass_through_all_stages(tokens: int, policy: Path, tmp_path: Path) -> None:
    answers = (42, 42, 43, 43)
    sizes = (tokens * 6 // 5 + 500 * index for index in range(4))  # so that rows are padded
    texts = [trace(next(sizes), answer, index) for index, answer in enumerate(answers)]
    row = {"question": "20 + 22?", "prompt": "20 + 22?<think>\n", "answer": "42"}
    file = tmp_path / "outputs.jsonl"
    rows = [{**row, "question": f"{i}: 20 + 22?", "responses": texts} for i in range(2)]
    rows = [{**source_row, "prompt": f"{source_row['question']}<think>\n"} for source_row in rows]
    file.write_text("".join(json.dumps(source_row) + "\n" for source_row in rows))
    options = ImportOutputsOptions(file=file, out=tmp_path / "built", segmenter="both", workers=1)
    run_import(options, NO_PROGRESS)
    built = fd.open_dataset(tmp_path / "built")
    assert built.statistics().solutions.outcomes == {"correct": 4, "incorrect": 4}
    prm = save_random_prm(tmp_path / "prm", policy)
    scored = built.score(
        out=tmp_path / "scored", prm=str(prm), engine=fd.ScorerOptions(device="cpu")
    )
    rewards = scored.solutions().select("completions", "step_rewards").collect()
    assert rewards["step_rewards"].null_count() == 0
    assert rewards["step_rewards"].list.len().equals(rewards["completions"].list.len())
    pairs = scored.pair(out=tmp_path / "pairs", top=1)
    assert pairs.manifest.rows.pairs == 2

    # Training uses the exact sampled tokens after the prompt, without the chat template.
    tokenizer = load_tokenizer(str(policy))
    loss = PREFERENCE_LOSSES["full-step"]
    prompts = group_by_prompt(open_pairs([pairs.path], loss).rows(), loss)
    groups, counts = tokenize_groups(prompts, tokenizer, 65_536, [tokenizer.eos_token_id])
    solutions = [solution for group in groups for solution in group.solutions]
    assert counts["long_solutions"] == 0
    assert max(len(solution.tokens.input_ids) for solution in solutions) > tokens
    read = {tokenizer.decode(solution.tokens.input_ids) for solution in solutions}
    expected_texts = {
        f"{i}: 20 + 22?<think>\n{text}<|endoftext|>" for i in range(2) for text in texts
    }
    assert len(read) == 4 and read <= expected_texts

    common: dict[str, Any] = {"batch_size": 1, "max_steps": 1, "lr": 1e-4, "model": str(policy)}
    dpo = train_dpo(DpoConfig(data=pairs.path, out=tmp_path / "dpo", **common))
    assert dpo.counts["long_solutions"] == 0 and dpo.loss == pytest.approx(0.693, abs=0.01)
    train_prm(PrmConfig(data=scored.path, out=tmp_path / "prm-2", **common))
    sft_row = {"prompt": f"0: {row['prompt']}", "completion": texts[0]}
    (tmp_path / "sft.jsonl").write_text(json.dumps(sft_row))
    sft = train_sft(SftConfig(data=tmp_path / "sft.jsonl", out=tmp_path / "sft", **common))
    assert sft.tokens > tokens


def seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_preparation_time_is_linear_in_the_tokens(policy: Path) -> None:
    """Four times the tokens take about four times the CPU time, apart from the model."""
    encoder = StepTokenizer(load_tokenizer(str(policy)))

    def prepare_batch(size: int) -> int:
        text = trace(size, 42, 0)
        steps = split_steps(text, find_thinking("<think>", text).end, "both@2")
        encoded = encoder.encode(Prompt("20 + 22?<think>\n"), steps, add_eos=True)
        rewards = (0.5,) * len(steps)
        solution = PairedSolution(steps=tuple(steps), rewards=rewards, encoded=encoded)
        group = PromptGroup(Prompt(""), [solution] * 2, [(0, 1)])
        inputs = group_inputs([group], share_prompt=False, pad_id=0)
        tensors = [*collate_groups([group]), *inputs.values()]
        return sum(tensor.numel() for tensor in tensors)

    small = 40_000
    large = 160_000
    assert prepare_batch(large) < 4.5 * prepare_batch(small)
    small_seconds, large_seconds = (
        min(seconds(partial(prepare_batch, size)) for _ in range(3)) for size in (small, large)
    )
    assert large_seconds < 8 * small_seconds + 0.1
