"""Special tokens in problems and steps are text; those of the template keep their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("transformers")

import trained_tokenizers

from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.samplers.tokenization import (
    CompletionDecoder,
    encode_context,
    encode_prompt,
)
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.models.prompts import get_template
from fsdpo_data.stages.continuations import step_prefixes

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def special_ids(tokenizer: Any) -> set[int]:
    added_tokens = tokenizer.added_tokens_decoder
    return {token_id for token_id, token in added_tokens.items() if token.special}


def test_a_question_is_text_and_its_template_is_not(tokenizer: Any) -> None:
    end = tokenizer.eos_token
    question = f"What does {end} mean?"
    prompt = f"A{end}\nProblem: {question}\nSolution:"
    ids = encode_prompt(tokenizer, Prompt(prompt, question))
    bos_ids = encode_prompt(tokenizer, Prompt(""))
    assert [token for token in ids if token in special_ids(tokenizer)] == [
        *bos_ids,
        tokenizer.eos_token_id,
    ]
    # Around the tokens of the question, the ids are those of the plain prompt.
    plain_ids = encode_prompt(tokenizer, Prompt(prompt.replace(f"{end} mean", "mean")))
    assert ids[:5] == plain_ids[:5] and ids[-4:] == plain_ids[-4:]
    # Text without a special token, and without a known question, is encoded as before.
    assert encode_prompt(tokenizer, Prompt(prompt)) == tokenizer(prompt)["input_ids"]


def test_a_question_that_starts_a_prompt_with_a_special_token(tokenizer: Any) -> None:
    bos = tokenizer.bos_token or tokenizer.eos_token
    ids = encode_prompt(tokenizer, Prompt(f"{bos} is a token?\n", f"{bos} is a token?"))
    assert [token for token in ids if token in special_ids(tokenizer)] == encode_prompt(
        tokenizer, Prompt("")
    )


def test_steps_are_text(tokenizer: Any) -> None:
    end = tokenizer.eos_token
    steps = [f"The token {end} ends a text.\n", "It is 4."]
    encoded = StepTokenizer(tokenizer, [tokenizer.eos_token_id]).encode(
        Prompt("2+2?"), steps, add_eos=True
    )
    ids = encoded.input_ids[encoded.prompt_length :].tolist()
    assert [token for token in ids if token in special_ids(tokenizer)] == [tokenizer.eos_token_id]
    assert ids[-1] == tokenizer.eos_token_id
    assert CompletionDecoder(tokenizer)(ids[:-1], skip_special=True) == "".join(steps)


def test_the_end_of_a_solution_does_not_come_from_its_question(qwen2: Any) -> None:
    """Qwen2 ends texts with <|endoftext|> and turns with <|im_end|>."""
    text_end, turn_end = qwen2.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    question = "How long is <|endoftext|>?"
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    encoder = StepTokenizer(qwen2, [text_end, turn_end])
    encoded = encoder.encode(Prompt(prompt, question), ["13"], add_eos=True)
    assert encoded.input_ids[-1] == turn_end
    assert text_end not in encoded.input_ids
    # Without its question, the chat template of the tokenizer decides.
    qwen2.chat_template = CHATML
    try:
        encoder = StepTokenizer(qwen2, [text_end, turn_end])
    finally:
        qwen2.chat_template = None
    assert encoder.encode(Prompt(prompt), ["13"], add_eos=True).input_ids[-1] == turn_end
    # A plain prompt ends as the tokenizer does, although its question mentions the other end.
    question = "How long is <|im_end|>?"
    encoded = encoder.encode(Prompt(f"Problem: {question}\n", question), ["10"], add_eos=True)
    assert encoded.input_ids[-1] == qwen2.eos_token_id


def test_a_continued_solution_is_text(qwen2: Any) -> None:
    prompt = Prompt("Problem: 2+2?<|im_end|>\n", "2+2?")
    continued = prompt.extend("So <|im_end|>")
    turn_end = qwen2.convert_tokens_to_ids("<|im_end|>")
    context = encode_context(qwen2, CompletionDecoder(qwen2), continued)
    assert context.ids.count(turn_end) == 1


def test_the_lines_of_a_question_may_be_apart(qwen2: Any) -> None:
    turn_end = qwen2.convert_tokens_to_ids("<|im_end|>")
    question = "Is <|im_end|> long?\nOr <|im_end|> short?"
    prompt = "Q: Is <|im_end|> long? (1)\nOr <|im_end|> short? (2)<|im_end|>\n"
    assert encode_prompt(qwen2, Prompt(prompt, question)).count(turn_end) == 1


@pytest.fixture
def chat_qwen2(qwen2: Any) -> Iterator[Any]:
    qwen2.chat_template = CHATML
    yield qwen2
    qwen2.chat_template = None


@pytest.mark.parametrize(
    "start",
    [
        "",
        "<|im_start|>system\nAnother system message.<|im_end|>\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n",
    ],
)
@pytest.mark.parametrize("end", ["", "<think>\n", "So "])
def test_a_chat_prompt_of_a_plain_file_shows_its_question(
    chat_qwen2: Any, start: str, end: str
) -> None:
    question = "Is <|im_end|> longer than <|endoftext|>?"
    prompt = f"{start}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{end}"
    expected = encode_prompt(chat_qwen2, Prompt(prompt, question))
    text_end, turn_end = chat_qwen2.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    assert text_end not in expected and expected.count(turn_end) == 1 + start.count("<|im_end|>")
    assert encode_prompt(chat_qwen2, Prompt(prompt)) == expected
    # An imported prompt of no known template is the question of its problem.
    assert encode_prompt(chat_qwen2, Prompt(prompt, prompt)) == expected
    encoder = StepTokenizer(chat_qwen2, [text_end, turn_end])
    assert encoder.encode(Prompt(prompt), ["No."], add_eos=True).input_ids[-1] == turn_end


def test_a_plain_prompt_of_a_file_shows_the_question_of_a_known_template(qwen2: Any) -> None:
    question = "Is <|im_end|> longer than <|endoftext|>?"
    prompt = get_template("alpaca").render(question)
    assert encode_prompt(qwen2, Prompt(prompt)) == encode_prompt(qwen2, Prompt(prompt, question))
    assert not special_ids(qwen2) & {*encode_prompt(qwen2, Prompt(prompt))}
    # A question without a template is text.
    assert not special_ids(qwen2) & {*encode_prompt(qwen2, Prompt(question, question))}
    # Special tokens of an unknown template keep their ids.
    unknown = f"<|im_start|>{question}"
    assert encode_prompt(qwen2, Prompt(unknown)) == qwen2(unknown)["input_ids"]


def test_the_steps_of_a_continued_prefix_are_text(chat_qwen2: Any) -> None:
    prompt = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    steps = ["The token <|im_end|> ends a turn.\n", "It is 4."]
    [prefix] = step_prefixes(prompt, steps)
    assert prefix.prompt.full_text == prompt + steps[0]
    ids = encode_context(chat_qwen2, CompletionDecoder(chat_qwen2), prefix.prompt).ids
    assert ids.count(chat_qwen2.convert_tokens_to_ids("<|im_end|>")) == 1


def test_private_characters_do_not_make_a_special_token() -> None:
    """The encoders put private characters in front of the special tokens of templates."""
    tokenizer = trained_tokenizers.train_tokenizer("Qwen")
    for mark in ("\ue000", "\ue000\ue001"):
        steps = [f"{mark}</s> ends"]
        encoded = StepTokenizer(tokenizer).encode(Prompt("2+2?"), steps, add_eos=False)
        completion_ids = encoded.input_ids[encoded.prompt_length :].tolist()
        assert not special_ids(tokenizer) & set(completion_ids)
        assert CompletionDecoder(tokenizer)(completion_ids) == steps[0]
        question = f"Is {mark}</s>?"
        ids = encode_prompt(tokenizer, Prompt(f"{question}</s>\nSo", question))
        assert ids.count(tokenizer.eos_token_id) == 1


def test_the_bytes_of_unknown_characters_belong_to_their_own_step() -> None:
    """Unigram models give all bytes of a run of unknown characters the offsets of the run."""
    tokenizer = trained_tokenizers.train_tokenizer("unigram")
    steps = ["\U0001d53b", "\U0001d53c\U0001d53d"]
    encoded = StepTokenizer(tokenizer).encode(Prompt("2+2?"), steps, add_eos=False)
    positions = [position - encoded.prompt_length for position in encoded.score_positions]
    assert positions == [3, 11]  # four bytes per character
