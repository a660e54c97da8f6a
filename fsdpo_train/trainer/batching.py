"""Rows of tokenised training data: their order, packing and padding.

Name suffixes give the shapes: ``_B`` solutions, ``_T`` tokens, ``_N`` completion tokens of a batch.
"""

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from fsdpo_data.engines.prefix_sharing.probe import supports_prefix_sharing
from fsdpo_data.engines.prefix_sharing.tree import pack_prefix_tree
from fsdpo_data.engines.samplers import tokenization
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.deepspeed import gathered_weights

TensorBatch = dict[str, Tensor]  #: The tensors of a batch, by name.
RowT = TypeVar("RowT", bound="TrainingRow")

#: Rows are sorted by length inside pools of this many batches. This needs little padding and keeps
#: the order nearly random.
BATCHES_PER_POOL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A row of training data, or a pack of several rows."""

    length: int  #: Number of tokens of the row, or of all rows of the pack. A padding row has 0.
    #: Identity of the prompt, whose rows may share it; None for a row of its own.
    group: Hashable = None
    packed: Sequence[Self] = ()  #: The other rows of a pack.

    def without_loss(self) -> Self:
        """Return the row with nothing that the loss reads; the model can still compute it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRow(TrainingRow):
    """A row of one solution."""

    solution: EncodedSolution  #: The tokens of the prompt and the solution.

    def without_loss(self) -> Self:
        """Return the row with all tokens in its prompt, because the loss reads completions."""
        n_tokens = len(self.solution.input_ids)
        return replace(self, solution=replace(self.solution, prompt_length=n_tokens))


def grouped_order(
    lengths: Sequence[int],
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    group_by_length: bool = True,
) -> Iterator[int]:
    """Yield row indices such that batches contain rows of similar length, in random order.

    The order depends only on the arguments, so a resumed run continues with the same order.

    Args:
        lengths: Number of tokens of each row.
        batch_size: Rows per batch.
        seed: Seed of the run.
        epoch: Number of the epoch.
        group_by_length: Whether to group by length. Otherwise, the order is a plain shuffle.
    """
    rng = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    if not group_by_length:
        yield from order
        return
    pool_size = batch_size * BATCHES_PER_POOL
    for start in range(0, len(order), pool_size):
        pool = sorted(order[start : start + pool_size], key=lambda index: lengths[index])
        batches = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
        # A short last batch must stay last. Otherwise, every later batch would mix two batches.
        tail = batches.pop() if len(batches[-1]) < batch_size else []
        rng.shuffle(batches)
        for batch in [*batches, tail]:
            yield from batch


