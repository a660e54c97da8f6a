"""bfloat16 on CPUs: a model computes with rounded copies of its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from fsdpo_train.config import TrainConfig

_CHUNK_ELEMENTS = (
    2**18
)  #: Numbers of a gradient that are added at a time: their copies stay in a cache.


def uses_bfloat16_weights(config: TrainConfig, arguments: Any) -> bool:
    """Say whether :class:`Bfloat16Weights` stand in for autocast: in one process, on a CPU."""
    alone = arguments.world_size == 1 and arguments.deepspeed is None
    return alone and arguments.device.type == "cpu" and config.dtype == "bfloat16"


class Bfloat16Weights:
    """The weights of a model in bfloat16, with which it computes; those in float32 are trained.

    Autocast rounds every weight in every pass and leaves what is between layers in float32, which
    takes time and memory on CPUs. DeepSpeed does as we do. Gradients add up in float32.
    """

    def __init__(self, model: Any) -> None:
        self.parameter_slots = [
            (module._parameters, name, weight)
            for module in model.modules()
            for name, weight in module._parameters.items()
            if weight is not None and weight.dtype == torch.float32
        ]
        self.compute_weights: dict[Tensor, Tensor] = {}
        for weight in dict.fromkeys(
            weight for _, _, weight in self.parameter_slots
        ):  # some are tied
            empty = torch.empty_like(weight, dtype=torch.bfloat16)  # until it is put
            half = Parameter(empty, requires_grad=weight.requires_grad)
            if weight.requires_grad:
                half.register_post_accumulate_grad_hook(partial(_accumulate_gradient, weight))
            self.compute_weights[weight] = half

    def install(self) -> None:
        """Put them in the place of the weights, as these are now."""
        with torch.no_grad():
            for weight, half in self.compute_weights.items():
                half.copy_(weight)
        for weights, name, weight in self.parameter_slots:
            weights[name] = self.compute_weights[weight]

    @contextmanager
    def use_in_model(self) -> Iterator[None]:
        """Let the model compute with them, in backward passes too."""
        self.install()
        try:
            yield
        finally:
            for weights, name, weight in self.parameter_slots:
                weights[name] = weight


def _accumulate_gradient(weight: Tensor, half: Tensor) -> None:
    """Add the gradient of a half to that of its weight."""
    found, half.grad = half.grad, None
    if weight.grad is None:
        weight.grad = found.float()
    elif weight.numel() <= _CHUNK_ELEMENTS:
        weight.grad.add_(found)
    else:
        rows = max(1, _CHUNK_ELEMENTS // weight[0].numel())
        for total, some in zip(weight.grad.split(rows), found.split(rows), strict=True):
            total.add_(some)
