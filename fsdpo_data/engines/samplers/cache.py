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
    """A layer of full attention with room to spare, which doubles when it is used up."""

    keys: torch.Tensor
    values: torch.Tensor
    _room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append ``[batch, heads, new, width]`` keys and values; return all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if self._room is None or end > self._room[0].shape[2]:
            self._room = _more_room(key_states, self.keys), _more_room(value_states, self.values)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values


def _more_room(new: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return room for twice what there will be, with what was there before in its place."""
    held = before.shape[2] if before.numel() else 0
    room = new.new_empty((*new.shape[:2], 2 * (held + new.shape[2]), new.shape[3]))
    if held:
        room[:, :, :held] = before
    return room


def make_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model; layers that keep less than everything are its own."""
    cache = DynamicCache(config=config)
    cache.layers = [
        InPlaceLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
