"""Tests of the embedded problems: disjoint splits, and exact labels of the first wrong step."""

import json
import random
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.embedded.generator import (
    SPLITS,
    ProblemKind,
    make_problems,
    question_split,
)
from fsdpo_data.problems.embedded.solutions import final_answer, first_wrong_step, write_solution
from fsdpo_data.problems.embedded.story import words

PROBLEMS = make_problems("train", 400)


def problem(nodes, answer, distractor=None):
    metadata = {"world": "embedded@1", "thing": "eggs", "nodes": nodes, "distractor": distractor}
    return Problem("?", answer, "embedded", "test", metadata)


#: 12 + 30 = 42, 5 * 2 = 10, 42 - 10 = 32; the first two in either order.
EXAMPLE = problem(
    [
        ["gain", "+", 12, 30, "Mia"],
        ["use each", "*", 5, 2, "Mia"],
        ["lose", "-", "#0", "#1", "Mia"],
    ],
    "32",
)


def test_no_question_of_one_split_occurs_in_another():
    questions = {
        s: {p.question for seed in (0, 1) for p in make_problems(s, 600, seed)} for s in SPLITS
    }
    for split in SPLITS:
        assert len(questions[split]) > 1000
        # The split is a function of the question alone, so this holds for every seed and count.
        assert {question_split(question) for question in questions[split]} == {split}
    assert not questions["train"] & questions["test"]
    assert not questions["train"] & questions["validation"]
    assert not questions["validation"] & questions["test"]


def test_problems_do_not_depend_on_how_many_are_made():
    assert make_problems("test", 20) == make_problems("test", 60)[:20]
    assert make_problems("test", 20, seed=1) != make_problems("test", 20)
    assert len({p.question for p in PROBLEMS}) == len(PROBLEMS)


def test_the_world_is_pinned():
    """A change of these digests means other problems: increase EMBEDDED_VERSION as well."""
    rows = [p.to_row() for split in SPLITS for p in make_problems(split, 50)]
    assert digest(rows) == "653d80f9480d2d2abeaf"


def test_unknown_splits_are_refused():
    with pytest.raises(InputError, match=r"'dev'.*train, validation, test"):
        make_problems("dev", 1)
    with pytest.raises(InputError, match="-1"):
        make_problems("train", -1)


def test_problems_are_varied():
    relations = {node[0] for p in PROBLEMS for node in p.metadata["nodes"]}
    assert len(relations) >= 15
    assert {len(p.metadata["nodes"]) for p in PROBLEMS} == {2, 3, 4, 5, 6}
    with_distractor = sum(p.metadata["distractor"] is not None for p in PROBLEMS)
    assert 0.35 < with_distractor / len(PROBLEMS) < 0.65


def test_every_number_of_a_solution_is_stated_or_computed():
    words = {"twice": 2, "half": 2, "third": 3, "quarter": 4, "fifth": 5}
    for p in PROBLEMS:
        numbers = {int(n) for n in re.findall(r"\d+", p.question)}
        numbers |= {n for word, n in words.items() if word in p.question}
        for _, _, a, b, _ in p.metadata["nodes"]:
            assert {x for x in (a, b) if isinstance(x, int)} <= numbers, p.question


def test_right_demonstrations_are_right_and_in_the_format():
    rng = random.Random(0)
    for p in PROBLEMS:
        steps = write_solution(p, rng)
        assert first_wrong_step(p, steps) is None
        assert [s.split(":")[0] for s in steps] == [f"Step {i + 1}" for i in range(len(steps))]
        assert final_answer("".join(steps)) == p.answer
        assert steps[-1].endswith(f"The answer is: {p.answer}")


