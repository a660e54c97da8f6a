"""Rows in batches: their order, their padding, and what fills up the last."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fsdpo_data.engines.prefix_sharing import pack_prefix_tree, supports_prefix_sharing
from fsdpo_data.engines.samplers import tokenization
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.deepspeed import gathered_weights

Tensors = dict[str, Tensor]  #: A batch, by name.

#: Length groups are sorted inside pools of this many batches: little padding, much disorder.
BATCHES_PER_POOL = 50


def grouped_order(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int, group: bool = True
) -> Iterator[int]:
    """Yield row numbers so that batches hold rows of like length and still come in random order.

    A function of (seed, epoch) alone, so that a resumed run sees the order of an unbroken one.
    """
    rng = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    if not group:
        yield from order
        return
    for start in range(0, len(order), batch_size * BATCHES_PER_POOL):
        pool = sorted(
            order[start : start + batch_size * BATCHES_PER_POOL], key=lambda i: lengths[i]
        )
        batches = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
        # A short last batch must stay last, or every later batch would straddle two groups.
        tail = batches.pop() if len(batches[-1]) < batch_size else []
        rng.shuffle(batches)
        for batch in [*batches, tail]:
            yield from batch


def group_rows(rows: Sequence[Mapping[str, Any]], whole: bool = True) -> list[list[int]]:
    """Return the numbers of rows, those of one ``group`` together, or else each by itself."""
    groups: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.get("group", number) if whole else number, []).append(number)
    return list(groups.values())


def pack_rows(
    rows: Sequence[Mapping[str, Any]], config: TrainConfig
) -> Sequence[Mapping[str, Any]]:
    """Put as many rows into one as ``config.batch_tokens`` allow; a longer row stays alone.

    Which come together is drawn once for all epochs, so that each has as many batches. With
    ``config.group_by_length`` they are of like length.
    """
    if not config.batch_tokens:
        return rows
    units = group_rows(rows, config.keeps_prompt_groups)
    order = list(grouped_order([0] * len(units), 1, config.seed, -1, group=False))
    if config.group_by_length:
        order.sort(key=lambda unit: rows[units[unit][0]]["length"])
    packs: list[dict[str, Any]] = []
    for row in (rows[number] for unit in order for number in units[unit]):
        if packs and packs[-1]["length"] + row["length"] <= config.batch_tokens:
            packs[-1]["packed"].append(row)
            packs[-1]["length"] += row["length"]
        else:
            packs.append({**row, "packed": []})
    return packs


def unpack_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that :func:`pack_rows` put together."""
    return [each for row in rows for each in (row, *row.get("packed", ()))]


def pad_to_world_size(
    rows: Sequence[Mapping[str, Any]], arguments: Any, **without_loss: Any
) -> Sequence[Mapping[str, Any]]:
    """Add rows without loss until every process gets batches of the same size.

    Left to itself, accelerate would fill up with rows from the beginning, which then count twice.

    ``without_loss`` is what makes a row one that adds nothing to a loss.
    """
    processes = arguments.world_size
    short = -len(rows) % (processes * arguments.per_device_train_batch_size)
    if processes == 1 or not short:
        return rows
    return [*rows, *[{**rows[0], **without_loss, "packed": [], "length": 0}] * short]


def pad_rows(rows: Sequence[Any], fill: float) -> Tensor:
    """Return rows of numbers as one tensor, padded on the right; int64 if ``fill`` is whole."""
    dtype = torch.int64 if isinstance(fill, int) else torch.float32
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def can_pack_prompts(model: Any, arguments: Any, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether rows of a batch can come one behind the other, unpadded, each prompt once."""
    # Dropout would be one for all solutions; DataParallel would split the one row.
    if getattr(model.config, "attention_dropout", 0) or arguments.n_gpu > 1:
        return False
    with gathered_weights(model):
        return supports_prefix_sharing(model, max(len(row["input_ids"]) for row in rows))


def solution_batch(rows: Sequence[Mapping[str, Any]], pad: int) -> Tensors:
    """Pad solutions, ``input_ids`` behind ``n_prompt`` tokens of a prompt, on the right.

    Returns:
        ``input_ids`` and ``attention_mask``, and which tokens are a solution's ``own``, [B, T].
    """
    ids, mask = tokenization.pad_sequences([row["input_ids"] for row in rows], pad, "cpu")
    own = [[0] * row["n_prompt"] + [1] * (len(row["input_ids"]) - row["n_prompt"]) for row in rows]
    return {"input_ids": ids, "attention_mask": mask, "own": pad_rows(own, 0).bool()}


def model_inputs(batch: Tensors, share_prompt: bool) -> tuple[Tensors, Tensor]:
    """Return what a model reads of a batch of solutions, and where in it, flattened, tokens are.

    To ``share_prompt`` is to read that of neighbours once. Places are [B, T].
    """
    ids_BT = batch["input_ids"]
    if share_prompt:
        return pack_prefix_tree(ids_BT, batch["own"])
    place_BT = torch.arange(ids_BT.numel(), device=ids_BT.device).view_as(ids_BT)
    return {"input_ids": ids_BT, "attention_mask": batch["attention_mask"]}, place_BT


def completion_inputs(batch: Tensors, share_prompt: bool) -> Tensors:
    """Return what a model of log-probabilities reads: also ``target_N``, all own tokens of a batch.

    ``source_N`` are the places whose hidden states predict them.
    """
    (read, place_BT), own_BT = model_inputs(batch, share_prompt), batch["own"]
    target_N = batch["input_ids"][own_BT]
    return read | {"source_N": place_BT.roll(1, 1)[own_BT], "target_N": target_N}
