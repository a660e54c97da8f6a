"""Where our verdicts are not those of others: the publishers of real outputs, and sympy."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.recorded.outputs import read_outputs
from typed_pairs import typed_pairs

from fsdpo_data.answers.comparison import symbolic, worker
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.parsing.answer import read_answer
from fsdpo_data.answers.tree import is_node
from fsdpo_data.core.errors import InputError

pytestmark = pytest.mark.proof

SECONDS = 5  #: That sympy may take for one pair.
CASES = Path(__file__).parents[2] / "data/grader_cases.jsonl"
#: Golds of responses that we call right and their publishers wrong: those compare texts, take the
#: last box of several questions, or miss a box.
KNOWN = {"220", "1320", "81", "675", "0", "958", "10{,}000"}


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[str, str], bool | None]:
    """Different (gold, response) pairs with the verdict of their publisher, if any."""
    shared = Path(__file__).parents[4] / "shared/data"
    if not shared.exists():
        pytest.skip("needs ../shared (public data beside the checkout)")
    found: dict[tuple[str, str], bool | None] = {}
    for file in sorted(shared.rglob("*.jsonl")):
        with suppress(InputError):  # of another kind
            found |= {(each.gold, each.response): each.correct for each in read_outputs(file)}
    return found


def test_every_dispute_with_a_publisher_is_known(
    recorded: dict[tuple[str, str], bool | None],
) -> None:
    verdicts = MathGrader().grade(list(recorded))
    told = sum(other is not None for other in recorded.values())
    disputed = [
        (gold, verdict.status)
        for (gold, _), other, verdict in zip(recorded, recorded.values(), verdicts, strict=True)
        if other is not None and other != (verdict.status == "correct")
    ]
    assert told > 6_000
    assert {status for _, status in disputed} == {"correct"}
    assert {gold for gold, _ in disputed} <= KNOWN and len(disputed) <= 7


def test_sympy_contradicts_no_answer_that_models_gave(
    recorded: dict[tuple[str, str], bool | None],
) -> None:
    pairs = list(recorded)
    verdicts = MathGrader().grade(pairs)
    asked = {(gold, v.answer) for (gold, _), v in zip(pairs, verdicts, strict=True) if v.answer}
    decided, against = by_sympy((gold, answer, None) for gold, answer in sorted(asked))
    assert decided > 2_500 and not against


def test_sympy_is_right_nowhere_that_we_are_wrong() -> None:
    typed = [(each.gold, each.text, each.is_equal) for each in typed_pairs(8, seed=5)]
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    labelled = [(c["gold"], c["answer"], c["correct"]) for c in cases if "answer" in c]
    decided, against = by_sympy([*typed, *labelled])
    assert decided > 3_500
    assert [(gold, text) for gold, text, ours, truth in against if ours != truth] == []


def by_sympy(
    pairs: Iterable[tuple[str, str, bool | None]],
) -> tuple[int, list[tuple[str, str, bool, bool | None]]]:
    """Count the pairs that sympy decides; return those of which it says otherwise than we do."""
    decided, against = 0, []
    for gold, answer, truth in pairs:
        sides = read_answer(gold).value, read_answer(answer).value
        theirs = same(*sides) if all(map(is_node, sides)) else None
        ours = compare_answers(gold, answer).status == "correct"
        decided += theirs is not None
        if theirs not in (None, ours):
            against.append((gold, answer, ours, truth))
    return decided, against


def same(left: Any, right: Any) -> bool | None:
    """Whether sympy finds two expressions equal; None if it does not know or takes too long."""

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if worker.are_equal(symbolic.encode_tree(left), symbolic.encode_tree(right)):
            return True
        difference = worker.build_expression(symbolic.encode_tree(left)) - worker.build_expression(
            symbolic.encode_tree(right)
        )
        return difference.equals(0)
    except Exception:  # whatever sympy trips over, it does not know
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
