"""Keys and values of a generation, written in place.

transformers' own cache joins what is there and what is new to a new tensor for every token. On a
CPU that is most of the time a small model takes, as every one of them is fresh memory.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class InPlaceLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of full attention whose length is known beforehand.

    Args:
        capacity: Tokens at most, those of the prompt included.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._room: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append ``[batch, heads, new, width]`` keys and values; return all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = [
                each.new_empty((*each.shape[:2], self._capacity, each.shape[3]))
                for each in (key_states, value_states)
            ]
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values


def make_cache(config: Any, capacity: int) -> DynamicCache:
    """Return an empty cache for a model; layers that keep less than everything are its own."""
    cache = DynamicCache(config=config)
    cache.layers = [
        InPlaceLayer(capacity) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
