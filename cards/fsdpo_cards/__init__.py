"""Cards: what a dataset, a model or a benchmark run is. An undefined field is an error.

The templates are the ``.md`` files beside the modules.
"""

from fsdpo_cards.benchmark import benchmark_card
from fsdpo_cards.dataset import dataset_card
from fsdpo_cards.model import model_card

__all__ = ["benchmark_card", "dataset_card", "model_card"]