def test_wrong_demonstrations_are_wrong_where_they_say():
    rng = random.Random(0)
    for p in PROBLEMS:
        assert first_wrong_step(p, write_solution(p, rng, error_rate=1.0)) == 0
    solutions = [write_solution(p, rng, error_rate=0.2) for p in PROBLEMS]
    error_indices = [first_wrong_step(*pair) for pair in zip(PROBLEMS, solutions, strict=True)]
    wrong = [index for index in error_indices if index is not None]
    seen = sum(
        len(d) if index is None else index + 1
        for d, index in zip(solutions, error_indices, strict=True)
    )
    assert 0.15 < len(wrong) / seen < 0.25
    assert len(set(wrong)) >= 4
    rights = [index is None for index in error_indices]
    answers = [
        final_answer("".join(d)) == p.answer for d, p in zip(solutions, PROBLEMS, strict=True)
    ]
    assert all(answer for answer, right in zip(answers, rights, strict=True) if right)
    lucky = sum(a and not r for a, r in zip(answers, rights, strict=True))
    assert lucky < 0.05 * len(PROBLEMS)


def test_relations_go_wrong_at_their_error_rate():
    rng = random.Random(0)
    for p in PROBLEMS:
        error_index = first_wrong_step(
            p, write_solution(p, rng, relation_error_rates={"gain": 1.0})
        )
        relations = [node[0] for node in p.metadata["nodes"]]
        assert error_index == (relations.index("gain") if "gain" in relations else None)
        right = write_solution(p, rng, 1.0, dict.fromkeys(relations, 0.0))
        assert first_wrong_step(p, right) is None


def test_the_listed_steps_go_wrong_in_any_case():
    rng = random.Random(0)
    for p in PROBLEMS[:50]:
        for index in range(len(p.metadata["nodes"])):
            assert first_wrong_step(p, write_solution(p, rng, wrong_steps=[index])) == index


def test_the_next_step_continues_from_the_wrong_value():
    for seed in range(50):
        solution = write_solution(EXAMPLE, random.Random(seed), error_rate=0.3)
        results = [re.search(r"= (-?\d+)", step)[1] for step in solution]
        # An error may also be the operand itself (the distractor), of which EXAMPLE has none.
        assert f"{results[0]} - {results[1]} = " in solution[2] or (
            f"{results[0]} + {results[1]} = " in solution[2]
        )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["12 + 30 = 42.", "5 * 2 = 10.", "42 - 10 = 32. The answer is: 32"], None),
        (["30 + 12 = 42 eggs.", "2 * 5 = 10", "42 - 10 = 32. The answer is: 32"], None),
        (["5 * 2 = 10", "12 + 30 = 42", "42 - 10 = 32. The answer is: 32"], None),
        (["12 + 30 = 42", "5 * 2 = 10"], None),
        ([], None),
        (["12 + 30 = 43", "5 * 2 = 10", "43 - 10 = 33. The answer is: 33"], 0),
        (["12 - 30 = -18"], 0),
        (["12 + 30 = 42", "5 + 2 = 7"], 1),
        (["12 + 30 = 42", "42 - 10 = 32. The answer is: 32"], 1),
        (["12 + 30 = 42", "5 * 2 = 10", "10 - 42 = -32. The answer is: -32"], 2),
        (["12 + 30 = 42", "5 * 2 = 10", "42 - 10 = 32. The answer is: 33"], 2),
        (["12 + 30 = 42. The answer is: 42"], 0),
        (["12 + 30 = 42", "5 * 2 = 10", "42 - 10 = 32. The answer is: 32", "1 + 1 = 2"], 3),
        (["12 + 30 = 42 and 5 * 2 = 10"], 0),
        (["no sum here"], 0),
        (["12 + 30 = 42.5"], 0),
        (["3.12 + 30 = 42"], 0),
        (["12 + 30 = 42 + 5 = 47"], 0),
        (["2 * 12 + 30 = 42"], 0),
        (["12 + 30 = 42. The answer is: 42. 5 * 2 = 10"], 0),
        (["12 + 30 = " + "4" * 100_000], 0),
    ],
)
def test_the_first_wrong_step_is_found(steps, expected):
    numbered = [f"Step {i + 1}: {step}\n" for i, step in enumerate(steps)]
    assert first_wrong_step(EXAMPLE, numbered) == expected


