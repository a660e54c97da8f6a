"""Write random models of 40k parameters (Qwen2) with a byte-level tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def save_random_model(path: Path, *, context: int = 256, seed: int = 0, **shape: int) -> Path:
    """Write a random model that ``from_pretrained`` loads; it generates random text.

    ``shape`` overrides fields of its ``Qwen2Config``.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|pad|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(["Step 1: 20 + 22 = 42.\nThe answer is: 42"] * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=special[0], pad_token=special[1]
    )
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    config = Qwen2Config(
        **(sizes | shape),
        vocab_size=len(tokenizer),
        max_position_embeddings=context,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
        initializer_range=0.2,  # far from uniform, so that greedy choices are not near ties
    )
    model = Qwen2ForCausalLM(config)
    # Defaults of the repository that are not in our sampling spec; a sampler must ignore them.
    model.generation_config.top_k = 1
    model.generation_config.do_sample = True
    model.generation_config.repetition_penalty = 3.0
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def save_other_architecture(path: Path, policy: Path, family: str, **fields: Any) -> Path:
    """Write a random model of another architecture with the tokenizer of ``policy``.

    Args:
        path: Folder of the new model.
        policy: Folder of the model with the tokenizer.
        family: Architecture, such as ``Mistral`` of ``MistralForCausalLM``.
        fields: Further fields of its config.
    """
    import transformers

    policy_config = transformers.AutoConfig.from_pretrained(policy)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=policy_config.vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        eos_token_id=policy_config.eos_token_id,
        pad_token_id=policy_config.pad_token_id,
        **fields,
    )
    shutil.copytree(policy, path)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(path)
    return path


def save_random_prm(path: Path, policy: Path, *, seed: int = 0, labels: int = 1) -> Path:
    """Write ``policy`` with a random head as a process reward model with rewards in (0, 1)."""
    import torch
    from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer

    config = AutoConfig.from_pretrained(policy, num_labels=labels)
    torch.manual_seed(seed)
    model = AutoModelForTokenClassification.from_pretrained(policy, config=config)
    torch.nn.init.normal_(model.score.weight, std=0.3)
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(policy).save_pretrained(path)
    return path
