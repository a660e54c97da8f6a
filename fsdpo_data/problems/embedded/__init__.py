"""The embedded problems: word problems from a seeded generator, and a small model that solves them.

:func:`.generator.make_problems` generates problems, and :func:`.solutions.first_wrong_step` finds
the first wrong step of any solution. The model in :data:`CHECKPOINT` writes solutions on a CPU in
milliseconds, with enough errors for step labels. ``python -m fsdpo_train.embedded`` trains it
again.
"""

from pathlib import Path

#: The prompt of the model's training; completions start with ``Step 1:``.
PROMPT = "Problem: {question}\nSolution:\n"

#: Directory of the trained model, in the layout of ``from_pretrained``.
CHECKPOINT = Path(__file__).parent / "checkpoint"
