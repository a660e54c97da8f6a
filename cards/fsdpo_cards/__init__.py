"""Render the README cards of datasets, models and benchmark runs.

The templates are the ``.md`` files next to the modules. An undefined template field is an error.
"""

from fsdpo_cards.benchmark import benchmark_card
from fsdpo_cards.dataset import dataset_card
from fsdpo_cards.model import model_card

__all__ = ["benchmark_card", "dataset_card", "model_card"]
