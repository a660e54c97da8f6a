"""Outcome rewards in the forms of the trainers, in threads, and for every kind of gold."""

from __future__ import annotations

import gzip
import inspect
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsdpo_data import rewards
from fsdpo_data.core.errors import InputError, SchemaError

CORRECT = r"So it is \boxed{\frac{3}{4}}."
WRONG = r"So it is \boxed{2}."
UNDECIDED = r"So it is $\boxed{\text{at least } 42}$."
GOLDS = ["0.75", "0.75", "42"]
TEXTS = [CORRECT, WRONG, UNDECIDED]


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def reward_text(completion: Any, answer: Any, prompt: Any = "", **options: Any) -> float | None:
    (reward,) = rewards.outcome(**options)([prompt], [completion], answer=[answer])
    return reward


def test_importing_rewards_is_light() -> None:
    code = "import sys, fsdpo_data.rewards; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "vllm", "sympy", "datasets", "trl", "mpmath"}
    assert not heavy & set(ran.stdout.split())


@pytest.mark.parametrize("gold", [np.float32(0.1), np.float16(0.1), np.float64(0.1), np.array(0.1)])
def test_a_gold_of_32_bits_is_the_number_that_it_prints(gold: Any) -> None:
    assert reward_text(r"\boxed{0.1}", gold) == 1.0
    assert reward_text(r"\boxed{0.1}", np.asarray([gold])[0]) == 1.0
    compute_score = rewards.verl_compute_score(rewards.outcome())
    assert compute_score("source", r"\boxed{0.1}", gold)["score"] == 1.0


# --- trainers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "chat"])
def test_trl_gets_a_number_or_none(form: str) -> None:
    """With the arguments of TRL 1.16 (``GRPOTrainer._calculate_rewards``)."""
    metrics: dict[str, float] = {}
    completions = TEXTS if form == "plain" else [chat(text) for text in TEXTS]
    result = rewards.outcome()(
        prompts=["?"] * 3,
        completions=completions,
        completion_ids=[[1], [2], [3]],
        answer=GOLDS,
        trainer_state=object(),
        log_extra=lambda column, values: None,
        log_metric=metrics.__setitem__,
        environments=None,
    )
    assert result == [1.0, 0.0, None]
    assert metrics == {"rewards/outcome_reward/undecided": pytest.approx(1 / 3)}


def test_trl_reads_the_name() -> None:
    """From the instance, as ``get_callable_name`` of TRL 1.16 does."""
    reward = rewards.outcome()
    assert getattr(reward, "__name__", type(reward).__name__) == "outcome_reward"
    assert not inspect.iscoroutinefunction(reward.__call__)


def test_verl_gets_a_score_and_a_flag() -> None:
    """With the arguments of verl: verl/experimental/reward_loop/reward_manager/naive.py."""
    expected = [
        {"score": 1.0, "undecided": 0.0},
        {"score": 0.0, "undecided": 0.0},
        {"score": -0.5, "undecided": 1.0},
    ]
    compute_score = rewards.verl_compute_score(rewards.outcome(), undecided=-0.5)
    extra_info = {"num_turns": None, "rollout_reward_scores": {}, "answer": "another field"}
    scores = [
        compute_score(
            data_source="gsm8k",
            solution_str=text,
            ground_truth=gold,
            extra_info=extra_info,
            reward_router_address=None,
            reward_model_tokenizer=None,
        )
        for text, gold in zip(TEXTS, GOLDS, strict=True)
    ]
    assert scores == expected


# --- threads and processes ------------------------------------------------------------------------


def test_a_thread_gets_the_right_reward() -> None:
    """The case of TRL's pull request 5281: a grader with signals fails outside the main thread."""
    results: list[Any] = []
    reward = rewards.outcome(gold_column="solution")
    completions = [[{"role": "assistant", "content": r"The answer is \boxed{\frac{1}{3}}"}]]

    def run_in_thread() -> None:
        results.append(reward([""], completions, solution=[r"\frac{1}{3}"]))

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    thread.join()
    assert results == [[1.0]]


def test_threads_get_the_rewards_of_one_thread(shared: Path) -> None:
    with gzip.open(shared / "data/pools/math500/candidates.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for _, line in zip(range(640), lines, strict=False)]
    rows = rows[::4]  # different problems
    reward = rewards.outcome(gold_column="gold")

    def reward_row(row: Mapping[str, str]) -> float | None:
        return reward([row["question"]], [row["response"]], gold=[row["gold"]])[0]

    expected = [reward_row(row) for row in rows]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(reward_row, rows)) == expected
    assert {1.0, 0.0} <= set(expected)


