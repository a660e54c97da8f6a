"""The embedded world: word problems made by a seeded generator, and a small model that solves them.

Problems come from :func:`.world.make_problems`; :func:`.solutions.first_wrong_step` says of any
solution which step is the first wrong one; the model in :data:`CHECKPOINT` writes solutions on a
CPU in milliseconds and errs often enough to be worth labelling. ``python -m fsdpo_train.embedded``
remakes the model.
"""

from pathlib import Path

#: The prompt the model was trained on; the completion starts with ``Step 1:``.
PROMPT = "Problem: {question}\nSolution:\n"

#: Directory of the trained model, in the layout of ``from_pretrained``.
CHECKPOINT = Path(__file__).parent / "checkpoint"
