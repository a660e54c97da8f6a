"""Computing the reference log-probabilities that a training run lacks."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.progress import progress
from fsdpo_data.engines.logprobs import check_plain_head, patch_to_return_logprobs
from fsdpo_train.config import DpoConfig
from fsdpo_train.preference.data import PreferenceData
from fsdpo_train.preference.groups import PromptGroup, collate_groups
from fsdpo_train.preference.reference_store import ReferenceKey, ReferenceStore
from fsdpo_train.trainer.bf16_weights import Bfloat16Weights, uses_bfloat16_weights
from fsdpo_train.trainer.deepspeed import without_zero3_partitioning
from fsdpo_train.trainer.models import load_model

SOLUTIONS_PER_FILE = (
    2048  #: Solutions in one file of the store: what a killed run computes again at most.
)

MissingGroup = tuple[PromptGroup, list[ReferenceKey]]


def reference_fingerprint(config: DpoConfig, model: str, tokenizer: Any) -> dict[str, str]:
    """Return what decides reference log-probabilities, besides prompt and solution."""
    return {
        "model": model,
        "tokenizer": digest(tokenizer.backend_tokenizer.to_str(), tokenizer.eos_token_id),
        "precision": config.dtype,
        "weights": "nf4" if config.load_in_4bit else config.weights_dtype,
    }


def reference_logprobs(
    data: PreferenceData,
    store: ReferenceStore,
    config: DpoConfig,
    arguments: Any,
    *,
    share_prompt: bool,
) -> list[list[np.ndarray]]:
    """Return the reference log-probabilities of every solution, one array of tokens each.

    What is not in the store is computed first, shared out among the processes of the run. The
    reference is the model that training starts from, loaded for that alone.

    Raises:
        RunMismatchError: if the store is of something else.
        StoreError: if a file of it was changed.
    """
    wanted = [key for keys in data.keys for key in keys]
    missing = _missing(data, store.load(wanted), arguments.process_index, arguments.world_size)
    if missing:
        _compute(missing, store, config, arguments, share_prompt)
    arguments.distributed_state.wait_for_everyone()
    found = store.load(wanted)
    for group, keys in zip(data.groups, data.keys, strict=True):
        for solution, key in zip(group.solutions, keys, strict=True):
            values, tokens = (
                len(found[key.solution]),
                len(solution.input_ids) - solution.prompt_length,
            )
            if values != tokens:
                raise StoreError(
                    f"{store.folder}: {values} reference log-probabilities for a solution of "
                    f"{tokens} tokens. Remove the directory; it is computed again."
                )
    return [[found[key.solution] for key in keys] for keys in data.keys]


def _missing(
    data: PreferenceData, found: Mapping[str, np.ndarray], process: int, processes: int
) -> list[MissingGroup]:
    """Return this process's groups of solutions that are not in the store, longest first.

    A group belongs to a process by its number, whatever is missing: while one process looks,
    another may have added to the store already.
    """
    missing = []
    for group, keys in list(zip(data.groups, data.keys, strict=True))[process::processes]:
        places = [i for i, key in enumerate(keys) if key.solution not in found]
        if places:
            solutions = [group.solutions[i] for i in places]
            rewards = [group.rewards[i] for i in places]
            missing.append((PromptGroup(solutions, rewards, []), [keys[i] for i in places]))
    return sorted(missing, key=lambda each: -sum(len(s.input_ids) for s in each[0].solutions))


def _compute(
    missing: Sequence[MissingGroup],
    store: ReferenceStore,
    config: DpoConfig,
    arguments: Any,
    share_prompt: bool,
) -> None:
    with without_zero3_partitioning(arguments):
        model, tokenizer = load_model(config, "AutoModelForCausalLM")
    model = model.to(arguments.device).eval()
    check_plain_head(model)
    if uses_bfloat16_weights(config, arguments):
        Bfloat16Weights(model).install()
    patch_to_return_logprobs(model, attention=config.attention)
    rows: list[tuple[ReferenceKey, list[float]]] = []
    with progress() as shown:
        shown.phase("reference", sum(len(keys) for _, keys in missing))
        size = 1 if model.device.type == "cpu" else config.batch_size
        for start in range(0, len(missing), size):
            groups, wanted = zip(*missing[start : start + size], strict=True)
            values = _values(model, groups, tokenizer, config.dtype, share_prompt)
            rows.extend(zip(chain(*wanted), values, strict=True))
            if len(rows) >= SOLUTIONS_PER_FILE or start + size >= len(missing):
                store.save(rows)
                rows = []
            shown.advance(len(values), sum(map(len, values)))


def _values(
    model: Any, groups: Sequence[PromptGroup], tokenizer: Any, dtype: str, share_prompt: bool
) -> list[list[float]]:
    """Return the log-probabilities of every completion token, a list for each solution."""
    tokens = {"pad": tokenizer.pad_token_id or 0, "eos": tokenizer.eos_token_id}
    batch = collate_groups(groups, share_prompt=share_prompt, **tokens)
    device = model.device
    inputs = {name: each.to(device) for name, each in batch["read"].items()}
    half = dtype == "bfloat16"
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        logp_N = model(**inputs).float().cpu()
    lengths = [
        len(each.input_ids) - each.prompt_length for group in groups for each in group.solutions
    ]
    return [each.tolist() for each in logp_N.split(lengths)]