def test_rewards_can_be_pickled() -> None:
    reward = pickle.loads(pickle.dumps(rewards.outcome(gold_column="gold")))
    assert reward([""], [CORRECT], gold=["3/4"]) == [1.0]


# --- golds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gold",
    ["0.75", 0.75, np.float64(0.75), ["3/4"], r"\frac34", np.array("0.75")],
    ids=repr,
)
def test_golds_are_texts_or_numbers(gold: Any) -> None:
    assert reward_text(CORRECT, gold) == 1.0
    assert reward_text(WRONG, gold) == 0.0


@pytest.mark.parametrize(
    "gold",
    [
        "Half of 1.5 is 1.5/2 = <<1.5/2=0.75>>0.75.\n#### 0.75",
        "Short.\n#### 0.75",
        r"We halve 1.5, which is three halves. This gives $\boxed{\frac{3}{4}}$.",
    ],
)
def test_the_answer_of_a_complete_solution_is_the_gold(gold: str) -> None:
    assert reward_text(CORRECT, gold) == 1.0
    assert reward_text(WRONG, gold) == 0.0
    assert reward_text(CORRECT, gold, gold="as-given") != 1.0


@pytest.mark.parametrize("gold", [None, "", "  "])
def test_a_row_without_gold_has_no_reward(gold: Any) -> None:
    """Datasets of several tasks have rows without a gold."""
    assert reward_text(CORRECT, gold) is None


@pytest.mark.parametrize("gold", [True, ["3/4", "1"], {"value": 1}, float("nan")], ids=repr)
def test_golds_of_other_types_are_refused(gold: Any) -> None:
    with pytest.raises(InputError, match=r"^answer = .*Give texts or numbers"):
        reward_text(CORRECT, gold)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=r"'answer'.*`gold_column`.*answers"):
        rewards.outcome()([""], [CORRECT], answers=["1"])


@pytest.mark.parametrize("golds", ["3/4", ["3/4"], 0.75])
def test_a_column_has_a_value_per_completion(golds: Any) -> None:
    with pytest.raises(InputError, match="2 values"):
        rewards.outcome()(["", ""], [CORRECT, WRONG], answer=golds)


def test_prompts_and_completions_are_paired() -> None:
    with pytest.raises(InputError, match="one prompt per completion"):
        rewards.outcome()(["", ""], [CORRECT], answer=["1"])


def test_an_unknown_grader_is_refused_at_once() -> None:
    with pytest.raises(SchemaError, match="math@1"):
        rewards.outcome(grader="math@1")


# --- responses ------------------------------------------------------------------------------------


def test_no_answer_is_a_failure_of_the_model() -> None:
    assert reward_text("", "3/4") == reward_text("I do not know", "3/4") == 0.0


def test_an_empty_batch_has_no_rewards() -> None:
    metrics: dict[str, float] = {}
    assert rewards.outcome()([], [], answer=[], log_metric=metrics.__setitem__) == []
    assert not metrics


def test_only_the_text_after_the_thinking_is_graded() -> None:
    assert reward_text(r"<think>\boxed{2}</think>So \boxed{3/4}.", "0.75") == 1.0
    assert reward_text(r"<think>\boxed{3/4}</think>So \boxed{2}.", "0.75") == 0.0
    # The prompt opens the thinking, which does not end.
    assert reward_text("Perhaps 3/4, or 2", "2", prompt="Q<think>\n") == 0.0
    message = {"role": "assistant", "reasoning_content": r"\boxed{2}", "content": CORRECT}
    assert reward_text([message], "0.75") == 1.0


def test_the_last_text_of_the_assistant_counts() -> None:
    messages = [
        {"role": "assistant", "content": r"\boxed{2}", "tool_calls": []},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": [{"type": "text", "text": CORRECT}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "3"},
    ]
    assert reward_text(messages, "0.75") == 1.0


@pytest.mark.parametrize("completion", [42, ["text"]])
def test_completions_of_other_types_are_refused(completion: Any) -> None:
    with pytest.raises(InputError, match="`role` and `content`"):
        reward_text(completion, "0.75")


def test_a_completion_without_the_assistant_is_an_error() -> None:
    """Another name of the role must not make every answer wrong."""
    with pytest.raises(InputError, match="the role `assistant`"):
        reward_text([{"role": "model", "content": CORRECT}], "0.75")
    assert reward_text([], "0.75") == 0.0
