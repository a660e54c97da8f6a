"""Training on a stepwise dataset of TRL gives the losses of TRL's former PRM trainer.

TRL removed its trainer after 1.13, so this file implements the published description again:
prompt, steps and separators are tokenised separately and concatenated. The label of a step is at
the last token of its separator, and all other positions are ignored. The loss is the cross-entropy
of two classes, averaged over all labelled tokens of a batch. A head of two logits is equivalent to
a head of their difference, so the first logit is fixed at 0.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from random_model import save_random_model, save_random_prm
from recorded_imports import import_label_rows

torch = pytest.importorskip("torch")
from transformers import AutoModelForTokenClassification, AutoTokenizer  # noqa: E402

from fsdpo_data.engines.step_tokens import gather_at_positions  # noqa: E402
from fsdpo_train.config import PrmConfig  # noqa: E402
from fsdpo_train.losses.prm_losses import prm_loss  # noqa: E402
from fsdpo_train.prm.data import (  # noqa: E402
    IGNORE_LABEL,
    collate_solutions,
    open_solutions,
    prepare_rows,
    read_labelled_rows,
)
from fsdpo_train.prm.train import train_prm  # noqa: E402

SEPARATOR = "\n"
IGNORED = -100
ZEN = "data/stepwise/trl/zen_standard_stepwise_supervision.jsonl"

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model with a score head, so that both trainers start with the same weights."""
    folder = tmp_path_factory.mktemp("start")
    return save_random_prm(folder / "prm", save_random_model(folder / "policy"))


def trl_tokens(tokenizer: Any, row: dict[str, Any]) -> tuple[list[int], list[int]]:
    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    tokens = [*begin, *ids(row["prompt"])]
    labels = [IGNORED] * len(tokens)
    for step, label in zip(row["completions"], row["labels"], strict=True):
        piece = ids(step) + ids(SEPARATOR)
        tokens += piece
        labels += [IGNORED] * (len(piece) - 1) + [int(label)]
    return tokens, labels


def trl_loss(model: Any, tokenizer: Any, rows: Rows) -> torch.Tensor:
    encoded = [trl_tokens(tokenizer, row) for row in rows]
    width = max(len(tokens) for tokens, _ in encoded)
    tokens_BT = torch.tensor([t + [tokenizer.pad_token_id] * (width - len(t)) for t, _ in encoded])
    labels_BT = torch.tensor([y + [IGNORED] * (width - len(y)) for _, y in encoded])
    real_BT = torch.tensor([[1] * len(t) + [0] * (width - len(t)) for t, _ in encoded])
    logit_BT = model(input_ids=tokens_BT, attention_mask=real_BT).logits[..., 0]
    two = torch.stack([torch.zeros_like(logit_BT), logit_BT], dim=-1)
    return torch.nn.functional.cross_entropy(
        two.view(-1, 2), labels_BT.view(-1), ignore_index=IGNORED
    )


def import_trl_rows(tmp_path: Path, rows: Rows) -> Path:
    """Import rows whose steps end in the separator that TRL's trainer adds."""
    separated = [
        {**row, "completions": [step + SEPARATOR for step in row["completions"]]} for row in rows
    ]
    source = tmp_path / "trl.jsonl"
    out = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in separated))
    import_label_rows(source, "trl-stepwise", out)
    return out


def config(checkpoint: Path, data: Path, out: Path) -> PrmConfig:
    return PrmConfig(
        data=data,
        out=out,
        model=str(checkpoint),
        loss_reduction="mean",
        lr=1e-2,
        schedule="constant",
        warmup=0,
        batch_size=8,
        grad_accum=1,
        epochs=6,
        held_out=0,
        log_every=1,
        save_every=6,
    )


def test_training_gives_the_losses_of_trl(checkpoint: Path, tmp_path: Path) -> None:
    """All solutions have equally many steps, so both ways to average the loss agree."""
    rows = [
        {
            "prompt": f"Problem {k}\nSolution:\n",
            "completions": [f"Step 1: {k} + {k} = {2 * k}.", f"Step 2: The answer is: {3 * k}"],
            "labels": [k % 3 != 0, k % 2 == 0],
        }
        for k in range(8)
    ]
    out = tmp_path / "prm"
    train_prm(config(checkpoint, import_trl_rows(tmp_path, rows), out))
    state = json.loads((out / "checkpoints/checkpoint-6/trainer_state.json").read_text())
    ours = [entry["loss"] for entry in state["log_history"] if "loss" in entry]

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForTokenClassification.from_pretrained(checkpoint)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    theirs = []
    for _ in range(6):
        loss = trl_loss(model, tokenizer, rows)
        theirs.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert ours == pytest.approx(theirs, abs=2e-4) and theirs[-1] < 0.6 * theirs[0]
    trained = AutoModelForTokenClassification.from_pretrained(out)
    with torch.no_grad():
        reached = [trl_loss(network, tokenizer, rows).item() for network in (trained, model)]
    assert reached[0] == pytest.approx(reached[1], abs=2e-4)


def test_rows_of_trl_have_the_loss_of_trl(shared: Path, checkpoint: Path, tmp_path: Path) -> None:
    """Tokens and score positions agree; TRL averages over steps, this package over solutions."""
    rows = [json.loads(line) for line in (shared / ZEN).read_text().splitlines()]
    run_config = config(checkpoint, import_trl_rows(tmp_path, rows), tmp_path / "unused")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForTokenClassification.from_pretrained(checkpoint).eval()
    encoded = prepare_rows(
        read_labelled_rows(open_solutions(run_config.data), run_config, Counter()),
        tokenizer,
        256,
        run_config,
    ).train
    for row, ours in zip(rows, encoded, strict=True):
        tokens, labels = trl_tokens(tokenizer, row)
        assert ours.solution.input_ids.tolist() == tokens
        assert ours.label_positions == [k for k, label in enumerate(labels) if label != IGNORED]
    with torch.no_grad():
        row_losses = [trl_loss(model, tokenizer, [row]).item() for row in rows]
        together = trl_loss(model, tokenizer, rows).item()
        batch = collate_solutions(encoded, tokenizer.pad_token_id)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        logits = gather_at_positions(logits, batch["label_positions"])
        labels = batch["labels"]
        is_labelled = labels != IGNORE_LABEL
        mean, total = (
            prm_loss(logits, labels, is_labelled, reduction=kind).item() for kind in ("mean", "sum")
        )
    assert mean == pytest.approx(sum(row_losses) / len(rows), abs=1e-5)
    assert total * len(rows) / int(is_labelled.sum()) == pytest.approx(together, abs=1e-5)