def group_rows(rows: Sequence[TrainingRow], *, keep_groups: bool = True) -> list[list[int]]:
    """Return the row indices of each ``group``, in the order of the first rows.

    Without ``keep_groups``, and for rows without a ``group``, every row is a group of its own.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        group = row.group if keep_groups and row.group is not None else index
        groups.setdefault(group, []).append(index)
    return list(groups.values())


def pack_rows(rows: Sequence[RowT], config: TrainConfig) -> Sequence[RowT]:
    """Pack rows up to ``config.batch_tokens`` tokens; a longer row is a pack of its own.

    A pack is its first row, with the other rows in ``packed`` and the sum of tokens in ``length``.
    With ``config.keeps_prompt_groups``, the rows of a prompt follow each other, but may continue in
    the next pack. With ``config.group_by_length``, a pack contains rows of similar length. The
    packs are the same in all epochs, so that all epochs have the same number of batches.
    """
    if not config.batch_tokens:
        return rows
    groups = group_rows(rows, keep_groups=config.keeps_prompt_groups)
    # A shuffle that depends only on the seed.
    group_order = list(
        grouped_order([0] * len(groups), 1, seed=config.seed, epoch=-1, group_by_length=False)
    )
    if config.group_by_length:
        group_order.sort(key=lambda group_index: rows[groups[group_index][0]].length)
    ordered_rows = (
        rows[row_index] for group_index in group_order for row_index in groups[group_index]
    )
    packs: list[list[RowT]] = []
    pack_length = 0
    for row in ordered_rows:
        if packs and pack_length + row.length <= config.batch_tokens:
            packs[-1].append(row)
            pack_length += row.length
        else:
            packs.append([row])
            pack_length = row.length
    return [
        replace(pack[0], packed=pack[1:], length=sum(row.length for row in pack)) for pack in packs
    ]


def unpack_rows(rows: Iterable[RowT]) -> list[RowT]:
    """Return the rows that :func:`pack_rows` has packed."""
    # Within a type variable, mypy does not see that Self is the same type.
    return [row for pack in rows for row in (pack, *pack.packed)]  # type: ignore[misc]


def pad_to_world_size(rows: Sequence[RowT], arguments: Any) -> Sequence[RowT]:
    """Append padding rows until every process gets batches of the same size.

    Otherwise, accelerate would repeat rows from the beginning, and these would count twice.

    Args:
        rows: The training rows.
        arguments: The ``TrainingArguments`` of the run.
    """
    world_size = arguments.world_size
    n_padding = -len(rows) % (world_size * arguments.per_device_train_batch_size)
    if world_size == 1 or not n_padding:
        return rows
    return [*rows, *[padding_row(rows[0])] * n_padding]


def padding_row(row: RowT) -> RowT:
    """Return a row that fills a batch: a row of the data without its loss."""
    return replace(row.without_loss(), packed=(), length=0)


def pad_rows(rows: Sequence[Any], fill: float) -> Tensor:
    """Return rows of numbers as one tensor, padded on the right with ``fill``.

    The tensor is int64 if ``fill`` is an ``int``, otherwise float32.
    """
    dtype = torch.int64 if isinstance(fill, int) else torch.float32
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def can_share_prompts(model: Any, rows: Sequence[SolutionRow]) -> bool:
    """Return whether the model can compute the rows of a batch as one row with shared prompts."""
    # Attention dropout would be the same for all solutions.
    if getattr(model.config, "attention_dropout", 0):
        return False
    with gathered_weights(model):
        return supports_prefix_sharing(model, max(len(row.solution.input_ids) for row in rows))


def collate_tokens(solutions: Sequence[EncodedSolution], pad_id: int) -> TensorBatch:
    """Collate the tokens of solutions, padded on the right.

    Args:
        solutions: The tokenised solutions.
        pad_id: Token id of padding.

    Returns:
        ``input_ids``, ``attention_mask`` and ``completion_mask`` (true for the tokens after the
        prompt), all of shape [B, T].
    """
    token_ids = [solution.input_ids for solution in solutions]
    ids, mask = tokenization.pad_sequences(token_ids, pad_id, "cpu")
    completion_mask = [
        np.arange(len(solution.input_ids)) >= solution.completion_start for solution in solutions
    ]
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "completion_mask": pad_rows(completion_mask, 0).bool(),
    }


def model_inputs(batch: TensorBatch, share_prompt: bool) -> tuple[TensorBatch, Tensor]:
    """Return the inputs of the model, and the position of each token in these inputs.

    Args:
        batch: A batch of :func:`collate_tokens`.
        share_prompt: Whether neighbours with the same prompt share it. All solutions then form one
            row, see :func:`~fsdpo_data.engines.prefix_sharing.tree.pack_prefix_tree`.

    Returns:
        The model inputs, and the position of each token in the flattened inputs, shape [B, T].
    """
    ids_BT = batch["input_ids"]
    if share_prompt:
        return pack_prefix_tree(ids_BT, batch["completion_mask"])
    position_BT = torch.arange(ids_BT.numel(), device=ids_BT.device).view_as(ids_BT)
    return {"input_ids": ids_BT, "attention_mask": batch["attention_mask"]}, position_BT


def completion_inputs(batch: TensorBatch, share_prompt: bool) -> TensorBatch:
    """Return the inputs of a model that returns the log-probabilities of completion tokens.

    These are the :func:`model_inputs`, and two tensors over all completion tokens of the batch.
    ``target_N`` contains the token ids. ``source_N`` contains the positions whose hidden states
    predict these tokens. Every prompt has at least one token, which predicts the first of them.
    """
    inputs, position_BT = model_inputs(batch, share_prompt)
    completion_BT = batch["completion_mask"]
    return inputs | {
        "source_N": position_BT.roll(1, 1)[completion_BT],
        "target_N": batch["input_ids"][completion_BT],
    }
