"""The embedded world: word problems made by a seeded generator, and a small model that solves them.

Problems come from :func:`make_problems`; :func:`first_wrong_step` says of any solution which
step is the first wrong one; the model in :data:`CHECKPOINT` writes solutions on a CPU in
milliseconds and errs often enough to be worth labelling. ``python -m fsdpo_train.embedded``
remakes the model.
"""

from pathlib import Path

from fsdpo_data.problems.embedded.solutions import (
    Demonstration,
    demonstration,
    final_answer,
    first_wrong_step,
)
from fsdpo_data.problems.embedded.story import WORLD_VERSION
from fsdpo_data.problems.embedded.world import SPLITS, make_problems

#: The prompt the model was trained on; the completion starts with ``Step 1:``.
PROMPT = "Problem: {question}\nSolution:\n"

#: Directory of the trained model, in the layout of ``from_pretrained``.
CHECKPOINT = Path(__file__).parent / "checkpoint"

__all__ = [
    "CHECKPOINT",
    "PROMPT",
    "SPLITS",
    "WORLD_VERSION",
    "Demonstration",
    "demonstration",
    "final_answer",
    "first_wrong_step",
    "make_problems",
]
