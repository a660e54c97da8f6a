"""Rows of Math-Step-DPO-10K with all of its fields, as its authors write them."""

from __future__ import annotations

from typing import Any


def step_dpo_row(
    prompt: str, initial_reason_steps: str, chosen: str, rejected: str, answer: str
) -> dict[str, Any]:
    """Return a row; the full texts start at the step that differs."""
    return {
        "dataset": "MATH_Rephrased",
        "prompt": prompt,
        "initial_reason_steps": initial_reason_steps,
        "chosen": chosen,
        "rejected": rejected,
        "full_chosen": f"{chosen}\nThe answer is: {answer}.",
        "full_rejected": f"{rejected}\nThe answer is: 7.",
        "answer": answer,
    }


#: Two pairs of one problem, at different steps, and pairs with all forms of the shared text.
STEP_DPO_ROWS = [
    step_dpo_row(
        "Tom has 20 apples and gets 22 more. He sells each for $2. How much does he earn?",
        "Let's think step by step.\nStep 1: He has 20 + 22 = 42 apples.\nStep 2:",
        " He earns 42 * 2 = 84 dollars.",
        " He earns 42 * 2 = 82 dollars.",
        "84",
    ),
    step_dpo_row(
        "Tom has 20 apples and gets 22 more. He sells each for $2. How much does he earn?",
        "Let's think step by step.\nStep 1:",
        " He has 20 + 22 = 42 apples.",
        " He has 20 + 22 = 44 apples, \nwhich he sells.",
        "84",
    ),
    step_dpo_row(
        "What is $1 + 1$?\nAdd the numbers.",
        "Let's think step by step. \nStep 1: Take 1. \nStep 2: Take 1 again.  \nStep 3:",
        " \nNow we add them: $1 + 1 = 2$. ",
        " \nNow we add them: $1 + 1 = 3$.",
        "2",
    ),
    step_dpo_row(
        "What is 3 + 4?",
        "Let's think step by step. Step 1:",
        " 3 + 4 = 7. The answer is: 7",
        " 3 + 4 = 8. The answer is: 8",
        "7",
    ),
]
