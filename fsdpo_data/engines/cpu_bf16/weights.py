"""The weights of bfloat16 training on CPUs: bfloat16 copies of a model's float32 weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

#: Tokens of a bfloat16 batch on a CPU, relative to a float32 batch.
TOKENS_FACTOR = 2
#: Gradient elements that are converted and added at a time, so that they stay in the CPU cache.
_CHUNK_ELEMENTS = 2**18


def uses_bfloat16_weights(dtype: str, arguments: Any) -> bool:
    """Return whether to use :class:`Bfloat16Weights`: in a single bfloat16 process on a CPU.

    Args:
        dtype: Precision of the computation.
        arguments: The ``TrainingArguments`` of the run.
    """
    is_single_process = arguments.world_size == 1 and arguments.deepspeed is None
    return is_single_process and arguments.device.type == "cpu" and dtype == "bfloat16"


class _ParameterSlot(NamedTuple):
    """A parameter of a module."""

    parameters: dict[str, Any]  #: The ``_parameters`` of the module.
    name: str  #: Name of the parameter in the module.
    weight: Tensor  #: The float32 weight.


class Bfloat16Weights:
    """bfloat16 copies of a model's float32 weights, for forward and backward passes on CPUs.

    Autocast converts every weight in every pass and keeps activations in float32, which costs
    time and memory on CPUs. Gradients accumulate in float32.
    """

    def __init__(self, model: Any) -> None:
        self.parameter_slots = _float32_slots(model)
        self.compute_weights: dict[Tensor, Tensor] = {}
        # Tied weights occur in several slots.
        for weight in dict.fromkeys(slot.weight for slot in self.parameter_slots):
            values = torch.empty_like(weight, dtype=torch.bfloat16)  # filled by install()
            compute_weight = Parameter(values, requires_grad=weight.requires_grad)
            if weight.requires_grad:
                compute_weight.register_post_accumulate_grad_hook(
                    partial(_accumulate_gradient, weight)
                )
            self.compute_weights[weight] = compute_weight

    def install(self) -> None:
        """Replace the weights of the model by bfloat16 copies of their current values."""
        with torch.no_grad():
            for weight, compute_weight in self.compute_weights.items():
                compute_weight.copy_(weight)
        for slot in self.parameter_slots:
            slot.parameters[slot.name] = self.compute_weights[slot.weight]

    @contextmanager
    def use_in_model(self) -> Iterator[None]:
        """Install the bfloat16 weights in this context, which must include the backward pass."""
        self.install()
        try:
            yield
        finally:
            for slot in self.parameter_slots:
                slot.parameters[slot.name] = slot.weight


def _float32_slots(model: Any) -> list[_ParameterSlot]:
    """Return the slots of all float32 parameters of the model."""
    slots = []
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and weight.dtype == torch.float32:
                slots.append(_ParameterSlot(module._parameters, name, weight))
    return slots


def _accumulate_gradient(weight: Tensor, compute_weight: Tensor) -> None:
    """Move the gradient of a bfloat16 weight to its float32 weight."""
    gradient = compute_weight.grad
    compute_weight.grad = None
    if weight.grad is None:
        weight.grad = gradient.float()
    elif weight.numel() <= _CHUNK_ELEMENTS:
        weight.grad.add_(gradient)
    else:
        rows = max(1, _CHUNK_ELEMENTS // weight[0].numel())
        totals = weight.grad.split(rows)
        chunks = gradient.split(rows)
        for total, chunk in zip(totals, chunks, strict=True):
            total.add_(chunk)
