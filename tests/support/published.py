"""Tiny checkpoints of published reward models: all is theirs but the weights, which are random."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import real_tokenizers

#: Llama 3.1's own, without its tools: contents are trimmed, and a system turn is always there.
LLAMA_CHAT = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string or '26 Jul 2024' }}"
    "\n\n{{ system }}<|eot_id|>{% for m in messages %}<|start_header_id|>{{ m.role }}"
    "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

#: Of each family: tokenizer, tokens added to it, architecture, shapes of the head's tensors.
FAMILIES: dict[str, tuple[str, list[str], str, dict[str, tuple[int, ...]]]] = {
    "qwen": ("qwen2", ["<extra_0>"], "Qwen2ForProcessRewardModel", {
        "score.0.weight": (32, 32), "score.0.bias": (32,),
        "score.2.weight": (2, 32), "score.2.bias": (2,)}),
    "reasonflux": ("qwen2", ["<extra_0>"], "Qwen2ForProcessRewardModel", {
        "score.0.weight": (32, 32), "score.0.bias": (32,),
        "score.2.weight": (2, 32), "score.2.bias": (2,)}),
    "math-shepherd": ("mistral", [], "MistralForCausalLM", {}),
    "math-shepherd-bare": ("mistral", [], "MistralForCausalLM", {}),
    "rlhflow": ("llama3", [], "LlamaForCausalLM", {}),
    "skywork": ("qwen2", [], "Qwen2ForPrmModel", {
        "v_head.summary.weight": (1, 32), "v_head.summary.bias": (1,)}),
    "pure": ("qwen2", [], "Qwen2ForProcessRewardModel", {
        "score.0.weight": (32, 32), "score.0.bias": (32,),
        "score.2.weight": (2, 32), "score.2.bias": (2,)}),
    "trl": ("qwen2", [], "Qwen2ForTokenClassification", {
        "score.weight": (2, 32), "score.bias": (2,)}),
    "reasoneval-7b": ("mistral", [], "ReasonEval_7B", {"score_head.weight": (3, 32)}),
    "reasoneval-34b": ("llama2", [], "ReasonEval_34B", {
        "score_head.weight": (3, 32), "score_head.bias": (3,)}),
    "actprm": ("qwen2", ["<extra_0>"], "Qwen2ForEnsemblePRM", {
        f"score.{copy}.{name}": shape
        for copy in ("model", "reg_model")
        for name, shape in {
            "nn1.weight": (8, 32, 16), "nn1.bias": (8, 16), "nn2.weight": (8, 16, 16),
            "nn2.bias": (8, 16), "nn_out.weight": (8, 16, 1), "nn_out.bias": (8, 1),
        }.items()}),
    "versaprm": ("llama3", [], "LlamaForCausalLM", {}),
    "er-prm": ("llama3", [], "LlamaForCausalLM", {}),
    "llemma": ("llama2", [], "LlamaForCausalLM", {}),
    "pqm": ("mistral", ["[PRM]"], "MistralForCausalLM", {
        "v_head.summary.weight": (1, 32), "v_head.summary.bias": (1,)}),
}  # fmt: skip


def save_published(path: Path, family: str, shared: Path, *, context: int = 2048) -> Path:
    """Write a checkpoint of a family as its publisher wrote it, of 32 dimensions."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    name, _, architecture, head = FAMILIES[family]
    tokenizer = tokenizer_of(family, shared)
    decoder = {"qwen2": "Qwen2", "mistral": "Mistral"}.get(name, "Llama")
    config = getattr(transformers, f"{decoder}Config")(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        # vLLM's attention on CPUs takes heads of 32 and more.
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=context,
        initializer_range=0.3, tie_word_embeddings=False, num_labels=2, bos_token_id=None,
        eos_token_id=None, **({"sliding_window": None} if decoder == "Mistral" else {}),
    )  # fmt: skip
    torch.manual_seed(0)
    getattr(transformers, f"{decoder}ForCausalLM")(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    tensors = load_file(path / "model.safetensors")
    tensors |= {key: torch.randn(shape) * 0.3 for key, shape in head.items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((path / "config.json").read_text())
    auto_map = {"AutoConfig": "configuration.Theirs", "AutoModel": "modeling.Theirs"}
    remote = {} if hasattr(transformers, architecture) else {"auto_map": auto_map}
    (path / "config.json").write_text(
        json.dumps({**settings, "architectures": [architecture], **remote})
    )
    return path


def tokenizer_of(family: str, shared: Path) -> Any:
    """Return the tokenizer of a family."""
    name, added, *_ = FAMILIES[family]
    return _extended_tokenizer(name, tuple(added), shared)


@cache
def _extended_tokenizer(name: str, added: tuple[str, ...], shared: Path) -> Any:
    """Load a tokenizer again, with tokens added, because other tests share the loaded one."""
    import transformers

    folder = shared / "tokenizers" / name
    tokenizer = real_tokenizers.load.__wrapped__(folder)
    if name == "llama3":
        tokens_by_id = json.loads((folder / "tokenizer_config.json").read_text())[
            "added_tokens_decoder"
        ]
        token_texts = [tokens_by_id[key]["content"] for key in sorted(tokens_by_id, key=int)]
        tokenizer.add_special_tokens({"additional_special_tokens": token_texts[2:]})
        tokenizer.chat_template = LLAMA_CHAT
    if added:
        tokenizer.add_special_tokens({"additional_special_tokens": [*added]})
    assert isinstance(tokenizer, transformers.PreTrainedTokenizerBase)
    return tokenizer
