"""Differences between our verdicts and those of publishers of real outputs and of sympy."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typed_pairs import typed_pairs

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.comparison.symbolic import encode_tree
from fsdpo_data.answers.comparison.worker import build_expression
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.parsing.read import read_answer
from fsdpo_data.answers.tree import is_node
from fsdpo_data.core.errors import InputError
from fsdpo_data.exchange.outputs import read_outputs

pytestmark = pytest.mark.proof

SYMPY_TIMEOUT_SECONDS = 5  #: Time limit of sympy for one pair.
CASES = Path(__file__).parents[2] / "data/grader_cases.jsonl"
#: Golds of responses that are right for us and wrong for their publishers, who compare texts, use
#: the last box of several questions, or miss a box.
DISPUTED_GOLDS = {"220", "1320", "81", "675", "0", "958", "10{,}000"}


@pytest.fixture(scope="module")
def publisher_verdicts() -> dict[tuple[str, str], bool | None]:
    """Return all different (gold, response) pairs with the publisher's verdict, if any."""
    shared = Path(__file__).parents[4] / "shared/data"
    if not shared.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    verdicts: dict[tuple[str, str], bool | None] = {}
    for file in sorted(shared.rglob("*.jsonl")):
        with suppress(InputError):  # a file of another format
            verdicts |= {
                (response.gold, response.completion.text): response.completion.imported_correct
                for response in read_outputs(file)
            }
    return verdicts


def test_all_disputes_with_publishers_are_listed(
    publisher_verdicts: dict[tuple[str, str], bool | None],
) -> None:
    verdicts = MathGrader().grade([GradingRequest(*pair) for pair in publisher_verdicts])
    n_published = sum(other is not None for other in publisher_verdicts.values())
    disputed = [
        (gold, verdict.status)
        for (gold, _), other, verdict in zip(
            publisher_verdicts, publisher_verdicts.values(), verdicts, strict=True
        )
        if other is not None and other != (verdict.status == "correct")
    ]
    assert n_published > 6_000
    assert {status for _, status in disputed} == {"correct"}
    assert {gold for gold, _ in disputed} <= DISPUTED_GOLDS and len(disputed) <= 7


def test_sympy_agrees_on_answers_of_models(
    publisher_verdicts: dict[tuple[str, str], bool | None],
) -> None:
    pairs = list(publisher_verdicts)
    verdicts = MathGrader().grade([GradingRequest(*pair) for pair in pairs])
    extracted_pairs = {
        (gold, v.answer) for (gold, _), v in zip(pairs, verdicts, strict=True) if v.answer
    }
    decided, against = compare_with_sympy(
        (gold, answer, None) for gold, answer in sorted(extracted_pairs)
    )
    assert decided > 2_500 and not against


def test_our_verdict_is_right_if_sympy_disagrees() -> None:
    typed = [(pair.gold, pair.text, pair.is_equal) for pair in typed_pairs(8, seed=5)]
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    labelled = [(c["gold"], c["answer"], c["correct"]) for c in cases if "answer" in c]
    decided, against = compare_with_sympy([*typed, *labelled])
    assert decided > 3_500
    assert [(gold, text) for gold, text, ours, truth in against if ours != truth] == []


def compare_with_sympy(
    pairs: Iterable[tuple[str, str, bool | None]],
) -> tuple[int, list[tuple[str, str, bool, bool | None]]]:
    """Return the number of pairs that sympy decides, and those that it decides differently."""
    decided, against = 0, []
    for gold, answer, truth in pairs:
        sides = read_answer(gold).value, read_answer(answer).value
        theirs = are_equal_by_sympy(*sides) if all(map(is_node, sides)) else None
        ours = compare_answers(gold, answer).status == "correct"
        decided += theirs is not None
        if theirs not in (None, ours):
            against.append((gold, answer, ours, truth))
    return decided, against


def are_equal_by_sympy(left: Any, right: Any) -> bool | None:
    """Return whether two expressions are equal by sympy; None if undecided or too slow."""

    def raise_timeout(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, SYMPY_TIMEOUT_SECONDS)
    try:
        difference = build_expression(encode_tree(left)) - build_expression(encode_tree(right))
        return difference == 0 or difference.simplify() == 0 or difference.equals(0)
    except Exception:  # sympy raises many kinds of errors; such a pair is undecided
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
