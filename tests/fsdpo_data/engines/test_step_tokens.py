"""Step tokenization with published tokenizers: every step has exactly one score position."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_tokenizers
from random_model import save_random_model
from small_tokenizer import save_tokenizer

transformers = pytest.importorskip("transformers")

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, encode_prompt  # noqa: E402
from fsdpo_data.engines.step_tokens import (  # noqa: E402
    PROMPT_STEP_ID,
    EncodedSolution,
    StepTokenizer,
    find_step_ids,
)
from fsdpo_data.steps.segment import split_at_newlines, split_auto  # noqa: E402

PLAIN = Prompt("Problem: What is 2 + 2?\nSolution:\n")


@pytest.fixture(scope="module")
def encoder(tokenizer: Any) -> StepTokenizer:
    return StepTokenizer(tokenizer)


@pytest.fixture(scope="module")
def qwen2_encoder(qwen2: Any) -> StepTokenizer:
    return StepTokenizer(qwen2)


@pytest.fixture(scope="module")
def solutions(shared: Path) -> list[list[str]]:
    """Return real solutions of several models, split by the segmenters."""
    steps = []
    sampled = shared / "data/outputs/qwen_math_cot/math_cot_100.jsonl"
    for line in sampled.read_text().splitlines():
        [text, *_] = json.loads(line)["response"]
        steps += [split_auto(text), split_at_newlines(text)]
    for row in json.loads((shared / "data/stepwise/processbench/gsm8k.json").read_text())[:50]:
        steps.append(split_auto("\n\n".join(row["steps"])))
    return [solution for solution in steps if solution]


def check(encoded: EncodedSolution, steps: list[str], tokenizer: Any) -> None:
    """Check that every step has exactly one score position: its last token."""
    assert len(encoded.score_positions) == encoded.n_steps == len(steps)
    step_ids = encoded.step_ids.tolist()
    assert step_ids == sorted(step_ids) and len(step_ids) == len(encoded.input_ids)
    assert set(step_ids) == {PROMPT_STEP_ID, *range(len(steps))}
    for step, position in enumerate(encoded.score_positions):
        assert step_ids[position] == step
        following = step_ids[position + 1 :]
        assert all(step_id > step for step_id in following) or step == len(steps) - 1


@pytest.mark.parametrize("name", real_tokenizers.NAMES)
def test_the_tokenizers_are_the_published_ones(name: str, shared: Path) -> None:
    tokenizer = real_tokenizers.load(shared / "tokenizers" / name)
    for text, ids in real_tokenizers.oracle(shared / "tokenizers" / name):
        if name == "llama2" and text.startswith(" "):
            continue  # transformers 5 does not add a "▁" before a leading space; llama.cpp does
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids, text


def test_every_step_of_real_solutions_has_one_score_position(
    tokenizer: Any, encoder: StepTokenizer, solutions: list[list[str]]
) -> None:
    for steps in solutions:
        encoded = encoder.encode(PLAIN, steps, add_eos=True)
        check(encoded, steps, tokenizer)
        # The ids equal those of the joined text: steps add no marks and no token boundaries.
        assert encoded.input_ids.tolist() == [
            *tokenizer(PLAIN.text + "".join(steps))["input_ids"],
            tokenizer.eos_token_id,
        ]


#: Text starts that tokenizers change, and characters without a token.
COMPLETIONS = (
    "Let's think.",
    " Let's think.",
    "\nStep 1: 2 + 2 = 4.",
    "\n\nThe answer is: 4",
    "12 apples",
    " apples",
    "  two spaces",
    "数 é 🙂🙂\x07 ₿",
    "🙂",
)


@pytest.mark.parametrize("prompt", [PLAIN.text, "### Response:", "Solution: Step 1: "])
def test_completion_ids_continue_the_prompt(
    tokenizer: Any, encoder: StepTokenizer, prompt: str
) -> None:
    """After ``### Response:``, ``Let's`` starts with the token ``Let``, without a "▁"."""
    decode = CompletionDecoder(tokenizer)
    head = encode_prompt(tokenizer, Prompt(prompt))
    sentencepiece = "▁" in tokenizer.get_vocab()
    for text in COMPLETIONS:
        ids = encoder.encode(Prompt(prompt), [text], add_eos=False).input_ids.tolist()
        assert ids[: len(head)] == head
        assert decode(ids[len(head) :]) == text
        # Tokenized together, the end of a prompt and the completion may become one token: ":" and
        # "\n\n", or " " and "apples". A model that continues the prompt cannot write such a token.
        if not prompt[-1].isspace() and (sentencepiece or not text[0].isspace()):
            assert ids == tokenizer(prompt + text)["input_ids"]


