"""Tests of prompts: exact to the character, and safe for any question."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import FixedSampler
from helpers import TEXTS, problem_set, sample_settings, small_build, stage_options
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import CHAT, save_tokenizer

from fsdpo_data.api import open_dataset
from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.models.prompts import TEMPLATES, Template, get_template
from fsdpo_data.models.trained_template import has_template

ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n2+2?\n\n### Response:"
)
QWEN2 = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n2+2?\nPlease "
    "reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
RENDERED = {
    "alpaca@1": ALPACA,
    "alpaca-newline@1": ALPACA + "\n",
    "alpaca-cot@1": ALPACA + " Let's think step by step.",
    "alpaca-cot-step@1": ALPACA + "\nLet's think step by step.\nStep 1: ",
    "qwen2-boxed@1": QWEN2,
    "qwen2-boxed-step@1": QWEN2 + "Let's think step by step.\nStep 1: ",
    "deepseek-math@1": "User: 2+2?\nPlease reason step by step, and put your final answer within "
    "\\boxed{}.\n\nAssistant:",
    "metamath@1": ALPACA,
    "mmiqc@1": "Please solve the following problem and put your answer at the end with "
    '"The answer is: ".\n\n2+2?\n\n',
    "qwen25-math-cot@1": "<|im_start|>system\nPlease reason step by step, and put your final "
    "answer within \\boxed{}.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "problem@1": "Problem: 2+2?\nSolution:\n",
}
PLAIN = sorted(RENDERED)

# Pinned: a template that renders anything else needs a new number, not a new digest.
DIGESTS = {
    "alpaca@1": "971790e58914eb6a320d",
    "alpaca-newline@1": "de01c21620cd6bd03dcd",
    "alpaca-cot@1": "afe3b89b722c8c2066bb",
    "alpaca-cot-step@1": "26b2502bb3b55f557019",
    "qwen2-boxed@1": "2e41beb4825c7b0467f2",
    "qwen2-boxed-step@1": "53c07c8de56dad69c53d",
    "deepseek-math@1": "bd4e07fce65ae8e1d4e3",
    "metamath@1": "ce45d5ca82e163a420e2",
    "mmiqc@1": "f1314380dfe28bda455e",
    "qwen25-math-cot@1": "259d708b06c2bb0bdde8",
    "problem@1": "abc22340c63e92e64e4f",
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_template_renders_exactly_what_it_always_did(name: str) -> None:
    template = get_template(name)
    assert template.render("2+2?") == RENDERED[name]
    assert template.digest == DIGESTS[name]


def test_every_template_is_pinned_here() -> None:
    assert set(TEMPLATES) == {*RENDERED, "chat@1", "chat-boxed@1"}


@pytest.mark.parametrize("name", PLAIN)
@given(
    question=st.text() | st.sampled_from(["{question}", "{rest}", "{}", "{0}", "\\boxed{1}", "%s"])
)
def test_any_question_survives_unchanged(name: str, question: str) -> None:
    question = question.replace("\n", " ")
    text_before, text_after = RENDERED[name].split("2+2?")
    assert get_template(name).render(question) == text_before + question + text_after


@given(question=st.text(alphabet="a{}\n "))
def test_metamath_splits_a_question_as_its_training_did(question: str) -> None:
    # train_math.py, with its own names.
    alpaca = ALPACA.replace("2+2?", "{instruction}")
    with_input = (
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
    )
    row = {"instruction": question.split("\n")[0], "input": "\n".join(question.split("\n")[1:])}
    expected = (with_input if row["input"] != "" else alpaca).format_map(row)
    assert get_template("metamath@1").render(question) == expected


def test_a_bare_name_is_the_latest_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_template("alpaca").name == "alpaca@1"
    monkeypatch.setattr(TEMPLATES, "data", dict(TEMPLATES.data))
    for number in (2, 10):
        newer = Template(f"alpaca@{number}", f"{number} {{question}}")
        TEMPLATES.register(newer)
    assert get_template("alpaca").render("x") == "10 x"
    assert get_template("alpaca@1").render("2+2?") == ALPACA


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(InputError, match=r"'alpacca': expected .*mmiqc@1, .*Nearest: alpaca@1"):
        get_template("alpacca")
    with pytest.raises(InputError, match="'alpaca@9': expected one of"):
        get_template("alpaca@9")


def test_digest_is_of_the_text_not_the_name() -> None:
    assert Template("a@1", "x {question}").digest == Template("b@7", "x {question}").digest
    assert Template("a@1", "x {question}").digest != Template("a@1", "y {question}").digest


def test_chat_renders_up_to_the_assistants_turn(tmp_path: Path) -> None:
    path = save_tokenizer(tmp_path)
    assert get_template("chat", path).render("2+2? {x}") == "<user>2+2? {x}<assistant>"
    boxed = get_template("chat-boxed", path).render("2+2?")
    assert boxed.endswith(
        "2+2?\nPlease reason step by step, and put your final answer within \\boxed{}.<assistant>"
    )


@pytest.mark.parametrize("add_bos", [True, False])
def test_chat_prompts_start_with_one_bos_when_tokenised(tmp_path: Path, add_bos: bool) -> None:
    from transformers import AutoTokenizer

    path = save_tokenizer(tmp_path, add_bos=add_bos)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    ids = tokenizer(get_template("chat", path).render("2+2?"))["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1


def test_chat_digest_follows_everything_that_is_rendered(tmp_path: Path) -> None:
    path = save_tokenizer(tmp_path / "a")
    other = save_tokenizer(tmp_path / "b", chat=CHAT.replace("<assistant>", "<model>"))
    digests = {
        get_template("chat", path).digest,
        get_template("chat-boxed", path).digest,
        get_template("chat", other).digest,
    }
    assert len(digests) == 3
    assert get_template("chat", path).digest in digests


def test_a_chat_template_that_prints_the_date_prints_the_same_one_tomorrow(tmp_path: Path) -> None:
    dated = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    path = save_tokenizer(tmp_path, chat=dated + "{% endif %}{{ date_string }} " + CHAT)
    assert get_template("chat", path).render("2+2?").startswith("26 Jul 2024 ")
    path = save_tokenizer(tmp_path / "b", chat="{{ strftime_now('%Y-%m-%d') }} " + CHAT)
    assert get_template("chat", path).render("2+2?").startswith("2024-07-26 ")


def test_chat_without_a_usable_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a model is required"):
        get_template("chat")
    with pytest.raises(InputError, match="has no tokenizer that can be loaded"):
        get_template("chat", str(tmp_path))
    path = save_tokenizer(tmp_path / "none", chat=None)
    with pytest.raises(InputError, match=r"tokenizer has none\. Choose another `template`"):
        get_template("chat", path)
    path = save_tokenizer(tmp_path / "empty", chat="{{ nothing }}")
    with pytest.raises(InputError, match="cannot be used: the rendered prompt lacks the question"):
        get_template("chat", path)
    parts = "{% for m in messages %}<user>{% for p in m.content %}{{ p.text }}{% endfor %}<end>"
    path = save_tokenizer(tmp_path / "parts", chat=parts + "{% endfor %}<assistant>")
    with pytest.raises(InputError, match="cannot be used: the rendered prompt lacks the question"):
        get_template("chat", path)
    path = save_tokenizer(tmp_path / "refuses", chat="{{ raise_exception('not a word!') }}" + CHAT)
    with pytest.raises(InputError, match="not a word!"):
        get_template("chat", path)


def test_chat_templates_of_public_models(shared: Path) -> None:
    mistral = get_template("chat", str(shared / "tokenizers" / "mistral"))
    assert mistral.render("2+2?") == "[INST] 2+2? [/INST]"  # its tokenizer adds the <s>
    qwen2 = get_template("chat-boxed", str(shared / "tokenizers" / "qwen2"))
    assert qwen2.render("2+2?") == QWEN2


def test_plain_templates_load_no_heavy_library() -> None:
    code = (
        "import json, sys; from fsdpo_data.models.prompts import get_template; "
        "get_template('alpaca'); "
        "print(json.dumps([m for m in ('transformers', 'torch', 'huggingface_hub') "
        "if m in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []


def test_a_template_is_a_text_file(tmp_path: Path) -> None:
    file = tmp_path / "my.txt"
    file.write_text("Q: {question}\nA:", newline="")
    template = get_template(str(file))
    assert template.name == "my"
    assert template.render("{question} + {x}?") == "Q: {question} + {x}?\nA:"
    same_text = Template("another", "Q: {question}\nA:")
    assert template.digest == same_text.digest, "the digest is the digest of the content"
    assert template.ref.to_dict() == {
        "name": "my",
        "digest": template.digest,
        "text": "Q: {question}\nA:",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Q: ", r"template = '.*my\.txt': the file has no \{question\}"),
        (b"\xff{question}", r"template = '.*my\.txt': the file is not UTF-8"),
        (None, r"template = '.*my\.txt': the file cannot be read \(No such file"),
    ],
)
def test_a_file_that_is_not_a_template(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "my.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        get_template(str(tmp_path / "my.txt"))


def test_a_dataset_keeps_the_text_of_its_template(tmp_path: Path) -> None:
    file = tmp_path / "my.txt"
    file.write_text("Q: {question}\nA:", newline="")
    template = get_template(str(file))
    settings = sample_settings().model_copy(update={"template": template.ref})
    source = problem_set()
    replies = {template.render(problem.question): TEXTS for problem in source.problems}
    manifest = small_build(
        tmp_path / "data",
        source,
        sampling=settings,
        make_sampler=lambda: FixedSampler(replies),
        template=template,
    )
    assert stage_options(manifest, "sample")["template"] == template.ref.to_dict()
    dataset = open_dataset(tmp_path / "data")
    (prompt, *_) = dataset.solutions().collect()["prompt"]
    assert prompt.startswith("Q: ") and prompt.endswith("\nA:")
    assert get_template(str(tmp_path / "data")) == template
    assert "my  (Q: {question}\\nA:)" in dict(summary_rows(dataset.statistics()))["template"]


def test_a_dataset_names_its_template(tmp_path: Path) -> None:
    small_build(tmp_path / "data")
    assert get_template(str(tmp_path / "data")) == TEMPLATES["problem@1"]


def test_keyword_arguments_reach_the_chat_template(tmp_path: Path) -> None:
    chat = "{% for m in messages %}{{ m.content }}{% endfor %}{{ 'no' if thinks is false }}"
    path = save_tokenizer(tmp_path, chat=chat)
    plain = get_template("chat", path)
    template = plain.with_chat_arguments({"thinks": False})
    assert (plain.render("2+2?"), template.render("2+2?")) == ("2+2?", "2+2?no")
    assert template.digest != plain.digest
    assert template.ref.chat_arguments == {"thinks": False}
    with pytest.raises(InputError, match="is not a chat template"):
        get_template("problem").with_chat_arguments({"thinks": False})
    with pytest.raises(
        InputError, match="'think': the chat template of the tokenizer does not read"
    ) as caught:
        plain.with_chat_arguments({"think": False})
    assert caught.value.field == "template_arg"


def test_a_template_fits_prompts_of_its_form_for_several_lines() -> None:
    template = get_template("metamath")
    prompts = [template.render("One line?"), template.render("A first line.\nAnd a question?")]
    assert has_template(prompts, template)
    assert not has_template([*prompts, "Q: 1+1?"], template)
