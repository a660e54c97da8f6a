"""Small tokenizers with a trained vocabulary: each kind of pre-tokenizer of the library."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

from random_texts import PIECES
from real_tokenizers import _DEEPSEEK_SPLITS, _LLAMA3_SPLIT
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
_VOCAB_SIZE = 700
_BYTE_MODELS = ("fallback", "unigram")  #: Models with a token for each byte.
_QWEN_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_CORPUS = (
    *("Step 1: So the answer is 42.\n", "Step 2: It's 3.14, not 1,000.\n\n", " What is 2 + 2?\n"),
    *(
        "Problem: x\r\nSolution:\r\n",
        "中文四十二日本語。",
        "e\u0301é 👩‍👩‍👧 العربية",
        "   \n\n\n \t\t",
    ),
)


class Kind(NamedTuple):
    """A kind of tokenizer."""

    pre_tokenizer: Any
    decoder: Any  #: None if the pre-tokenizer drops text, so that no decoder restores it.
    normalizer: Any = None
    model: str = "bpe"


def _split(pattern: str) -> Any:
    return pre.Split(Regex(pattern), "isolated")


def _after(*parts: Any) -> Any:
    """Return byte-level pre-tokenization after other parts."""
    return pre.Sequence([*parts, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def _metaspace(scheme: str, *, split: bool = True) -> Kind:
    parts = pre.Metaspace(prepend_scheme=scheme, split=split)
    return Kind(parts, _fallback_decoder(), model="fallback")


def _fallback_decoder() -> Any:
    """Return the decoder of Llama 2, without the removal of a leading space."""
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts)


KINDS: dict[str, Kind] = {
    "bytes": Kind(pre.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
    "bytes with a space": Kind(pre.ByteLevel(add_prefix_space=True), decoders.ByteLevel()),
    "bytes, no regex": Kind(_after(), decoders.ByteLevel()),
    "Qwen": Kind(_after(_split(_QWEN_SPLIT)), decoders.ByteLevel(), normalizers.NFC()),
    "GPT-4": Kind(_after(_split(_LLAMA3_SPLIT)), decoders.ByteLevel()),
    "DeepSeek": Kind(_after(*map(_split, _DEEPSEEK_SPLITS)), decoders.ByteLevel()),
    "digits": Kind(_after(pre.Digits(individual_digits=True)), decoders.ByteLevel()),
    "punctuation": Kind(_after(pre.Punctuation()), decoders.ByteLevel()),
    "scripts": Kind(_after(pre.UnicodeScripts()), decoders.ByteLevel()),
    "metaspace, always": _metaspace("always"),
    "metaspace, first": _metaspace("first"),
    "metaspace, never": _metaspace("never"),
    "metaspace, unsplit": _metaspace("always", split=False),
    "Llama 2": Kind(
        None,
        _fallback_decoder(),
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        model="fallback",
    ),
    "unigram": Kind(pre.Metaspace(prepend_scheme="always"), _fallback_decoder(), model="unigram"),
    "words": Kind(pre.Whitespace(), None),
    "between spaces": Kind(pre.WhitespaceSplit(), None),
    "delimiter": Kind(pre.CharDelimiterSplit(" "), None),
    "fixed length": Kind(pre.FixedLength(5), None),
    "bert": Kind(pre.BertPreTokenizer(), None, normalizers.BertNormalizer(), model="wordpiece"),
}


@cache
def train_tokenizer(name: str) -> Any:
    """Return the tokenizer of a kind, trained on a few lines."""
    kind = KINDS[name]
    tokenizer = Tokenizer(_new_model(kind.model))
    if kind.pre_tokenizer is not None:
        tokenizer.pre_tokenizer = kind.pre_tokenizer
    if kind.normalizer is not None:
        tokenizer.normalizer = kind.normalizer
    tokenizer.decoder = kind.decoder or decoders.Fuse()
    tokenizer.train_from_iterator([*_CORPUS * 3, *PIECES], _trainer(kind))
    return PreTrainedTokenizerFast(
        tokenizer_object=_with_byte_tokens(tokenizer) if kind.model in _BYTE_MODELS else tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    )


def _with_byte_tokens(tokenizer: Any) -> Any:
    """Return a tokenizer whose byte tokens are ordinary tokens, and stand for unknown letters."""
    settings = json.loads(tokenizer.to_str())
    settings["model"]["byte_fallback"] = True
    settings["added_tokens"] = [
        token for token in settings["added_tokens"] if not token["content"].startswith("<0x")
    ]
    return Tokenizer.from_str(json.dumps(settings))


def _new_model(name: str) -> Any:
    match name:
        case "bpe":
            return models.BPE(unk_token="<unk>")
        case "fallback":
            return models.BPE(unk_token="<unk>", fuse_unk=True)
        case "wordpiece":
            return models.WordPiece(unk_token="<unk>")
    return models.Unigram()


def _trainer(kind: Kind) -> Any:
    options: dict[str, Any] = {"vocab_size": _VOCAB_SIZE, "show_progress": False}
    specials = list(SPECIAL_TOKENS)
    if kind.model in _BYTE_MODELS:
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
    if kind.model == "unigram":
        return trainers.UnigramTrainer(special_tokens=specials, unk_token="<unk>", **options)
    if kind.model == "wordpiece":
        return trainers.WordPieceTrainer(special_tokens=specials, **options)
    alphabet = pre.ByteLevel.alphabet() if isinstance(kind.decoder, decoders.ByteLevel) else []
    return trainers.BpeTrainer(special_tokens=specials, initial_alphabet=alphabet, **options)


def restore_text(tokenizer: Any, text: str) -> str:
    """Return the text that the ids of a text give: NFC, and a space for the sign of a space."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if type(normalizer).__name__ == "NFC":
        return normalizer.normalize_str(text)
    return text if is_byte_level(tokenizer) else text.replace("▁", " ")


def is_byte_level(tokenizer: Any) -> bool:
    return '"ByteLevel"' in repr_of_decoder(tokenizer)


@cache
def repr_of_decoder(tokenizer: Any) -> str:
    return json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"])
