"""Grades pairs with another grader and times each; run by `grade.py`.

With a checkout of this project as its argument, by the grader there; without one, with
math-verify, in its environment. Reads one JSON list of [gold, response] from stdin and prints
seconds by the clock, verdicts, and the processor seconds of them all. Golds are parsed once each,
as a careful user would do.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Judgement = Callable[[str, str], bool]


def math_verify() -> Judgement:
    """Return math-verify's judgement, with golds parsed once."""
    from math_verify import parse, verify

    @cache
    def parsed_gold(gold: str) -> Any:
        return parse(gold if "$" in gold else f"${gold}$")

    return lambda gold, response: bool(verify(parsed_gold(gold), parse(response)))


def checkout(folder: str) -> Judgement:
    """Return the judgement of the grader in another checkout."""
    sys.path.insert(0, folder)
    from fsdpo_data.answers.grader import MathGrader

    grader = MathGrader()
    return lambda gold, response: grader.grade([(gold, response)])[0].status == "correct"


def main() -> None:
    logging.disable(logging.CRITICAL)
    judged = checkout(sys.argv[1]) if len(sys.argv) > 1 else math_verify()
    json.dump(time_grader(judged, json.load(sys.stdin)), sys.stdout)


def time_grader(judged: Judgement, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Judge pairs one by one, after one that loads what is loaded on first use."""
    judged("\\sin 1 + x", "$\\boxed{\\cos 1 + x}$")
    seconds, correct, raised = [], [], 0
    begun = time.process_time()
    for number, (gold, response) in enumerate(pairs, 1):
        started = time.perf_counter()
        try:
            correct.append(judged(gold, response))
        except Exception:  # what a grader raises on is no verdict, and its loss alone
            correct.append(False)
            raised += 1
        seconds.append(time.perf_counter() - started)
        if number % 500 == 0:
            print(f"    {number} of {len(pairs)}", file=sys.stderr)
    processor = time.process_time() - begun
    return {"seconds": seconds, "correct": correct, "processor": processor, "raised": raised}


if __name__ == "__main__":
    main()
