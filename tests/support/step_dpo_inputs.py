"""What `benchmarks/perf/step_dpo.py` trains: a random model, and pairs of random letters."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from string import ascii_lowercase

from preference_data import pair_row

#: Of prompts, right and wrong solutions of each, and about how many tokens and steps they have.
PROMPTS, TOP, PROMPT_TOKENS, RESPONSE_TOKENS, STEPS = 4, 4, 120, 250, 6


def make_model(folder: Path, options: argparse.Namespace) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    # A token is a letter; the rest of the vocabulary is there for the head to compute.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: number for number, token in enumerate(["<eos>", "<pad>", *letters])}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        num_key_value_heads=max(1, options.width // 128),
        max_position_embeddings=1024,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)


def make_pairs(file: Path) -> None:
    rng = random.Random(0)

    def text(tokens: int) -> str:
        return "".join(rng.choices(ascii_lowercase, k=tokens - 1)) + "\n"

    def solution() -> tuple[list[str], list[float]]:
        tokens = round(RESPONSE_TOKENS * rng.uniform(0.7, 1.3) / STEPS)
        return [text(tokens) for _ in range(STEPS)], [rng.random() for _ in range(STEPS)]

    with file.open("w") as out:
        for _ in range(PROMPTS):
            prompt = text(round(PROMPT_TOKENS * rng.uniform(0.8, 1.2)))
            good, bad = ([solution() for _ in range(TOP)] for _ in range(2))
            for chosen in good:
                for rejected in bad:
                    out.write(json.dumps(pair_row(prompt, chosen, rejected)) + "\n")
