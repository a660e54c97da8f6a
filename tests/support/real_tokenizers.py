"""Published tokenizers from the files in ``../shared/tokenizers``, as transformers would load them.

Two of them exist there only in the form their authors trained them in (a sentencepiece model, a
tiktoken rank file); they are turned into the same BPE that their ``tokenizer.json`` holds.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

NAMES = ("qwen2", "llama2", "llama3", "mistral", "deepseek_llm")

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_SPLITS = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
)


@cache
def load(folder: Path) -> Any:
    """Load the tokenizer in ``folder``, whose name says which it is."""
    from transformers import AutoTokenizer

    special = {"llama2": _llama2, "llama3": _llama3, "deepseek_llm": _deepseek}
    make = special.get(folder.name, lambda path: AutoTokenizer.from_pretrained(path))
    return make(folder)


def oracle(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield (text, ids) as llama.cpp's tests expect them; nothing where the folder has no such."""
    for inputs in folder.glob("*.inp.txt"):
        outputs = inputs.with_name(inputs.name.replace(".inp.", ".out."))
        yield from _read_expected(inputs, outputs)


def _read_expected(inputs: Path, outputs: Path) -> Iterator[tuple[str, list[int]]]:
    texts = inputs.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    for text, ids in zip(texts, outputs.read_text().split("\n"), strict=False):
        yield text, [int(token_id) for token_id in ids.split()]


def _llama2(folder: Path) -> Any:
    from transformers import LlamaTokenizer

    pieces = list(_pieces((folder / "tokenizer.model").read_bytes()))
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = _merges(vocab, dict(pieces))
    return LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True)


def _merges(vocab: dict[str, int], scores: dict[str, float]) -> list[tuple[str, str]]:
    """Return the merges of a scored vocabulary: the best piece first, each way it can be made."""
    merges = []
    for piece, score in scores.items():
        halves = ((piece[:position], piece[position:]) for position in range(1, len(piece)))
        known_pairs = [pair for pair in halves if pair[0] in vocab and pair[1] in vocab]
        merges += [
            (score, pair) for pair in sorted(known_pairs, key=lambda p: (vocab[p[0]], vocab[p[1]]))
        ]
    merges.sort(key=lambda entry: -entry[0])
    return [pair for _, pair in merges]


def _pieces(model: bytes) -> Iterator[tuple[str, float]]:
    """Read (piece, score) from a sentencepiece model: field 1 of the protobuf, repeated."""
    import struct

    for number, value in _fields(model):
        if number == 1:
            piece = dict(_fields(value))
            yield piece[1].decode(), struct.unpack("<f", piece[2])[0]


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Read the fields of a protobuf message; varints come as their number in bytes."""
    offset = 0

    def varint() -> int:
        nonlocal offset
        value = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while offset < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, bytes([varint() & 255])
            continue
        size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        yield key >> 3, data[offset : offset + size]
        offset += size


def _llama3(folder: Path) -> Any:
    ranks = {}
    for line in (folder / "tokenizer.model").read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    spell = _byte_letters()
    merges = [tuple("".join(map(spell, half)) for half in pair) for pair in _rank_merges(ranks)]
    vocab = {"".join(map(spell, token)): rank for token, rank in ranks.items()}
    return _byte_level(vocab, merges, [_LLAMA3_SPLIT], "<|begin_of_text|>", "<|end_of_text|>")


def _rank_merges(ranks: dict[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pair each token of a rank file was merged from."""
    for token, rank in ranks.items():
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            pairs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
            best = min(range(len(pairs)), key=pairs.__getitem__)
            if pairs[best] >= rank:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            yield parts[0], parts[1]


def _byte_letters() -> Any:
    """Return the letter that byte-level BPE writes for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in visible}
    hidden = [byte for byte in range(256) if byte not in letters]
    letters |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return letters.__getitem__


def _deepseek(folder: Path) -> Any:
    vocab = json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line]
    names = json.loads((folder / "added_tokens.json").read_text())
    bos, eos = (next(n for n in names if re.search(part, n)) for part in ("begin", "end"))
    tokenizer = _byte_level(vocab, merges, _DEEPSEEK_SPLITS, bos, eos)
    tokenizer.add_tokens([name for name in names if name not in (bos, eos)])
    return tokenizer


def _byte_level(
    vocab: dict[str, int], merges: list[Any], splits: Iterable[str], bos: str, eos: str
) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=len(vocab) > 128_000 - 1))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splits]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([*cuts, byte_level])
    bpe.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=bos, eos_token=eos)
    start = processors.TemplateProcessing(
        f"{bos} $A", special_tokens=[(bos, fast.convert_tokens_to_ids(bos))]
    )
    # As published: byte-level post-processing, which trims white space off the offsets.
    bpe = fast.backend_tokenizer
    bpe.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), start])
    return fast
