"""Training with prompts computed once: the same losses and gradients, the same solutions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

from fsdpo_data.engines.logprobs import patch_to_return_logprobs  # noqa: E402
from fsdpo_data.engines.prefix_sharing import accept_prefix_trees, pack_prefix_tree, tree_inputs  # noqa: E402
from fsdpo_data.engines.step_tokens import StepTokenizer  # noqa: E402
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402
from fsdpo_train.prm.data import IGNORE_LABEL, collate_solutions  # noqa: E402
from fsdpo_train.sft import train as sft  # noqa: E402
from fsdpo_train.trainer.batching import (  # noqa: E402
    group_rows,
    pack_rows,
    solution_batch,
    unpack_rows,
)
from fsdpo_train.trainer.trainer import PromptGroupedSampler  # noqa: E402

VOCABULARY, PAD = 50, 0
GIVEN: dict[str, Any] = dict(data=Path("data"), out=Path("out"))


def net(family: str, kind: str, seed: int) -> Any:
    """Return a random model in float64 whose norms compute in float64 too."""
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


def make_rows(sizes: tuple[int, ...] = (5, 1, 3), empty: bool = True) -> list[dict[str, Any]]:
    """Return solutions of prompts, neighbours; one has no prompt and steps from its first token."""
    draw = torch.Generator().manual_seed(0)

    def tokens(low: int, high: int) -> list[int]:
        n = int(torch.randint(low, high, (), generator=draw))
        return torch.randint(1, VOCABULARY, (n,), generator=draw).tolist()

    rows = []
    for number, size in enumerate(sizes):
        prompt = tokens(3, 9)
        for _ in range(size):
            own = tokens(2, 12)
            rows.append((number, prompt, own, sorted({1, len(own) - 1})))
    if empty:
        rows.append((len(sizes), [], tokens(4, 6), [0, 2]))
    return [
        {
            "input_ids": [*prompt, *own],
            "label_positions": [len(prompt) + each for each in ends],
            "labels": [float(torch.rand((), generator=draw) > 0.4) for _ in ends],
            "length": len(prompt) + len(own),
            "n_prompt": len(prompt),
            "group": number,
        }
        for number, prompt, own, ends in rows
    ]


@pytest.mark.parametrize("loss", ["bce", "pqm", "implicit"])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Mistral", "Gemma"])
def test_losses_and_gradients_are_those_of_whole_rows(family: str, loss: Any) -> None:
    implicit = loss == "implicit"
    kind = "CausalLM" if implicit else "TokenClassification"
    model, reference = net(family, kind, 0), net(family, kind, 1)
    (plain, trainer) = (model, prm.ImplicitTrainer if implicit else prm.PrmTrainer)
    batch = collate_solutions(make_rows(), PAD)
    there = batch["labels"] != IGNORE_LABEL
    found = []
    for share in (False, True):
        if implicit:
            for each in (model, reference):
                patch_to_return_logprobs(each, attention="auto" if share else None)
        elif share:
            accept_prefix_trees(model)
        own = SimpleNamespace(
            share_prompt=share, reference=reference, class_weights=(2.0, 1.0),
            stage_config=PrmConfig(**GIVEN, loss=loss, beta=0.3),
        )  # fmt: skip
        logits = trainer.logits(own, plain, batch)
        total = prm.PrmTrainer.loss(own, logits, batch["labels"], there)
        grads = torch.autograd.grad(total, [*model.parameters()], allow_unused=True)
        flat = torch.cat([each.flatten() for each in grads if each is not None])
        found.append((logits.detach()[there], total.detach(), flat))
    for alone, shared in zip(*found, strict=True):
        assert (shared - alone).norm() <= 1e-9 * alone.norm()
    assert found[0][2].norm() > 0


@pytest.mark.parametrize("at_once", [512, 4])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Mistral", "Gemma"])
def test_fine_tuning_is_that_of_whole_rows(
    family: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdpo_data.engines.tree_attention._QUERY_CHUNK_TOKENS", at_once)
    model = net(family, "CausalLM", 0)
    rows = [{**row, "n_prompt": max(1, row["n_prompt"])} for row in make_rows()]
    expected: Any = 0
    for row in rows:
        ids = torch.tensor(row["input_ids"])
        logits = model(input_ids=ids[None]).logits[0, row["n_prompt"] - 1 : -1]
        target = ids[row["n_prompt"] :]
        expected += torch.nn.functional.cross_entropy(logits, target, reduction="sum")
    batch = solution_batch(rows, PAD)
    items = sft.SftTrainer.count_items(None, batch)  # type: ignore[arg-type]
    patch_to_return_logprobs(model, attention="auto")
    own: Any = SimpleNamespace(
        share_prompt=True, scale_loss=lambda loss, items, total: loss * items
    )
    found = sft.SftTrainer.compute_loss(own, model, batch)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)
    assert items == sum(row["length"] - row["n_prompt"] for row in rows)
    (alone, shared) = (
        torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*model.parameters()])])
        for loss in (expected, found)
    )
    assert (shared - alone).norm() <= 1e-9 * alone.norm()


def test_a_prompt_comes_once_for_its_neighbours() -> None:
    rows = make_rows(empty=False)
    batch = collate_solutions(rows, PAD)
    read, place_BT = pack_prefix_tree(batch["input_ids"], batch["completion_mask"])
    prompts = {row["group"]: row["n_prompt"] for row in rows}
    own = sum(row["length"] - row["n_prompt"] for row in rows)
    assert read["input_ids"].shape == (1, sum(prompts.values()) + own)
    assert read["tree_2N"][0].sum() == read["input_ids"].shape[1]
    assert read["tree_2N"].shape[1] == (1 + 5) + 1 + (1 + 3)  # one alone is a prompt of its own
    for row, ids, places in zip(rows, batch["input_ids"], place_BT, strict=True):
        n = row["length"]
        assert torch.equal(read["input_ids"][0, places[:n]], ids[:n])
        assert read["position_ids"][0, places[:n]].tolist() == list(range(n))
    alone = collate_solutions([rows[0], rows[5]], PAD)
    read, _ = pack_prefix_tree(alone["input_ids"], alone["completion_mask"])
    assert read["tree_2N"].tolist() == [[rows[0]["length"], rows[5]["length"]], [0, 1]]


def test_inputs_that_are_not_there_are_left_so() -> None:
    """As peft names them, before the row is filled up to blocks."""
    config = SimpleNamespace(_attn_implementation="prompt_tree_flex")
    like = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32, config=config)
    ids = torch.arange(5)[None]
    given = tree_inputs(like, tree_2N=torch.tensor([[2, 3], [0, 0]]), input_ids=ids, labels=None)
    assert given["labels"] is None and given["input_ids"].shape == (1, 128)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("shuffle", ["solutions", "groups"])
def test_a_step_has_the_same_solutions_wherever_in_it_they_stand(
    shuffle: Any, processes: int
) -> None:
    """Those of a prompt stand together within a step; which are in it the shuffle says alone."""
    rows = [{"length": 5 + 7 * n % 11, "group": n % 6} for n in range(48)]
    config = PrmConfig(**GIVEN, batch_size=4, grad_accum=2, shuffle=shuffle)
    scattered = [{"length": row["length"]} for row in rows]
    found, apart = (PromptGroupedSampler(each, config, processes) for each in (rows, scattered))
    step = 8 * processes
    for epoch in (0, 1):
        for each in (found, apart):
            each.set_epoch(epoch)
        order, before = list(found), list(apart)
        assert sorted(order) == list(range(48))
        steps = [order[start : start + step] for start in range(0, 48, step)]
        if shuffle == "solutions":
            want = [before[start : start + step] for start in range(0, 48, step)]
            assert [set(each) for each in steps] == [set(each) for each in want]
        else:
            assert all(len({rows[n]["group"] for n in each}) == processes for each in steps)
        for each in steps:
            groups = [rows[n]["group"] for n in each]
            changes = sum(a != b for a, b in pairwise(groups))
            assert changes == len(set(groups)) - 1


def test_packs_hold_whole_prompts_if_groups_are_shuffled() -> None:
    rows = [{"row": n, "length": 10, "group": n % 6} for n in range(48)]
    config = PrmConfig(**GIVEN, batch_tokens=85, shuffle="groups")
    packs = [[each["group"] for each in unpack_rows([pack])] for pack in pack_rows(rows, config)]
    assert sorted(packs) == [[n] * 8 for n in range(6)]
    assert group_rows(rows, keep_groups=False) == [[n] for n in range(48)]


def test_pairs_of_a_prompt_meet_within_a_step() -> None:
    rows = [{"length": 5, "group": n % 2, "pairs": []} for n in range(8)]
    config = DpoConfig(**GIVEN, batch_size=4, grad_accum=2, shuffle="pairs")
    groups = [rows[n]["group"] for n in PromptGroupedSampler(rows, config, 1)]
    assert groups in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


def test_fine_tuning_computes_no_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss as a run that pads, in the tokens that the rows have; one prompt is shared."""
    policy = save_random_model(tmp_path / "policy")
    rows = [{"prompt": f"Problem {n}\n", "completion": "step " * (1 + n)} for n in range(7)]
    rows.append({"prompt": "Problem 3\n", "completion": "another"})
    data = write_rows(tmp_path / "rows.jsonl", rows)
    sizes: list[int] = []
    given = torch.nn.Embedding.forward
    monkeypatch.setattr(
        torch.nn.Embedding,
        "forward",
        lambda self, ids: sizes.append(ids.numel()) or given(self, ids),
    )
    found = []
    for name in ("one row", "padded"):
        if name == "padded":
            monkeypatch.setattr(sft, "can_pack_prompts", lambda *_: False)
        config = SftConfig(
            data=data, out=tmp_path / name, model=str(policy), batch_size=8, grad_accum=1,
            max_steps=2, save_every=0, lr=1e-3,
        )  # fmt: skip
        found.append((sft.train_sft(config).loss, sizes[-1]))
    (loss, tokens), (padded_loss, padded_tokens) = found
    assert loss == pytest.approx(padded_loss, abs=1e-5)
    encoder = StepTokenizer(transformers.AutoTokenizer.from_pretrained(policy))
    encoded = [encoder.encode(row["prompt"], [row["completion"]], add_eos=True) for row in rows]
    lengths = [len(each.input_ids) for each in encoded]
    assert tokens == sum(lengths) - encoded[3].prompt_length
    assert padded_tokens == 8 * max(lengths)


@pytest.mark.parametrize("loss", ["bce", "implicit"])
def test_a_run_computes_prompts_once(
    loss: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same losses and rewards as a run that shares none, in fewer tokens."""
    policy = save_random_model(tmp_path / "policy")
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    sizes: list[int] = []
    given = torch.nn.Embedding.forward

    def embed(self: Any, ids: Any) -> Any:
        sizes.append(ids.numel())
        return given(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", embed)
    reports, tokens = [], []
    for name in ("shared", "alone"):
        if name == "alone":
            monkeypatch.setattr(prm, "can_pack_prompts", lambda *_: False)
        sizes.clear()
        config = PrmConfig(
            data=data, out=tmp_path / name, model=str(policy), lr=1e-3, batch_size=8, grad_accum=2,
            max_steps=3, held_out=0.2, save_every=0, log_every=1, shuffle="groups", loss=loss,
        )  # fmt: skip
        reports.append(prm.train_prm(config))
        tokens.append(sum(sizes))
    shared, alone = reports
    assert shared.loss == pytest.approx(alone.loss, abs=1e-5)
    assert shared.held_out == pytest.approx(alone.held_out, abs=1e-4)
    assert tokens[0] < 0.8 * tokens[1]
