"""Render the README cards of datasets, models and benchmark runs, and HTML pages.

The templates of cards are the ``.md`` files next to the modules. A page is a single file that opens
from disk and loads nothing from the network. ``layout.html`` is the base template of all pages;
pages with a list of problems include ``browser.html``. An undefined template field is an error.
"""

from fsdpo_cards.benchmark import benchmark_card
from fsdpo_cards.dataset import dataset_card
from fsdpo_cards.model import model_card

__all__ = ["benchmark_card", "dataset_card", "model_card"]
