"""Compare the texts of two engines up to rounding."""

from __future__ import annotations

#: Engines may choose different tokens if their logits differ by less than this: a tie by rounding.
TIE = 1e-3


def gap(path: str, prompt: str, text_a: str, text_b: str) -> float:
    """Return the difference of the logits of the first two tokens that differ."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path).eval()
    prompt_ids = tokenizer(prompt)["input_ids"]
    ids_a = prompt_ids + tokenizer(text_a)["input_ids"]
    ids_b = prompt_ids + tokenizer(text_b)["input_ids"]
    position = next(i for i, (a, b) in enumerate(zip(ids_a, ids_b, strict=False)) if a != b)
    with torch.inference_mode():
        logits = model(torch.tensor([ids_a[:position]])).logits[0, -1]
    return abs(float(logits[ids_a[position]] - logits[ids_b[position]]))
