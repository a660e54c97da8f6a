"""Sharing the computation of prompts does not change losses, gradients or step contents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.logprobs import patch_to_return_logprobs  # noqa: E402
from fsdpo_data.engines.prefix_sharing.model_attention import (  # noqa: E402
    accept_prefix_trees,
    tree_inputs,
)
from fsdpo_data.engines.prefix_sharing.tree import pack_prefix_tree  # noqa: E402
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer  # noqa: E402
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig  # noqa: E402
from fsdpo_train.preference.data import PairRow  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402
from fsdpo_train.prm.data import IGNORE_LABEL, PrmRow, collate_solutions  # noqa: E402
from fsdpo_train.sft import train as sft  # noqa: E402
from fsdpo_train.trainer.batching import (  # noqa: E402
    TrainingRow,
    collate_tokens,
    group_rows,
    pack_rows,
    unpack_rows,
)
from fsdpo_train.trainer.trainer import PromptGroupedSampler  # noqa: E402

VOCABULARY = 50
PAD = 0
PATHS: dict[str, Any] = dict(data=Path("data"), out=Path("out"))


def random_model(family: str, kind: str, seed: int) -> Any:
    """Return a random float64 model whose norms also compute in float64."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128,
        initializer_range=0.3, num_labels=1, classifier_dropout=0.0, pad_token_id=PAD,
    )  # fmt: skip
    model = getattr(transformers, f"{family}For{kind}")(config)
    for layer in model.model.layers:
        layer.input_layernorm = torch.nn.RMSNorm(32, eps=1e-6)
        layer.post_attention_layernorm = torch.nn.RMSNorm(32, eps=1e-6)
    model.model.norm = torch.nn.RMSNorm(32, eps=1e-6)
    return model.double().train()


def make_rows(sizes: tuple[int, ...] = (5, 1, 3), empty: bool = True) -> list[PrmRow]:
    """Return rows, grouped by prompt.

    With ``empty``, the last row has no prompt and a label at its first token.
    """
    draw = torch.Generator().manual_seed(0)

    def tokens(low: int, high: int) -> list[int]:
        n = int(torch.randint(low, high, (), generator=draw))
        return torch.randint(1, VOCABULARY, (n,), generator=draw).tolist()

    rows = []
    for number, size in enumerate(sizes):
        prompt = tokens(3, 9)
        for _ in range(size):
            completion = tokens(2, 12)
            rows.append((number, prompt, completion, sorted({1, len(completion) - 1})))
    if empty:
        rows.append((len(sizes), [], tokens(4, 6), [0, 2]))
    return [
        PrmRow(
            solution=EncodedSolution(
                input_ids=np.array([*prompt, *completion]),
                prompt_length=len(prompt),
                score_positions=[len(prompt) + end for end in ends],
                n_steps=len(ends),
            ),
            label_positions=[len(prompt) + end for end in ends],
            labels=[float(torch.rand((), generator=draw) > 0.4) for _ in ends],
            length=len(prompt) + len(completion),
            group=number,
        )
        for number, prompt, completion, ends in rows
    ]


@pytest.mark.parametrize("loss", ["bce", "pqm", "implicit"])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Mistral", "Gemma"])
def test_sharing_does_not_change_losses_and_gradients(family: str, loss: Any) -> None:
    implicit = loss == "implicit"
    kind = "CausalLM" if implicit else "TokenClassification"
    model = random_model(family, kind, 0)
    reference = random_model(family, kind, 1)
    trainer = prm.ImplicitTrainer if implicit else prm.PrmTrainer
    batch = collate_solutions(make_rows(), PAD)
    is_labelled = batch["labels"] != IGNORE_LABEL
    results = []
    for share in (False, True):
        if implicit:
            for network in (model, reference):
                patch_to_return_logprobs(network, attention="auto" if share else None)
        elif share:
            accept_prefix_trees(model)
        trainer_stub = SimpleNamespace(
            share_prompt=share, reference=SimpleNamespace(logprobs=reference),
            stage_config=PrmConfig(**PATHS, loss=loss, **({"beta": 0.3} if implicit else {})),
        )  # fmt: skip
        logits = trainer.logits(trainer_stub, model, batch)
        total = prm.PrmTrainer.loss(trainer_stub, logits, batch["labels"], is_labelled)
        grads = torch.autograd.grad(total, [*model.parameters()], allow_unused=True)
        flat = torch.cat([gradient.flatten() for gradient in grads if gradient is not None])
        results.append((logits.detach()[is_labelled], total.detach(), flat))
    for expected, shared in zip(*results, strict=True):
        assert (shared - expected).norm() <= 1e-9 * expected.norm()
    assert results[0][2].norm() > 0