def test_real_solutions_are_decoded_from_their_ids(
    tokenizer: Any, encoder: StepTokenizer, solutions: list[list[str]]
) -> None:
    decode = CompletionDecoder(tokenizer)
    for steps in solutions[::5]:
        encoded = encoder.encode(PLAIN, steps, add_eos=True)
        generated = encoded.input_ids[encoded.prompt_length :].tolist()
        text = decode(generated, skip_special=True)
        # Qwen2 normalizes its text, and the byte decoder of DeepSeek does not cover its added
        # tokens, so some texts equal only the tokenizer's own decoding.
        assert text in ("".join(steps), tokenizer.decode(generated, skip_special_tokens=True))
        # The two halves join after a cut at any token.
        half = len(generated) // 2
        first, second = decode(generated[:half]), decode(generated[half:], skip_special=True)
        assert first + second == text or "\ufffd" in first + second


def test_the_leading_space_of_a_normalizer_is_handled() -> None:
    """The ``tokenizer.json`` of Llama 2 has such a normalizer."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE({"▁": 0, "a": 1, "▁a": 2, "</s>": 3}, [("▁", "a")]))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>")
    encoded = StepTokenizer(fast).encode(Prompt("a"), ["a", " a"], add_eos=True)
    assert encoded.input_ids.tolist() == [2, 1, 2, 3]
    assert CompletionDecoder(fast)([2, 1]) == " aa"


def test_following_steps_do_not_change_the_ids_of_a_step(
    encoder: StepTokenizer, solutions: list[list[str]]
) -> None:
    """Beam search scores prefixes, which need the score positions of the full solution."""
    for steps in solutions[::10]:
        full = encoder.encode(PLAIN, steps, add_eos=True)
        for count in range(1, len(steps)):
            part = encoder.encode(PLAIN, steps[:count], add_eos=False)
            assert part.score_positions == full.score_positions[:count]
            assert np.array_equal(part.input_ids, full.input_ids[: len(part.input_ids)])


def test_the_token_at_a_score_position_ends_its_step(
    qwen2: Any, qwen2_encoder: StepTokenizer
) -> None:
    steps = ["Step 1: 2 + 2 = 4.\n\n", "Step 2: so 🙂🙂 it is 4 ки\n", "ки The answer is: é"]
    encoded = qwen2_encoder.encode(PLAIN, steps, add_eos=True)
    read = [qwen2.decode([encoded.input_ids[position]]) for position in encoded.score_positions]
    assert read == [".\n\n", "\n", " é"]
    assert encoded.input_ids[-1] == qwen2.eos_token_id and encoded.step_ids[-1] == 2


def test_a_token_across_a_boundary_belongs_to_the_step_it_starts_in(
    qwen2: Any, qwen2_encoder: StepTokenizer
) -> None:
    # "ки" is one token, but after a space the tokens are " к" and "и".
    assert len(qwen2("ки")["input_ids"]) == 1
    steps = ["It is 4.", "\n\nSo the answer", " is 4 ", "ки"]
    encoded = qwen2_encoder.encode(PLAIN, steps, add_eos=False)
    check(encoded, steps, qwen2)
    read = [qwen2.decode([encoded.input_ids[position]]) for position in encoded.score_positions]
    assert read == [".\n\n", " answer", " к", "и"]


def test_steps_inside_one_token_are_separated(qwen2: Any, qwen2_encoder: StepTokenizer) -> None:
    assert len(qwen2("hello")["input_ids"]) == 1
    encoded = qwen2_encoder.encode(PLAIN, ["he", "llo"], add_eos=True)
    check(encoded, ["he", "llo"], qwen2)


def test_truncation_keeps_complete_steps_and_counts_the_others(encoder: StepTokenizer) -> None:
    steps = [f"Step {i}: {i} + {i} = {2 * i}.\n" for i in range(1, 9)]
    full = encoder.encode(PLAIN, steps, add_eos=True)
    complete = encoder.encode(PLAIN, steps, add_eos=True, max_length=len(full.input_ids))
    assert np.array_equal(complete.input_ids, full.input_ids) and not complete.truncated_steps
    assert complete.score_positions == full.score_positions
    for limit in range(len(full.input_ids)):
        cut = encoder.encode(PLAIN, steps, add_eos=True, max_length=limit)
        n_steps = len(cut.score_positions)
        assert cut.truncated_steps == 8 - n_steps
        assert (
            np.array_equal(cut.input_ids, full.input_ids[: len(cut.input_ids)])
            and cut.score_positions == full.score_positions[:n_steps]
        )
        if not n_steps:
            assert len(cut.input_ids) == cut.prompt_length == full.prompt_length
            continue
        # The truncation is as late as possible: one more step would not fit.
        assert len(cut.input_ids) <= limit < full.score_positions[n_steps] + 1 + (n_steps == 7)
    assert encoder.encode(PLAIN, steps, add_eos=True, max_length=0).truncated_steps == 8


def test_prompts_get_one_bos_and_no_eos(tokenizer: Any, encoder: StepTokenizer) -> None:
    bos = tokenizer.bos_token
    plain = encoder.encode(PLAIN, ["4"], add_eos=False).input_ids.tolist()
    if not bos:
        assert plain[0] != tokenizer.eos_token_id
        return
    # A chat template can write the token too.
    assert (
        encoder.encode(Prompt(bos + PLAIN.text), ["4"], add_eos=False)
        .input_ids.tolist()
        .count(tokenizer.bos_token_id)
        == 1
    )
    assert plain.count(tokenizer.bos_token_id) == 1
    assert tokenizer.eos_token_id not in plain


def test_a_solution_without_steps_has_no_score_positions(
    qwen2: Any, qwen2_encoder: StepTokenizer
) -> None:
    encoded = qwen2_encoder.encode(PLAIN, [], add_eos=True)
    assert encoded.score_positions == []
    assert encoded.input_ids.tolist() == qwen2(PLAIN.text)["input_ids"]


def test_a_step_the_tokenizer_cannot_see_is_an_error(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    blind = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"a": 0, "</s>": 1}, [])), eos_token="</s>"
    )
    with pytest.raises(InputError, match=r"step 2 of 2, 'b', has no token"):
        StepTokenizer(blind).encode(Prompt("a"), ["a", "b"], add_eos=True)


def test_lone_surrogates_are_encoded_as_replacement_characters(
    qwen2_encoder: StepTokenizer,
) -> None:
    expected = qwen2_encoder.encode(Prompt("q \ufffd"), ["a \ufffd\n", "b"], add_eos=True)
    encoded = qwen2_encoder.encode(Prompt("q \ud800"), ["a \ud800\n", "b"], add_eos=True)
    assert np.array_equal(encoded.input_ids, expected.input_ids)
    assert encoded.score_positions == expected.score_positions


def test_a_tokenizer_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    odd = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(odd))
    serialized = tokenizer.backend_tokenizer.to_str()

    class DamagedTokenizer:
        """A backend without a token that its merges need, as in a damaged file."""

        def to_str(self) -> str:
            return serialized.replace('"a":0,', "")

        from_str = staticmethod(Tokenizer.from_str)

    tokenizer._tokenizer = DamagedTokenizer()
    with pytest.raises(InputError, match=r"tokenizer\.json is damaged: .*out of vocabulary"):
        StepTokenizer(tokenizer)


def test_the_settings_of_the_tokenizer_do_not_change(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    serialized = tokenizer.backend_tokenizer.to_str()
    tokenizer("user user", truncation=True, max_length=1)  # leaves truncation switched on
    encoded = StepTokenizer(tokenizer).encode(Prompt("user"), ["user user"], add_eos=False)
    assert len(encoded.input_ids) == 4
    assert tokenizer("user")["input_ids"] == [0, 3]
    tokenizer.backend_tokenizer.no_truncation()
    assert tokenizer.backend_tokenizer.to_str() == serialized


def test_generated_tokens_have_the_steps_of_encoded_ones(
    tokenizer: Any, encoder: StepTokenizer, solutions: list[list[str]]
) -> None:
    decoder = CompletionDecoder(tokenizer)
    n_compared = 0
    for steps in solutions[::7]:
        encoded = encoder.encode(PLAIN, steps, add_eos=True)
        token_ids = encoded.input_ids[encoded.prompt_length :].tolist()
        if decoder(token_ids, skip_special=True) == "".join(steps):
            n_compared += 1
            step_ids = encoded.step_ids[encoded.prompt_length :].tolist()
            assert find_step_ids(decoder, token_ids, steps) == step_ids
    assert n_compared > 10


def test_steps_that_start_with_rare_characters_have_all_their_bytes(
    tokenizer: Any, encoder: StepTokenizer
) -> None:
    """Tokenizers with byte tokens decode a run of them as a whole, or not at all."""
    decoder = CompletionDecoder(tokenizer)
    rng = random.Random(0)
    n_compared = 0
    for _ in range(300):
        steps = [
            "".join(rng.choices("a 7.∴😀𝔸é数\n", k=rng.randint(1, 6))) + "\n"
            for _ in range(rng.randint(2, 4))
        ]
        encoded = encoder.encode(PLAIN, steps, add_eos=False)
        token_ids = encoded.input_ids[encoded.prompt_length :].tolist()
        if decoder(token_ids, skip_special=True) == "".join(steps):
            n_compared += 1
            step_ids = encoded.step_ids[encoded.prompt_length :].tolist()
            assert find_step_ids(decoder, token_ids, steps) == step_ids
    assert n_compared > 100


def test_steps_of_generated_tokens_may_end_anywhere(tokenizer: Any, encoder: StepTokenizer) -> None:
    """A step starts at the first token that starts in it, by the offsets of the encoding."""
    decoder = CompletionDecoder(tokenizer)
    rng = random.Random(1)
    n_compared = 0
    for _ in range(300):
        steps = ["".join(rng.choices("So. =3𝔸😀数é", k=rng.randint(1, 5))) for _ in range(3)]
        encoded = encoder.encode(PLAIN, steps, add_eos=False)
        token_ids = encoded.input_ids[encoded.prompt_length :].tolist()
        is_joined = (
            len(set(encoded.step_ids)) == 4
            and token_ids
            == encoder.encode(PLAIN, ["".join(steps)], add_eos=False)
            .input_ids[encoded.prompt_length :]
            .tolist()
        )
        if is_joined and decoder(token_ids, skip_special=True) == "".join(steps):
            n_compared += 1
            step_ids = encoded.step_ids[encoded.prompt_length :].tolist()
            assert find_step_ids(decoder, token_ids, steps) == step_ids, steps
    assert n_compared > 100


@pytest.mark.parametrize("name", ["qwen2", "llama3"])
def test_a_character_whose_first_byte_follows_a_space_belongs_to_its_own_step(
    name: str, shared: Path
) -> None:
    """The first byte of the letter shares a token with the space before it."""
    tokenizer = real_tokenizers.load(shared / "tokenizers" / name)
    steps = ["So. ", "𝔸 = 3"]
    token_ids = tokenizer("So. 𝔸 = 3", add_special_tokens=False)["input_ids"]
    starts = [tokenizer.decode(token_ids[:count]) for count in (2, 3)]
    assert starts == ["So.", "So. \ufffd"]  # the third token is the space and a byte
    step_ids = find_step_ids(CompletionDecoder(tokenizer), token_ids, steps)
    assert step_ids == [0, 0, 0] + [1] * (len(token_ids) - 3)


def test_a_text_that_ends_in_the_end_of_sequence_token_has_it_once(
    tokenizer: Any, encoder: StepTokenizer
) -> None:
    end_token = tokenizer.eos_token
    for steps in (["1\n", "4"], ["1\n", f"4{end_token}"]):
        encoded = encoder.encode(PLAIN, steps, add_eos=True)
        assert encoded.input_ids.tolist().count(tokenizer.eos_token_id) == 1
        assert encoded.input_ids[-1] == tokenizer.eos_token_id
        assert encoded.step_ids[-1] == 1


@pytest.mark.parametrize("text", ["数学是\n美丽的。\n\U0001f600\U0001f600\nend", "a\ufffd\nb"])
def test_generated_tokens_may_differ_from_encoded_ones(qwen2: Any, text: str) -> None:
    """A policy may write a text with other tokens, down to the bytes of a character."""
    letters = qwen2.convert_ids_to_tokens(qwen2(text)["input_ids"])
    token_ids = qwen2.convert_tokens_to_ids(list("".join(letters)))
    decoder = CompletionDecoder(qwen2)
    steps = split_at_newlines(text)
    step_ids = find_step_ids(decoder, [*token_ids, qwen2.eos_token_id], steps)
    assert len(steps) > 1 and len(token_ids) == len(text.encode())
    expected = [k for k, step in enumerate(steps) for _ in step.encode()]
    assert step_ids == [*expected, len(steps) - 1]


def test_a_step_may_have_no_token(qwen2: Any) -> None:
    token_ids = qwen2(" hello world")["input_ids"]
    assert find_step_ids(CompletionDecoder(qwen2), token_ids, [" he", "l", "lo", " world"]) == [
        0,
        3,
    ]


def test_steps_of_another_text_are_refused(qwen2: Any) -> None:
    decoder = CompletionDecoder(qwen2)
    for steps in ([], ["hello"], ["hello ", "there"]):
        with pytest.raises(InputError, match="the steps must join to the text"):
            find_step_ids(decoder, qwen2("hello world")["input_ids"], steps)


@pytest.mark.parametrize("is_special", [True, False])
def test_a_chat_solution_ends_with_the_token_that_ends_the_turns_of_its_prompt(
    tmp_path: Path, is_special: bool
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_random_model(tmp_path))
    tokenizer.add_tokens(["<turn|>", "<tool|>"], special_tokens=is_special)
    tokenizer.bos_token = "<|pad|>"
    turn_end, tool_end = tokenizer.convert_tokens_to_ids(["<turn|>", "<tool|>"])
    ordinary_id = tokenizer("42", add_special_tokens=False)["input_ids"][0]
    eos_ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tool_end, turn_end, ordinary_id]
    encoder = StepTokenizer(tokenizer, eos_ids)

    def last_ids(prompt: str, text: str, **options: bool) -> list[int]:
        return (
            encoder.encode(Prompt(prompt), [text], **{"add_eos": True, **options})
            .input_ids[-2:]
            .tolist()
        )

    text_end = tokenizer("x\n", add_special_tokens=False)["input_ids"][-1]
    assert last_ids("User: 42?<turn|>\nModel: ", "x\n") == [text_end, turn_end]
    assert last_ids("<|pad|>User: 42?<turn|>\nModel: ", "x\n") == [text_end, turn_end]
    for prompt in ("User: 42?\nModel: ", "<|pad|>User: 42?\nModel: "):
        assert last_ids(prompt, "x\n") == [text_end, tokenizer.eos_token_id]
    assert last_ids("User: 42?<turn|>\nModel: ", "x\n<turn|>") == [text_end, turn_end]
    assert last_ids("User: 42?<turn|>\nModel: ", "x\n", add_eos=False)[-1] == text_end
    # The token of the tokenizer may end turns, and another one that ends sequences may begin them.
    own_end = tokenizer.eos_token
    assert last_ids(f"User: 42?{own_end}\n<tool|>", "x\n") == [text_end, tokenizer.eos_token_id]
    plain = StepTokenizer(tokenizer).encode(Prompt("User: 42?<turn|>\n"), ["x\n"], add_eos=True)
    assert plain.input_ids[-1] == tokenizer.eos_token_id
