"""Texts become the token ids that a model reads and writes, and become texts again.

Random questions and solutions, with published tokenizers and with each kind of pre-tokenizer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import real_tokenizers
import trained_tokenizers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_texts import SPECIAL_TOKENS, cut, step_lists, texts
from trained_tokenizers import is_byte_level, restore_text

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.samplers.text_encoders import find_thinking_tokens
from fsdpo_data.engines.samplers.tokenization import (
    CompletionDecoder,
    encode_context,
    encode_prompt,
)
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer, find_step_ids

_letter = real_tokenizers._byte_letters()
BYTES_OF_LETTERS = {_letter(byte): byte for byte in range(256)}
#: Kinds whose ids do not give the text again: they drop white space, or letters.
DROPS_TEXT = ("words", "between spaces", "delimiter", "bert", "fixed length", "scripts")
#: Kinds whose ids of a text depend on the number of characters before it, or drop repeated letters.
NO_CONTEXT = ("fixed length", "scripts")
TEMPLATES = ("{}\n", "{}", "Problem: {}\nSolution:", "<|im_start|>{}<|im_end|>\n\n")
EXAMPLES = 6
PROOF_EXAMPLES = 500


def tokenizer_params() -> list[Any]:
    """Return the names of all tokenizers; loading the large ones takes seconds."""
    large = [
        pytest.param(f"shared {name}", marks=[] if name == "llama2" else pytest.mark.proof)
        for name in real_tokenizers.NAMES
    ]
    return [*large, *trained_tokenizers.KINDS]


@pytest.fixture(scope="module", params=tokenizer_params())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name: str, request: pytest.FixtureRequest) -> Any:
    if name in trained_tokenizers.KINDS:
        return trained_tokenizers.train_tokenizer(name)
    shared: Path = request.getfixturevalue("shared")
    return real_tokenizers.load(shared / "tokenizers" / name.removeprefix("shared "))


def special_ids(tokenizer: Any, ids: list[int]) -> list[int]:
    """Return the ids of special tokens that do not mark thinking."""
    added_tokens = tokenizer.added_tokens_decoder
    names = {str(token) for token in added_tokens.values() if token.special}
    thinking = find_thinking_tokens(names)
    names -= {*thinking, tokenizer.unk_token}
    return [i for i in ids if i in added_tokens and str(added_tokens[i]) in names]


def has_added_letter(tokenizer: Any, text: str) -> bool:
    """Return whether a letter of a text is an added token, as some are in DeepSeek's tokenizer.

    Its decoder reads such a letter as a byte.
    """
    return is_byte_level(tokenizer) and any(letter in text for letter in added_letters(tokenizer))


@cache
def added_letters(tokenizer: Any) -> set[str]:
    return {text for text in map(str, tokenizer.added_tokens_decoder.values()) if len(text) == 1}


def token_bytes(tokenizer: Any, token_id: int) -> bytes:
    """Return the bytes of the text of a token."""
    piece = tokenizer.convert_ids_to_tokens(token_id)
    if token_id in tokenizer.added_tokens_decoder:
        return piece.encode()
    if is_byte_level(tokenizer):
        return bytes(BYTES_OF_LETTERS[letter] for letter in piece)
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


def steps_of_tokens(tokenizer: Any, ids: Sequence[int], steps: Sequence[str]) -> list[int]:
    """Return the step with the first byte of each token."""
    texts_of_tokens = [token_bytes(tokenizer, token_id) for token_id in ids]
    assert b"".join(texts_of_tokens).decode() == "".join(steps)
    starts = [0, *accumulate(map(len, texts_of_tokens[:-1]))]
    step_ends = list(accumulate(len(step.encode()) for step in steps))
    return [bisect_right(step_ends, start) for start in starts]


@cache
def step_tokenizer(tokenizer: Any) -> StepTokenizer:
    return StepTokenizer(tokenizer, [tokenizer.eos_token_id])


def encode(tokenizer: Any, prompt: Prompt, steps: list[str]) -> EncodedSolution | None:
    try:
        return step_tokenizer(tokenizer).encode(prompt, steps, add_eos=True)
    except InputError as error:
        assert "has no token" in str(error)
        return None


def check_encoding(
    tokenizer: Any, name: str, template: str, question: str, steps: list[str]
) -> None:
    prompt = Prompt(template.replace("{}", question), question)
    encoded = encode(tokenizer, prompt, steps)
    if encoded is None:
        assert name in DROPS_TEXT, "a step without a token"
        return
    ids = encoded.input_ids.tolist()
    prompt_ids = ids[: encoded.prompt_length]
    completion_ids = ids[encoded.prompt_length :]
    # The model reads in training what it reads in sampling.
    assert prompt_ids == encode_prompt(tokenizer, prompt)
    # The template alone has special ids.
    template_ids = encode_prompt(tokenizer, Prompt(template.replace("{}", "x"), "x"))
    assert special_ids(tokenizer, prompt_ids) == special_ids(tokenizer, template_ids)
    assert special_ids(tokenizer, completion_ids) == [tokenizer.eos_token_id]
    assert completion_ids[-1] == tokenizer.eos_token_id
    if name in DROPS_TEXT or has_added_letter(tokenizer, "".join(steps)):
        return
    *ended_steps, last_step = steps
    steps = [*ended_steps, last_step.removesuffix(tokenizer.eos_token) or last_step]
    text = "".join(steps)
    assert CompletionDecoder(tokenizer)(completion_ids[:-1]) == restore_text(tokenizer, text)
    if restore_text(tokenizer, text) != text:
        return
    step_ids = steps_of_tokens(tokenizer, completion_ids[:-1], steps)
    last_positions = [bisect_right(step_ids, step) - 1 for step in range(len(steps))]
    assert encoded.score_positions == [len(prompt_ids) + last for last in last_positions]


def check_sampled_ids(tokenizer: Any, chunks: list[str], cuts: list[int]) -> None:
    """Check the ids that a model chose, which may not be those of the encoded text."""
    if has_added_letter(tokenizer, "".join(chunks)):
        return
    ids: list[int] = []
    for chunk in chunks:
        encoded = step_tokenizer(tokenizer).encode(Prompt(""), [chunk], add_eos=False)
        chunk_ids = encoded.input_ids[encoded.prompt_length :].tolist()
        if cuts.count(len(chunk)) % 2 and len(chunk) < 9:
            chunk_ids = [i for byte in chunk.encode() for i in byte_ids(tokenizer, byte)]
        ids += chunk_ids
    text = b"".join(token_bytes(tokenizer, i) for i in ids).decode()
    decoder = CompletionDecoder(tokenizer)
    assert decoder(ids, skip_special=True) == text
    if not text.strip():
        return
    steps = cut(text, cuts)
    assert find_step_ids(decoder, ids, steps) == steps_of_tokens(tokenizer, ids, steps)
    # A continuation starts from the ids that the model chose.
    for count in range(1, len(steps)):
        known_text = "".join(steps[:count])
        prompt = Prompt("Problem: x\n", "x", known_text, tuple(ids))
        context = encode_context(tokenizer, decoder, prompt)
        n_known = len(context.solution_ids)
        assert context.solution_ids == ids[:n_known]
        known_bytes = b"".join(token_bytes(tokenizer, i) for i in context.solution_ids)
        assert known_bytes.startswith(known_text.encode())
        assert len(known_bytes) - len(token_bytes(tokenizer, ids[n_known - 1])) < len(
            known_text.encode()
        )
        assert decoder.decode_continuation(context, ids[n_known:], skip_special=True) == "".join(
            steps[count:]
        )


def check_context_ids(tokenizer: Any, question: str, text: str) -> None:
    """Check that a completion has the ids with which the joined text goes on after its prompt."""
    prompt = f"Problem: {question}\n"
    prompt_ids = encode_prompt(tokenizer, Prompt(prompt))
    joined_ids = encode_prompt(tokenizer, Prompt(prompt + text))
    n_prompt = len(prompt_ids)
    # A token may belong to both; a model never writes it.
    if joined_ids[:n_prompt] == prompt_ids and joined_ids[n_prompt:]:
        encoded = step_tokenizer(tokenizer).encode(Prompt(prompt), [text], add_eos=False)
        assert encoded.input_ids.tolist()[n_prompt:] == joined_ids[n_prompt:]


@cache
def byte_ids(tokenizer: Any, byte: int) -> list[int]:
    """Return the id of a byte alone."""
    piece = _letter(byte) if is_byte_level(tokenizer) else f"<0x{byte:02X}>"
    return [tokenizer.convert_tokens_to_ids(piece)]


def run(check: Any, max_examples: int, **strategies: Any) -> None:
    # Shrinking takes minutes with large vocabularies.
    phases = (Phase.explicit, Phase.generate)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    options = settings(max_examples=max_examples, phases=phases, suppress_health_check=checks)
    options(given(**strategies)(check))()


AMOUNTS = [EXAMPLES, pytest.param(PROOF_EXAMPLES, marks=pytest.mark.proof)]


@pytest.mark.parametrize("max_examples", AMOUNTS)
def test_texts_are_encoded_as_text(tokenizer: Any, name: str, max_examples: int) -> None:
    def check(template: str, question: str, steps: list[str]) -> None:
        check_encoding(tokenizer, name, template, question, steps)

    run(
        check,
        max_examples,
        template=st.sampled_from(TEMPLATES),
        question=texts(),
        steps=step_lists(),
    )


@pytest.mark.parametrize("max_examples", AMOUNTS)
def test_sampled_ids_keep_their_steps(tokenizer: Any, name: str, max_examples: int) -> None:
    if name in DROPS_TEXT:
        pytest.skip("drops text")

    def check(chunks: list[str], cuts: list[int]) -> None:
        check_sampled_ids(tokenizer, chunks, cuts)

    run(
        check,
        max_examples,
        chunks=st.lists(texts(3, without=[*SPECIAL_TOKENS, "\ufffd"]), min_size=1, max_size=8),
        cuts=st.lists(st.integers(1, 40), max_size=4),
    )


@pytest.mark.parametrize("max_examples", AMOUNTS)
def test_completions_go_on_after_their_prompts(
    tokenizer: Any, name: str, max_examples: int
) -> None:
    if name in NO_CONTEXT:
        pytest.skip("the ids of a text depend on the texts before it")

    def check(question: str, text: str) -> None:
        check_context_ids(tokenizer, question, text)

    run(
        check,
        max_examples,
        question=texts(3, without=SPECIAL_TOKENS),
        text=texts(6, without=SPECIAL_TOKENS),
    )