@pytest.mark.parametrize("chunk_tokens", [512, 4])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Mistral", "Gemma"])
def test_sharing_does_not_change_the_sft_loss(
    family: str, chunk_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.prefix_sharing.masks.QUERY_CHUNK_TOKENS", chunk_tokens)
    model = random_model(family, "CausalLM", 0)
    rows = make_rows()
    expected: Any = 0
    for row in rows:
        ids = torch.tensor(row.solution.input_ids)
        start = max(1, row.solution.prompt_length)
        logits = model(input_ids=ids[None]).logits[0, start - 1 : -1]
        target = ids[start:]
        expected += torch.nn.functional.cross_entropy(logits, target, reduction="sum")
    batch = collate_tokens([row.solution for row in rows], PAD)
    items = sft.SftTrainer.count_items(None, batch)  # type: ignore[arg-type]
    patch_to_return_logprobs(model, attention="auto")
    trainer_stub: Any = SimpleNamespace(
        share_prompt=True, scale_loss=lambda loss, items, total: loss * items
    )
    shared_loss = sft.SftTrainer.compute_loss(trainer_stub, model, batch)
    assert shared_loss.item() == pytest.approx(expected.item(), rel=1e-9)
    assert items == sum(row.solution.completion_length for row in rows)
    (expected_gradient, shared_gradient) = (
        torch.cat(
            [gradient.flatten() for gradient in torch.autograd.grad(loss, [*model.parameters()])]
        )
        for loss in (expected, shared_loss)
    )
    assert (shared_gradient - expected_gradient).norm() <= 1e-9 * expected_gradient.norm()


def test_neighbouring_rows_share_one_prompt() -> None:
    rows = make_rows(empty=False)
    batch = collate_solutions(rows, PAD)
    packed, position_BT = pack_prefix_tree(batch["input_ids"], batch["completion_mask"])
    prompts = {row.group: row.solution.completion_start for row in rows}
    n_completion_tokens = sum(row.solution.completion_length for row in rows)
    assert packed["input_ids"].shape == (1, sum(prompts.values()) + n_completion_tokens)
    assert packed["tree_2N"][0].sum() == packed["input_ids"].shape[1]
    assert packed["tree_2N"].shape[1] == (1 + 5) + 1 + (
        1 + 3
    )  # a single solution is part of its prompt
    for row, ids, positions in zip(rows, batch["input_ids"], position_BT, strict=True):
        n = row.length
        assert torch.equal(packed["input_ids"][0, positions[:n]], ids[:n])
        assert packed["position_ids"][0, positions[:n]].tolist() == list(range(n))
    separate = collate_solutions([rows[0], rows[5]], PAD)
    packed, _ = pack_prefix_tree(separate["input_ids"], separate["completion_mask"])
    assert packed["tree_2N"].tolist() == [[rows[0].length, rows[5].length], [0, 1]]


def test_missing_inputs_stay_none() -> None:
    """peft passes ``labels=None``, and the row is padded to blocks."""
    config = SimpleNamespace(_attn_implementation="prompt_tree_flex")
    model = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32, config=config)
    ids = torch.arange(5)[None]
    inputs = tree_inputs(model, tree_2N=torch.tensor([[2, 3], [0, 0]]), input_ids=ids, labels=None)
    assert inputs["labels"] is None and inputs["input_ids"].shape == (1, 128)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("shuffle", ["solutions", "groups"])
def test_grouping_does_not_change_which_solutions_a_step_contains(
    shuffle: Any, processes: int
) -> None:
    """Solutions of a prompt are neighbours within a step; only the shuffle selects them."""
    rows = [TrainingRow(length=5 + 7 * n % 11, group=n % 6) for n in range(48)]
    config = PrmConfig(**PATHS, batch_size=4, grad_accum=2, shuffle=shuffle)
    scattered = [TrainingRow(length=row.length) for row in rows]
    grouped, ungrouped = (
        PromptGroupedSampler(sampler_rows, config, processes) for sampler_rows in (rows, scattered)
    )
    step = 8 * processes
    for epoch in (0, 1):
        for sampler in (grouped, ungrouped):
            sampler.set_epoch(epoch)
        order = list(grouped)
        ungrouped_order = list(ungrouped)
        assert sorted(order) == list(range(48))
        steps = [order[start : start + step] for start in range(0, 48, step)]
        if shuffle == "solutions":
            expected_steps = [ungrouped_order[start : start + step] for start in range(0, 48, step)]
            assert [set(step_rows) for step_rows in steps] == [
                set(step_rows) for step_rows in expected_steps
            ]
        else:
            assert all(len({rows[n].group for n in step_rows}) == processes for step_rows in steps)
        for step_rows in steps:
            groups = [rows[n].group for n in step_rows]
            changes = sum(a != b for a, b in pairwise(groups))
            assert changes == len(set(groups)) - 1


