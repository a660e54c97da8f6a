"""The number of tokens whose logits a training computes at once.

A chunk with all tokens of a batch is fastest, because the backward pass computes the logits of
every other chunk again. On a GPU, the logits of a large vocabulary would then take more memory than
all activations, so a chunk has at most ``MAX_CHUNK_TOKENS_GPU`` tokens. The size is chosen once per
run, from the free memory at its start. It changes the last bits of the gradients, so the record of
the run has it, and a resumed run uses it again. All processes of a run use the same size.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from accelerate.utils import broadcast_object_list

from fsdpo_data.core.memory_limit import available_memory
from fsdpo_data.dataset.run_directory import HEAD_CHUNK_KEY
from fsdpo_data.engines.logprobs import (
    free_gpu_memory,
    largest_chunk,
    logprob_models,
)

log = logging.getLogger(__name__)

#: Maximum tokens of a chunk on a GPU: 3.7 GB of logits with a vocabulary of 152k.
MAX_CHUNK_TOKENS_GPU = 2048
#: Bytes that training adds per trainable weight: a gradient and two moments in float32.
_BYTES_PER_TRAINABLE_WEIGHT = 12


def set_head_chunk(trainer: Any, stored: Mapping[str, Any]) -> dict[str, int]:
    """Set the size for the models of a trainer, and return it as an entry of the run's record.

    The option ``head_chunk`` has priority over the free memory.

    Args:
        trainer: The trainer, before its first step.
        stored: The record of the run in the first process; empty for a new run.

    Returns:
        The entry with the key ``HEAD_CHUNK_KEY``; empty for models without a vocabulary head.
    """
    models = list(logprob_models(trainer.models_with_head()))
    if not models:
        return {}
    option = getattr(trainer.stage_config, "head_chunk", None)
    choices = trainer.accelerator.gather(
        torch.tensor([option or _choose_chunk(trainer, models)], device=trainer.args.device)
    )
    (chunk_tokens,) = broadcast_object_list([stored.get(HEAD_CHUNK_KEY) or int(choices.min())])
    for model in models:
        model.head_chunk_tokens = chunk_tokens
    if trainer.is_world_process_zero():
        log.info(f"the logits of up to {chunk_tokens:,} tokens are computed at once")
    return {HEAD_CHUNK_KEY: chunk_tokens}


def _choose_chunk(trainer: Any, models: Iterable[Any]) -> int:
    """Return the largest size that the free memory of this process allows."""
    device = trainer.args.device
    is_gpu = device.type == "cuda"
    if is_gpu:
        free_bytes = free_gpu_memory(device)
    else:
        processes_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        free_bytes = available_memory() // processes_here
    n_trainable = sum(
        parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad
    )
    free_bytes = max(0, free_bytes - _BYTES_PER_TRAINABLE_WEIGHT * n_trainable)
    vocabulary = max(model.get_input_embeddings().num_embeddings for model in models)
    chunk_tokens = largest_chunk(vocabulary, free_bytes)
    return min(chunk_tokens, MAX_CHUNK_TOKENS_GPU) if is_gpu else chunk_tokens
