"""How far two engines may differ."""

from __future__ import annotations

#: Where the engines part, the two tokens must be this close in logits: a tie, broken by rounding.
TIE = 1e-3


def gap(path: str, prompt: str, one: str, other: str) -> float:
    """Return the difference of the two logits where the texts part."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    net = AutoModelForCausalLM.from_pretrained(path).eval()
    start = tokenizer(prompt)["input_ids"]
    first, second = (start + tokenizer(text)["input_ids"] for text in (one, other))
    at = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    with torch.inference_mode():
        logits = net(torch.tensor([first[:at]])).logits[0, -1]
    return abs(float(logits[first[at]] - logits[second[at]]))
