"""Rows of recorded outputs, as other programs write them."""

from __future__ import annotations

from typing import Any

RIGHT, WRONG = "Step 1: 2 + 2 = 4.\nThe answer is: 4", "So it is 5.\nThe answer is: 5"


def lm_eval(**fields: Any) -> dict[str, Any]:
    return {
        "doc_id": 0,
        "doc": {"question": "2+2?"},
        "target": "2+2=4\n#### 4",
        "arguments": {"gen_args_0": {"arg_0": "Q: 2+2?\nA:", "arg_1": {}}},
        "resps": [[RIGHT, WRONG]],
        "filter": "strict-match",
        **fields,
    }


def lighteval(doc: str = "doc", response: str = "model_response") -> dict[str, Any]:
    return {
        doc: {"query": "Solve.\n2+2?", "choices": ["3", "4"], "gold_index": [1], "specific": None},
        response: {
            "input": "<user>Solve.\n2+2?",
            "text": [RIGHT, WRONG],
            "output_tokens": [[1, 2, 3], [4]],
        },
        "metric": {"extractive_match": 1.0},
    }


#: For each format: example rows, their question and their prompt. In every format the gold is 4,
#: the first response is right, and the second is wrong.
EXAMPLES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "openai": (
        [
            {
                "question": "2+2?",
                "ground_truth": "At A: 2+2\nA: 4",
                name: {"solution": text, "is_correct": True},
            }
            for name, text in (("m", RIGHT), ("m", WRONG))
        ],
        "2+2?",
        "2+2?",
    ),
    "tora": ([{"question": "2+2?", "gt": "4", "code": [RIGHT, WRONG]}], "2+2?", "2+2?"),
    "abel": (
        [
            {"prompt": "Question:\n2+2?\nAnswer:\n", "gold": "4", "response": text, "result": True}
            for text in (RIGHT, WRONG)
        ],
        "2+2?",
        "Question:\n2+2?\nAnswer:\n",
    ),
    "nemo": (
        [
            {"problem": "2+2?", "expected_answer": "4", "generation": text}
            for text in (RIGHT, WRONG)
        ],
        "2+2?",
        "2+2?",
    ),
    "verl": (
        [
            {
                "data_source": "openai/gsm8k",
                "prompt": [{"role": "user", "content": "2+2? Think first."}],
                "reward_model": {"style": "rule", "ground_truth": "4"},
                "extra_info": {"question": "2+2?", "split": "train"},
                "responses": [RIGHT, WRONG],
            }
        ],
        "2+2?",
        "2+2?",
    ),
    "openr1": (
        [{"problem": "2+2?", "answer": "4", "solution": "Add.", "generations": [RIGHT, WRONG]}],
        "2+2?",
        "2+2?",
    ),
    "areal": (
        [
            {
                "prompt": "<｜User｜>2+2?<｜Assistant｜><think>\n",
                "generateds": [RIGHT, WRONG],
                "solutions": ["\\boxed{4}"],
                "rewards": [5.0, -5.0],
            }
        ],
        "2+2?",
        "2+2?",
    ),
    "lm-eval": ([lm_eval(), lm_eval(filter="flexible-extract")], "2+2?", "Q: 2+2?\nA:"),
    "lighteval": ([lighteval()], "Solve.\n2+2?", "<user>Solve.\n2+2?"),
    "search-and-learn": (
        [
            {
                "problem": "2+2?",
                "answer": "4",
                "completions": [RIGHT, WRONG],
                "scores": [[0.9], [0.1]],
            }
        ],
        "2+2?",
        "2+2?",
    ),
    "scored-candidates": (
        [
            {
                "problem_id": "p0",
                "candidate_index": index,
                "question": "2+2?",
                "gold": "4",
                "response": text,
                "steps": text.split("\n"),
            }
            for index, text in enumerate((RIGHT, WRONG))
        ],
        "2+2?",
        "2+2?",
    ),
    "plain-step-scores": (
        [
            {"question": "2+2?", "answer": "4", "response": text, "step_scores": scores}
            for text, scores in ((RIGHT, [0.9]), (WRONG, [0.2, 0.3]))
        ],
        "2+2?",
        "2+2?",
    ),
    "plain": (
        [{"problem": "2+2?", "answer": 4.0, "responses": [{"text": RIGHT}, WRONG]}],
        "2+2?",
        "2+2?",
    ),
}
