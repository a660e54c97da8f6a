"""Completions have the ids that follow a prompt, with every kind of pre-tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizers import Regex, decoders, models, normalizers, trainers  # noqa: E402
from tokenizers import pre_tokenizers as pre  # noqa: E402

from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.samplers.tokenization import encode_prompt  # noqa: E402
from fsdpo_data.engines.step_tokens import StepTokenizer  # noqa: E402

PROMPT = "What is 2 + 2?\n"
COMPLETIONS = ("Step 1: 2 + 2 = 4.", "Step 1: so it is 4.\nStep 2: The answer is 4.", " Step 1")

#: One of each pre-tokenizer of the library, with and without the space that it adds in front.
PRE_TOKENIZERS: dict[str, Any] = {
    "bert": pre.BertPreTokenizer(),
    "bytes": pre.ByteLevel(add_prefix_space=False),
    "bytes with a space": pre.ByteLevel(add_prefix_space=True),
    "bytes with a space, in a sequence": pre.Sequence(
        [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=True)]
    ),
    "split, then bytes with a space": pre.Sequence(
        [
            pre.Split(Regex(r"\n+|[^\n]+"), "isolated"),
            pre.ByteLevel(add_prefix_space=True, use_regex=False),
        ]
    ),
    "delimiter": pre.CharDelimiterSplit(" "),
    "digits": pre.Digits(),
    "fixed length": pre.FixedLength(1),
    "metaspace": pre.Metaspace(prepend_scheme="always", split=True),
    "metaspace at the start": pre.Metaspace(prepend_scheme="first", split=False),
    "punctuation": pre.Punctuation(),
    "split": pre.Split(Regex(r"\s"), "isolated"),
    "scripts": pre.UnicodeScripts(),
    "words": pre.Whitespace(),
    "between spaces": pre.WhitespaceSplit(),
}


def make_tokenizer(pre_tokenizer: Any, normalizer: Any = None) -> Any:
    """Return a tokenizer of the letters of the texts, so that no two letters share a token."""
    bpe = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        bpe.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=0, special_tokens=["<unk>", "</s>"], show_progress=False
    )
    bpe.train_from_iterator([PROMPT, *COMPLETIONS], trainer)
    bpe.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", eos_token="</s>"
    )


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@pytest.mark.parametrize("text", COMPLETIONS)
def test_a_completion_has_the_ids_that_follow_its_prompt(name: str, text: str) -> None:
    """A model that has read the prompt writes the ids of the joined text."""
    tokenizer = make_tokenizer(PRE_TOKENIZERS[name])
    prompt_ids = encode_prompt(tokenizer, Prompt(PROMPT))
    if "with a space" in name and "sequence" not in name and "split" not in name:
        assert tokenizer.tokenize(text)[0] == "Ġ"
    encoded = StepTokenizer(tokenizer).encode(Prompt(PROMPT), [text], add_eos=False)
    joined = tokenizer(PROMPT + text)["input_ids"]
    assert encoded.input_ids.tolist() == joined
    assert joined[: len(prompt_ids)] == prompt_ids


def test_a_completion_after_a_normalizer_that_prepends() -> None:
    prepends = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = make_tokenizer(pre.Split("▁", "isolated"), prepends)
    for text in COMPLETIONS:
        encoded = StepTokenizer(tokenizer).encode(Prompt(PROMPT), [text], add_eos=False)
        assert encoded.input_ids.tolist() == tokenizer(PROMPT + text)["input_ids"]
