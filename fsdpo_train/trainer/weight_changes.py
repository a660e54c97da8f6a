"""Checks whether a training changed the weights of a model, without a copy of them."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import TrainerCallback

#: Integers with the size of a weight in bytes, whose sum is the checksum of the weights.
_INTEGER_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class WeightCallback(TrainerCallback):  # type: ignore[misc]
    """Callback that compares the trained weights at the start and at the end of a training.

    A run that resumes loads its checkpoint before the start, so it is not compared under DeepSpeed,
    which converts the weights just before.

    Attributes:
        is_changed: Whether this process has other weights at the end; None if that is not known.
    """

    def __init__(self, model: Any, *, is_converted: bool, is_resumed: bool) -> None:
        self.is_changed: bool | None = None
        self._waits_for_start = is_converted and not is_resumed
        self._start_checksums = None if is_converted else _weight_checksums(model)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **options: Any
    ) -> None:
        """Read the weights that DeepSpeed has converted."""
        if self._waits_for_start:
            self._start_checksums = _weight_checksums(model)

    def on_train_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **options: Any
    ) -> None:
        """Compare the weights with those of the start."""
        if self._start_checksums is not None:
            self.is_changed = self._start_checksums != _weight_checksums(model)


def _weight_checksums(model: Any) -> Mapping[str, int]:
    """Return a checksum of each trained parameter of this process.

    The bits of the weights are added as integers, which costs no memory.
    """
    checksums = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Under zero3, this process has only its own part of the weights.
            weights = getattr(parameter, "ds_tensor", parameter).detach()
            bits = weights.view(_INTEGER_TYPES[weights.element_size()])
            checksums[name] = int(bits.sum(dtype=torch.int64))
    return checksums
