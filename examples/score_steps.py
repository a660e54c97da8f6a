"""Score the steps of a solution: ``python examples/score_steps.py PRM``.

``PRM`` is a process reward model, as ``fsdpo-train prm`` writes it or from the Hub.
"""

import sys

import fsdpo_data as fd

PROMPT = "Problem: Ann has 3 apples and buys 4 more. How many apples has she now?\nSolution:\n"
SOLUTION = "Step 1: She begins with 3.\nStep 2: 3 + 4 = 8.\nStep 3: The answer is 8."


steps = fd.segment(SOLUTION)
(rewards,) = fd.load_scorer(sys.argv[1]).score([fd.SteppedText(PROMPT, steps)])
if rewards is None:
    sys.exit("the solution is longer than the model reads")
for step, reward in zip(steps, rewards, strict=True):
    print(f"{reward:.3f}  {step.strip()}")
