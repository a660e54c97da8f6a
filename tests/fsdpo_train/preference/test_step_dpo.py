"""Training on Step-DPO's published pairs equals Step-DPO's published code."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import real_tokenizers
from prm_data import write_rows
from random_model import save_random_model
from recorded_imports import import_labels
from step_dpo_rows import STEP_DPO_ROWS, step_dpo_row

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_train.config import DpoConfig  # noqa: E402
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.preference.data import tokenize_groups  # noqa: E402
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs  # noqa: E402

BETA = 0.1

# From here to `published_loss`: Step-DPO's code (train.py and stepdpo_trainer.py, on TRL 0.8.5).
ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{instruction}\n\n### Response:"
)


def published_prompt(row: dict[str, Any]) -> str:
    """Return the prompt, in which the initial steps follow on a new line."""
    prompt = ALPACA.format(instruction=row["prompt"])
    initial_steps = row["initial_reason_steps"]
    return f"{prompt}\n{initial_steps}" if initial_steps else prompt


def published_tokens(tokenizer: Any, row: dict[str, Any], side: str) -> tuple[list[int], int]:
    """Return the ids of prompt and step, encoded at once, and the number of prompt tokens.

    No end-of-sequence token follows the step.
    """
    prompt = published_prompt(row)
    ids = tokenizer(prompt + row[side], add_special_tokens=False)["input_ids"]
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    n_prompt = len(prompt_ids)
    if ids[:n_prompt] != prompt_ids:  # the last token of the prompt merges with the step
        n_prompt -= 1
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*bos, *ids], len(bos) + n_prompt


def published_logprob(model: Any, ids: list[int], n_prompt: int) -> Any:
    """Return the log-probability of the step; the prompt with its initial steps is masked."""
    logp = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    targets = torch.tensor(ids[1:])
    return logp.gather(-1, targets[:, None])[n_prompt - 1 :].sum()


def published_loss(model: Any, reference: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> Any:
    """Return the mean of −log σ(β·(log-ratio of chosen − log-ratio of rejected))."""
    losses = []
    for row in rows:
        log_ratios = []
        for side in ("chosen", "rejected"):
            ids, n_prompt = published_tokens(tokenizer, row, side)
            with torch.no_grad():
                reference_logp = published_logprob(reference, ids, n_prompt)
            log_ratios.append(published_logprob(model, ids, n_prompt) - reference_logp)
        losses.append(-torch.nn.functional.logsigmoid(BETA * (log_ratios[0] - log_ratios[1])))
    return torch.stack(losses).mean()


def import_pairs(folder: Path, rows: list[dict[str, Any]]) -> Path:
    source = write_rows(folder / "step_dpo.jsonl", rows)
    import_labels(source, "step-dpo-10k", folder / "pairs", template="alpaca-newline")
    return folder / "pairs"


class PublishedCode(transformers.TrainerCallback):
    """Compute loss and gradient by the published code, with the weights before each step."""

    def __init__(self, start: Path, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(start)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(start).double()
        self.reference = transformers.AutoModelForCausalLM.from_pretrained(start).double()
        self.losses: list[float] = []
        #: Distance of the trainer's gradient, as a fraction of the published gradient.
        self.gradient_errors: list[float] = []

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        """Compare the gradient of a batch with all pairs."""
        self.model.load_state_dict(model.state_dict())
        self.model.zero_grad()
        loss = published_loss(self.model, self.reference, self.tokenizer, self.rows)
        loss.backward()
        self.losses.append(loss.item())
        published = {name: weight.grad for name, weight in self.model.named_parameters()}
        ours = {name: weight.grad.double() for name, weight in model.named_parameters()}
        difference = torch.cat([(ours[name] - published[name]).flatten() for name in published])
        size = torch.cat([gradient.flatten() for gradient in published.values()]).norm()
        self.gradient_errors.append(float(difference.norm() / size))


@pytest.mark.parametrize("share_prompt", [True, False])
@pytest.mark.parametrize("shuffle", ["groups", "pairs"])
def test_losses_and_gradients_of_a_training_equal_the_published_code(
    share_prompt: bool, shuffle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policy and reference are equal in the first step only."""
    start = save_random_model(tmp_path / "policy", context=512)
    published = PublishedCode(start, STEP_DPO_ROWS)
    run_trainer = dpo.run_trainer

    def run_and_compare(trainer: Any, *arguments: Any) -> None:
        trainer.add_callback(published)
        run_trainer(trainer, *arguments)

    monkeypatch.setattr(dpo, "run_trainer", run_and_compare)
    report = dpo.train_dpo(
        DpoConfig(
            data=import_pairs(tmp_path, STEP_DPO_ROWS),
            out=tmp_path / "trained",
            model=str(start),
            loss="step-dpo",
            beta=BETA,
            lr=2e-4,
            warmup=0,
            max_grad_norm=1e9,  # the callback sees gradients after clipping
            batch_size=len(STEP_DPO_ROWS),
            epochs=4,
            log_every=1,
            shuffle=shuffle,
            share_prompt=share_prompt,
        )
    )
    assert (report.steps, report.counts["pairs"]) == (4, len(STEP_DPO_ROWS))
    [state] = (tmp_path / "trained").glob("checkpoints/*/trainer_state.json")
    history = json.loads(state.read_text())["log_history"]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert losses == pytest.approx(published.losses, abs=1e-6)
    assert published.losses[0] == pytest.approx(math.log(2))
    assert 0.05 < published.losses[-1] < 0.6  # far from the reference
    assert max(published.gradient_errors) < 1e-5