def test_packs_keep_prompts_together_if_groups_are_shuffled() -> None:
    rows = [TrainingRow(length=10, group=n % 6) for n in range(48)]
    config = PrmConfig(**PATHS, batch_tokens=85, shuffle="groups")
    packs = [[row.group for row in unpack_rows([pack])] for pack in pack_rows(rows, config)]
    assert sorted(packs) == [[n] * 8 for n in range(6)]
    assert group_rows(rows, keep_groups=False) == [[n] for n in range(48)]


def test_pairs_of_a_prompt_are_neighbours_within_a_step() -> None:
    rows = [PairRow(length=5, group=n % 2, pairs=[]) for n in range(8)]
    config = DpoConfig(**PATHS, batch_size=4, grad_accum=2, shuffle="pairs")
    groups = [rows[n].group for n in PromptGroupedSampler(rows, config, 1)]
    assert groups in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


def test_sft_computes_no_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss equals the padded run's, and the row has only the tokens of the data."""
    policy = save_random_model(tmp_path / "policy")
    rows = [{"prompt": f"Problem {n}\n", "completion": "step " * (1 + n)} for n in range(7)]
    rows.append({"prompt": "Problem 3\n", "completion": "another"})
    data = write_rows(tmp_path / "rows.jsonl", rows)
    sizes: list[int] = []
    forward = torch.nn.Embedding.forward
    monkeypatch.setattr(
        torch.nn.Embedding,
        "forward",
        lambda self, ids: sizes.append(ids.numel()) or forward(self, ids),
    )
    results = []
    for name in ("one row", "padded"):
        if name == "padded":
            monkeypatch.setattr(sft, "can_share_prompts", lambda *_: False)
        config = SftConfig(
            data=data, out=tmp_path / name, model=str(policy), batch_size=8, grad_accum=1,
            max_steps=2, save_every=0, lr=1e-3,
        )  # fmt: skip
        results.append((sft.train_sft(config).loss, sizes[-1]))
    (loss, tokens), (padded_loss, padded_tokens) = results
    assert loss == pytest.approx(padded_loss, abs=1e-5)
    encoder = StepTokenizer(transformers.AutoTokenizer.from_pretrained(policy))
    encoded = [
        encoder.encode(Prompt(row["prompt"]), [row["completion"]], add_eos=True) for row in rows
    ]
    lengths = [len(solution.input_ids) for solution in encoded]
    assert tokens == sum(lengths) - encoded[3].prompt_length
    assert padded_tokens == 8 * max(lengths)


@pytest.mark.parametrize("loss", ["bce", "implicit"])
def test_prm_training_computes_prompts_once(
    loss: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and rewards equal the run without sharing, which computes more tokens."""
    policy = save_random_model(tmp_path / "policy")
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    sizes: list[int] = []
    forward = torch.nn.Embedding.forward

    def embed(self: Any, ids: Any) -> Any:
        sizes.append(ids.numel())
        return forward(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", embed)
    reports = []
    tokens = []
    for name in ("shared", "alone"):
        if name == "alone":
            monkeypatch.setattr(prm, "can_share_prompts", lambda *_: False)
        sizes.clear()
        config = PrmConfig(
            data=data, out=tmp_path / name, model=str(policy), lr=1e-3, batch_size=8, grad_accum=2,
            max_steps=3, held_out=0.2, save_every=0, log_every=1, shuffle="groups", loss=loss,
        )  # fmt: skip
        reports.append(prm.train_prm(config))
        tokens.append(sum(sizes))
    shared, padded = reports
    assert shared.loss == pytest.approx(padded.loss, abs=1e-5)
    assert shared.held_out == pytest.approx(padded.held_out, abs=1e-4)
    assert tokens[0] < 0.8 * tokens[1]
