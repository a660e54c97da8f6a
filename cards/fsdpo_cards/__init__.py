"""Cards: what a dataset or a model is, rendered from what made it. An undefined field is an error.

The templates are the ``.md`` files beside the modules.
"""

from __future__ import annotations

from fsdpo_cards.dataset import dataset_card
from fsdpo_cards.model import model_card

__all__ = ["dataset_card", "model_card"]
