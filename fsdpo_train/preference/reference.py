"""Computation of the reference log-probabilities that the reference store does not have yet."""

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fsdpo_data.core.progress import LogProgress
from fsdpo_train.config import DpoConfig
from fsdpo_train.preference.data import group_inputs
from fsdpo_train.preference.pairs import PromptGroup
from fsdpo_train.preference.reference_store import ReferenceStore
from fsdpo_train.trainer.reference_model import ReferenceModel

log = logging.getLogger(__name__)

#: Solutions per file of the store. A killed run loses the work on at most this many.
SOLUTIONS_PER_FILE = 2048


def reference_fingerprint(config: DpoConfig, model: str) -> dict[str, str]:
    """Return everything except the token ids that determines reference log-probabilities.

    Args:
        config: Options of the training run.
        model: Name and revision of the reference model.
    """
    return {
        "model": model,
        "precision": config.dtype,
        "weights": config.reference_dtype,
        "rotary tables": "float32",
    }


def add_reference(
    groups: Sequence[PromptGroup],
    store: ReferenceStore,
    config: DpoConfig,
    arguments: Any,
    *,
    share_prompt: bool,
) -> list[PromptGroup]:
    """Return the groups with the reference log-probabilities of every solution.

    Missing log-probabilities are computed first, in parallel on all processes of the run. The
    reference is the model that training starts from. It is loaded only if something is missing.

    Args:
        groups: The tokenised prompt groups.
        store: Log-probabilities that earlier runs computed.
        config: Options of the training run.
        arguments: The ``transformers.TrainingArguments``.
        share_prompt: Whether a prompt is computed once for all of its solutions.

    Raises:
        StoreError: if a file of the store was changed.
    """
    keys_by_group = [_group_keys(group, store) for group in groups]
    keys = [key for group_keys in keys_by_group for key in group_keys]
    missing_groups = _missing_groups(
        groups,
        keys_by_group,
        store.load(keys),
        process_index=arguments.process_index,
        world_size=arguments.world_size,
    )
    if missing_groups:
        _compute_missing(missing_groups, store, config, arguments, share_prompt=share_prompt)
    arguments.distributed_state.wait_for_everyone()
    stored = store.load(keys)
    return [
        _with_reference(group, group_keys, stored)
        for group, group_keys in zip(groups, keys_by_group, strict=True)
    ]


def _group_keys(group: PromptGroup, store: ReferenceStore) -> list[str]:
    """Return the store key of each solution."""
    return [store.key(solution.tokens) for solution in group.solutions]


def _with_reference(
    group: PromptGroup, keys: Sequence[str], stored: Mapping[str, np.ndarray]
) -> PromptGroup:
    """Return the group with the stored log-probabilities of its solutions."""
    solutions = [
        replace(solution, reference=stored[key])
        for solution, key in zip(group.solutions, keys, strict=True)
    ]
    return replace(group, solutions=solutions)


def _missing_groups(
    groups: Sequence[PromptGroup],
    keys_by_group: Sequence[Sequence[str]],
    stored: Container[str],
    *,
    process_index: int,
    world_size: int,
) -> list[PromptGroup]:
    """Return this process's groups of solutions that are not stored, longest group first.

    Groups are assigned to processes by their index among *all* groups. Another process may already
    have added to the store, so the processes can disagree about the missing groups.
    """
    missing_groups = []
    all_groups = list(zip(groups, keys_by_group, strict=True))
    for group, keys in all_groups[process_index::world_size]:
        indices = [index for index, key in enumerate(keys) if key not in stored]
        if indices:
            missing_groups.append(group.select(indices))
    return sorted(missing_groups, key=_n_tokens, reverse=True)


def _n_tokens(group: PromptGroup) -> int:
    return sum(len(solution.tokens.input_ids) for solution in group.solutions)


def _compute_missing(
    missing_groups: Sequence[PromptGroup],
    store: ReferenceStore,
    config: DpoConfig,
    arguments: Any,
    *,
    share_prompt: bool,
) -> None:
    """Load the reference model, and add the missing log-probabilities to the store."""
    reference = ReferenceModel(config, arguments, config.attention)
    unsaved: list[tuple[str, list[float]]] = []
    progress = LogProgress(log)
    progress.phase("reference", sum(len(group.solutions) for group in missing_groups))
    batch_size = 1 if arguments.device.type == "cpu" else config.batch_size
    for start in range(0, len(missing_groups), batch_size):
        batch = missing_groups[start : start + batch_size]
        logprobs = _solution_logprobs(reference, batch, share_prompt=share_prompt)
        batch_keys = [key for group in batch for key in _group_keys(group, store)]
        unsaved.extend(zip(batch_keys, logprobs, strict=True))
        if len(unsaved) >= SOLUTIONS_PER_FILE or start + batch_size >= len(missing_groups):
            store.save(unsaved)
            unsaved = []
        progress.advance(len(logprobs), sum(map(len, logprobs)))


def _solution_logprobs(
    reference: ReferenceModel, groups: Sequence[PromptGroup], *, share_prompt: bool
) -> list[list[float]]:
    """Return the log-probabilities of the completion tokens, one list per solution.

    The model returns them as one vector over the tokens of all solutions (N).
    """
    batch_inputs = group_inputs(
        groups, share_prompt=share_prompt, pad_id=reference.tokenizer.pad_token_id or 0
    )
    device = reference.model.device
    inputs = {name: tensor.to(device) for name, tensor in batch_inputs.items()}
    logp_N = reference.logprobs(**inputs).float().cpu()
    lengths = [
        solution.tokens.completion_length for group in groups for solution in group.solutions
    ]
    return [logp_T.tolist() for logp_T in logp_N.split(lengths)]
