"""A real tokenizer of four words, with a chat template, for tests that need one at hand."""

from __future__ import annotations

from pathlib import Path

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_tokenizer(path: Path, *, chat: str | None = CHAT, add_bos: bool = True) -> str:
    """Write a real, small tokenizer with a beginning-of-sequence token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2, "user": 3}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if add_bos:
        words.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = chat
    fast.save_pretrained(path)
    return str(path)