def pair_tokens(
    folder: Path, rows: list[dict[str, Any]], tokenizer: Any
) -> tuple[list[list[int]], Counter[str]]:
    """Return the ids of the chosen and the rejected side of each row in order, and the counts."""
    data = open_pairs([import_pairs(folder, rows)], PREFERENCE_LOSSES["step-dpo"])
    located_rows = list(data.rows())
    assert len(located_rows) == len(rows)
    # One group per pair, which keeps the order of the rows.
    groups = [
        group
        for row in located_rows
        for group in group_by_prompt([row], PREFERENCE_LOSSES["step-dpo"])
    ]
    tokenized, counts = tokenize_groups(groups, tokenizer, 4096, [tokenizer.eos_token_id])
    ids = [
        solution.tokens.input_ids.tolist() for group in tokenized for solution in group.solutions
    ]
    return ids, counts


@pytest.mark.parametrize("name", ["qwen2", "deepseek_llm", "mistral", "llama3"])
def test_pairs_have_the_tokens_of_the_published_code(
    name: str, shared: Path, tmp_path: Path
) -> None:
    tokenizer = real_tokenizers.load(shared / "tokenizers" / name)
    sample = shared / "data/train/math_step_dpo_10k/sample_10_rows_3_fields.jsonl"
    texts = [json.loads(line) for line in sample.read_text().splitlines()]
    start = "Let's think step by step. \nStep 1:"
    published_rows = [
        step_dpo_row(row["prompt"], start, row["chosen"], row["rejected"], "?") for row in texts
    ]
    assert len(published_rows) == 10
    # The pairs of a problem are together in a dataset, as they are in these rows.
    rows = [*STEP_DPO_ROWS, *published_rows]
    ours, counts = pair_tokens(tmp_path, rows, tokenizer)
    expected = [
        published_tokens(tokenizer, row, side)[0] for row in rows for side in ("chosen", "rejected")
    ]
    assert ours == expected
    sides = list(zip(expected[::2], expected[1::2], strict=True))
    longer = sum(len(chosen) > len(rejected) for chosen, rejected in sides)
    shorter = sum(len(chosen) < len(rejected) for chosen, rejected in sides)
    assert (counts["chosen_longer"], counts["chosen_shorter"]) == (longer, shorter)
    assert longer and shorter


def test_other_losses_refuse_pairs_that_end_with_the_step(tmp_path: Path) -> None:
    pairs = import_pairs(tmp_path, STEP_DPO_ROWS)
    for name in set(PREFERENCE_LOSSES) - {"step-dpo"}:
        with pytest.raises(InputError, match=f"{name} would teach .* Use `loss=step-dpo`"):
            open_pairs([pairs], PREFERENCE_LOSSES[name])