def test_steps_out_of_the_format_are_wrong():
    assert first_wrong_step(EXAMPLE, ["12 + 30 = 42"]) == 0
    assert first_wrong_step(EXAMPLE, ["Step 2: 12 + 30 = 42"]) == 0
    assert first_wrong_step(EXAMPLE, ["Step 1: 12 + 30 = 42", ""]) == 1


def test_metadata_survives_json():
    rng = random.Random(0)
    for p in PROBLEMS[:50]:
        back = Problem(p.question, p.answer, p.source, p.split, json.loads(p.to_row()["metadata"]))
        assert back == p
        assert len(p.to_row()["metadata"]) < 600
        assert first_wrong_step(back, write_solution(p, rng)) is None


@given(st.lists(st.text()), st.text())
def test_any_text_has_a_verdict(steps, tail):
    for candidate in (
        steps,
        ["Step 1: " + step for step in steps],
        ["Step 1: 12 + 30 = 42" + tail],
    ):
        verdict = first_wrong_step(EXAMPLE, candidate)
        assert verdict is None or 0 <= verdict < len(candidate)


def test_the_world_needs_no_heavy_library():
    code = (
        "import sys, fsdpo_data.problems.embedded.generator as e; e.make_problems('test', 3); "
        "assert not {'torch', 'transformers', 'datasets', 'pyarrow', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("torch")
    import transformers

    return transformers.AutoTokenizer.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("torch")
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT).eval()


@given(text=st.text())
def test_any_text_is_spelled_back(tokenizer, text):
    """The tokenizer class of Qwen2 normalises to NFC, and changes nothing else in a text."""
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


def test_digits_are_single_tokens(tokenizer):
    tokens = tokenizer.tokenize("1234 apples, 7 + 10 = 17")
    assert not [t for t in tokens if re.search(r"\d", t) and len(t) > 1]


def test_special_tokens_are_in_place(tokenizer, model):
    assert tokenizer.eos_token == "<|endoftext|>" and tokenizer.bos_token is None
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert model.config.max_position_embeddings == 2048
    assert model.config.hidden_size // model.config.num_attention_heads in (32, 64)


def test_the_checkpoint_is_small():
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) < 6_000_000


@pytest.mark.proof
def test_the_model_is_often_right_and_often_wrong():
    pytest.importorskip("torch")
    from fsdpo_train.embedded import measure_model

    greedy, sampled, _ = measure_model(
        CHECKPOINT, greedy_problems=64, sampled_problems=16, samples=8
    )
    assert greedy["accuracy"] > 0.7
    assert 0.35 < sampled["accuracy"] < 0.7
    assert sampled["mixed"] > 0.5


def test_story_kinds_have_different_sentences():
    long = make_problems("test", 30, kind=ProblemKind({10: 1, 11: 1}))
    assert {len(p.metadata["nodes"]) for p in long} == {10, 11}
    distracted = make_problems("test", 30, kind=ProblemKind(distractors=2))
    assert all(p.metadata["distractor"] is not None for p in distracted)
    numbers = [len(re.findall(r"\d+", p.question)) for p in make_problems("test", 200)]
    number_counts = [len(re.findall(r"\d+", p.question)) for p in distracted]
    assert sum(number_counts) / 30 > sum(numbers) / 200 + 1
    reworded = make_problems("test", 30, kind=ProblemKind({9: 1}, wording="retell"))
    sentences = {sentence for kind in words()["retell"].values() for sentence in kind}
    pattern = re.compile(
        "|".join(re.sub(r"\\{\w+\\}", r"[\\w ]+", re.escape(t)) for t in sentences)
    )
    assert sum(bool(pattern.search(p.question)) for p in reworded) > 15
    assert not any(pattern.search(p.question) for p in make_problems("test", 30))
    rng = random.Random(0)
    for p in [*long, *distracted, *reworded]:
        assert first_wrong_step(p, write_solution(p, rng)) is None
